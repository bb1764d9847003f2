"""Explains a workload as a whole: where its pods are, where those without a node would go, and why the others wait.

Pods that the workload wants but does not have are imagined, as the API server would admit them, so that the answer covers
all of them. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wharfinger.api.errors import ApiError, Forbidden
from wharfinger.api.kinds.builtin import EVENTS, NODES, PODS, REPLICA_SETS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document, Kind, Registry
from wharfinger.api.taints import taint_text, untolerated_taints
from wharfinger.api.views import Node, Pod, view
from wharfinger.api.views.pods import PodSpec
from wharfinger.api.views.workloads import DaemonSet
from wharfinger.api.wording import counted, listed
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.controllers.daemon_set.rules import NodeEligibility, for_node, node_of, with_tolerations
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.simulate.explaining import PodExplanation, explain_in

if TYPE_CHECKING:
    from wharfinger.engine import Engine
    from wharfinger.scheduler.configuration import SchedulerConfiguration

MOST_IMAGINED = 200  # pods that a workload lacks; of more, so many are looked at
_NAMED = 5


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Pods with equal needs that wait for the same reason; the first of them is explained."""

    names: tuple[str, ...]
    explanation: PodExplanation

    def document(self) -> Document:
        found = self.explanation.document()
        del found["nodes"], found["pod"]
        return {"count": len(self.names), "pods": list(self.names), **found}


@dataclass(frozen=True, slots=True)
class WorkloadExplanation:
    kind: str
    namespace: str
    name: str
    wanted: int
    ready: int
    on_nodes: dict[str, int]  # by node
    fitting: dict[str, int]  # pods without a node that fit now, by the node that they would get
    missing: int  # pods that do not exist
    refusal: str  # why the API server refuses further pods
    waiting: tuple[WaitingPods, ...]
    notes: tuple[str, ...] = ()

    @property
    def waits(self) -> int:
        return sum(len(each.names) for each in self.waiting)

    def document(self) -> Document:
        found: Document = {
            "workload": {"kind": self.kind, "namespace": self.namespace, "name": self.name},
            "wanted": self.wanted,
            "running": sum(self.on_nodes.values()),
            "ready": self.ready,
            "missing": self.missing,
            "nodes": self.on_nodes,
            "fitting": self.fitting,
            "waiting": [each.document() for each in self.waiting],
        }
        if self.refusal:
            found["refused"] = self.refusal
        if self.notes:
            found["notes"] = list(self.notes)
        return found


async def explain_workload(
    client: Client,
    clock: Clock,
    configuration: SchedulerConfiguration,
    registry: Registry,
    kind: Kind,
    namespace: str,
    name: str,
) -> WorkloadExplanation:
    """Raises NotFound if there is no such workload."""
    from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions

    workload = await client.get(kind.storage, name, namespace)
    pods = await pods_of_workload(client, workload)
    nodes = (await client.list(NODES, view=Node)).items if kind.kind == "DaemonSet" else []
    wanted, lacking, notes = _wanted(kind.kind, workload, pods, nodes)
    imagined, refusal = await _imagined(client, kind, workload, lacking)
    if lacking and not refusal:
        refusal = await _failed_creation(client, workload)
        imagined = [] if refusal else imagined
    scheduler = Scheduler(client, clock, configuration, registry, SchedulerOptions(writes=False))
    await scheduler.load()
    try:
        engine = scheduler.engine
        placed = [pod for pod in pods if pod.spec.node_name]
        fitting, waiting = tried(engine, [*(pod for pod in pods if not pod.spec.node_name), *imagined])
        groups = []
        for together in waiting:
            explained = explain_in(scheduler, together[0], like=together[1:])
            groups.append(WaitingPods(tuple(pod.metadata.name for pod in together), explained))
    finally:
        await scheduler.stop()
    return WorkloadExplanation(
        kind.kind,
        namespace,
        name,
        wanted,
        sum(pod.ready for pod in placed),
        _by_node(pod.spec.node_name for pod in placed),
        _by_node(fitting),
        len(lacking),
        refusal,
        tuple(groups),
        tuple(notes),
    )


def _by_node(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


async def pods_of_workload(client: Client, workload: Document) -> list[Pod]:
    """The unfinished pods of a workload, those of its ReplicaSets included."""
    namespace, owners = workload["metadata"]["namespace"], {workload["metadata"]["uid"]}
    if workload["kind"] == "Deployment":
        for each in (await client.list(REPLICA_SETS, namespace)).items:
            reference = controller_of(each)
            if reference is not None and reference["uid"] == workload["metadata"]["uid"]:
                owners.add(each["metadata"]["uid"])
    page = await client.list(PODS, namespace, view=Pod)
    found = [
        pod
        for pod in page.items
        if not pod.terminal and (owner := pod.metadata.controller) is not None and owner.uid in owners
    ]
    return sorted(found, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def _wanted(
    kind: str, workload: Document, pods: Sequence[Pod], nodes: Sequence[Node]
) -> tuple[int, list[str], list[str]]:
    """How many pods are wanted; names of those that do not exist (nodes, for a DaemonSet); and notes."""
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    name, notes = workload["metadata"]["name"], list[str]()
    if kind == "DaemonSet":
        return _wanted_daemons(workload, pods, nodes)
    if kind == "Job":
        ended = [each for each in status.get("conditions") or () if each.get("status") == "True"]
        if any(each.get("type") in ("Complete", "Failed") for each in ended):
            return 0, [], ["the job has ended"]
        left = spec.get("completions")
        wanted = spec.get("parallelism", 1) if not spec.get("suspend") else 0
        if left is not None:
            wanted = min(wanted, left - status.get("succeeded", 0))
        if spec.get("suspend"):
            notes.append("the job is suspended")
    else:
        wanted = spec.get("replicas", 1)
    active = [pod for pod in pods if not pod.terminating]
    if kind == "StatefulSet":
        first = (spec.get("ordinals") or {}).get("start", 0)
        known = {pod.metadata.name for pod in pods}
        lacking = [f"{name}-{index}" for index in range(first, first + wanted) if f"{name}-{index}" not in known]
        unready = [pod.metadata.name for pod in pods if not pod.ready]
        if lacking and unready and spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady":
            notes.append(f"pods are created one after the other: {unready[0]} is not ready")
    else:
        lacking = [f"{name}-new-{index}" for index in range(wanted - len(active))]
    return wanted, lacking[:MOST_IMAGINED], notes


def _wanted_daemons(workload: Document, pods: Sequence[Pod], nodes: Sequence[Node]) -> tuple[int, list[str], list[str]]:
    rules = NodeEligibility(view(workload, DaemonSet))
    wanted = [node.metadata.name for node in nodes if rules.of(node).run]
    served = {node_of(pod) for pod in pods if not pod.terminating}
    left_out: dict[str, list[str]] = {}
    template = (workload.get("spec") or {}).get("template") or {}
    spec = view(with_tolerations(template.get("spec") or {}), PodSpec)
    for node in nodes:
        if node.metadata.name not in wanted:
            taints = untolerated_taints(spec.tolerations, node.spec.taints)
            why = ", ".join(taint_text(each) for each in taints) or "node selector or affinity"
            left_out.setdefault(why, []).append(node.metadata.name)
    notes = [
        f"{counted(len(names), 'node')} {'gets' if len(names) == 1 else 'get'} no pod because of {why}: "
        f"{listed(sorted(names), _NAMED)}"
        for why, names in sorted(left_out.items())
    ]
    return len(wanted), [name for name in wanted if name not in served][:MOST_IMAGINED], notes


async def _imagined(client: Client, kind: Kind, workload: Document, lacking: Sequence[str]) -> tuple[list[Pod], str]:
    """The pods that do not exist, as the API server would admit them; or why it refuses them."""
    if not lacking:
        return [], ""
    metadata: Document = workload["metadata"]
    owner = {
        "apiVersion": kind.storage.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    template: dict[str, Any] = workload["spec"]["template"]
    document = pod_from_template(template, owner)
    if kind.kind == "DaemonSet":
        document["spec"] = with_tolerations(document["spec"])
    try:
        admitted: Document = await client.create(PODS, document, metadata["namespace"], dry_run=True)
    except Forbidden as error:
        if "exceeded quota" in error.message or "is forbidden: User" not in error.message:
            return [], error.message
        admitted = document  # we may not ask
    except ApiError as error:
        return [], error.message
    made = []
    for name in lacking:
        each = admitted
        if kind.kind == "DaemonSet":
            each, name = {**admitted, "spec": for_node(admitted["spec"], name)}, f"{metadata['name']} on {name}"
        pod = view(each, Pod)
        identity = replace(pod.metadata, namespace=metadata["namespace"], name=name, uid=f"imagined {name}")
        made.append(replace(pod, metadata=identity))
    return made, ""


async def _failed_creation(client: Client, workload: Document) -> str:
    """Why the controller could not create pods, from the last event about that."""
    metadata = workload["metadata"]
    try:
        events = (await client.list(EVENTS, metadata["namespace"])).items
    except ApiError:
        return ""
    failed = [
        each
        for each in events
        if each.get("reason") == "FailedCreate" and (each.get("involvedObject") or {}).get("uid") == metadata["uid"]
    ]
    last = max(failed, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""), default=None)
    return "" if last is None else str(last.get("message") or "")


def tried(engine: Engine, pods: Sequence[Pod]) -> tuple[list[str], list[list[Pod]]]:
    """The nodes of the pods that fit, each after those before it, and the others, grouped by needs and reason."""
    fitting: list[str] = []
    waiting: dict[tuple[int, str], list[Pod]] = {}
    for pod in pods:
        if pod.spec.scheduler_name not in engine.profiles:
            waiting.setdefault((-1, pod.spec.scheduler_name), []).append(pod)
            continue
        gate = engine.pre_enqueue(pod)
        decision = engine.schedule(pod)
        if gate.ok and decision.node is not None and engine.assume(pod, decision.node).ok:
            fitting.append(decision.node)
        else:
            why = gate.message or decision.message
            waiting.setdefault((engine.tables.shapes.of(pod).number, why), []).append(pod)
    return fitting, list(waiting.values())
