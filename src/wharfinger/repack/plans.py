"""The goals that can be asked for, and the plan that is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.api.registry import Document
from wharfinger.api.wording import counted


@dataclass(frozen=True, slots=True)
class RepackGoal:
    """One of: nodes to free (`free_nodes` of those that `nodes` selects, all of them, or those that save most), pods to
    make room for, pods to move to better units of their policies, zones to even out, a resource to defragment."""

    free_nodes: int | None = None
    nodes: str = ""  # a label selector; empty selects all nodes
    all_selected: bool = False  # free every selected node
    room_for: tuple[str, ...] = ()  # NAMESPACE/NAME of pods that wait; empty stands for all of them
    room: bool = False
    restore_order: bool = False
    even_zones: bool = False
    defragment: str = ""  # a resource, ResourceClass or DeviceClass
    save_cost: bool = False  # free the nodes that save most money

    @property
    def improves(self) -> bool:
        return self.restore_order or self.even_zones or bool(self.defragment)

    def text(self) -> str:
        if self.restore_order:
            return "move pods to better units of their ResourcePolicies"
        if self.even_zones:
            return "even out the zones of workloads"
        if self.defragment:
            return f"defragment {self.defragment}"
        if self.room:
            return f"make room for {', '.join(self.room_for) or 'the pods that wait'}"
        selected = f" with {self.nodes}" if self.nodes else ""
        if self.save_cost:
            return f"free the nodes{selected} that save most"
        if self.all_selected:
            return f"free all nodes{selected}"
        return f"free {counted(self.free_nodes or 0, 'node')}{selected}"


@dataclass(frozen=True, slots=True)
class RepackMove:
    pod: str  # NAMESPACE/NAME
    source: str
    target: str
    why: str
    recreated: bool = True  # by a controller; otherwise somebody has to create the pod again

    def document(self) -> Document:
        found: Document = {"pod": self.pod, "from": self.source, "to": self.target, "why": self.why}
        return found if self.recreated else {**found, "recreate": True}


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A PodDisruptionBudget that covers pods of a plan."""

    name: str  # NAMESPACE/NAME
    moves: int
    allowed: int  # disruptions at a time, as things are now

    def document(self) -> Document:
        return {"name": self.name, "moves": self.moves, "allowed": self.allowed}


@dataclass(slots=True)
class RepackPlan:
    """Moves in an order in which each is possible when its turn comes."""

    goal: RepackGoal
    moves: list[RepackMove] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    started: dict[str, str] = field(default_factory=dict)  # pods that waited, to the nodes that they get
    cost: float = 0.0
    bound: float = 0.0
    at_once: dict[str, str] = field(default_factory=dict)  # those of `started` that start before the first move
    saved: float = 0.0  # per hour, if the goal is to save cost
    most_saved: float = 0.0  # what no plan can exceed
    measure: str = ""  # what an improvement counts; less is better
    before: int = 0
    after: int = 0
    budgets: Sequence[BudgetUse] = ()
    blocked: Sequence[str] = ()
    surprise: str = ""  # what the simulation of the moves did otherwise

    @property
    def reached(self) -> bool:
        return not self.blocked and not self.surprise

    @property
    def optimal(self) -> bool:
        if self.goal.save_cost:
            return self.reached and self.saved >= self.most_saved - 1e-9
        if self.goal.improves:
            return self.reached and not self.before
        return self.reached and self.cost <= self.bound

    def document(self) -> Document:
        found: Document = {
            "apiVersion": "wharfinger.dev/v1alpha1",
            "kind": "RepackPlan",
            "goal": self.goal.text(),
            "moves": [move.document() for move in self.moves],
            "freed": self.freed,
            "cost": _number(self.cost),
            "bound": _number(self.bound),
            "optimal": self.optimal,
        }
        if self.goal.save_cost:
            found["saved"] = {"perHour": _number(self.saved), "most": _number(self.most_saved)}
        if self.measure:
            found["improved"] = {"measure": self.measure, "before": self.before, "after": self.after}
        if self.goal.room or self.started:
            found["started"] = self.started
        if self.budgets:
            found["budgets"] = [budget.document() for budget in self.budgets]
        if self.blocked:
            found["blocked"] = list(self.blocked)
        if self.surprise:
            found["surprise"] = self.surprise
        return found


def _number(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 6)
