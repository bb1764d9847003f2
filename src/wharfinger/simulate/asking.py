"""Answers "would this start now, when, or never?" for pods and workloads, before they are created.

They are created in a simulated copy of the cluster. What has a known end (deadlines of pods and Jobs, reservations that
expire, rollouts in progress) ends there, too, so that the start of a pod that waits for it can be told.

    answer = ask(cluster, asked)
    answer.verdict  # now, waiting or never

`starts_of_waiting` tells the same of the pods that already wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from wharfinger.api.kinds.builtin import DEPLOYMENTS, EVENTS, JOBS, PODS, REPLICA_SETS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, format_time, parse_time
from wharfinger.api.views import Pod
from wharfinger.api.wording import counted, listed
from wharfinger.scenario import runner
from wharfinger.scheduler import profiles
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.explaining import explain_in
from wharfinger.simulate.inputs import BadInput, Inputs
from wharfinger.simulate.remedies import PodRemedy
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare
from wharfinger.simulate.workloads import tried
from wharfinger.system import systems

HORIZON = 24 * 3600.0  # seconds that are looked ahead
MOST_ENDS = 50  # known ends that are awaited
AT_ONCE = 5.0  # seconds in which controllers make the pods and the scheduler looks at them
_NAMED = 3

Key = tuple[str, str]
"""Namespace and name of a pod."""


class Verdict(IntEnum):
    """The larger, the worse; the answer about several pods is the worst one."""

    NOW = 0
    WAITING = 1
    NEVER = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class AskedPod:
    """What would become of one pod. `starts` is when it gets its node, in seconds since the epoch."""

    namespace: str
    name: str
    verdict: Verdict
    node: str = ""
    starts: float | None = None
    because: str = ""
    waits_for: tuple[str, ...] = ()

    def document(self) -> Document:
        found: Document = {"namespace": self.namespace, "name": self.name, "verdict": str(self.verdict)}
        if self.node:
            found["node"] = self.node
        if self.verdict is Verdict.WAITING and self.starts is not None:
            found["startsAt"] = format_time(self.starts)
            found["waitsFor"] = list(self.waits_for)
        return {**found, "because": self.because} if self.because else found


@dataclass(frozen=True, slots=True)
class HelpfulChanges:
    """What would let in pods with equal needs that do not fit now."""

    pods: tuple[str, ...]  # `namespace/name`
    remedies: tuple[PodRemedy, ...]


@dataclass(frozen=True, slots=True)
class AskAnswer:
    verdict: Verdict
    because: str
    pods: tuple[AskedPod, ...] = ()
    would_help: tuple[HelpfulChanges, ...] = ()
    notes: tuple[str, ...] = ()
    asked_at: float = 0.0

    def document(self) -> Document:
        starts = [each.starts for each in self.pods if each.starts is not None]
        found: Document = {
            "kind": "Answer",
            "apiVersion": "wharfinger.dev/v1alpha1",
            "verdict": str(self.verdict),
            "because": self.because,
            "askedAt": format_time(self.asked_at),
            "pods": [each.document() for each in self.pods],
            "wouldHelp": [
                {**remedy.document(), "for": list(each.pods)} for each in self.would_help for remedy in each.remedies
            ],
        }
        if self.verdict is Verdict.WAITING and starts:
            found["startsAt"] = format_time(max(starts))
        if self.notes:
            found["notes"] = list(self.notes)
        return found


@dataclass(slots=True)
class _Question:
    """The state of one question: what is asked about, and what there was before."""

    world: SimulatedCluster
    began: float
    before: dict[Key, str]  # the nodes of the pods that exist
    owners: set[str] = field(default_factory=set)  # uids of the asked workloads
    keys: set[Key] = field(default_factory=set)  # the asked pods
    helpful: list[HelpfulChanges] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    passed: dict[str, float] = field(default_factory=dict)  # known ends, by what ends


def ask(
    cluster: Inputs, asked: Inputs, *, start: float | None = None, user: str = "", horizon: float = HORIZON
) -> AskAnswer:
    """What would become of the pods and workloads of `asked` in the cluster. Nothing is created outside the simulation.
    Raises BadInput if they are invalid."""
    if asked.scenarios or asked.configured:
        raise BadInput(["only objects can be asked about, no scenario and no configuration"])
    begin = max(cluster.start(), asked.start()) if start is None else start
    world = SimulatedCluster(cluster.configuration, start=begin)
    try:
        return world.loop.complete(_ask(world, cluster, asked, user, horizon))
    finally:
        world.close()


def starts_of_waiting(cluster: Inputs, *, start: float | None = None, horizon: float = HORIZON) -> list[AskedPod]:
    """When each pod that waits in the cluster would get its node, if nothing changed but what has a known end."""
    world = SimulatedCluster(cluster.configuration, start=cluster.start() if start is None else start)
    try:
        return world.loop.complete(_starts_of_waiting(world, cluster, horizon))
    finally:
        world.close()


async def _starts_of_waiting(world: SimulatedCluster, cluster: Inputs, horizon: float) -> list[AskedPod]:
    waiting = {
        (metadata.get("namespace", ""), metadata["name"])
        for manifest in cluster.manifests
        if (document := manifest.document).get("kind") == PODS.kind
        and not (document.get("spec") or {}).get("nodeName")
        and _is_waiting(document)
        for metadata in (document["metadata"],)
    }
    if not waiting:
        return []
    await prepare(world, cluster, SimulationOptions(), runner.Results())
    before = {key: node for key, node, _ in _pods(world)}
    question = _Question(world, world.clock.now(), before, keys=waiting)
    await world.advance(world.loop.time() + AT_ONCE)
    placed_at_once = {key for key, node, _ in _pods(world) if node}
    await world.settle()
    await _pass_known_ends(question, horizon)
    return _asked_pods(question, refused=waiting - placed_at_once)


async def _ask(world: SimulatedCluster, cluster: Inputs, asked: Inputs, user: str, horizon: float) -> AskAnswer:
    given, results = runner.Results(), runner.Results()
    rest = await prepare(world, cluster, SimulationOptions(), given, asked.manifests)
    if rest:  # objects that people wrote, which must come into being first
        await apply_manifests(world, rest, SimulationOptions(), given)
        await world.settle()
    question = _Question(world, world.clock.now(), {key: node for key, node, _ in _pods(world)})
    await apply_manifests(world, list(asked.manifests), SimulationOptions(user=user), results)
    if results.rejections:
        first = results.rejections[0]
        return AskAnswer(
            Verdict.NEVER, f"{first.kind} {first.name} is refused: {first.message}", asked_at=question.began
        )
    _note_asked(question, asked)
    await world.advance(world.loop.time() + AT_ONCE)
    _collect(question)
    await _explain(question)
    await world.settle()
    await _pass_known_ends(question, horizon)
    return _answer(question)


async def _pass_known_ends(question: _Question, horizon: float) -> None:
    """Lets time pass until every pod has a node, or nothing else has a known end."""
    world, ends = question.world, 0
    while _unplaced(question) and ends < MOST_ENDS:
        due = min((when for when in _known_ends(question).values()), default=None)
        if due is None or due > question.began + horizon:
            break
        await world.advance(world.loop.time() + max(due - world.clock.now(), 0.0) + 1.0)
        await world.settle()
        ends += 1


# -- which pods


def _pods(world: SimulatedCluster) -> Iterable[tuple[Key, str, Document]]:
    for pod in world.objects(PODS):
        metadata = pod["metadata"]
        yield (metadata.get("namespace", ""), metadata["name"]), (pod.get("spec") or {}).get("nodeName") or "", pod


def _note_asked(question: _Question, asked: Inputs) -> None:
    world = question.world
    for manifest in asked.manifests:
        document = manifest.document
        resource = world.registry.resource_of(document)
        metadata = document.get("metadata") or {}
        if resource is None or not metadata.get("name"):
            continue
        namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
        if resource == PODS:
            question.keys.add((namespace, metadata["name"]))
        elif (stored := world.store.peek(resource, metadata["name"], namespace)) is not None:
            question.owners.add(stored.document()["metadata"]["uid"])


def _collect(question: _Question) -> None:
    """Adds the pods that the asked workloads have made, also through ReplicaSets and Jobs."""
    world, owners = question.world, set(question.owners)
    for resource in (DEPLOYMENTS, REPLICA_SETS, JOBS):
        for each in world.objects(resource):
            owner = controller_of(each)
            if owner is not None and owner.get("uid") in owners:
                owners.add(each["metadata"]["uid"])
    for key, _, pod in _pods(world):
        owner = controller_of(pod)
        if owner is not None and owner.get("uid") in owners and key not in question.before:
            question.keys.add(key)


def _unplaced(question: _Question) -> bool:
    _collect(question)
    return any(key in question.keys and not node and _is_waiting(pod) for key, node, pod in _pods(question.world))


def _is_waiting(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase", "Pending") == "Pending" and not pod["metadata"].get(
        "deletionTimestamp"
    )


# -- why they wait


async def _explain(question: _Question) -> None:
    """What would help the pods that do not fit at first, and why pods are missing."""
    world = question.world
    client = world.client("", lambda warning: None)
    waiting = [key for key, node, pod in _pods(world) if key in question.keys and not node and _is_waiting(pod)]
    if waiting:
        settings = profiles.load(world.configuration.scheduler, settings=world.configuration)
        scheduler = Scheduler(client, world.clock, settings, world.registry, SchedulerOptions())
        await scheduler.load()
        try:
            found = [pod for namespace, name in waiting if (pod := scheduler.pod(namespace, name)) is not None]
            for group in tried(scheduler.engine, found)[1]:
                names = tuple(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in group)
                found_remedies = explain_in(scheduler, group[0], like=group[1:]).remedies
                question.helpful += [HelpfulChanges(names, found_remedies)] if found_remedies else []
        finally:
            await scheduler.stop()
    owners, told = _all_owners(question), dict[str, str]()
    for each in world.objects(EVENTS):
        involved = each.get("involvedObject") or {}
        if each.get("reason") == "FailedCreate" and involved.get("uid") in owners:
            name = f"{involved.get('kind')} {involved.get('namespace')}/{involved.get('name')}"
            told.setdefault(name, f"{name} lacks pods: {each.get('message') or ''}")
    question.notes = list(told.values())


def _all_owners(question: _Question) -> set[str]:
    owners = set(question.owners)
    for resource in (REPLICA_SETS, JOBS):
        for each in question.world.objects(resource):
            owner = controller_of(each)
            if owner is not None and owner.get("uid") in owners:
                owners.add(each["metadata"]["uid"])
    return owners


def _known_ends(question: _Question) -> Mapping[str, float]:
    """When things end by themselves after now: pods and Jobs with deadlines, and what the systems know."""
    world, now = question.world, question.world.clock.now()
    found: dict[str, float] = {}
    for kind, documents in (("pod", world.objects(PODS)), ("Job", world.objects(JOBS))):
        for each in documents:
            spec, status, metadata = each.get("spec") or {}, each.get("status") or {}, each["metadata"]
            deadline, began = spec.get("activeDeadlineSeconds"), status.get("startTime")
            if isinstance(deadline, int) and began and not status.get("completionTime"):
                try:
                    name = f"{kind} {metadata.get('namespace')}/{metadata['name']} (deadline)"
                    found[name] = parse_time(began) + deadline
                except BadTime:
                    continue
    for system in systems():
        found |= system.report().known_ends(world.objects)
    ahead = {name: when for name, when in found.items() if when >= now}
    question.passed |= ahead
    return ahead


# -- the answer


def _answer(question: _Question) -> AskAnswer:
    _collect(question)
    events = question.world.objects(EVENTS)
    pods = _asked_pods(question, {_involved(each) for each in events if each.get("reason") == "FailedScheduling"})
    verdict = max((each.verdict for each in pods), default=Verdict.NOW)
    if question.notes:
        verdict = Verdict.NEVER
    helpful = () if verdict is Verdict.NOW else tuple(question.helpful)
    return AskAnswer(
        verdict, _because(verdict, pods, question), tuple(pods), helpful, tuple(question.notes), question.began
    )


def _asked_pods(question: _Question, refused: Collection[Key]) -> list[AskedPod]:
    """What became of the pods; `refused` are those that did not fit at first."""
    world = question.world
    pods = []
    for key in sorted(question.keys):
        pod = _stored(world, key)
        if pod is None:
            continue  # it has come and gone, such as the pod of a Job that ended
        condition = pod.status.condition("PodScheduled")
        if not pod.spec.node_name:
            why = condition.message if condition is not None else ""
            if not why:
                why = f"waits for the scheduler {pod.spec.scheduler_name}, which does not run here"
            pods.append(AskedPod(*key, Verdict.NEVER, because=why))
        elif key not in refused:
            pods.append(AskedPod(*key, Verdict.NOW, pod.spec.node_name, question.began))
        else:
            starts = parse_time(condition.last_transition_time) if condition is not None else question.began
            awaited = _awaited(question, pod.spec.node_name, starts)
            text = (
                f"starts when {listed(awaited, _NAMED)} {'has' if len(awaited) == 1 else 'have'} left"
                if awaited
                else ""
            )
            pods.append(AskedPod(*key, Verdict.WAITING, pod.spec.node_name, starts, text, awaited))
    return pods


def _stored(world: SimulatedCluster, key: Key) -> Pod | None:
    stored = world.store.peek(PODS, key[1], key[0])
    return None if stored is None else stored.view(Pod)


def _awaited(question: _Question, node: str, starts: float) -> tuple[str, ...]:
    """What has left the node between the question and the start: pods, and what had a known end."""
    gone = [
        f"pod {key[0]}/{key[1]}" for key, on in sorted(question.before.items()) if on == node and _left(question, key)
    ]
    ended = [
        what
        for what, when in sorted(question.passed.items(), key=lambda item: item[1])
        if when <= starts and not what.startswith(("pod ", "Job "))
    ]
    return (*gone, *ended)


def _left(question: _Question, key: Key) -> bool:
    pod = _stored(question.world, key)
    return pod is None or pod.terminal or pod.terminating


def _because(verdict: Verdict, pods: Iterable[AskedPod], question: _Question) -> str:
    found = [each for each in pods if each.verdict is verdict]
    if question.notes and not any(each.verdict is Verdict.NEVER for each in found):
        return question.notes[0]
    if not found:
        return "it makes no pods at once"
    if verdict is Verdict.NOW:
        return f"{counted(len(found), 'pod')} {'fits' if len(found) == 1 else 'fit'} on {listed(sorted({e.node for e in found}), _NAMED)}"
    if verdict is Verdict.WAITING:
        last = max(found, key=lambda each: each.starts or 0.0)
        return f"{last.because or 'starts'} (at {format_time(last.starts or 0.0)})"
    return found[0].because


def _involved(event: Document) -> Key:
    involved = event.get("involvedObject") or {}
    return str(involved.get("namespace", "")), str(involved.get("name"))
