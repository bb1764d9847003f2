"""The importer of `openb` traces: rows that cannot be true are refused, all of them and with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from wharfinger.plugins.device_packing.rooms import PodDemand
from wharfinger.replay.openb import OpenbTrace, read_openb
from wharfinger.simulate.inputs import BadInput

NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
)
NODE = "n1,64000,262144,2,A"
POD = "p1,6000,12288,1,460,,LS,Running,10,20,15"


def read(folder: Path, nodes: str, pods: str) -> OpenbTrace:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(pods)
    return read_openb(folder / "nodes.csv", folder / "pods.csv")


def problems(folder: Path, *pods: str, nodes: tuple[str, ...] = (NODE,)) -> list[str]:
    """What is wrong, without the folder."""
    with pytest.raises(BadInput) as refused:
        read(folder, "\n".join([NODE_HEADER, *nodes, ""]), "\n".join([POD_HEADER, *pods, ""]))
    return [each.removeprefix(f"{folder}/") for each in refused.value.problems]


def test_nodes_and_pods_are_read(tmp_path: Path) -> None:
    pods = [POD, "p2,8000,100,2,1000,B|A|,BE,Pending,5,,", "p3,8000,100,0,0,,BE,Running,5,7,6"]
    nodes = [NODE, "n2,1000,2000,0,", "n3,1000,2000,1,B"]

    trace = read(tmp_path, "\n".join([NODE_HEADER, *nodes]), "\n".join([POD_HEADER, *pods]))

    assert trace.nodes[0] == ("n1", 64_000, 262_144, 2, "A")
    assert trace.nodes[1].devices == 0
    assert [pod.demand for pod in trace.pods] == [
        PodDemand(6000, 1, 460),
        PodDemand(8000, 2, 1000, frozenset({"A", "B"})),
        PodDemand(8000),
    ]
    assert trace.pods[0][2:] == (12_288, 10, 20, 15)
    assert trace.pods[1].deleted is None
    assert trace.capacity == 3000


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("p2,-1,1,1,460,,LS,Running,1,2,1", "cpu_milli is negative: -1"),
        ("p2,1,-5,1,460,,LS,Running,1,2,1", "memory_mib is negative: -5"),
        ("p2,1,1,-1,460,,LS,Running,1,2,1", "num_gpu is negative: -1"),
        ("p2,1,1,1,-460,,LS,Running,1,2,1", "gpu_milli is negative: -460"),
        ("p2,x,1,1,460,,LS,Running,1,2,1", "cpu_milli is not a whole number: x"),
        ("p2,nan,1,1,460,,LS,Running,1,2,1", "cpu_milli is not a whole number: nan"),
        ("p2,1.5,1,1,460,,LS,Running,1,2,1", "cpu_milli is not a whole number: 1.5"),
        ("p2,1e400,1,1,460,,LS,Running,1,2,1", "cpu_milli is not a whole number: 1e400"),
        ("p2,,1,1,460,,LS,Running,1,2,1", "cpu_milli is missing"),
        ("p2,1,1,1,1001,,LS,Running,1,2,1", "gpu_milli is more than 1000: 1001"),
        ("p2,1,1,1,0,,LS,Running,1,2,1", "num_gpu is 1, but gpu_milli is 0"),
        ("p2,1,1,0,50,,LS,Running,1,2,1", "gpu_milli is 50, but num_gpu is 0"),
        ("p2,1,1,2,500,,LS,Running,1,2,1", "shares of several GPUs: num_gpu is 2 and gpu_milli 500"),
        ("p2,1,1,1,500,C,LS,Running,1,2,1", "gpu_spec names a model that no node has: C"),
        ("p2,1,1,1,500,A|C|D,LS,Running,1,2,1", "gpu_spec names a model that no node has: C, D"),
        ("p2,1,1,1,500,,LS,Running,9,2,", "deletion_time 2 is before creation_time 9"),
        ("p2,1,1,1,500,,LS,Running,9,20,3", "scheduled_time 3 is before creation_time 9"),
        ("p2,1,1,1,500,,LS,Running,9,20,30", "deletion_time 20 is before scheduled_time 30"),
        ("p1,1,1,1,500,,LS,Running,9,20,10", "name p1 is that of line 2, too"),
        (",1,1,1,500,,LS,Running,9,20,10", "name is missing"),
    ],
)
def test_pods_that_cannot_be_are_refused(tmp_path: Path, row: str, problem: str) -> None:
    assert problems(tmp_path, POD, row) == [f"pods.csv: line 3: {problem}"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("n2,-1,1,1,A", "cpu_milli is negative: -1"),
        ("n2,1,1,33,A", "gpu is more than 32: 33"),
        ("n2,1,1,2,", "a node with GPUs has no model"),
        ("n2,1,1,2,A|B", "a node has more than one model: A|B"),
        ("n1,1,1,2,A", "sn n1 is that of line 2, too"),
        ("n2,1,,2,A", "memory_mib is missing"),
    ],
)
def test_nodes_that_cannot_be_are_refused(tmp_path: Path, row: str, problem: str) -> None:
    assert problems(tmp_path, POD, nodes=(NODE, row)) == [f"nodes.csv: line 3: {problem}"]


def test_everything_that_is_wrong_is_listed_in_order(tmp_path: Path) -> None:
    good = "p{},6000,12288,1,460,,LS,Running,10,20,15"
    bad = ["p9,-1,-1,1,460,,LS,Running,10,5,", *(good.format(number) for number in range(3)), "p8,1,1,1,5,X,,,,,"]

    assert problems(tmp_path, *bad, nodes=("n1,64000,262144,2,A", "n2,-1,1,0,")) == [
        "nodes.csv: line 3: cpu_milli is negative: -1",
        "pods.csv: line 2: cpu_milli is negative: -1",
        "pods.csv: line 2: memory_mib is negative: -1",
        "pods.csv: line 2: deletion_time 5 is before creation_time 10",
        "pods.csv: line 6: gpu_spec names a model that no node has: X",
    ]


def test_lines_stay_right_after_a_blank_one(tmp_path: Path) -> None:
    found = problems(tmp_path, POD, "", "p2,-1,1,1,460,,LS,Running,1,2,1")

    assert found[-1] == "pods.csv: line 4: cpu_milli is negative: -1"


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        ("", "pods.csv: line 1: the file is empty"),
        (f"{POD_HEADER}\n", "pods.csv: line 1: there are no pods"),
        ("name,cpu_milli\np1,1\n", "pods.csv: line 1: no column memory_mib, num_gpu, gpu_milli, gpu_spec"),
        (f"{POD_HEADER}\n{POD},more\n", "pods.csv: line 2: 12 cells, but there are 11 columns"),
    ],
)
def test_files_that_are_no_traces_are_refused(tmp_path: Path, pods: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        read(tmp_path, f"{NODE_HEADER}\n{NODE}\n", pods)
