"""The ResourcePolicy controller: unit usage and conditions in the status, and pod deletion costs, so that a scale-down
removes pods from the least preferred nodes first. It does not decide where pods are placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from wharfinger.api.conditions import find_condition, transition_time
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time, parse_time
from wharfinger.api.views import Node, Pod
from wharfinger.api.wording import counted
from wharfinger.client.controller import Controller
from wharfinger.client.informer import Informer
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.scale_in import DELETION_COST
from wharfinger.controllers.status_patches import patch_status
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler import profiles as profile_loading
from wharfinger.scheduler.configuration import BadSchedulerConfiguration
from wharfinger.scheduler.schedulable import Schedulable, schedulables
from wharfinger.systems.resource_policy.controllers.cache import CountedPolicy, PolicyCache
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES
from wharfinger.systems.resource_policy.plugin.resource_policy import ResourcePolicyPlugin
from wharfinger.systems.resource_policy.rules.costs import change, marked
from wharfinger.systems.resource_policy.rules.policy import NEXT_UNITS, Signature, Waiting, further
from wharfinger.systems.resource_policy.rules.wording import group_text, usage
from wharfinger.systems.resource_policy.settings import ResourcePolicySettings

QueueKey = tuple[Literal["pod", "policy"], str, str]
"""The type, namespace and name of the object to reconcile."""

MOST_GROUPS = 20
"""The number of groups that the status of a unit lists."""

STATUS_BATCH_SECONDS = 1.0
"""Seconds for which count changes are batched before the status is written, because pods arrive in bursts."""


class ResourcePolicyController(Controller[QueueKey]):
    name = "resourcepolicy"
    workers = 8

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(observer=context.observer)
        self._context = context
        others = schedulables()
        self._cache = PolicyCache(others)
        self._resources = {each.resource.kind: each.resource for each in others}
        self._unit_pods = (
            None
            if context.gauges is None
            else context.gauges.of(
                "wharfinger_resource_policy_unit_pods",
                "Pods and reservations charged to a unit of a resource policy, by group.",
                ("namespace", "policy", "unit", "group"),
            )
        )
        self._measured: dict[tuple[str, str], set[tuple[str, ...]]] = {}  # label values by policy
        self._sets_costs = _sets_costs(context.configuration)
        self._counting = False  # whether there has been a policy
        self._followed: list[tuple[type[Schedulable], Informer[Any]]] = []
        self._cost_events: dict[tuple[str, str], str] = {}  # uids of pods with an event about their own cost
        self._policies = context.documents(RESOURCE_POLICIES)
        self._pods = context.pods
        self._nodes = context.nodes
        self._policies.add_handler(
            on_add=lambda policy: self._policy_changed(None, policy),
            on_update=self._policy_changed,
            on_delete=lambda policy: self._policy_changed(policy, None),
        )
        self._pods.add_handler(
            on_add=lambda pod: self._pod_changed(None, pod),
            on_update=self._pod_changed,
            on_delete=lambda pod: self._pod_changed(pod, None),
        )
        self._nodes.add_handler(
            on_add=lambda node: self._node_changed(node.metadata.name, node),
            on_update=lambda old, node: self._node_changed(node.metadata.name, node),
            on_delete=lambda node: self._node_changed(node.metadata.name, None),
        )
        for each in others:
            self._follow(each)

    # -- event handlers

    def _policy_changed(self, old: Document | None, new: Document | None) -> None:
        if not self._counting:
            self._count()
        self._cache.set_policy(old, new)
        if new is not None:
            self.queue.add(("policy", new["metadata"].get("namespace", ""), new["metadata"]["name"]))
        elif old is not None:
            self._measure(old["metadata"].get("namespace", ""), old["metadata"]["name"], None)
        self._enqueue()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if not self._counting:
            if new is not None and marked(new.metadata.annotations):
                self.queue.add(("pod", *new.metadata.key))
            return
        if new is None and old is not None:
            self._cost_events.pop(old.metadata.key, None)
        self._cache.set_pod(old, new)
        self._enqueue()

    def _count(self) -> None:
        """Counts what there is, once there is a policy. Most clusters have none."""
        self._counting = True
        for pod in self._pods:
            self._cache.set_pod(None, pod)
        for schedulable, informer in self._followed:
            for each in informer:
                self._cache.set_schedulable(schedulable, None, each)

    def _follow(self, schedulable: type[Schedulable]) -> None:
        informer = self._context.informers.of(schedulable.resource, schedulable.view)
        informer.optional = True
        self._followed.append((schedulable, informer))
        changed = partial(self._schedulable_changed, schedulable)
        informer.add_handler(lambda new: changed(None, new), changed, lambda old: changed(old, None))

    def _schedulable_changed(self, schedulable: type[Schedulable], old: Any, new: Any) -> None:
        if not self._counting:
            return
        self._cache.set_schedulable(schedulable, old, new)
        self._enqueue()

    def _node_changed(self, name: str, node: Node | None) -> None:
        self._cache.set_node(node, name)
        self._enqueue()

    def _enqueue(self) -> None:
        cache = self._cache
        for namespace, name in sorted(cache.dirty_pods):
            self.queue.add(("pod", namespace, name))
        cache.dirty_pods.clear()
        for namespace, name in sorted(cache.dirty_policies):
            self.queue.add_after(("policy", namespace, name), STATUS_BATCH_SECONDS)
        cache.dirty_policies.clear()

    # -- reconciling

    async def reconcile(self, key: QueueKey) -> None:
        what, namespace, name = key
        if what == "pod":
            pod = self._pods.get(name, namespace) or self._cache.stand_in((namespace, name))
            if pod is None or pod.terminal or pod.terminating:
                return
            if not pod.spec.node_name:
                await self._allow_next_units(key, pod)
            elif not isinstance(pod, StandIn):
                await self._set_cost(pod)
        else:
            document = self._policies.get(name, namespace)
            if document is not None:
                await self._set_status(document)

    async def _set_cost(self, pod: Pod) -> None:
        policy = self._cost_policy(pod)
        if policy is None and RESOURCE_POLICIES.kind in self._context.unseen_kinds:
            return  # the policy that set the cost may not be in the snapshot
        wanted = None if policy is None else policy.cost(pod.metadata.key)
        if policy is not None and wanted is None:
            return  # its node is unknown, so its unit is, too
        metadata = pod.metadata
        cost_change = change(metadata.annotations, wanted, policy.rules.name if policy is not None else "")
        if cost_change.annotations:
            identity = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
            patch = {"metadata": {**identity, "annotations": dict(cost_change.annotations)}}
            await self._context.client.patch(PODS, metadata.name, patch, metadata.namespace)
        if policy is not None and cost_change.kept and self._cost_events.get(metadata.key) != metadata.uid:
            self._cost_events[metadata.key] = metadata.uid
            message = (
                f"the deletion cost {metadata.annotations[DELETION_COST]} was set by the user and is kept; resource policy "
                f'"{policy.rules.name}" would set {wanted}'
            )
            self._context.recorder.event(PODS, pod, "Normal", "DeletionCostKept", message)

    def _cost_policy(self, pod: Pod) -> CountedPolicy | None:
        """The policy that sets the pod's deletion cost: its only governing policy, if that policy has different costs."""
        if not self._sets_costs:
            return None
        governing = self._cache.governing(pod.metadata.key)
        return governing[0] if len(governing) == 1 and governing[0].costs_differ else None

    async def _allow_next_units(self, key: QueueKey, pod: Pod) -> None:
        """Allow a pod or reservation that has waited long enough to use units of a lower priority. The scheduler reads
        this from an annotation."""
        governing = self._cache.governing(pod.metadata.key)
        if len(governing) != 1 or governing[0].rules.waiting is not Waiting.FULL_OR_TIME:
            return
        rules, metadata = governing[0].rules, pod.metadata
        waited = self._context.now() - parse_time(metadata.creation_timestamp)
        most = len(rules.levels) - 1
        steps = min(int(waited // rules.timeout), most)
        if steps > further(metadata.annotations):
            identity = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
            patch = {"metadata": {**identity, "annotations": {NEXT_UNITS: str(steps)}}}
            if isinstance(pod, StandIn):
                await self._context.client.patch(self._resources[pod.kind], pod.object_name, patch)
            else:
                await self._context.client.patch(PODS, metadata.name, patch, metadata.namespace)
        if steps < most:
            self.queue.add_after(key, (steps + 1) * rules.timeout - waited, background=True)

    def _measure(self, namespace: str, name: str, policy: CountedPolicy | None) -> None:
        """Sets the metrics of a policy; None removes them."""
        if self._unit_pods is None:
            return
        found: dict[tuple[str, ...], int] = {}
        if policy is not None:
            rules = policy.rules
            groups = policy.groups() if rules.keys else {(): policy.counts()}
            for values, counts in groups.items():
                group = group_text(rules.keys, values)
                for unit, count in zip(rules.units, counts, strict=True):
                    found[namespace, name, unit.name, group] = count
        for labels in self._measured.pop((namespace, name), set()) - found.keys():
            self._unit_pods.remove(*labels)
        for labels, count in found.items():
            self._unit_pods.labels(*labels).set(count)
        if found:
            self._measured[namespace, name] = set(found)

    async def _set_status(self, document: Document) -> None:
        metadata = document["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        policy = self._cache.policies.get(namespace, {}).get(name)
        self._measure(namespace, name, policy)
        conditions = [_valid(self._cache.faults.get((namespace, name), ""))]
        status: Document = {"units": None, "summary": None}
        if policy is not None:
            conditions += [_overlapping(policy), _conflicting(policy)]
            groups = policy.groups() if policy.rules.keys else None
            status["units"] = []
            summary = []
            for index, (unit, count) in enumerate(zip(policy.rules.units, policy.counts(), strict=True)):
                status["units"].append(_unit_status(policy, index, count, groups))
                of_unit = None if groups is None else sum(counts[index] > 0 for counts in groups.values())
                summary.append(f"{unit.name} {usage(count, unit.maximum, of_unit)}")
            status["summary"] = ", ".join(summary)
        before = (document.get("status") or {}).get("conditions") or []
        now = format_time(self._context.now())
        conditions_with_times = [
            _with_times(condition, before, metadata.get("generation", 0), now) for condition in conditions
        ]
        await patch_status(
            self._context.client,
            RESOURCE_POLICIES,
            document,
            {"conditions": conditions_with_times, **status},
            locked=True,
        )
        for condition in conditions:
            self._record_event(document, condition, before)

    def _record_event(self, document: Document, condition: Document, before: list[Document]) -> None:
        """Record an event if the condition has just changed for the worse."""
        wrong = condition["status"] == ("False" if condition["type"] == "Valid" else "True")
        known = find_condition(before, condition["type"])
        if wrong and (known is None or known["status"] != condition["status"]):
            kind: Literal["Normal", "Warning"] = "Normal" if condition["type"] == "Overlapping" else "Warning"
            self._context.recorder.event(RESOURCE_POLICIES, document, kind, condition["reason"], condition["message"])


def _sets_costs(configuration: Configuration) -> bool:
    """Whether costs are wanted, and the scheduler follows policies at all."""
    if not configuration.of(ResourcePolicySettings).deletion_cost:
        return False
    try:
        profiles = profile_loading.load(configuration.scheduler).profiles
    except BadSchedulerConfiguration:
        return True  # the scheduler reports it
    return any(ResourcePolicyPlugin.name in names for profile in profiles for names in profile.points.values())


def _unit_status(
    policy: CountedPolicy, index: int, count: int, groups: Mapping[Signature, Sequence[int]] | None
) -> Document:
    rules = policy.rules
    found: Document = {"name": rules.units[index].name, "count": count}
    if rules.units[index].maximum:
        found["max"] = rules.units[index].maximum
    if groups is not None:
        here = sorted((-counts[index], group_text(rules.keys, values), values) for values, counts in groups.items())
        found["groups"] = [
            {
                "labels": {key: value for key, value in zip(rules.keys, values, strict=True) if value is not None},
                "count": -negative,
            }
            for negative, _, values in here[:MOST_GROUPS]
            if negative
        ]
    return found


def _valid(fault: str) -> Document:
    if fault:
        return {
            "type": "Valid",
            "status": "False",
            "reason": "Invalid",
            "message": f"the policy is invalid and is ignored: {fault}",
        }
    return {"type": "Valid", "status": "True", "reason": "Valid", "message": ""}


def _overlapping(policy: CountedPolicy) -> Document:
    if policy.overlapping:
        first = min(policy.overlapping)
        count = len(policy.overlapping)
        more = f" and {count - 1} more" if count > 1 else ""
        message = f"nodes belong to several units: {first}{more}; their pods are charged to the first unit with room"
        return {"type": "Overlapping", "status": "True", "reason": "NodesInSeveralUnits", "message": message}
    return {"type": "Overlapping", "status": "False", "reason": "UnitsApart", "message": ""}


def _conflicting(policy: CountedPolicy) -> Document:
    if policy.shared:
        shared = ((name, counted(count, "pod")) for name, count in sorted(policy.shared.items()))
        others = ", ".join(f'"{name}" ({pods})' for name, pods in shared)
        message = f"some pods also match resource policy {others}; they are not scheduled until only one policy matches"
        return {"type": "Conflicting", "status": "True", "reason": "PodsOfSeveralPolicies", "message": message}
    return {"type": "Conflicting", "status": "False", "reason": "NoOtherPolicy", "message": ""}


def _with_times(condition: Document, before: list[Document], generation: int, now: str) -> Document:
    changed = transition_time(find_condition(before, condition["type"]), condition["status"], now)
    return {**condition, "observedGeneration": generation, "lastTransitionTime": changed}
