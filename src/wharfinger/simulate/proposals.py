"""Changes that may let a pod in, derived from what keeps it off the nodes that come nearest. Whether they help is not
known here: `wharfinger.simulate.trials` tries them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product

import numpy as np
from msgspec.structs import replace

from wharfinger.api.node_affinity import required_node_affinity
from wharfinger.api.quantity import milli_value
from wharfinger.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY, quantity_of, requests
from wharfinger.api.selectors import Operator, Requirement
from wharfinger.api.taints import UNSCHEDULABLE, taint_text, untolerated_taints
from wharfinger.api.views import Node, Pod
from wharfinger.api.wording import counted, listed
from wharfinger.engine import Engine
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.explaining import AskedAmount
from wharfinger.framework.node_table import PODS
from wharfinger.framework.stand_ins import StandIn
from wharfinger.plugins.inter_pod_affinity import REASON_AFFINITY, REASON_ANTI_AFFINITY
from wharfinger.simulate import pod_edits
from wharfinger.simulate.obstacles import NearNode, rows_besides
from wharfinger.simulate.trials import ProposedChange, RemedyProposal

_REPAIRED = 8  # groups of nodes, nearest first, that repairs are proposed for
_COMBINED = 4  # combinations of repairs of one node
_MOST_CHANGES = 3  # at once
_GROUPS = 12  # groups of equal nodes, smallest first, of which one more is proposed
_SUGGESTED = 12  # suggestions of one plugin
_VICTIMS = 3  # victims that a text names
_TRANSIENT = "node.kubernetes.io/"  # taints that tell of the state of a node and pass
_MOST_PRIORITY = 2**31 - 1


def proposals(engine: Engine, pod: Pod, near: Sequence[NearNode], count: int) -> Iterator[RemedyProposal]:
    """What may let in `count` pods like this one."""
    if pod.spec.scheduling_gates:
        gates = ", ".join(each.name for each in pod.spec.scheduling_gates)
        yield _one("gate", f"remove its scheduling gates: {gates}", 0.5, pod=pod_edits.without_gates)
    yield from _smaller_requests(engine, pod, near, count)
    for node in near[:_REPAIRED]:
        yield from _repairs(engine, pod, node)
    rows = [engine.tables.row_of[each.name] for each in near[:_REPAIRED]]
    for plugin in engine.profile(pod).plugins.values():
        for suggestion in islice(plugin.suggestions(pod, rows), _SUGGESTED):
            details = {"object": {"kind": suggestion.kind, "namespace": suggestion.namespace, "name": suggestion.name}}
            if suggestion.document is not None:
                details["object"]["spec"] = suggestion.document["spec"]
            yield RemedyProposal((ProposedChange("object", suggestion.change, details),), 3.0, suggestion=suggestion)
    yield from _more_nodes(engine, pod)
    yield from _evictions(engine, pod)


def _one(
    kind: str, text: str, rank: float, *, pod: Callable[[Pod], Pod | None] | None = None, **details: object
) -> RemedyProposal:
    return RemedyProposal((ProposedChange(kind, text, dict(details)),), rank, pod)


# -- requests


def _smaller_requests(engine: Engine, pod: Pod, near: Sequence[NearNode], count: int) -> Iterator[RemedyProposal]:
    """For each resource that some node lacks: the largest request with which all pods fit as far as it is concerned."""
    tables = engine.tables
    rows, asked = rows_besides(engine, pod, ("NodeResourcesFit",)), requests(pod)
    lacking = {each.resource: each for node in near for each in node.lacking}
    for name, amount in lacking.items():
        number = tables.resources.get(name)
        if number is None or name in tables.handled or name not in asked:
            continue
        usable = np.ones(len(rows), dtype=np.bool_)
        for other, wanted in tables.charge(tables.shapes.of(pod)):
            if other != number:
                usable &= tables.allocatable[other].view[rows] - tables.requested[other].view[rows] >= wanted
        free = tables.allocatable[number].view[rows] - tables.requested[number].view[rows]
        # An owner of reservations may use what they hold.
        for room in (free, free + _kept(engine, rows, number)):
            most = _rounded(name, _largest(room[usable], count, amount.asked))
            if 0 < most < amount.asked:
                yield _requesting(((amount, most),))


def _kept(engine: Engine, rows: Rows, number: int) -> Ints:
    """What stand-ins hold of a resource. [row]"""
    held = [
        sum(
            dict(each.charge).get(number, 0)
            for each in engine.tables.pods_on[row].values()
            if isinstance(each.pod, StandIn)
        )
        for row in rows.tolist()
    ]
    return np.array(held, dtype=np.int64)


def _largest(free: np.ndarray, count: int, asked: int) -> int:
    """The largest request below the present one with which so many pods fit into the free amounts; 0 if there is none."""
    low, high = 0, asked - 1
    while low < high:
        middle = (low + high + 1) // 2
        if int((np.clip(free, 0, None) // middle).sum()) >= count:
            low = middle
        else:
            high = middle - 1
    return low


def _rounded(resource: str, amount: int) -> int:
    """Rounded down to what a person would write."""
    step = 10 if resource == CPU else 1 << 20 if resource in (MEMORY, EPHEMERAL_STORAGE) else 1
    return amount // step * step if amount >= step else amount


def _requesting(targets: Sequence[tuple[AskedAmount, int]]) -> RemedyProposal:
    texts = [
        f"{quantity_of(each.resource, most)} {each.resource} instead of {quantity_of(each.resource, each.asked)}"
        for each, most in targets
    ]
    wanted = {each.resource: most for each, most in targets}
    share = max(1 - most / each.asked for each, most in targets)
    return _one(
        "requests",
        f"request {' and '.join(texts)}",
        1.0 + 3.0 * share,
        pod=lambda pod: pod_edits.with_requests(pod, wanted),
        requests={name: quantity_of(name, most) for name, most in wanted.items()},
    )


# -- what keeps the pod off one node


def _repairs(engine: Engine, pod: Pod, near: NearNode) -> Iterator[RemedyProposal]:
    """Ways to remove all obstacles of one node."""
    node = engine.tables.nodes[engine.tables.row_of[near.name]]
    assert node is not None
    by_obstacle = []
    lowered = False
    for obstacle in near.obstacles:
        if near.lacking and obstacle.plugin in ("NodeResourcesFit", "resourceclass"):
            found = [] if lowered else list(_fitting(near))
            if lowered:
                continue
            lowered = True
        else:
            found = list(_ways(pod, node, obstacle.plugin, obstacle.reasons))
        if not found:
            return
        by_obstacle.append(found)
    for chosen in islice(product(*by_obstacle), _COMBINED):
        joined = chosen[0]
        for each in chosen[1:]:
            joined = joined.joined(each)
        if len(joined.changes) <= _MOST_CHANGES:
            yield joined


def _fitting(near: NearNode) -> Iterator[RemedyProposal]:
    targets = [(each, _rounded(each.resource, each.free)) for each in near.lacking]
    if targets and all(most > 0 and each.resource != PODS for each, most in targets):
        yield _requesting(targets)


def _ways(pod: Pod, node: Node, plugin: str, reasons: Sequence[str]) -> Iterator[RemedyProposal]:
    """Ways to remove one obstacle."""
    if plugin == "NodeUnschedulable":
        yield _uncordon(node)
    elif plugin == "TaintToleration":
        yield from _tolerating(pod, node)
    elif plugin == "NodeAffinity":
        yield from _matching(pod, node)
    elif plugin == "NodePorts":
        yield _one("port", "drop its host ports", 2.0, pod=pod_edits.without_host_ports)
    elif plugin == "PodTopologySpread":
        keys = ", ".join(sorted({each.topology_key for each in pod.spec.topology_spread_constraints}))
        text = f"set whenUnsatisfiable to ScheduleAnyway in its topology spread over {keys}"
        yield _one("spread", text, 2.0, pod=pod_edits.with_soft_spread)
    elif plugin == "InterPodAffinity":
        if reasons == REASON_AFFINITY.reasons:
            yield _one("affinity", "drop its required pod affinity", 2.5, pod=pod_edits.without_pod_affinity)
        elif reasons == REASON_ANTI_AFFINITY.reasons:
            text = "drop its required pod anti-affinity"
            yield _one("affinity", text, 2.5, pod=pod_edits.without_pod_anti_affinity)


def _uncordon(node: Node) -> RemedyProposal:
    taints = tuple(each for each in node.spec.taints if each.key != UNSCHEDULABLE)
    changed = replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))
    change = ProposedChange("uncordon", f"uncordon node {node.metadata.name}", {"node": node.metadata.name})
    return RemedyProposal((change,), 1.2, nodes=(changed,))


def _tolerating(pod: Pod, node: Node) -> Iterator[RemedyProposal]:
    taints = untolerated_taints(pod.spec.tolerations, node.spec.taints)
    if {each.key for each in taints} == {UNSCHEDULABLE}:
        yield _uncordon(node)
        return
    if any(each.key.startswith(_TRANSIENT) for each in taints):
        return  # the node is in trouble
    tolerations = [pod_edits.toleration_of(each) for each in taints]
    written = [
        {
            "key": each.key,
            "operator": each.operator,
            **({"value": each.value} if each.value else {}),
            "effect": each.effect,
        }
        for each in tolerations
    ]
    text = f"tolerate {' and '.join(taint_text(each) for each in taints)}"
    edit = partial(pod_edits.with_tolerations, tolerations=tolerations)
    yield _one("toleration", text, float(len(taints)), pod=edit, tolerations=written)


def _matching(pod: Pod, node: Node) -> Iterator[RemedyProposal]:
    labels, required = node.metadata.labels, required_node_affinity(pod.spec)
    lacking = [each for each in required.selector if not each.matches(labels)]
    in_terms = required.terms is not None and not any(term.matches(node) for term in required.terms)
    if lacking and not in_terms:
        text = f"drop {', '.join(each.text() for each in lacking)} from its node selector"
        keys = [each.key for each in lacking]
        yield _one("selector", text, 1.5, pod=partial(pod_edits.without_selector, keys=keys), keys=keys)
    elif in_terms and not lacking:
        yield _one("selector", "drop its required node affinity", 2.0, pod=pod_edits.without_node_affinity)
        lacking = min(
            ([each for each in term.labels if not each.matches(labels)] for term in required.terms or ()),
            key=len,
            default=[],
        )
    written = {each.key: value for each in lacking if (value := _value(each)) is not None}
    if lacking and len(written) == len(lacking):
        text = f"label node {node.metadata.name} with {', '.join(f'{key}={value}' for key, value in written.items())}"
        metadata = replace(node.metadata, labels={**labels, **written})
        change = ProposedChange("label", text, {"node": node.metadata.name, "labels": written})
        yield RemedyProposal((change,), 1.6, nodes=(replace(node, metadata=metadata),))


def _value(requirement: Requirement) -> str | None:
    """A label value that meets the requirement; None if a value alone does not."""
    if requirement.operator is Operator.IN:
        return min(requirement.values)
    return "true" if requirement.operator is Operator.EXISTS else None


# -- more nodes, fewer pods


def _more_nodes(engine: Engine, pod: Pod) -> Iterator[RemedyProposal]:
    """One more node of each group of equal nodes, smallest first."""
    asked = requests(pod)
    members: dict[object, tuple[Node, int]] = {}
    own = _own_labels(engine)
    for node in engine.tables.nodes:
        if node is None:
            continue
        labels = frozenset(item for item in node.metadata.labels.items() if item[0] not in own)
        taints = tuple(each for each in node.spec.taints if not each.key.startswith(_TRANSIENT))
        key = (labels, tuple((each.key, each.value, each.effect) for each in taints), _size(node))
        first, number = members.get(key, (node, 0))
        members[key] = (min(first, node, key=lambda each: each.metadata.name), number + 1)
    fitting = [
        (milli_value(node.status.allocatable.get(CPU, 0)), node.metadata.name, node, number)
        for node, number in members.values()
        if milli_value(node.status.allocatable.get(CPU, 0)) >= asked.get(CPU, 0)
    ]
    for index, (_, name, node, number) in enumerate(sorted(fitting, key=lambda each: each[:2])[:_GROUPS]):
        taints = tuple(each for each in node.spec.taints if not each.key.startswith(_TRANSIENT))
        template = replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))
        has = ", ".join(
            f"{node.status.allocatable[each]} {each}" for each in (CPU, MEMORY) if each in node.status.allocatable
        )
        text = f"add {{nodes}} like {name} ({has}; there {'is' if number == 1 else 'are'} {number})"
        one_more = RemedyProposal((ProposedChange("node", text, {"like": name}),), 4.0 + index / 100, template=template)
        if untolerated_taints(pod.spec.tolerations, taints):
            yield from (one_more.joined(each) for each in _tolerating(pod, template))
        else:
            yield one_more


def _size(node: Node) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(node.status.allocatable.items()))


def _own_labels(engine: Engine) -> set[str]:
    """Labels that tell single nodes apart, such as the host name: no two nodes have the same value."""
    values: dict[str, set[str]] = {}
    numbers: dict[str, int] = {}
    for node in engine.tables.nodes:
        for key, value in node.metadata.labels.items() if node is not None else ():
            values.setdefault(key, set()).add(value)
            numbers[key] = numbers.get(key, 0) + 1
    many = {key for key, seen in values.items() if numbers[key] > 1 and len(seen) == numbers[key]}
    return many | {"kubernetes.io/hostname"}


def _evictions(engine: Engine, pod: Pod) -> Iterator[RemedyProposal]:
    """A higher priority, or the deletion of the pods that would be evicted for it."""
    highest = pod_edits.with_priority(pod, _MOST_PRIORITY)
    decision = engine.schedule(highest)
    if decision.diagnosis is None or not engine.profile(pod).at["postFilter"]:
        return
    result = engine.preempt(highest, decision.diagnosis)
    if result.node is None or not result.victims:
        return
    victims = tuple(result.victims)
    owner = pod.metadata.controller
    if owner is not None and any(each.metadata.controller == owner for each in victims):
        return  # it would take the place of its own kind
    names = [f"{each.metadata.namespace}/{each.metadata.name}" for each in victims]
    above = max(each.spec.priority or 0 for each in victims)
    if above >= (pod.spec.priority or 0) and above < _MOST_PRIORITY:
        text = f"give it a priority above {above}, so that it preempts {listed(names, _VICTIMS)}"
        edit = partial(pod_edits.with_priority, priority=above + 1)
        change = ProposedChange("priority", text, {"above": above, "victims": names})
        yield RemedyProposal((change,), 4.5, edit, preempts=True)
    elif pod.spec.preemption_policy == "Never":
        text = f"let it preempt (preemptionPolicy PreemptLowerPriority): {listed(names, _VICTIMS)}"
        edit = partial(pod_edits.with_priority, priority=pod.spec.priority or 0)
        yield RemedyProposal((ProposedChange("priority", text, {"victims": names}),), 4.4, edit, preempts=True)
    pods = "pod" if len(names) == 1 else f"{counted(len(names), 'pod')}:"
    text = f"delete {pods} {listed(names, _VICTIMS)}"
    yield RemedyProposal((ProposedChange("deletion", text, {"pods": names}),), 5.0 + len(names) / 10, deleted=victims)
