"""Explains pods with the same engine, plugins and configuration as the scheduler that decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.api.errors import ServiceUnavailable, not_found
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document, Registry
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.client.memory import freeze_heap
from wharfinger.client.tasks import cancel
from wharfinger.client.timers import Clock
from wharfinger.framework.status import Code, Status

if TYPE_CHECKING:
    from wharfinger.engine import Engine
    from wharfinger.engine.outcome import Explanation, PreemptionResult
    from wharfinger.scheduler.configuration import SchedulerConfiguration

ANSWERS = 32 << 20  # bytes that each profile may keep of what it computed; verdicts are kept elsewhere
BEST = 25  # nodes whose scores are listed
NAMED = 200  # nodes named for each reason
DETAILED = 250  # nodes of each reason that are looked at more closely, and...
DETAILS = 10  # ...different details that are told
TRIALS = 30  # changes that are tried for one pod
CANDIDATES = 5  # nodes on which preemption would make room

NEVER, WAITING, NOW, HELD, ELSEWHERE = "never", "waiting", "now", "held", "elsewhere"


class Follower:
    def __init__(self, client: Client, clock: Clock, configuration: SchedulerConfiguration, registry: Registry) -> None:
        from wharfinger.dashboard.following import FollowingScheduler

        self._scheduler = FollowingScheduler(client, clock, configuration, registry)
        for profile in self._scheduler.engine.profiles.values():
            profile.memory_limit = ANSWERS
        self._loading: asyncio.Task[None] | None = None

    def start(self, loaded: Callable[[], None] = lambda: None) -> None:
        """Loads the cluster and calls back when explanations can be had."""
        self._loading = asyncio.create_task(self._load(loaded), name="dashboard follower")

    async def _load(self, loaded: Callable[[], None]) -> None:
        await self._scheduler.load()
        loaded()
        freeze_heap()  # a collection that looked at every object of a large cluster would stop all answers

    async def stop(self) -> None:
        if self._loading is not None:
            await cancel([self._loading])
        await self._scheduler.stop()

    @property
    def ready(self) -> bool:
        return self._scheduler.ready

    @property
    def revision(self) -> int:
        """Another number after every change that may change a verdict."""
        return self._scheduler.decisive

    def _pod(self, namespace: str, name: str) -> Pod:
        if not self.ready:
            raise ServiceUnavailable("the cluster is not loaded yet; try again in a moment")
        pod = self._scheduler.pod(namespace, name)
        if pod is None:
            raise not_found(PODS.group, PODS.plural, f"{namespace}/{name}")
        return pod

    # -- short answers

    def verdict(self, namespace: str, name: str) -> Document:
        """Whether a waiting pod can start now, waits for something, or never starts unless something changes; and the
        reasons with the number of nodes."""
        pod, engine = self._pod(namespace, name), self._scheduler.engine
        if pod.spec.scheduler_name not in engine.profiles:
            return {
                "verdict": ELSEWHERE,
                "because": f"it waits for the scheduler {pod.spec.scheduler_name}, which does not run here",
                "reasons": [],
            }
        gate = engine.pre_enqueue(pod)
        if not gate.ok:
            return {"verdict": HELD, "because": gate.message, "reasons": [], "plugin": gate.plugin}
        if not engine.tables.node_count:
            return {"verdict": NEVER, "because": "there are no nodes", "reasons": []}
        decision = engine.schedule(pod)
        if decision.node:
            return {"verdict": NOW, "because": f"it fits on {decision.node}", "node": decision.node, "reasons": []}
        if decision.diagnosis is None:
            return {"verdict": NEVER, "because": decision.message, "reasons": []}
        groups: dict[tuple[str, str], tuple[int, bool]] = {}
        for status, rows in decision.diagnosis.groups:
            for reason in status.reasons:
                count, final = groups.get((status.plugin, reason), (0, True))
                final = final and status.code is Code.UNRESOLVABLE
                groups[status.plugin, reason] = (count + len(rows), final)
        reasons = [
            {"plugin": plugin, "reason": reason, "nodes": count, "final": final}
            for (plugin, reason), (count, final) in sorted(groups.items(), key=lambda item: (-item[1][0], item[0]))
        ]
        final = all(status.code is Code.UNRESOLVABLE for status, _ in decision.diagnosis.groups)
        because = decision.diagnosis.pre_filter or ", ".join(str(each["reason"]) for each in reasons[:3])
        return {"verdict": NEVER if final else WAITING, "because": because, "reasons": reasons}

    def remedies(self, namespace: str, name: str) -> list[Document]:
        """The smallest changes that would let a waiting pod in, each tried in the engine; none for a pod that can start."""
        from wharfinger.simulate.remedies import remedies

        pod, engine = self._pod(namespace, name), self._scheduler.engine
        if pod.spec.node_name or pod.spec.scheduler_name not in engine.profiles or engine.schedule(pod).node:
            return []
        return [each.document() for each in remedies(engine, [pod], trials=TRIALS)]

    # -- the whole answer

    def explain(self, namespace: str, name: str, compared: tuple[str, ...] = ()) -> Document:
        """The verdict on every node. A bound pod is taken off its node for the moment of the question."""
        pod, engine = self._pod(namespace, name), self._scheduler.engine
        notes: list[str] = []
        bound = pod.spec.node_name
        asked = pod
        if pod.spec.scheduler_name not in engine.profiles:
            profile = next(iter(engine.profiles))
            notes.append(
                f"its scheduler is {pod.spec.scheduler_name}, which is not ours; this is what {profile} would do"
            )
            asked = _with(asked, scheduler_name=profile)
        if bound:
            engine.remove_pod(namespace, name)
            asked = _with(asked, node_name="")
        try:
            return self._explained(pod, asked, notes, compared)
        finally:
            self._restore(pod, asked)

    def _restore(self, pod: Pod, asked: Pod) -> None:
        """Undoes what a question left in the engine: what systems tell may assume the pod on the node of its choice."""
        engine = self._scheduler.engine
        engine.forget(asked)
        if pod.spec.node_name:
            engine.set_pod(pod)
        elif pod.status.nominated_node_name:
            engine.set_nominated(pod, pod.status.nominated_node_name)

    def _explained(self, pod: Pod, asked: Pod, notes: list[str], compared: tuple[str, ...]) -> Document:
        engine = self._scheduler.engine
        gate = engine.pre_enqueue(asked)
        if not gate.ok:
            notes.append(f"it is not tried yet: {gate.message}")
        explanation = engine.explain(asked)
        decision = engine.schedule(asked)
        message, preemption, cycle = decision.message, None, self._scheduler.state.cycle
        if decision.diagnosis is not None:
            if engine.profile(asked).at["postFilter"] and cycle.may_preempt(asked):
                preemption = engine.preempt(asked, decision.diagnosis)
            message = cycle.message(asked, decision.diagnosis)
        for each in self._scheduler.state.kinds.others.values():
            notes += (note for note in each.explanations(asked, decision) if note not in message)
        found: Document = {
            "pod": {
                "namespace": pod.metadata.namespace,
                "name": pod.metadata.name,
                "node": pod.spec.node_name or None,
                "phase": pod.status.phase,
            },
            "choice": decision.node or None,
            "message": message,
            "notes": notes,
            "nodeCount": engine.tables.node_count,
            "refused": _refused(engine, asked, explanation.refused),
            "scores": _scores(explanation, decision.node or "", compared),
            "feasible": len(explanation.scores),
            "preemption": _preemption(preemption),
        }
        if explanation.pre_filter is not None:
            found["preFilter"] = {"plugin": explanation.pre_filter.plugin, "message": explanation.pre_filter.message}
        if compared:
            found["compared"] = {node: _on_node(explanation, node) for node in compared}
        return found


def _with(pod: Pod, **changes: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **changes))


def _refused(engine: Engine, pod: Pod, refused: Mapping[str, Status]) -> list[Document]:
    """Nodes grouped by the plugin that refuses and its reasons, the largest group first. `details` say more about some of
    them, such as how many devices each cause rules out."""
    from wharfinger.simulate.obstacles import refused_groups

    groups: dict[tuple[str, str, bool], list[str]] = {}
    for node, status in refused.items():
        key = (status.plugin, "; ".join(status.reasons), status.code is Code.UNRESOLVABLE)
        groups.setdefault(key, []).append(node)
    found = []
    for (plugin, reason, final), nodes in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        nodes.sort()
        group: Document = {"plugin": plugin, "reason": reason, "final": final, "count": len(nodes)}
        group["nodes"] = nodes[:NAMED]
        details = refused_groups(engine, pod, {node: refused[node] for node in nodes[:DETAILED]})
        told = [{"text": each.detail, "nodes": list(each.nodes[:NAMED])} for each in details if each.detail]
        found.append({**group, "details": told[:DETAILS]} if told else group)
    return found


def _scores(explanation: Explanation, choice: str, compared: tuple[str, ...]) -> list[Document]:
    """The best nodes; of equal ones, the choice first."""
    ranked = sorted(explanation.scores, key=lambda name: (-explanation.total(name), name != choice, name))
    shown = dict.fromkeys((*ranked[:BEST], *(name for name in compared if name in explanation.scores)))
    return [{"node": name, "total": explanation.total(name), "scores": explanation.scores[name]} for name in shown]


def _on_node(explanation: Explanation, node: str) -> Document:
    if node in explanation.scores:
        return {"scores": explanation.scores[node], "total": explanation.total(node)}
    status = explanation.refused.get(node)
    if status is None:
        return {"unknown": True}
    return {"plugin": status.plugin, "reason": "; ".join(status.reasons), "final": status.code is Code.UNRESOLVABLE}


def _preemption(result: PreemptionResult | None) -> Document | None:
    if result is None:
        return None
    candidates = sorted(result.candidates.values(), key=lambda each: (each.node != result.node, each.rank, each.node))
    return {
        "node": result.node,
        "message": result.message,
        "candidates": [
            {
                "node": each.node,
                "violations": each.violations,
                "victims": [
                    {
                        "namespace": victim.metadata.namespace,
                        "name": victim.metadata.name,
                        "priority": victim.spec.priority or 0,
                    }
                    for victim in each.victims
                ],
            }
            for each in candidates[:CANDIDATES]
        ],
    }
