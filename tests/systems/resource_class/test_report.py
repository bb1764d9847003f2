"""What is said of classes: devices, used and free, by class and by raw name, and `wharf classes`."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.systems.resource_class.device_objects import (
    GPU,
    Document,
    as_node,
    as_pod,
    expression,
    klass,
    machine,
    pod,
    resource,
)
from tests.systems.resource_class.test_plugin import held

from wharfinger.api.views import view
from wharfinger.cli.main import wharf
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.plugin.report import ClassLine, report

CR1, CR2 = resource("cr1", 2), resource("cr2", 3, kind="precious")


def lines(classes: list[Document], nodes: list[Document], pods: list[Document]) -> dict[str, ClassLine]:
    made = report([view(each, ResourceClass) for each in classes], map(as_node, nodes), (), map(as_pod, pods))
    return {line.name: line for line in made}


def numbers(line: ClassLine) -> tuple[int, int, int]:
    return line.devices, line.used, line.free


def test_the_worked_example_in_numbers() -> None:
    pods = [
        pod("a", {"rc1": 2}, node="n1", annotations=held({"rc1": {"cr1": 2}})),
        pod("b", {"rc2": 2}, node="n1", annotations=held({"rc2": {"cr2": 2}})),
    ]
    found = lines([klass("rc1"), klass("rc2", expression("kind", "Exists"))], [machine("n1", CR1, CR2)], pods)
    assert {name: numbers(line) for name, line in found.items()} == {"rc1": (5, 4, 1), "rc2": (3, 2, 1), GPU: (5, 4, 1)}


def test_devices_that_moved_to_another_class_show_under_both() -> None:
    pods = [pod("a", {"rc-a": 2}, node="n1", annotations=held({"rc-a": {"cr2": 2}}))]
    classes = [klass("rc-a", expression("kind", "DoesNotExist")), klass("rc-b", expression("kind", "Exists"))]
    found = lines(classes, [machine("n1", CR1, CR2)], pods)
    assert numbers(found["rc-a"]) == (2, 2, 2)
    assert numbers(found["rc-b"]) == (3, 2, 1)


def test_groups_count_in_units() -> None:
    nodes = [machine("n1", resource("x", 3, nvlink="0"), resource("w", 2, nvlink="1"))]
    assert lines([klass("pair", groupBy="nvlink", groupSize=2)], nodes, [])["pair"].free == 2


def test_classic_capacity_counts_where_another_node_publishes() -> None:
    found = lines([], [machine("n1", classic=4), machine("n2", resource("cr", 1))], [pod("a", {GPU: 3}, node="n1")])
    assert numbers(found[GPU]) == (5, 3, 2)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(wharf, ["classes", *arguments], catch_exceptions=False)


def test_the_command_shows_classes_from_files(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    documents = [
        machine("n1", CR1, CR2),
        klass("gold", expression("kind", "Exists")),
        klass("none", expression("x", "Exists")),
    ]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    shown = run("-f", str(file))
    assert shown.exit_code == 0
    assert [line.split() for line in shown.output.splitlines()] == [
        ["NAME", "RESOURCE", "NODES", "DEVICES", "USED", "RESERVED", "FREE", "NOTE"],
        ["gold", GPU, "1", "3", "0", "0", "3", "-"],
        ["none", GPU, "0", "0", "0", "0", "0", "matches", "nothing"],
        [GPU, "(raw)", "1", "5", "0", "0", "5", "-"],
    ]
    detail = run("gold", "-f", str(file))
    assert "n1     cr2                3         3      kind=precious" in detail.output
    alias = "resourceclass.scheduling.sigs.x-k8s.io/gold"
    assert json.loads(run(alias, "-f", str(file), "-o", "json").output)["items"][0]["nodes"][0]["computeResources"] == [
        {"name": "cr2", "properties": {"kind": "precious"}, "devices": 3, "free": 3}
    ]
    missing = run("silver", "-f", str(file))
    assert missing.exit_code == 1 and 'no class or raw resource is called "silver"' in missing.output


def simulated(tmp_path: Path, *documents: Document) -> tuple[Path, list[Document]]:
    """A snapshot of what becomes of the objects, and the objects."""
    given, snapshot = tmp_path / "given.json", tmp_path / "snapshot.json"
    given.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    objects = json.loads(CliRunner().invoke(wharf, ["simulate", "-f", str(given), "-o", "json"]).stdout)["objects"]
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return snapshot, objects


def reservation(name: str, devices: int) -> Document:
    template = {"metadata": {"namespace": "default"}, "spec": pod("t", {"gold": devices})["spec"]}
    owners = [{"labelSelector": {"matchLabels": {"app": "train"}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"template": template, "owners": owners, "allocateOnce": False},
    }


def test_reserved_devices_are_not_free_and_consumers_are_counted_once(tmp_path: Path) -> None:
    owner = pod("owner", {"gold": 1})
    owner["metadata"]["labels"] = {"app": "train"}
    gold = klass("gold", expression("kind", "Exists"))
    _, objects = simulated(tmp_path, machine("n1", CR2), gold, reservation("r", 2))
    snapshot, _ = simulated(tmp_path, *objects, owner, pod("other", {"gold": 2}))
    (line,) = json.loads(run("gold", "-f", str(snapshot), "-o", "json").stdout)["items"]
    assert (line["devices"], line["used"], line["reserved"], line["free"]) == (3, 1, 1, 1)
    explained = CliRunner().invoke(wharf, ["explain", "pod", "other", "-f", str(snapshot), "-o", "json"])
    assert json.loads(explained.stdout)["nearest"][0]["resources"]["gold"] == {
        "asked": "2",
        "free": "1",
        "lacking": "1",
    }


def test_the_note_says_what_the_condition_says(tmp_path: Path) -> None:
    broken = resource("cr3", 2, healthy=0, kind="broken")
    classes = [klass(f"of-{kind}", expression("kind", "In", kind)) for kind in ("precious", "broken", "absent")]
    snapshot, objects = simulated(tmp_path, machine("n1", CR2, broken), *classes)
    matched = {
        each["metadata"]["name"]: each["status"]["conditions"][0]["status"] == "True"
        for each in objects
        if each["kind"] == "ResourceClass"
    }
    lines = json.loads(run("-f", str(snapshot), "-o", "json").stdout)["items"]
    notes = {line["name"]: line["note"] for line in lines}
    assert {name: notes[name] != "matches nothing" for name in matched} == matched
    assert (notes["of-broken"], notes["of-absent"]) == ("no healthy devices", "matches nothing")
