"""What there is to tell about one ResourcePolicy, counted as its controller counts. Changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.views import Node, Pod
from wharfinger.client.interface import Client
from wharfinger.controllers.scale_in import DELETION_COST, deletion_cost, in_deletion_order
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler.schedulable import schedulables
from wharfinger.systems.resource_policy.controllers.cache import CountedPolicy, PolicyCache
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES
from wharfinger.systems.resource_policy.rules.costs import change
from wharfinger.systems.resource_policy.rules.policy import Waiting
from wharfinger.systems.resource_policy.rules.wording import group_text


@dataclass(frozen=True, slots=True)
class UnitStory:
    """One unit for one group of pods; without matchLabelKeys there is a single group without a name."""

    unit: str
    priority: int
    group: str
    count: int
    most: str  # the limit, for the group; empty: none
    pods: tuple[str, ...]

    def document(self) -> Document:
        return {
            "unit": self.unit,
            "priority": self.priority,
            "group": self.group or None,
            "count": self.count,
            "max": self.most or None,
            "pods": list(self.pods),
        }


@dataclass(frozen=True, slots=True)
class PolicyStory:
    namespace: str
    name: str
    strategy: str
    problems: tuple[str, ...]
    units: tuple[UnitStory, ...] = ()
    outside: tuple[str, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()  # pod and why
    orders: dict[str, list[str]] = field(default_factory=dict)  # by workload: pods, the first to be deleted first

    def document(self) -> Document:
        return {
            "policy": {"namespace": self.namespace, "name": self.name},
            "strategy": self.strategy,
            "problems": list(self.problems),
            "units": [each.document() for each in self.units],
            "outside": list(self.outside),
            "waiting": [{"pod": name, "message": why} for name, why in self.waiting],
            "scaleInOrder": self.orders,
        }


async def explain_policy(client: Client, now: float, namespace: str, name: str) -> PolicyStory:
    """Raises NotFound if there is no such policy."""
    document = await client.get(RESOURCE_POLICIES, name, namespace)
    cache = PolicyCache(schedulables())
    for node in (await client.list(NODES, view=Node)).items:
        cache.set_node(node, node.metadata.name)
    for other in (await client.list(RESOURCE_POLICIES, namespace)).items:
        cache.set_policy(None, other)
    for each in schedulables():
        try:
            found = await client.list(each.resource, view=each.view)
        except NotFound:
            continue  # the cluster does not serve this kind
        for item in found.items:
            cache.set_schedulable(each, None, item)
    pods = (await client.list(PODS, namespace, view=Pod)).items
    for pod in pods:
        cache.set_pod(None, pod)
    policy = cache.policies.get(namespace, {}).get(name)
    strategy = str((document.get("spec") or {}).get("strategy", "required"))
    if policy is None:
        fault = cache.faults.get((namespace, name), "")
        return PolicyStory(namespace, name, strategy, (f"the policy is invalid and is ignored: {fault}",))
    governed = [pod for pod in pods if not pod.terminal and policy.rules.governs(pod.metadata.labels)]
    return _story(policy, cache, governed, now)


def _story(policy: CountedPolicy, cache: PolicyCache, pods: Iterable[Pod], now: float) -> PolicyStory:
    rules = policy.rules
    members: dict[tuple[int, str], list[str]] = {}
    outside: list[str] = []
    for key, counted in policy.counting.pods.items():
        unit, group = policy.unit_of(key), group_text(rules.keys, counted.signature)
        stand_in = cache.stand_in(key)
        shown = f"{stand_in.kind} {stand_in.object_name}" if isinstance(stand_in, StandIn) else key[1]
        if unit is None:
            outside.append(shown)
        else:
            members.setdefault((unit, group), []).append(shown)
    groups = {group_text(rules.keys, values): counts for values, counts in policy.groups().items()} or {"": []}
    units = [
        UnitStory(
            rules.units[index].name,
            rules.units[index].priority,
            group,
            counts[index] if counts else 0,
            rules.units[index].maximum,
            tuple(sorted(members.get((index, group), ()))),
        )
        for index in rules.preference
        for group, counts in sorted(groups.items())
    ]
    waiting = [
        (pod.metadata.name, condition.message if (condition := pod.status.condition("PodScheduled")) else "")
        for pod in pods
        if not pod.spec.node_name
    ]
    strategy = "prefer" if rules.prefer else "required"
    if rules.waiting is not Waiting.NO_NODE:
        strategy += f", next units: {rules.waiting.value}"
    orders = _orders(policy, [pod for pod in pods if not pod.terminating], now)
    return PolicyStory(
        rules.namespace,
        rules.name,
        strategy,
        tuple(_problems(policy)),
        tuple(units),
        tuple(sorted(outside)),
        tuple(sorted(waiting)),
        orders,
    )


def _problems(policy: CountedPolicy) -> Iterable[str]:
    if policy.overlapping:
        yield f"nodes belong to several units: {', '.join(sorted(policy.overlapping)[:3])}"
    for other, count in sorted(policy.shared.items()):
        yield f'{count} of its pods also match resource policy "{other}"; they are not scheduled until only one matches'


def _orders(policy: CountedPolicy, pods: Iterable[Pod], now: float) -> dict[str, list[str]]:
    """The pods of each ReplicaSet in the order in which a scale-in would delete them, with their costs."""
    by_owner: dict[str, list[Pod]] = {}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is not None and owner.kind == "ReplicaSet":
            by_owner.setdefault(f"{owner.kind} {owner.name}", []).append(_with_cost(policy, pod))
    found = {}
    for owner_name, owned in sorted(by_owner.items()):
        crowding = Counter(pod.spec.node_name for pod in owned)
        ranks = {pod.metadata.uid: crowding[pod.spec.node_name] for pod in owned}
        found[owner_name] = [
            f"{pod.metadata.name} ({deletion_cost(pod.metadata.annotations)})"
            for pod in in_deletion_order(owned, ranks, now)
        ]
    return found


def _with_cost(policy: CountedPolicy, pod: Pod) -> Pod:
    """The pod with the deletion cost that the controller gives it; one that its user set is kept."""
    wanted = policy.cost(pod.metadata.key) if policy.costs_differ else None
    annotations = {**pod.metadata.annotations}
    for key, value in change(annotations, wanted, policy.rules.name).annotations.items():
        if key == DELETION_COST and value is None:
            annotations.pop(key, None)
        elif value is not None:
            annotations[key] = value
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))
