"""What reservation controllers decide, apart from any cluster: use, garbage, sets, and what a migration asks for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.systems.reservation.reservations import pod, reservation

from wharfinger.api.views import view
from wharfinger.systems.reservation.controllers.sets import expiry, plan, reservation_of
from wharfinger.systems.reservation.controllers.status import deletable_at, use_of, used
from wharfinger.systems.reservation.kinds.views import PodMigrationJob, Reservation
from wharfinger.systems.reservation.rules import migration as migration_rules
from wharfinger.systems.reservation.rules.number_ranges import numbers_in, ranges_text

DAY = 86400.0
START = 1767225600.0


def test_use_is_sorted_by_uid_and_restricted_to_what_is_reserved() -> None:
    held = reservation("r", requests={"cpu": 4, "memory": "8Gi"})
    pods = [
        pod("b", requests={"cpu": "1500m", "example.com/gpu": 1}, node_name="n1"),
        pod("a", requests={"cpu": 1, "memory": "1Gi"}, node_name="n1"),
        pod("elsewhere", 1, node_name="n2"),
    ]
    found = use_of(held, pods)
    assert [owner["name"] for owner in found.owners] == ["a", "b"]
    assert found.allocated == {"cpu": "2500m", "memory": "1Gi"}


@pytest.mark.parametrize(("once", "phase"), [(True, "Succeeded"), (False, None)])
def test_the_first_use_ends_one_that_is_for_once(once: bool, phase: str | None) -> None:
    held = reservation("r", 4, allocateOnce=once)
    status = used(held, use_of(held, [pod("a", 1, node_name="n1")]), [])
    assert status.get("phase") == phase
    assert status["allocated"] == {"cpu": "1"}


def ended(phase: str, reason: str, since: str = "2026-01-01T00:00:00Z") -> Reservation:
    condition = {"type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": since}
    return view({"metadata": {"name": "r"}, "status": {"phase": phase, "conditions": [condition]}}, Reservation)


@pytest.mark.parametrize(
    ("found", "missing", "moment"),
    [
        (ended("Succeeded", "Succeeded"), False, START + DAY),
        (ended("Failed", "Expired"), False, START + DAY),
        (ended("Failed", "Expired"), True, 0.0),
        (ended("Failed", "Other"), True, None),
        (reservation("r", 1), True, None),
    ],
)
def test_garbage(found: Reservation, missing: bool, moment: float | None) -> None:
    assert deletable_at(found, DAY, node_missing=missing) == moment


def members(*phases: str) -> dict[int, Reservation]:
    return {number: reservation(f"s-{number}", 1, phase=phase) for number, phase in enumerate(phases)}


@pytest.mark.parametrize(
    ("wanted", "phases", "options", "create", "delete"),
    [
        (3, [], {}, [0, 1, 2], []),
        (2, ["Available", "Available"], {}, [], []),
        (3, ["Available", "Failed"], {}, [2, 3], [1]),
        (3, ["Available", "Failed"], {"over": True}, [], []),
        (2, ["Succeeded", "Succeeded"], {}, [], []),
        (2, ["Succeeded", "Succeeded"], {"replace_used": True}, [2, 3], []),
        (1, ["Available", "Pending", "Available"], {}, [], [1, 2]),
        (0, ["Succeeded", "Available"], {}, [], [1]),
    ],
)
def test_sets(wanted: int, phases: list[str], options: dict[str, bool], create: list[int], delete: list[int]) -> None:
    made = plan(wanted, members(*phases), **{"replace_used": False, "over": False, **options})
    assert (made.create, sorted(made.delete)) == (create, delete)


def reservation_set(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "s", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"team": "x"}}
    return {"metadata": metadata, "spec": {"replicas": 2, "template": {"spec": {}}, "owners": [{}], **spec}}


def test_times_of_a_set_count_from_its_own_creation() -> None:
    assert expiry(reservation_set(ttl="2h")) == ("2026-01-01T02:00:00Z", START + 7200)
    assert expiry(reservation_set(ttl="0s")) == ("", None)
    made = reservation_of(reservation_set(ttl="2h"), 7)
    assert made["metadata"]["name"] == "s-7"
    assert made["metadata"]["labels"] == {"team": "x", "wharfinger.dev/reservation-set": "s"}
    assert (made["spec"]["expires"], "ttl" in made["spec"], "replicas" in made["spec"]) == (
        "2026-01-01T02:00:00Z",
        False,
        False,
    )


def job(**spec: Any) -> PodMigrationJob:
    metadata = {"name": "j", "uid": "ju", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return view({"metadata": metadata, "spec": {"podRef": {"namespace": "ns", "name": "p"}, **spec}}, PodMigrationJob)


def running(controller: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    references = [controller] if controller else []
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "pu",
            "labels": {"app": "x"},
            "ownerReferences": references,
        },
        "spec": {"nodeName": "n1", "priority": 5, "containers": [{"name": "c"}], **spec},
    }


RS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "ru", "controller": True}


def test_a_migration_reserves_anywhere_but_on_the_present_node() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    made = migration_rules.reservation_for(job(), running(RS, affinity={"nodeAffinity": required}))
    template = made["spec"]["template"]
    kept_off = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
    found = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["matchFields"] for term in found["nodeSelectorTerms"]] == [[kept_off], [kept_off]]
    assert "nodeName" not in template["spec"] and "priority" not in template["spec"]
    assert template["metadata"] == {"namespace": "ns", "labels": {"app": "x"}}
    assert made["spec"]["owners"] == [{"controller": {**RS, "namespace": "ns"}}]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "ju"


def test_a_given_target_and_options_are_kept() -> None:
    options = {
        "template": {"metadata": {"name": "mine"}, "spec": {"ttl": "1h", "template": {"spec": {"nodeName": "n2"}}}}
    }
    made = migration_rules.reservation_for(job(reservationOptions=options), running())
    assert made["metadata"]["name"] == "mine"
    assert made["spec"]["ttl"] == "1h"
    assert made["spec"]["template"]["spec"]["nodeName"] == "n2"
    assert "affinity" not in made["spec"]["template"]["spec"]
    assert made["spec"]["owners"] == [{"object": {"namespace": "ns", "name": "p"}}]


@pytest.mark.parametrize(("ttl", "end"), [("5m", START + 300), ("0s", None)])
def test_the_time_of_a_migration(ttl: str, end: float | None) -> None:
    assert migration_rules.deadline(job(ttl=ttl)) == end


@given(st.sets(st.integers(0, 40)))
def test_ranges_of_numbers_are_read_as_written(numbers: set[int]) -> None:
    assert numbers_in(ranges_text(numbers)) == numbers
    assert numbers_in("x,3-,-4,5-9999999999,7") == {3, 7}
