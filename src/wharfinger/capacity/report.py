"""The answer of `wharf capacity`, and its document."""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.capacity.choosing import CHEAPEST, NONE, CapacityChoice, ChosenNode
from wharfinger.capacity.fitting import FittingPods
from wharfinger.capacity.groups import CapacityGroup
from wharfinger.capacity.models import NodeModel
from wharfinger.capacity.removing import RemovableNode, Removal
from wharfinger.capacity.timeline import PodStart


@dataclass(slots=True)
class ChoiceTimes:
    """When the pods that wait start under a choice; those that are missing do not."""

    starts: dict[str, PodStart] = field(default_factory=dict)
    never: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CapacityReport:
    now: float
    groups: list[CapacityGroup]
    priced: bool = False  # without prices, every node counts as one
    fitting: dict[str, str] = field(default_factory=dict)  # pods that need no new node, and their node
    held: dict[str, str] = field(default_factory=dict)  # pods that must not be scheduled yet, and why
    choices: list[CapacityChoice] = field(default_factory=list)
    times: dict[str, ChoiceTimes] = field(default_factory=dict)  # by the title of the choice
    bound: float = 0.0  # what every set of nodes costs at least that serves as many pods
    cost_now: float = 0.0  # per hour
    removal: Removal = field(default_factory=Removal)
    group_of: dict[str, str] = field(default_factory=dict)  # of nodes that exist
    more_of: str = ""  # the workload of `more`
    more: list[FittingPods] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    surprise: str = ""  # what the simulation did otherwise

    @property
    def best(self) -> CapacityChoice:
        return next((each for each in self.choices if each.title == CHEAPEST), CapacityChoice(CHEAPEST))

    @property
    def optimal(self) -> bool:
        return self.best.cost <= self.bound + 1e-9

    @property
    def cost_after(self) -> float:
        return self.cost_now + self.best.cost - self.removal.saved

    def document(self) -> Document:
        found: Document = {
            "time": format_time(self.now),
            "groups": [self._group(group) for group in self.groups],
            "fitting": self.fitting,
            "held": self.held,
            "unservable": self.best.unserved,
            "cost": {
                "now": number(self.cost_now),
                "added": number(self.best.cost),
                "bound": number(self.bound),
                "optimal": self.optimal,
                "removable": number(self.removal.saved),
                "removableMost": number(self.removal.most),
                "after": number(self.cost_after),
                "perHour": self.priced,
            },
            "choices": [self._choice(choice) for choice in self.choices],
            **({"asItIs": self._times(self.times[NONE])} if NONE in self.times else {}),
            "removable": [self._removable(node) for node in self.removal.nodes],
        }
        if self.more_of:
            found["more"] = {"of": self.more_of, "fits": [_fits(each) for each in self.more]}
        if self.notes:
            found["notes"] = self.notes
        if self.surprise:
            found["surprise"] = self.surprise
        return found

    def _group(self, group: CapacityGroup) -> Document:
        new = [node for node in self.best.nodes if node.model.group == group.name]
        return {
            "name": group.name,
            "source": group.source,
            "current": len(group.nodes),
            "silent": group.silent,
            "coming": group.coming,
            "max": group.max_size,
            "new": len(new),
            "newNodes": [_node(node) for node in new],
            "types": [_type(model) for model in group.models],
        }

    def _choice(self, choice: CapacityChoice) -> Document:
        prices = {(node.model.group, node.model.title): node.model for node in choice.nodes}
        times = self.times.get(choice.title)
        found: Document = {
            "name": choice.title,
            "costPerHour" if self.priced else "cost": number(choice.cost),
            "nodes": [
                {"group": group, "type": title, "count": count, "price": number(prices[group, title].price)}
                for (group, title), count in sorted(choice.counts().items())
            ],
            "unserved": sorted(choice.unserved),
        }
        return found if times is None else {**found, **self._times(times)}

    def _times(self, times: ChoiceTimes) -> Document:
        starts = [
            {
                "pod": each.pod,
                "node": each.node,
                "afterSeconds": number(each.after),
                "time": format_time(self.now + each.after),
            }
            for each in sorted(times.starts.values(), key=lambda each: (each.after, each.pod))
        ]
        return {"starts": starts, "never": times.never}

    def _removable(self, node: RemovableNode) -> Document:
        return {
            "node": node.node,
            "group": self.group_of.get(node.node, ""),
            "price": number(node.price),
            "at": None if node.at is None else format_time(node.at),
            "moves": [move.document() for move in node.moves],
        }


def _node(node: ChosenNode) -> Document:
    return {
        "name": node.name,
        "type": node.model.title,
        "price": number(node.model.price),
        "startupSeconds": number(node.model.startup),
        "pods": node.pods,
        "reason": node.reason,
    }


def _type(model: NodeModel) -> Document:
    return {
        "type": model.instance_type,
        "zone": model.zone,
        "capacityType": model.capacity_type,
        "price": number(model.price),
        "startupSeconds": number(model.startup),
    }


def _fits(each: FittingPods) -> Document:
    return {
        "group": each.group or None,
        "now": each.now,
        "perNewNode": each.per_node,
        "afterScaleUp": each.after_scale_up,
    }


def number(value: float) -> int | float:
    return int(value) if value == int(value) else round(value, 6)
