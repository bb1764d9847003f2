"""`wharf plan`: what a change does, told by exit status and by data."""

import json
from pathlib import Path

from tests.simulate.test_commands import NODE, POD, wharf

CLASS = "\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n"


def plan(tmp_path: Path, cluster: list[str], change: list[str], *more: str) -> tuple[int, dict[str, object]]:
    (tmp_path / "cluster.yaml").write_text("---".join(cluster))
    (tmp_path / "change.yaml").write_text("---".join(change))
    done = wharf(
        "plan", "-f", str(tmp_path / "change.yaml"), "--cluster", str(tmp_path / "cluster.yaml"), "-o", "json", *more
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}


def test_a_new_node_lets_a_waiting_pod_start(tmp_path: Path) -> None:
    big = NODE.replace("n1", "n2").replace('cpu: "4"', 'cpu: "16"')
    status, found = plan(tmp_path, [NODE, POD.replace("CPU", "9")], [big])
    assert status == 2
    (change,) = found["changes"]  # type: ignore[misc]
    assert (change["change"], change["name"], change["after"]["node"]) == ("scheduled", "a", "n2")


def test_what_changes_nothing_exits_with_zero(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE, POD.replace("CPU", "9")], [NODE.replace("n1", "n2")])
    assert (status, found["changes"]) == (0, [])


def test_an_important_pod_shows_whom_it_would_preempt(tmp_path: Path) -> None:
    important = (
        POD.replace("name: a", "name: b").replace("CPU", "4").replace("spec: {", "spec: {priorityClassName: high, ")
    )
    status, found = plan(tmp_path, [NODE, CLASS, POD.replace("CPU", "4")], [important])
    assert status == 2
    assert {(each["name"], each["change"]) for each in found["changes"]} == {("a", "preempted"), ("b", "new")}  # type: ignore[attr-defined]


def test_a_refused_change_is_told(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE], [POD.replace("containers: [", "containers: []}\n#")])
    assert status == 2
    (refused,) = found["refused"]  # type: ignore[misc]
    assert "spec.containers: Required value" in refused["message"]


def test_bad_input_is_an_error_not_a_change(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE], ["kind: ["])
    assert status == 1
    assert "change.yaml" in str(found["stderr"])
