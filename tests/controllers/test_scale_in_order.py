"""The order of scale-in: every criterion of upstream's ActivePodsWithRanks, and their precedence."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.times import format_time
from wharfinger.api.views import Pod, view
from wharfinger.controllers.scale_in import DELETION_COST, deletion_cost, in_deletion_order, pods_to_delete

NOW = 1_900_000_000.0


def pod(
    name: str,
    *,
    node: str = "n1",
    phase: str = "Running",
    ready_for: float | None = 64.0,
    cost: str | None = None,
    restarts: int = 0,
    sidecar_restarts: int = 0,
    age: float = 100.0,
    uid: str = "",
) -> Pod:
    conditions: list[dict[str, Any]] = []
    if ready_for is not None:
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": format_time(NOW - ready_for)})
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "uid": uid or name,
            "creationTimestamp": format_time(NOW - age),
            "annotations": {} if cost is None else {DELETION_COST: cost},
        },
        "spec": {"nodeName": node, "initContainers": [{"name": "side", "restartPolicy": "Always"}]},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [{"name": "c", "restartCount": restarts}],
            "initContainerStatuses": [{"name": "side", "restartCount": sidecar_restarts}],
        },
    }
    return view(document, Pod)


CASES = [
    (
        "unassigned before assigned, even when its cost is high",
        pod("a", node="", phase="Pending", cost="100"),
        pod("b"),
    ),
    ("pending before unknown", pod("a", phase="Pending"), pod("b", phase="Unknown")),
    ("unknown before running", pod("a", phase="Unknown", cost="9"), pod("b", cost="1")),
    ("not ready before ready, whatever the cost", pod("a", ready_for=None, cost="9"), pod("b", cost="-9")),
    ("lower cost first", pod("a", cost="-1"), pod("b")),
    ("cost before readiness time", pod("a", cost="1", ready_for=10_000), pod("b", cost="2", ready_for=1)),
    ("a cost that is no number counts as 0", pod("a", cost="-1"), pod("b", cost="+5")),
    ("ready for a shorter time first", pod("a", ready_for=10), pod("b", ready_for=1000)),
    ("in one power of two the uid decides", pod("a", ready_for=60, uid="1"), pod("b", ready_for=50, uid="2")),
    ("more restarts first", pod("a", restarts=3), pod("b", restarts=1)),
    ("restarts of sidecars only break ties", pod("a", sidecar_restarts=1), pod("b")),
    ("restarts before age", pod("a", restarts=1, age=10_000), pod("b", age=10)),
    ("younger first", pod("a", ready_for=None, age=10), pod("b", ready_for=None, age=1000)),
    ("ages in one power of two: the uid decides", pod("a", age=100, uid="1"), pod("b", age=90, uid="2")),
]


@pytest.mark.parametrize(("first", "second"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_first_pod_is_deleted_before_the_second(first: Pod, second: Pod) -> None:
    ranks = {first.metadata.uid: 1, second.metadata.uid: 1}
    for pods in ([first, second], [second, first]):
        assert in_deletion_order(pods, ranks, NOW)[0] is first


def test_pods_on_crowded_nodes_are_deleted_first_but_cost_takes_precedence() -> None:
    crowded, alone = pod("crowded", node="n1", ready_for=1000), pod("alone", node="n2", ready_for=1)
    other_revision = pod("other", node="n1")
    related = [crowded, alone, other_revision]
    assert pods_to_delete([alone, crowded], related, 1, NOW) == [crowded]
    cheap = pod("cheap", node="n2", cost="-1")
    assert pods_to_delete([cheap, crowded], [*related, cheap], 1, NOW) == [cheap]


def test_finished_pods_do_not_crowd_a_node() -> None:
    first, second = pod("a", node="n1", ready_for=1), pod("b", node="n2", ready_for=1000)
    finished = [pod(f"done{i}", node="n2", phase="Succeeded") for i in range(3)]
    assert pods_to_delete([first, second], [first, second, *finished], 1, NOW) == [first]


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("7", 7),
        ("-7", -7),
        ("0", 0),
        ("-0", 0),
        ("+7", 0),
        ("07", 0),
        ("", 0),
        ("x", 0),
        ("2147483648", 0),
        ("2147483647", 2147483647),
    ],
)
def test_deletion_cost_is_parsed_as_upstream(text: str, cost: int) -> None:
    assert deletion_cost({DELETION_COST: text}) == cost
