"""Reservations in the scheduling state, driven by events alone: which instructions follow from which change."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.scheduler.driver import Driver
from tests.systems.reservation.reservations import node, outsider, pod, reservation

from wharfinger.engine import Engine, default_profile
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler.instructions import Bind, Evict, PatchStatus, RecordEvent
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import ReservationPlacement, ledger_of
from wharfinger.systems.reservation.rules.reservations import ALLOCATED, allocation_text
from wharfinger.systems.reservation.scheduling.items import ReservationItems

KIND = RESERVATIONS.kind


def driver(*nodes: Any, **args: Any) -> Driver:
    engine = Engine([default_profile(args={KIND: args})], seed=1)
    return Driver(*nodes, engine=engine, others=(ReservationItems,))


def pending(name: str, cpu: Any, **spec: Any) -> Reservation:
    return reservation(name, cpu, on="", phase="Pending", **spec)


def test_a_pending_reservation_is_scheduled_as_a_stand_in() -> None:
    made = driver(node("n1"))
    made.change(KIND, pending("r", 4))
    (result,) = made.schedule()
    assert result.endswith(" scheduled")
    binding = made.one(Bind)
    item = binding.item.pod
    assert isinstance(item, StandIn) and (item.kind, item.object_name, binding.node) == (KIND, "r", "n1")
    assert binding.annotations == {}, "its phase is no annotation"
    assert ledger_of(made.engine.tables).placements[item.metadata.key] == ReservationPlacement()
    made.state.bound(binding, made.now)
    (event,) = [each for each in made.state.outbox.take() if isinstance(each, RecordEvent)]
    assert (event.resource, event.message) == (RESERVATIONS, "Successfully assigned r to n1")
    assert not ledger_of(made.engine.tables).placements


def test_one_that_finds_no_node_is_reported_once_and_retried_when_room_comes() -> None:
    made = driver(node("n1", cpu=2))
    made.change(KIND, pending("r", 4))
    made.schedule()
    patch = made.one(PatchStatus)
    assert (patch.name, patch.newest_only) == ("r", True)
    status = patch.change(pending("r", 4), 0.0)
    assert status is not None
    assert status["conditions"][0]["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert patch.change(reservation("r", 4), 0.0) is None, "it has a node by then"
    made.now = 10.0
    made.change(KIND, replace(pending("r", 4), metadata=replace(pending("r", 4).metadata, labels={"a": "b"})))
    made.schedule()
    assert not made.taken(PatchStatus), "the same words again"
    made.now = 20.0
    made.node(node("n2"))
    assert made.schedule()[0].endswith(" scheduled")


def test_owners_are_retried_when_their_reservation_is_available() -> None:
    made = driver(node("n1", cpu=4))
    made.run_on(outsider("there", 2, node_name="n1"))
    made.pod(pod("owner", 2, affinity={"reservationSelector": {}}), outsider("other", 4))
    assert {"owner unschedulable", "other unschedulable"} == set(made.schedule())
    made.now = 1.0
    made.change(KIND, reservation("r", 2, on="n1"))
    assert "owner scheduled" in made.schedule()


def test_one_that_waits_becomes_available_when_there_is_room() -> None:
    made = driver(node("n1", cpu=4))
    blocking = outsider("blocking", 3, node_name="n1")
    made.run_on(blocking)
    waiting = reservation("r", 4, on="n1", phase="Waiting", preAllocation=True)
    made.change(KIND, waiting)
    assert not made.taken(PatchStatus)
    made.delete(blocking)
    patch = made.one(PatchStatus)
    status = patch.change(waiting, 0.0)
    assert status is not None and status["phase"] == "Available"
    made.node(node("n2"))
    assert not made.taken(PatchStatus), "one patch at a time"
    assert patch.done is not None
    (event,) = patch.done(True)
    assert isinstance(event, RecordEvent) and event.reason == "Available"


def test_a_changed_template_resizes_as_far_as_there_is_room() -> None:
    made = driver(node("n1", cpu=8))
    made.change(KIND, reservation("r", 2, on="n1"))
    assert not made.taken(PatchStatus)
    larger = reservation("r", 4, on="n1")
    larger = replace(larger, status=replace(larger.status, allocatable={"cpu": "2"}))
    made.change(KIND, larger)
    patch = made.one(PatchStatus)
    status = patch.change(larger, 0.0)
    assert status is not None and status["allocatable"]["cpu"] == "4"
    number, row = made.engine.tables.resources["cpu"], made.engine.tables.row_of["n1"]
    assert made.engine.tables.requested[number].cells[row] == 4000, "what grows counts at once"
    assert patch.done is not None and list(patch.done(False)) == []
    assert made.engine.tables.requested[number].cells[row] == 2000, "it was not written"
    made.node(node("n2"))
    assert made.one(PatchStatus).name == "r", "tried again at the next event"


def test_a_reservation_without_leave_to_preempt_evicts_nobody() -> None:
    made = driver(node("n1", cpu=4))
    made.run_on(outsider("low", 3, node_name="n1"))
    made.change(KIND, pending("r", 4))
    made.schedule()
    assert not made.taken(Evict)


def once(name: str, cpu: Any, **options: Any) -> Reservation:
    return reservation(name, cpu, allocateOnce=True, **options)


def test_one_that_was_used_once_is_used_up_though_nobody_recorded_it() -> None:
    made = driver(node("n1"))
    made.change(KIND, once("r", 4))
    consumer = pod("a", 4)
    made.pod(consumer)
    assert made.schedule() == ["a scheduled"]
    binding = made.one(Bind)
    bound = replace(
        consumer,
        metadata=replace(consumer.metadata, annotations=dict(binding.annotations)),
        spec=replace(consumer.spec, node_name="n1"),
    )
    made.run_on(bound)
    made.state.bound(binding, made.now)
    assert not made.taken(PatchStatus)
    made.delete(bound)
    patch = made.one(PatchStatus)
    status = patch.change(once("r", 4), 0.0)
    assert status is not None and status["phase"] == "Succeeded"
    assert [owner["name"] for owner in status["currentOwners"]] == ["a"]
    assert patch.change(once("r", 4, phase="Succeeded"), 0.0) is None, "its controller was faster"
    made.pod(pod("b", 4, affinity="{}"))
    assert made.schedule() == ["b unschedulable"], "nobody else uses it until that is written"
    made.change(KIND, once("r", 4, phase="Succeeded"))
    assert made.engine.tables.requested[0].cells[0] == 0
    made.node(node("n2"))
    assert not made.taken(PatchStatus)


def test_one_whose_consumer_failed_to_be_bound_is_not_used_up() -> None:
    made = driver(node("n1"))
    made.change(KIND, once("r", 4))
    made.pod(pod("a", 4))
    made.schedule()
    made.bind_failed(made.one(Bind))
    assert not [patch for patch in made.taken(PatchStatus) if patch.name == "r"]
    made.now = 10.0
    assert made.schedule() == ["a scheduled"]
    assert "reservation-allocated" in str(made.one(Bind).annotations)


def test_metrics_tell_what_is_reserved_used_and_waited_for() -> None:
    made = driver(node("n1"))
    made.change(KIND, reservation("r", 4))
    made.change(KIND, reservation("w", 8, phase="Waiting"))
    made.change(KIND, pending("p", 64))
    made.run_on(pod("a", 1, node_name="n1", annotations={ALLOCATED: allocation_text("r", "uid-r")}))
    items = made.state.kinds.others[KIND]
    found = {
        (metric.name, *sample.labels.values()): sample.value for metric in items.metrics() for sample in metric.samples
    }
    assert found["wharfinger_reservations", "Available"] == 1
    assert found["wharfinger_reservations", "Waiting"] == 1
    assert found["wharfinger_reservations", "Pending"] == 1
    assert found["wharfinger_reserved_resources", "cpu"] == 4
    assert found["wharfinger_reserved_resources_used", "cpu"] == 1
    assert found["wharfinger_reserved_resources_waiting", "cpu"] == 8
