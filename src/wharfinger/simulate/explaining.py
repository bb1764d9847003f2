"""Explains scheduling decisions for pods of any API server. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from wharfinger.api.errors import not_found
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document, Registry
from wharfinger.api.resources import quantity_of, requests
from wharfinger.api.views import Pod
from wharfinger.api.wording import listed
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock

if TYPE_CHECKING:
    from wharfinger.engine import Engine
    from wharfinger.engine.outcome import Explanation
    from wharfinger.framework.explaining import ExplainedTable
    from wharfinger.scheduler.configuration import SchedulerConfiguration
    from wharfinger.scheduler.scheduler import Scheduler
    from wharfinger.simulate.obstacles import NearNode, RefusedGroup
    from wharfinger.simulate.remedies import PodRemedy

NEAREST = 5  # groups of nodes that an explanation describes


class PlannedPreemption(msgspec.Struct, frozen=True):
    """The evictions with which the scheduler itself makes room."""

    node: str
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """`choice` is the node the pod would get now; `message` why it gets none."""

    pod: Pod
    explanation: Explanation
    choice: str = ""
    message: str = ""
    notes: tuple[str, ...] = field(default=())
    refused: tuple[RefusedGroup, ...] = ()
    nearest: tuple[NearNode, ...] = ()
    remedies: tuple[PodRemedy, ...] = ()
    preemption: PlannedPreemption | None = None
    tables: tuple[ExplainedTable, ...] = ()

    @property
    def asked(self) -> dict[str, int]:
        """What the pod requests, in scheduler units."""
        return {name: amount for name, amount in requests(self.pod).items() if amount}

    def document(self) -> Document:
        """The explanation as data: for each of the `nodes` the rejecting plugin or the scores, and the choice; what the
        pod asks for, the nodes that come nearest, and what would help."""
        found = self.explanation.document()
        found["pod"] = {"namespace": self.pod.metadata.namespace, "name": self.pod.metadata.name}
        found["choice"] = self.choice or None
        if self.notes:
            found["notes"] = list(self.notes)
        if self.message:
            found["message"] = self.message
        found["asked"] = {name: quantity_of(name, amount) for name, amount in self.asked.items()}
        found["refused"] = [each.document() for each in self.refused]
        found["nearest"] = [each.document() for each in self.nearest]
        found["wouldHelp"] = [each.document() for each in self.remedies]
        if self.tables:
            found["tables"] = [each.document() for each in self.tables]
        if self.preemption is not None:
            found["preemption"] = {"node": self.preemption.node, "victims": list(self.preemption.victims)}
        return found


async def explain_pod(
    client: Client,
    clock: Clock,
    configuration: SchedulerConfiguration,
    registry: Registry,
    namespace: str,
    name: str,
    *,
    seed: int = 0,
    every_node: bool = False,
) -> PodExplanation:
    """Loads the cluster like the scheduler and explains the pod. A bound pod is treated as if it were not bound. With
    `every_node`, plugins tell what they have to say about all nodes that refuse it, not only about the nearest."""
    from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions

    scheduler = Scheduler(client, clock, configuration, registry, SchedulerOptions(seed=seed, writes=False))
    await scheduler.load()
    try:
        pod = scheduler.pod(namespace, name)
        if pod is None:
            raise not_found(PODS.group, PODS.plural, f"{namespace}/{name}")
        return explain_in(scheduler, pod, every_node=every_node)
    finally:
        await scheduler.stop()


def explain_in(scheduler: Scheduler, pod: Pod, like: Sequence[Pod] = (), *, every_node: bool = False) -> PodExplanation:
    """Explains a pod with a loaded scheduler. The pod is removed from its node, so the scheduler cannot be used
    afterwards. `like` are waiting pods with equal needs, which remedies should let in, too."""
    from wharfinger.simulate.obstacles import nearest_nodes, refused_groups
    from wharfinger.simulate.remedies import remedies

    engine = scheduler.engine
    notes = []
    if pod.spec.node_name:
        notes.append(f"it runs on {pod.spec.node_name}; this is where it could go if it were scheduled now")
        engine.remove_pod(pod.metadata.namespace, pod.metadata.name)
        pod = replace(pod, spec=replace(pod.spec, node_name=""))
    if pod.spec.scheduler_name not in engine.profiles:
        profile = next(iter(engine.profiles))
        notes.append(f"its scheduler is {pod.spec.scheduler_name}, which is not ours; this is what {profile} would do")
        pod = replace(pod, spec=replace(pod.spec, scheduler_name=profile))
    gate = engine.pre_enqueue(pod)
    if not gate.ok:
        notes.append(f"it is not tried yet: {gate.message}")
    explanation = engine.explain(pod)
    decision = engine.schedule(pod)
    message, preemption = decision.message, None
    if decision.diagnosis is not None:
        cycle, result = scheduler.state.cycle, None
        if engine.profile(pod).at["postFilter"] and cycle.may_preempt(pod):
            result = engine.preempt(pod, decision.diagnosis)
        message = cycle.message(pod, decision.diagnosis)
        if result is not None and result.node is not None:
            victims = tuple(f"{each.metadata.namespace}/{each.metadata.name}" for each in result.victims)
            preemption = PlannedPreemption(result.node, victims)
            notes.append(f"room can be made on {result.node} by preempting {', '.join(victims)}")
    near = nearest_nodes(engine, pod) if decision.node is None else []
    helpful: list[PodRemedy] = []
    if (decision.node is None and preemption is None and not decision.error) or not gate.ok:
        others = [each for each in like if each.metadata.uid != pod.metadata.uid]
        helpful = remedies(engine, [pod, *others], near)
    refused = refused_groups(engine, pod, explanation.refused)
    names = [each.name for each in near[:NEAREST]]
    if decision.node is not None:
        names = [decision.node]
    elif every_node:
        names = sorted(explanation.refused)
    rows = [engine.tables.row_of[each] for each in names]
    tables = [table for plugin in engine.profile(pod).plugins.values() for table in plugin.explained(pod, rows)]
    for each in scheduler.state.kinds.others.values():
        notes += each.explanations(pod, decision)
    return PodExplanation(
        pod,
        explanation,
        decision.node or "",
        message,
        tuple(notes),
        tuple(refused),
        tuple(near[:NEAREST]),
        tuple(helpful),
        preemption,
        tuple(tables),
    )


def brief(engine: Engine, pod: Pod) -> list[str]:
    """Explains in a few lines where a pod is, with an engine that stays in use."""
    from wharfinger.simulate.obstacles import refused_groups

    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if pod.spec.node_name:
        state = "runs" if pod.status.phase == "Running" else f"is {pod.status.phase}"
        why = f": {pod.status.message}" if pod.status.message else ""
        return [f"{name} {state} on {pod.spec.node_name}{why}"]
    if pod.spec.scheduler_name not in engine.profiles:
        return [f"{name} waits for the scheduler {pod.spec.scheduler_name}, which does not run here"]
    gate = engine.pre_enqueue(pod)
    if not gate.ok:
        return [f"{name} is held back by {gate.plugin}: {gate.message}"]
    if not engine.tables.node_count:
        return [f"{name} waits: there are no nodes"]
    found = engine.explain(pod)
    if found.pre_filter is not None:
        return [f"{name} is refused as a whole by {found.pre_filter.plugin}: {found.pre_filter.message}"]
    lines = [f"{name} waits:"]
    for group in refused_groups(engine, pod, found.refused):
        detail = f" ({group.detail})" if group.detail else ""
        lines.append(f"  {group.plugin} refuses {listed(group.nodes, 5)}: {'; '.join(group.reasons)}{detail}")
    if found.scores:
        lines.append(f"  feasible now: {', '.join(sorted(found.scores)[:5])}")
    return lines
