"""Counts how many pods of a shape fit in a cluster, now and after scale-up, with the engine that schedules pods there.

Node groups are the documents of `wharf capacity`. Devices of ResourceClasses are part of the template of a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from wharfinger.api.node_groups import NodeGroup
from wharfinger.api.registry import Document, Registry
from wharfinger.api.views import Pod
from wharfinger.api.views.base import view
from wharfinger.engine import Decision, Engine
from wharfinger.engine.outcome import NO_NODES
from wharfinger.systems.placement.rules.capacity import CapacityAnswer, CapacityQuestion

_DEFAULT_PROFILE = "default-scheduler"
_REASONS = 3  # in an answer


def example_pod(question: CapacityQuestion, registry: Registry) -> Pod:
    """A pod of the template, defaulted as an API server would. Raises ValueError if the template is no pod's."""
    metadata = question.template.get("metadata") or {}
    document: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "capacity",
            "namespace": question.namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": msgspec.json.decode(msgspec.json.encode(question.template.get("spec") or {})),
    }
    kind = registry.find("Pod")
    assert kind is not None and kind.default is not None
    try:
        kind.default(document)
        return view(document, Pod)
    except (msgspec.ValidationError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the template is not that of a pod: {error}") from error


def answer_question(
    engine: Engine,
    question: CapacityQuestion,
    pod: Pod,
    groups: Sequence[NodeGroup] = (),
    sizes: Mapping[str, int] | None = None,
    *,
    digest: str = "",
) -> CapacityAnswer:
    """Places pods of the template one after the other, first on the nodes that the engine has, then on new nodes of the
    groups, and leaves the engine as it was. `sizes` is the number of nodes that each group has. Nobody is evicted."""
    profile = pod.spec.scheduler_name if pod.spec.scheduler_name in engine.profiles else _DEFAULT_PROFILE
    placed: list[Pod] = []
    added: list[str] = []
    try:
        reason = _place(engine, question, pod, profile, placed)
        now, after = len(placed), ""
        if reason and groups:
            left = question.replicas - now
            for group in groups:
                free = max(0, group.spec.max_size - (sizes or {}).get(group.name, 0))
                for number in range(min(free, left)):
                    engine.set_node(node := group.node(f"{group.name}-scale-up-{number + 1}"))
                    added.append(node.metadata.name)
            after = _place(engine, question, pod, profile, placed) if added else "the node groups are at their limits"
        return CapacityAnswer(
            question=digest,
            replicas=question.replicas,
            now=now,
            after_scale_up=len(placed),
            reason=reason,
            reason_after_scale_up=after,
        )
    finally:
        for each in reversed(placed):
            engine.forget(each, profile)
        for name in added:
            engine.remove_node(name)


def _place(engine: Engine, question: CapacityQuestion, pod: Pod, profile: str, placed: list[Pod]) -> str:
    """Places pods until all replicas are placed or one fits nowhere. Returns why it does not."""
    while len(placed) < question.replicas:
        name = f"capacity-question-{len(placed) + 1}"
        each = replace(pod, metadata=replace(pod.metadata, name=name, uid=name))
        status = engine.pre_enqueue(each, profile)
        if not status.ok:
            return status.message
        decision = engine.schedule(each, profile)
        if decision.node is None:
            return reasons_of(decision)
        status = engine.assume(each, decision.node, profile)
        if not status.ok:
            return status.message
        placed.append(each)
    return ""


def reasons_of(decision: Decision) -> str:
    """The most frequent reasons of the nodes, as kube-scheduler words them: `Insufficient cpu, node(s) had …`."""
    if decision.error or decision.diagnosis is None:
        return "no nodes" if decision.error == NO_NODES else decision.error
    if decision.diagnosis.pre_filter:
        return decision.diagnosis.pre_filter
    counts: Counter[str] = Counter()
    for status, rows in decision.diagnosis.groups:
        for reason in status.reasons:
            counts[reason] += len(rows)
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    more = "" if len(ordered) <= _REASONS else ", …"
    return ", ".join(ordered[:_REASONS]) + more or "no node is suitable"
