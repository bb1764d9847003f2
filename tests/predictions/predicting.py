"""Predicts a stage from the snapshot before it, with the code of `wharf plan`.

A real control plane leaves some things open. Its scheduler chooses at random between nodes that are equally good; the
order of equally important victims, and of pods that may equally well be scaled in, comes from a Go map or a cache; the
components run beside each other, so that nobody knows whose request comes first. `RealChoices` and delays let a prediction make such choices as the real one did, and nothing
else: if it then has the same outcome, that outcome was one of those to expect.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec
from tests.predictions.recording import SCHEDULER, STARTUP_SECONDS, StageRecord
from tests.predictions.stages import perform, touch_budgets
from tests.predictions.worlds import Document

from wharfinger.admission.request import SYSTEM, User
from wharfinger.api.configuration import Configuration, NodesSettings
from wharfinger.api.kinds import registry
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views import Pod
from wharfinger.apiserver.credentials import CONTROLLERS
from wharfinger.apiserver.credentials import SCHEDULER as SCHEDULER_USER
from wharfinger.client.interface import WatchEvent
from wharfinger.client.local import LocalClient
from wharfinger.client.workqueue import WorkQueue
from wharfinger.controllers import scale_in
from wharfinger.controllers.daemon_set import rules
from wharfinger.engine import Engine
from wharfinger.engine.outcome import Decision, Diagnosis, PreemptionResult
from wharfinger.scenario import runner
from wharfinger.scenario.document import ScenarioFault
from wharfinger.simulate import components
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import Inputs, files_of, read_inputs
from wharfinger.simulate.simulation import SimulationOptions, prepare
from wharfinger.store import Store
from wharfinger.store.objects import decode_document

T = TypeVar("T")

CONFIGURATION = Configuration(
    scheduler={"percentageOfNodesToScore": SCHEDULER["percentageOfNodesToScore"]},
    nodes=NodesSettings(startup_seconds=STARTUP_SECONDS),
)
WRITE, WATCH = 0.008, 0.004  # seconds that a request, and the news of it, may take
KUBELET = 0.2  # seconds that a kubelet may take
GAPS = (0.0, 0.0, 0.0, 0.002, 0.005)  # seconds from the deletion of one pod to that of the next
POSTPONED_ROUNDS = 6
MOST_FAILURES = 13  # the next delay is then less than a minute
MOST_POSTPONED = 8  # attempts until a pod takes the node that is the best one
MOST_DELETED = 1000  # pods that go during a stage


@dataclass(slots=True)
class Prediction:
    idle: list[Document]  # all objects when nothing was done
    after: list[Document]  # and after the stage
    retried: list[Document]  # and when the scheduler has tried pods that wait once more
    refused: list[str]


class RealChoices:
    """What happened in the real cluster: the nodes that pods got, for those of one controller in the order of their
    creation, and the order in which pods went."""

    def __init__(self, record: StageRecord) -> None:
        self._nodes: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for pod in record.pods:
            if pod.node:
                self._nodes[_like(pod.namespace, pod.owner, pod.name)].append(pod.node)
        self._deleted = {uid: number for number, uid in enumerate(record.deleted)}

    def deleted(self, pod: Pod) -> float:
        """Sort key: the pod that went first comes first."""
        return self._deleted.get(pod.metadata.uid, inf)

    def place(self, request: ApiRequest[Any]) -> int | None:
        """The place of the pod that a request deletes among those that went."""
        return self._deleted.get(request.delete_options.uid) if request.verb == "delete" else None

    def node(self, pod: Pod, equal: Sequence[str]) -> str | None:
        """The node of the next real pod like this one, if it is among the equal ones."""
        return next((node for node in self._left(pod) if node in equal), None)

    def has_node(self, pod: Pod) -> bool:
        """Whether a real pod like this one got a node that no other has taken yet."""
        return bool(self._left(pod))

    def taken(self, pod: Pod, node: str) -> None:
        left = self._left(pod)
        if node in left:
            left.remove(node)

    def _left(self, pod: Pod) -> list[str]:
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        named = "" if owner is None else f"{owner.kind} {owner.name}"
        return self._nodes[_like(pod.metadata.namespace, named, pod.metadata.name)]


def _like(namespace: str, owner: str, name: str) -> tuple[str, str, str]:
    """What pods have in common that a controller made for the same purpose, whatever it called them."""
    kind, _, owner_name = owner.partition(" ")
    if kind == "ReplicaSet":
        return namespace, kind, owner_name.rpartition("-")[0]
    return namespace, kind, owner_name if kind else name


class ChoosingEngine:
    """Wraps the decisions of an engine: equally good nodes and equally important victims are chosen as in reality.

    With `postpone`, a pod for which the node that it really got is not the best one is tried again later, and some of
    the others too. So pods that wait for the same room are tried in an order in which the real decisions are right, if there is one. The real order depends
    on the moments at which the scheduler hears of each pod that goes.
    """

    def __init__(self, engine: Engine, choices: RealChoices, postpone: Random | None = None) -> None:
        self._schedule, self._preempt, self._explain = engine.schedule, engine.preempt, engine.explain
        self._tables = engine.tables
        self._choices = choices
        self._postpone = postpone
        self._postponed: Counter[str] = Counter()
        engine.schedule = self.schedule  # type: ignore[method-assign]
        engine.preempt = self.preempt  # type: ignore[method-assign]

    def schedule(self, pod: Pod, profile: str | None = None) -> Decision:
        decision = self._schedule(pod, profile)
        if decision.node is None:
            return decision
        explained = self._explain(pod, profile)
        if decision.node in explained.scores and not pod.status.nominated_node_name:
            best = explained.total(decision.node)
            equal = [node for node in explained.scores if explained.total(node) == best]
            real = self._choices.node(pod, equal)
            if self._postpone is not None and self._choices.has_node(pod) and self._may_wait(pod, real):
                return Decision(error="the pod is tried again later")
            wanted = real or decision.node
            decision = msgspec.structs.replace(decision, node=wanted, row=self._tables.row_of[wanted])
        self._choices.taken(pod, str(decision.node))
        return decision

    def _may_wait(self, pod: Pod, real: str | None) -> bool:
        assert self._postpone is not None
        uid = pod.metadata.uid
        if self._postponed[uid] == MOST_POSTPONED or (real is not None and self._postpone.random() < 0.7):
            return False
        self._postponed[uid] += 1
        return True

    def preempt(self, pod: Pod, diagnosis: Diagnosis | None = None, profile: str | None = None) -> PreemptionResult:
        for row in self._tables.row_of.values():
            # Victims are sorted by importance; this is the order among equals.
            held = self._tables.pods_on[row]
            ordered = sorted(held.items(), key=lambda item: self._choices.deleted(item[1].pod), reverse=True)
            held.clear()
            held.update(ordered)
        result = self._preempt(pod, diagnosis, profile)
        wanted = self._choices.node(pod, result.chosen) if result.node is not None else None
        return result if wanted is None else msgspec.structs.replace(result, node=wanted)


class DelayedClient(LocalClient):
    """Takes as long for requests and news as a real connection may. Pods are deleted in the order in which they went, which
    garbage collection takes from a map, some time after each other."""

    def __init__(
        self, store: Store, random: Random, choices: RealChoices | None, user: User = SYSTEM, longest: float = WRITE
    ) -> None:
        super().__init__(store, user)
        self._random = random
        self._choices = choices
        self._longest = longest
        self._moments = list(accumulate(random.choice(GAPS) for _ in range(MOST_DELETED)))

    async def send(self, request: ApiRequest[T]) -> T:
        if request.verb not in ("get", "list"):
            place = self._choices.place(request) if self._choices is not None else None
            delay = self._random.uniform(0.0, self._longest) if place is None else self._moments[place]
            await asyncio.sleep(delay)
        return await super().send(request)

    async def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        async for event in super().stream(request):
            await asyncio.sleep(self._random.uniform(0.0, WATCH))
            yield event


class PredictedCluster(SimulatedCluster):
    """A simulated cluster that makes open choices as told."""

    choices: RealChoices | None = None
    delays: Random | None = None

    def client_of(self, user: User) -> LocalClient:
        return self._admin.as_user(user) if self.delays is None else self._delayed(user, WRITE)

    def _delayed(self, user: User, longest: float) -> DelayedClient:
        assert self.delays is not None
        return DelayedClient(self.store, self.delays, self.choices, user, longest)

    async def _run_scheduler(self) -> None:
        self.scheduler, recorder = components.make_scheduler(
            self.client_of(SCHEDULER_USER),
            self.clock,
            self.configuration,
            self.registry,
            self._seed,
            self._source("scheduler"),
        )
        if self.choices is not None:
            ChoosingEngine(self.scheduler.engine, self.choices, self.delays)
        await components.run_scheduler(self.scheduler, recorder)

    async def _run_controllers(self) -> None:
        await components.run_all_controllers(
            self.client_of(CONTROLLERS),
            self.clock,
            self.configuration,
            self.registry,
            self._source("controllers"),
            provision_faults=self._provision_faults,
            unseen_owners=self._unseen_owners,
            unseen_kinds=self.unseen_kinds,
            queues=self._queues,
        )

    async def _run_nodes(self) -> None:
        client = self._admin if self.delays is None else self._delayed(SYSTEM, KUBELET)
        await components.run_nodes(client, self.clock, self.configuration, self._source("nodes"))


@contextmanager
def scaling_in(choices: RealChoices) -> Iterator[None]:
    """Pods that may equally well be deleted go as in reality: they are sorted, and this is the order among equals. So do
    pods that a DaemonSet replaces."""

    def pods_to_delete(pods: Sequence[Pod], related: Iterable[Pod], count: int, now: float) -> list[Pod]:
        return scale_in.pods_to_delete(sorted(pods, key=choices.deleted), related, count, now)

    def in_deletion_order(pods: Sequence[Pod], ranks: Mapping[str, int], now: float) -> list[Pod]:
        return scale_in.in_deletion_order(sorted(pods, key=choices.deleted), ranks, now)

    def replace_pods(pairs: rules.PodPairs, *rest: Any) -> rules.DaemonPlan:
        ordered = sorted(pairs.items(), key=lambda item: choices.deleted(item[1][1]) if item[1] and item[1][1] else inf)
        return replaced(dict(ordered), *rest)

    replaced = rules._replace
    with (
        patch("wharfinger.controllers.daemon_set.rules._replace", replace_pods),
        patch("wharfinger.controllers.replica_set.pods_to_delete", pods_to_delete),
        patch("wharfinger.controllers.job.rules.in_deletion_order", in_deletion_order),
    ):
        yield


@contextmanager
def earlier_failures(random: Random) -> Iterator[None]:
    """Keys of controllers that fail may have failed before: how long they wait now is in no snapshot."""

    def retry(queue: WorkQueue[Any], key: Any, **options: Any) -> float:
        queue._failures.setdefault(key, random.randrange(MOST_FAILURES))
        return plain(queue, key, **options)

    plain = WorkQueue.retry
    with patch.object(WorkQueue, "retry", retry):
        yield


def predict(snapshot: Path, record: StageRecord, *, as_real: bool = False, order: int | None = None) -> Prediction:
    """With `as_real`, open choices are made as in reality; with `order`, requests take some time, and this number decides
    how much."""
    choices = RealChoices(record) if as_real else None
    inputs = _inputs(snapshot)
    world = PredictedCluster(inputs.configuration, start=max(inputs.start(), record.at))
    world.choices = choices
    world.delays = None if order is None else Random(f"delays {order}")
    try:
        with (
            nullcontext() if choices is None else scaling_in(choices),
            nullcontext() if world.delays is None else earlier_failures(world.delays),
        ):
            return world.loop.complete(_predict(world, inputs, record))
    finally:
        world.close()


def idle_objects(snapshot: Path) -> list[Document]:
    """What becomes of a snapshot when nothing is done."""
    inputs = _inputs(snapshot)
    world = SimulatedCluster(inputs.configuration, start=inputs.start())
    try:
        world.loop.complete(_load(world, inputs))
        return _objects(world)
    finally:
        world.close()


def _inputs(snapshot: Path) -> Inputs:
    logging.disable(logging.WARNING)  # controllers log what the API refused
    inputs = read_inputs(files_of([str(snapshot)], io.BytesIO()), registry(), strict=True)
    # The version of Kubernetes is in the snapshot.
    inputs.configuration = msgspec.structs.replace(CONFIGURATION, kubernetes=inputs.configuration.kubernetes)
    return inputs


async def _load(world: SimulatedCluster, inputs: Inputs) -> None:
    results = runner.Results()
    rest = await prepare(world, inputs, SimulationOptions(), results)
    assert not rest and not results.rejections, (rest, results.rejections)
    await world.settle()


async def _predict(world: PredictedCluster, inputs: Inputs, record: StageRecord) -> Prediction:
    await _load(world, inputs)
    idle = _objects(world)
    refused = await perform(record.stage, world.client_of(SYSTEM), world.settle)
    await world.settle()
    await touch_budgets(world.client_of(SYSTEM))
    await world.settle()
    for _ in range(0 if world.delays is None else POSTPONED_ROUNDS):  # those that were postponed
        await world.fault(ScenarioFault(restart="scheduler"))
        await world.settle()
    after = _objects(world)
    await world.fault(ScenarioFault(restart="scheduler"))
    await world.settle()
    return Prediction(idle, after, _objects(world), refused)


def _objects(world: SimulatedCluster) -> list[Document]:
    return [decode_document(stored.data) for stored in world.final_objects()]
