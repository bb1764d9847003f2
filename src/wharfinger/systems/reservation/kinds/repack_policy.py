"""RepackPolicy: moves pods on a schedule, within a maintenance window and an allowance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.cron import BadSchedule, parse_schedule
from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.registry import Column, Document
from wharfinger.api.schema.models import ATOMIC, Conditions, Int32, Int64, Model, Time, doc, model_kind
from wharfinger.api.selectors import BadSelector, parse_label_selector
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.systems.reservation.kinds.names import REPACK_POLICIES

GOALS = ("freeNodes", "room", "restoreOrder", "evenZones", "defragment")


class RepackGoalModel(Model):
    """What the moves are for: exactly one of them."""

    free_nodes: Annotated[Int32, Meta(ge=1), doc("How many nodes to free.")] | None = None
    nodes: Annotated[str, doc("With freeNodes: a label selector for the nodes that may be freed.")] = ""
    room: Annotated[bool, doc("Make room for the pods that wait.")] = False
    restore_order: Annotated[bool, doc("Move pods to better units of their ResourcePolicies.")] = False
    even_zones: Annotated[bool, doc("Even out how many pods of a workload each zone has.")] = False
    defragment: Annotated[str, doc("Gather what uses this resource or device class.")] = ""


class RepackPolicySpecModel(Model):
    """When to move pods, what for, and how many."""

    schedule: Annotated[str, Meta(min_length=1), doc("When maintenance windows begin, in cron format.")]
    goal: RepackGoalModel
    time_zone: Annotated[str, doc("The time zone of the schedule.")] = "UTC"
    window: Annotated[str, doc("How long a maintenance window lasts. No move begins after it.")] = "1h"
    max_moves: Annotated[Int32, Meta(ge=1), doc("The most pods to move in a window.")] = 10
    at_once: Annotated[Int32, Meta(ge=1), doc("The most pods to move at a time.")] = 1
    suspend: Annotated[bool, doc("No move begins while this is true.")] = False


class RepackMoveModel(Model):
    """A pod that leaves a node for another one."""

    pod: Annotated[str, doc("Its namespace and name.")] = ""
    source: Annotated[str, doc("The node that it leaves.")] = field(default="", name="from")
    to: Annotated[str, doc("The node that it goes to.")] = ""
    why: str = ""
    state: Annotated[str, doc("Pending, Running, Succeeded or Failed.")] = ""
    message: Annotated[str, doc("Why it failed.")] = ""


class RepackRunModel(Model):
    """The moves of one maintenance window."""

    started: Time | None = None
    until: Annotated[Time, doc("When the window ends.")] | None = None
    completed: Time | None = None
    goal: str = ""
    moves: Annotated[list[RepackMoveModel], ATOMIC] = field(default_factory=list)
    freed: Annotated[list[str], ATOMIC, doc("The nodes that are or will be empty. They are cordoned.")] = field(
        default_factory=list
    )
    outcome: Annotated[str, doc("Completed, NothingToDo, NoPlan, Stopped or WindowClosed.")] = ""
    message: str = ""


class RepackPolicyStatusModel(Model):
    """What the policy does, and what it did last."""

    observed_generation: Int64 = 0
    last_schedule_time: Annotated[Time, doc("When the last window began.")] | None = None
    run: Annotated[RepackRunModel, doc("The moves under way.")] | None = None
    last_run: Annotated[RepackRunModel, doc("What became of the last window.")] | None = None
    conditions: Conditions = field(default_factory=list)


class RepackPolicyModel(Model):
    """Moves pods on a schedule, so that nodes become free or pods get to better places."""

    spec: RepackPolicySpecModel
    status: RepackPolicyStatusModel | None = None


def _faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document["spec"]
    try:
        parse_schedule(spec["schedule"], spec.get("timeZone"))
    except BadSchedule as error:
        path = "spec.timeZone" if "time zone" in str(error) else "spec.schedule"
        yield invalid(path, spec["schedule" if path.endswith("schedule") else "timeZone"], str(error))
    try:
        if parse_duration(spec["window"]) <= 0:
            yield invalid("spec.window", spec["window"], "must be longer than 0s")
    except BadTime as error:
        yield invalid("spec.window", spec["window"], str(error))
    yield from _goal_faults(spec["goal"])


def _goal_faults(goal: Document) -> Iterator[FieldError]:
    chosen = [name for name in GOALS if goal.get(name)]
    if len(chosen) != 1:
        yield invalid("spec.goal", goal, f"must have exactly one of {', '.join(GOALS)}")
    if goal.get("nodes"):
        if not goal.get("freeNodes"):
            yield invalid("spec.goal.nodes", goal["nodes"], "may be set only with freeNodes")
        try:
            parse_label_selector(goal["nodes"])
        except BadSelector as error:
            yield invalid("spec.goal.nodes", goal["nodes"], str(error))


KIND = model_kind(
    REPACK_POLICIES,
    RepackPolicyModel,
    short_names=("repack",),
    columns=(
        Column("Schedule", "spec.schedule"),
        Column("Suspend", "spec.suspend", type="boolean"),
        Column("Last", "status.lastScheduleTime", type="date"),
        Column("Outcome", "status.lastRun.outcome"),
        AGE,
    ),
    faults=_faults,
)

KINDS = (KIND,)
