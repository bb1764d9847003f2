"""Answers a question about capacity: loads the cluster, asks the engine, and plays the choices in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.api.kinds.builtin import DAEMON_SETS, JOBS, NODES, PODS, STATEFUL_SETS
from wharfinger.api.manifests import Manifest, Source
from wharfinger.api.node_groups import NodeGroup
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.views import Node, Pod, view
from wharfinger.capacity.choosing import NONE, CapacityChoice, NodeSearch, WaitingPod
from wharfinger.capacity.ends import RESERVATION, pod_end, reservation_end
from wharfinger.capacity.fitting import count_fitting
from wharfinger.capacity.groups import (
    CapacityGroup,
    KnownNodes,
    found_groups,
    from_node_group,
    node_prices,
    priced,
    used_of,
)
from wharfinger.capacity.models import INVENTORY
from wharfinger.capacity.new_nodes import DaemonPods, NewNodes, daemon_pods, pod_title
from wharfinger.capacity.prices import PriceTable
from wharfinger.capacity.removing import find_removable
from wharfinger.capacity.report import CapacityReport, ChoiceTimes
from wharfinger.capacity.silent import is_silent, promised
from wharfinger.capacity.sources import BadForeignObject, described_groups, limit_by_autoscaler
from wharfinger.capacity.timeline import JoiningNode, starts
from wharfinger.capacity.workloads import missing_pods, more_of
from wharfinger.repack.freeing import Effort
from wharfinger.repack.movable import as_new
from wharfinger.scenario import applying, runner
from wharfinger.scheduler import profiles
from wharfinger.scheduler.schedulable import schedulables
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput, Inputs
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare

GRACE = 900.0  # seconds that a new node may take to publish its devices
_HORIZON = 7 * 86400.0  # seconds from now; what ends later does not matter
_BESIDE = ("ResourceSlice", "CSINode", INVENTORY)


@dataclass(slots=True)
class CapacityOptions:
    groups: Sequence[NodeGroup] = ()
    prices: PriceTable | None = None
    foreign: Sequence[Document] = ()  # objects of other projects that describe node groups
    more: str = ""  # a workload of which more pods might come: `KIND/NAMESPACE/NAME`
    start: float | None = None  # the current time
    grace: float = GRACE
    timeline: bool = True
    removal: bool = True
    seed: int = 0
    questions: int = 60_000  # to the engine, that the search for a set of nodes may spend
    solver_seconds: float | None = None  # let CP-SAT improve the set for at most that long
    effort: Effort = field(default_factory=lambda: Effort(questions=20_000))


def plan_capacity(cluster: Inputs, coming: Inputs, options: CapacityOptions) -> CapacityReport:
    """What a cluster needs, with the objects that are to come. Raises BadInput."""
    inputs = coming.on(cluster)
    begin = inputs.start() if options.start is None else options.start
    world = SimulatedCluster(inputs.configuration, start=begin, seed=options.seed)
    try:
        made = world.loop.complete(_CapacityPlan(world, cluster, coming, options, begin).run())
    finally:
        world.close()
    if options.timeline:
        _play(made, options, begin)
    return made.report


@dataclass(slots=True)
class _Planned:
    report: CapacityReport
    inputs: Inputs  # the cluster with what is to come, before anything is scheduled
    waiting: list[str]  # titles
    last: float  # seconds from now to the last known end


class _CapacityPlan:
    def __init__(
        self, world: SimulatedCluster, cluster: Inputs, coming: Inputs, options: CapacityOptions, begin: float
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.coming = coming
        self.options = options
        self.begin = begin
        self.ran = {
            f"{applying.namespace_of(manifest.document, PODS)}/{manifest.name}"
            for manifest in cluster.manifests
            if manifest.document.get("kind") == "Pod" and (manifest.document.get("spec") or {}).get("nodeName")
        }

    async def run(self) -> _Planned:
        refused = await self._load()
        known = self._known()
        groups, notes = self._groups(known)
        report = CapacityReport(self.begin, groups, self.options.prices is not None, notes=notes)
        report.notes += refused
        configuration = self.world.configuration
        loaded = profiles.load(configuration.scheduler, settings=configuration)
        client = self.world.client("", lambda warning: None)
        options = SchedulerOptions(seed=self.options.seed)
        scheduler = Scheduler(client, self.world.clock, loaded, self.world.registry, options)
        await scheduler.load()
        try:
            return self._answer(scheduler, known, groups, report)
        finally:
            await scheduler.stop()

    async def _load(self) -> list[str]:
        """Loads the cluster, then what is to come. Whatever fits is scheduled, but no time passes. Returns what was
        refused."""
        results, options = runner.Results(), SimulationOptions()
        rest = await prepare(self.world, self.cluster, options, results, self.coming.manifests)
        await apply_manifests(self.world, rest, options, results)
        await self.world.loop.still()
        await apply_manifests(self.world, list(self.coming.manifests), options, results)
        await self.world.loop.still()
        return [
            f"{each.kind} {each.namespace + '/' if each.namespace else ''}{each.name} was refused: {each.message}"
            for each in results.rejections
        ]

    def _known(self) -> KnownNodes:
        objects = self.world.objects(NODES)
        for name in _BESIDE:
            kind = self.world.registry.find(name)
            if kind is not None:
                objects += [{"kind": name, **each} for each in self.world.objects(kind.storage)]
        return KnownNodes(objects)

    def _groups(self, known: KnownNodes) -> tuple[list[CapacityGroup], list[str]]:
        options, notes = self.options, list[str]()
        described = []
        for document in options.groups:
            group, faults = from_node_group(document, known, options.prices)
            described.append(group)
            notes += faults
        manifests = [*self.cluster.manifests, *self.coming.manifests]
        documents = [*(manifest.document for manifest in manifests), *options.foreign]
        try:
            described += described_groups(documents, known, options.prices)
        except BadForeignObject as error:
            raise BadInput([str(error)]) from error
        groups = found_groups(known, described)
        limit_by_autoscaler(groups, documents)
        notes += priced(groups, known, options.prices)
        for group in groups:
            self._note_silent(group, known)
        return groups, notes

    def _note_silent(self, group: CapacityGroup, known: KnownNodes) -> None:
        if group.document is None:
            return
        for name in group.nodes:
            node = known.nodes[name]
            young = self.begin - _created(node, self.begin) < self.options.grace
            if young and is_silent(node, known.beside(name), group.document):
                group.silent.append(name)

    def _answer(
        self, scheduler: Scheduler, known: KnownNodes, groups: Sequence[CapacityGroup], report: CapacityReport
    ) -> _Planned:
        engine = scheduler.engine
        daemons = daemon_pods(self.world.objects(DAEMON_SETS))
        base = NewNodes(engine, daemons)
        for group in groups:
            for name in group.silent:
                assert group.document is not None
                engine.set_node(view(promised(known.nodes[name], group.document), Node))
            for number in range(group.coming if group.models else 0):
                base.add(group.models[0], f"{group.name}-coming-{number + 1}")
        waiting = self._waiting(scheduler, base, report)
        used = {group.name: used_of(group, known) for group in groups}
        search = NodeSearch(NewNodes(engine, daemons), groups, used, waiting, self.options.questions)
        first = search.first_fit()
        best, report.bound = search.cheapest(first)
        if self.options.solver_seconds is not None:
            best, report.bound = search.solved(best, report.bound, self.options.solver_seconds, self.options.seed)
        report.choices = [first, best]
        prices = self._node_prices(known, report)
        report.cost_now = sum(prices.values())
        report.group_of = {name: group.name for group in groups for name in group.nodes}
        if self.options.more:
            self._count_more(scheduler, groups, used, daemons, report)
        ends = self._ends(scheduler)
        if self.options.removal:
            search.apply(best)
            report.removal = find_removable(engine, sorted(known.nodes), prices, ends, self.options.effort)
        last = max((end - self.begin for end in ends.values() if end - self.begin < _HORIZON), default=0.0)
        return _Planned(report, self._filled(), [pod_title(each.pod) for each in waiting], max(last, 0.0))

    def _filled(self) -> Inputs:
        """What the simulated cluster holds now, so that the same pods can be played again."""
        source = Source("the simulated cluster", 1, 1)
        manifests = [Manifest(stored.document(), source) for stored in self.world.final_objects()]
        return Inputs(manifests, configuration=self.world.configuration, unseen_kinds=self.cluster.unseen_kinds)

    def _waiting(self, scheduler: Scheduler, base: NewNodes, report: CapacityReport) -> list[WaitingPod]:
        """The pods that no node takes, not even one that is on its way, in the order of the queue."""
        for pod in scheduler.pods():
            if pod.spec.node_name and pod_title(pod) not in self.ran and not pod.terminal:
                report.fitting[pod_title(pod)] = pod.spec.node_name
        found = []
        for pod in [
            *self._queued(scheduler, report),
            *missing_pods(self.world.objects(STATEFUL_SETS), scheduler.pods()),
        ]:
            decision = base.place(pod)
            if decision.node is not None:
                report.fitting[pod_title(pod)] = decision.node
            else:
                found.append(WaitingPod(pod, decision.message))
        return found

    def _queued(self, scheduler: Scheduler, report: CapacityReport) -> list[Pod]:
        """What is to be scheduled, in the order of the queue: pods, and objects that need room as pods do."""
        found: list[Pod] = []
        while (item := scheduler.state.next(self.world.loop.time())) is not None:
            found.append(item.pod)
        queued = {pod.metadata.key for pod in found}
        for pod in scheduler.pods():
            if pod.spec.node_name or pod.terminal or pod.terminating or pod.metadata.key in queued:
                continue
            if pod.spec.scheduler_name in scheduler.engine.profiles:
                report.held[pod_title(pod)] = scheduler.engine.pre_enqueue(pod).message
            else:
                found.append(pod)  # nobody here schedules it, which is said with the other reasons
        return found

    def _node_prices(self, known: KnownNodes, report: CapacityReport) -> dict[str, float]:
        if self.options.prices is None:
            return dict.fromkeys(known.nodes, 1.0)
        prices, unpriced = node_prices(known.nodes.values(), report.groups, self.options.prices)
        if unpriced:
            names = ", ".join(unpriced[:5]) + (" …" if len(unpriced) > 5 else "")
            report.notes.append(f"{self.options.prices.name} has no price for {names}: counted as free of charge")
        return prices

    def _count_more(
        self,
        scheduler: Scheduler,
        groups: Sequence[CapacityGroup],
        used: Mapping[str, Mapping[str, int]],
        daemons: Sequence[DaemonPods],
        report: CapacityReport,
    ) -> None:
        title, pod = more_of(self.world, self.options.more)
        report.more_of = title
        new = NewNodes(scheduler.engine, daemons)
        report.more = count_fitting(new, as_new(pod, (), scheduler.engine), groups, used)

    def _ends(self, scheduler: Scheduler) -> dict[tuple[str, str], float]:
        jobs = {job["metadata"].get("uid", ""): job for job in self.world.objects(JOBS)}
        ends = {
            pod.metadata.key: end
            for pod in scheduler.pods()
            if pod.spec.node_name and (end := pod_end(pod, jobs)) is not None
        }
        kind = self.world.registry.find(RESERVATION)
        if kind is not None:
            for document in self.world.objects(kind.storage):
                if (end := reservation_end(document)) is not None:
                    ends[RESERVATION, document["metadata"]["name"]] = end
        return ends


def _play(made: _Planned, options: CapacityOptions, begin: float) -> None:
    """Plays every choice. The cheapest must do what was planned."""
    report = made.report
    pods = [
        title
        for title in made.waiting
        if not title.startswith(tuple(f"{each.resource.kind} " for each in schedulables()))
    ]
    if not pods:
        return
    coming = [
        JoiningNode(f"{group.name}-coming-{number + 1}", group.models[0], group.models[0].startup)
        for group in report.groups
        for number in range(group.coming if group.models else 0)
    ]
    for choice in (CapacityChoice(NONE), *report.choices):
        nodes = [JoiningNode(node.name, node.model, node.model.startup) for node in choice.nodes]
        found = starts(made.inputs, pods, [*coming, *nodes], begin, made.last, options.seed)
        report.times[choice.title] = ChoiceTimes(found, [title for title in pods if title not in found])
    late = [title for title in report.times[report.best.title].never if title not in report.best.unserved]
    if late and report.best.nodes:
        more = f" and {len(late) - 3} more" if len(late) > 3 else ""
        report.surprise = f"{', '.join(late[:3])}{more} did not start in the simulation"


def _created(node: Document, default: float) -> float:
    try:
        return parse_time(node["metadata"].get("creationTimestamp") or "")
    except BadTime:
        return default
