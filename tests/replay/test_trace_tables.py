"""Traces as tables: what is read, what is refused and where, and that what is written is read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.replay.traces import HEADER, write, write_small

from wharfinger.api.registry import Document
from wharfinger.replay.importing import read_trace
from wharfinger.replay.trace import Trace
from wharfinger.replay.writing import write_trace
from wharfinger.simulate.inputs import BadInput

COLUMNS = "name,t,seconds,cpu,memory_mib,priority,departure,node,owner,devices,bound,phase\n"


def problems(folder: Path) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_trace(folder)
    return [each.removeprefix(f"{folder}/") for each in caught.value.problems]


def requests(document: Document) -> Document:
    found: Document = document["spec"]["containers"][0]["resources"]["requests"]
    return found


def test_columns_are_mapped_and_units_appended(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "name,t,seconds,cpu,memory_mib\nx,90,60,1500m,512\n"))

    assert [node.name for node in trace.nodes] == ["a", "b", "c"]
    assert trace.nodes[2].document["status"]["allocatable"] == {"pods": "110", "cpu": "8", "memory": "32Gi"}
    assert trace.nodes[2].price == 0.5
    (pod,) = trace.pods
    assert (pod.title, pod.arrival.time - trace.start, pod.run_time) == ("default/x", 90.0, 60.0)
    assert requests(pod.document) == {"cpu": "1500m", "memory": "512Mi"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,-5,60,1,256,0,,,,,,", "arrival: -5 s is before the start of the trace"),
        ("x,5,-60,1,256,0,,,,,,", "run_time: -60 s is negative"),
        ("x,5,60,-1,256,0,,,,,,", "requests.cpu: -1 is negative"),
        ("x,5,60,many,256,0,,,,,,", "requests.cpu: 'many' is not a quantity"),
        ("x,five,60,1,256,0,,,,,,", "arrival: 'five' is not a number"),
        ("x,,60,1,256,0,,,,,,", "arrival: missing"),
        (",5,60,1,256,0,,,,,,", "name: missing"),
        ("x,5,,1,256,0,4,,,,,", "departure: it is 1 s before the arrival"),
        ("x,5,60,1,256,0,9,,,,,", "run_time and departure exclude each other"),
        ("x,5,60,1,256,0,,d,,,,", "node: there is no node d in the trace"),
        ("x,5,60,1,256,0.5,,,,,,", "priority: 0.5 is not a whole number of 32 bits"),
        ('x,5,60,1,256,0,,,,"{""example.com/gpu"": 1}",,', "devices: no node of the trace has example.com/gpu"),
        ('x,5,60,1,256,0,,,,"{""gpu"": -1}",,', "devices: 'gpu' is not the name of an extended resource"),
        ("x,5,60,1,256,0,,a,,,4,", "bound: it is 1 s before the arrival"),
        ("x,5,60,1,256,0,,,,,,Gone", "phase: 'Gone' is neither Succeeded nor Failed"),
        ("ok,9,60,1,256,0,,,,,,", "name: pod default/ok is there already"),
    ],
)
def test_a_row_of_work_that_cannot_be_true_is_refused_by_its_line(tmp_path: Path, row: str, message: str) -> None:
    found = problems(write(tmp_path, f"{COLUMNS}ok,1,60,1,256,0,,,,,,\n{row}\n"))

    assert [each for each in found if each.startswith("work.csv: line 3: ") and message in each], found


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("d,-4,8,0.2,,,", "allocatable.cpu: -4 is negative"),
        ("d,4,lots,0.2,,,", "allocatable.memory: 'lotsGi' is not a quantity"),
        ("d,4,8,-1,,,", "price: -1 is negative"),
        ("d,4,8,1,50,50,", "to: the node is gone when it comes"),
        ("d,4,8,1,50,20,", "to: the node is gone 30 s before it comes"),
        ("a,4,8,1,,,", "name: node a is there at the same time in"),
        ("d,4,8,1,,,key=value", "taints: 'key=value' is not KEY=VALUE:EFFECT"),
        ("d,4,8,1,,,key=value:Never", "has no key, or none of the effects"),
    ],
)
def test_a_row_of_nodes_that_cannot_be_true_is_refused_by_its_line(tmp_path: Path, row: str, message: str) -> None:
    nodes = f"name,cpu,memory_gib,usd,from,to,taints\na,4,8,0.2,,,\n{row}\n"
    found = problems(write(tmp_path, "name,t,seconds,cpu,memory_mib\nx,5,60,1,256\n", nodes))

    assert [each for each in found if each.startswith("nodes.csv: line 3: ") and message in each], found


def test_all_rows_that_cannot_be_true_are_listed(tmp_path: Path) -> None:
    rows = "".join(f"p{number},5,-1,1,256,0,,,,,,\n" for number in range(25))

    found = problems(write(tmp_path, COLUMNS + rows))

    assert [each.split(": ")[1] for each in found] == [f"line {number}" for number in range(2, 27)]


def test_owners_and_workloads_must_be_among_the_objects(tmp_path: Path) -> None:
    header = HEADER + "  objects: {files: objects.csv}\n"
    template = '{""spec"": {""containers"": [{""name"": ""web"", ""image"": ""web""}]}}'
    deployment = (
        '"{""apiVersion"": ""apps/v1"", ""kind"": ""Deployment"", ""metadata"": {""name"": ""web""}, '
        f'""spec"": {{""template"": {template}}}}}"'
    )
    work = "name,t,seconds,owner,workload,cpu,memory_mib\nx,5,60,Deployment/web,Deployment/web,1,256\n"
    folder = write(tmp_path, work + "y,5,60,Deployment/api,Job/none,1,256\n", header=header)
    (folder / "objects.csv").write_text(f"manifest\n{deployment}\n")

    assert problems(folder) == [
        "work.csv: line 3: workload: there is no Job/none with a template among the objects",
        "work.csv: line 3: owner: there is no Deployment/api among the objects of the trace",
    ]
    (folder / "work.csv").write_text(work)
    assert read_trace(folder).pods[0].document["spec"]["containers"][0]["image"] == "web"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Trace\n", "not a Trace of wharfinger.dev/v1alpha1"),
        (HEADER.replace("usd", "euros"), "there is no column euros; there are name, cpu, memory_gib, usd"),
        (HEADER.replace("nodes.csv", "none.csv"), "none.csv: no such file"),
        (HEADER.replace("price:", "colour:"), "tables.nodes.columns: colour is not a field"),
        (HEADER + "more: 1\n", "more: unknown field"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    found = problems(write(tmp_path, "name,t,seconds,cpu,memory_mib\nx,5,60,1,256\n", header=text))

    assert any(message in each for each in found), found


def test_a_csv_file_with_too_many_cells_is_refused(tmp_path: Path) -> None:
    found = problems(write(tmp_path, "name,t,seconds,cpu,memory_mib\nx,5,60,1,256,7,8\n"))

    assert found[0].startswith("work.csv: cannot be read: ")


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_trace_that_is_written_is_read_again(tmp_path: Path, format: str) -> None:
    trace = read_trace(write_small(tmp_path / "small"))
    write_trace(trace, tmp_path / "again", format)

    again = read_trace(tmp_path / "again")

    assert content(again) == content(trace)


def test_rows_of_parquet_files_are_refused_by_their_number(tmp_path: Path) -> None:
    trace = read_trace(write_small(tmp_path / "small"))
    trace.pods[4].run_time = -1.0
    write_trace(trace, tmp_path / "again")

    assert problems(tmp_path / "again") == ["work.parquet: row 5: run_time: -1 s is negative"]


def content(trace: Trace) -> list[object]:
    nodes = [(each.name, each.document, each.start.time, each.end, each.price) for each in trace.nodes]
    pods = [(pod.document, round(pod.arrival.time, 6), pod.run_time, pod.phase, pod.owner) for pod in trace.pods]
    return [trace.start, nodes, pods]


def test_nodes_have_taints_and_devices(tmp_path: Path) -> None:
    header = HEADER.replace("price: usd}", "price: usd, devices: gpus}")
    nodes = (
        "name,cpu,memory_gib,usd,gpus,taints\n"
        'a,4,8,0.2,"{""example.com/gpu"": 2}","dedicated=ml:NoSchedule, old:NoExecute"\n'
    )
    work = 'name,t,seconds,cpu,memory_mib,devices\nx,5,60,1,256,"{""example.com/gpu"": 1}"\n'

    trace = read_trace(write(tmp_path, work, nodes, header))

    node = trace.nodes[0].document
    assert node["status"]["capacity"]["example.com/gpu"] == "2"
    assert node["spec"]["taints"] == [
        {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
        {"key": "old", "effect": "NoExecute"},
    ]
    resources = trace.pods[0].document["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"example.com/gpu": "1"}
