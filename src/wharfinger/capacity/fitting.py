"""How many more pods of a workload fit: on the nodes that exist, and on those that groups can add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from wharfinger.api.views import Pod
from wharfinger.capacity.groups import CapacityGroup, within_limits
from wharfinger.capacity.new_nodes import NewNodes
from wharfinger.engine.evaluation import refusals

MOST = 10_000  # pods that are counted


@dataclass(frozen=True, slots=True)
class FittingPods:
    """For one group, or for all nodes together if `group` is empty."""

    group: str
    now: int
    per_node: int = 0  # on an empty new node, of the model that takes most
    after_scale_up: int | None = None  # including those that fit now; None: nothing limits the group


def count_fitting(
    new: NewNodes, pod: Pod, groups: Sequence[CapacityGroup], used: Mapping[str, Mapping[str, int]]
) -> list[FittingPods]:
    """Places pods one after the other until one finds no node. The engine is left as it was."""
    found = []
    for group in groups:
        now = _fill(new, pod, group.nodes, 0)
        after, per_node = _after_scale_up(new, pod, group, used.get(group.name, {}), now)
        new.clear(0)
        found.append(FittingPods(group.name, now, per_node, after))
    total = _fill(new, pod, None, 0)
    unlimited = any(each.after_scale_up is None for each in found)
    added = sum((each.after_scale_up or 0) - each.now for each in found)
    new.clear(0)
    best = max((each.per_node for each in found), default=0)
    return [*found, FittingPods("", total, best, None if unlimited else total + added)]


def _fill(new: NewNodes, pod: Pod, nodes: Sequence[str] | None, number: int) -> int:
    """Places pods on the nodes (None: on any) until none takes another one. `number` pods were placed before."""
    count = 0
    while number + count < MOST:
        each = _another(pod, number + count)
        if nodes is None:
            if new.place(each).node is None:
                break
        else:
            name = _takes(new, each, nodes)
            if name is None or not new.place_on(each, name):
                break
        count += 1
    return count


def _takes(new: NewNodes, pod: Pod, nodes: Sequence[str]) -> str | None:
    tables = new.engine.tables
    profile = new.engine.profiles.get(pod.spec.scheduler_name)
    if profile is None:
        return None
    prepared = profile.answers_for(pod).prepared
    if prepared.refusal is not None:
        return None
    feasible = set(refusals(tables, prepared, pod).feasible.tolist())
    return next((name for name in nodes if tables.row_of.get(name) in feasible), None)


def _after_scale_up(
    new: NewNodes, pod: Pod, group: CapacityGroup, used: Mapping[str, int], now: int
) -> tuple[int | None, int]:
    """How many fit once the group is as large as it may be, and how many on one new node."""
    per_node, best = 0, None
    for model in group.models:
        new.add(model, "probe")
        mark = new.mark()
        count = _fill(new, pod, ["probe"], now)
        new.back(mark)
        new.remove("probe")
        if count > per_node:
            per_node, best = count, model
    if best is None:
        return now, 0
    if group.room is None and not group.limits:
        return None, per_node
    total, chosen = now, [best]
    while within_limits(group, chosen, used) and total < MOST:
        name = f"{group.name}-new-{len(chosen)}"
        new.add(best, name)
        more = _fill(new, pod, [name], total)
        if not more:
            break
        total += more
        chosen.append(best)
    return total, per_node


def _another(pod: Pod, number: int) -> Pod:
    name = f"one-more-{number + 1}"
    return replace(pod, metadata=replace(pod.metadata, name=name, uid=name))
