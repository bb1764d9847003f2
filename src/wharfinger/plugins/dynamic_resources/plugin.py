"""DynamicResources: a pod needs a node with the devices that its resource claims and extended resources ask for.

`reserve` remembers the devices that were chosen, so that no other pod gets them. Before the pod is bound they are written
to the claims; see `pre_bind`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.resources import requests
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.api.views import Pod
from wharfinger.devices.allocator import STEPS_PER_SECOND
from wharfinger.devices.claims import ClaimRefused, pod_claims
from wharfinger.devices.extended import IN_MEMORY_NAME, made_uid
from wharfinger.devices.held_record import HELD_DEVICES, devices_record
from wharfinger.devices.pod_claims import has_claims
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.explaining import ExplainedTable
from wharfinger.framework.plugin import Args, FailedAttempt, Plugin, PostFilterResult, Prepared
from wharfinger.framework.prebinding import Preparation
from wharfinger.framework.shapes import Shape
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import SUCCESS, Status, error, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.plugins.dynamic_resources.catalogue import (
    CLAIM,
    CLASS,
    KINDS,
    SLICE,
    TAINT_RULE,
    TEMPLATE,
    catalogue_of,
)
from wharfinger.plugins.dynamic_resources.explaining import device_table
from wharfinger.plugins.dynamic_resources.filtering import NOT_AVAILABLE, DevicesPrepared
from wharfinger.plugins.dynamic_resources.needs import DeviceNeeds, needs_of
from wharfinger.plugins.dynamic_resources.pre_bind import ClaimsBound, ReservedDevices, deallocation, deletion

NOTHING_DONE = unschedulable()
NO_CLAIMS = unschedulable("no new claims to deallocate")
SOME_CLAIMS = unschedulable("still not schedulable")
DEALLOCATED = unschedulable("deallocation of ResourceClaim completed")
DELETED = unschedulable("deletion of ResourceClaim completed")
NOT_ASKED = error("not found")


class DynamicResourcesArgs(Args, frozen=True):
    binding_timeout: str = "10m"
    filter_timeout: str = "10s"

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        found = []
        for path, text, least, why in (
            ("filterTimeout", self.filter_timeout, 0.0, "must be zero or positive"),
            ("bindingTimeout", self.binding_timeout, 1.0, "must be at least 1 second"),
        ):
            try:
                if parse_duration(text) < least:
                    found.append(invalid(path, text, why))
            except BadTime as bad:
                found.append(invalid(path, text, str(bad)))
        return found

    @property
    def most_steps(self) -> int | None:
        """The length of a search in the steps that upstream takes in this time, roughly; None for no limit."""
        seconds = parse_duration(self.filter_timeout)
        return round(seconds * STEPS_PER_SECOND) if seconds else None


class DynamicResources(Plugin):
    name = "DynamicResources"
    points = frozenset({"preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind"})
    position = 145
    weight = 2
    reserves_prepared = True
    args_type = DynamicResourcesArgs
    kinds = KINDS
    watches_pods = True

    def __init__(self, tables: Tables, args: DynamicResourcesArgs) -> None:
        super().__init__(tables, args)
        self._catalogue = catalogue_of(tables)
        self._timeout = parse_duration(args.binding_timeout)
        self._most_steps = args.most_steps
        self._quiet = tables.kubernetes >= KubernetesVersion.V1_37  # PostFilter says nothing where it does nothing

    def observe(self, kind: str, old: Any, new: Any) -> None:
        self._catalogue.observe(kind, old, new)

    def object_gone(self, kind: str, key: ObjectKey) -> Any | None:
        claim = self._catalogue.claims.get(key) if kind == CLAIM else None
        if claim is None:
            return None
        self._catalogue.gone(claim)
        return claim.document

    # -- stand-ins, which hold devices, and the pods that use them: both have annotations

    def concerned(self, shape: Shape) -> bool:
        return False

    def pod_added(self, pod: PodOnNode) -> None:
        if isinstance(pod.pod, StandIn):
            self._catalogue.held_by(pod)
        elif (uid := self.tables.stand_in_users.on_nodes.get(pod.key)) and has_claims(pod.pod):
            self._catalogue.used_by(pod.pod, uid)

    def pod_replaced(self, pod: PodOnNode) -> None:
        self.pod_added(pod)

    def pod_removed(self, pod: PodOnNode) -> None:
        if not isinstance(pod.pod, StandIn):
            self._catalogue.not_used_by(pod.key)
            return
        self._catalogue.not_held_by(pod.key)
        if not pod.assumed:
            self._catalogue.holds.given.pop(pod.key, None)

    # -- filtering

    def pre_enqueue(self, pod: Pod) -> Status:
        if pod.spec.resource_claims and not isinstance(pod, StandIn):
            try:
                pod_claims(pod, self._catalogue.claims)
            except ClaimRefused as refused:
                return unresolvable(str(refused))
        return SUCCESS

    def shape_key(self, pod: Pod) -> Hashable:
        if not pod.spec.resource_claims and not self._catalogue.classes:
            return None
        return needs_of(pod, requests(pod), self._catalogue, self._timeout)

    def key_is_shared(self, shape: Shape) -> bool:
        return not shape.pod.spec.resource_claims and not (shape.devices and self._catalogue.classes)

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        keys = shape.extra if isinstance(shape.extra, tuple) else ()
        needs = next((key for key in keys if isinstance(key, DeviceNeeds)), None)
        if needs is None:
            return None
        if needs.refusal is not None:
            return needs.refusal
        scorers = [
            (scorer, weight)
            for plugin, weight in self.device_scorers
            if (scorer := plugin.device_scorer(shape)) is not None
        ]
        return DevicesPrepared(self._catalogue, shape, needs, self._most_steps, scorers)

    def post_filter(self, pod: Pod, prepared: Prepared | None, failure: FailedAttempt) -> PostFilterResult:
        if not failure.asked:
            return PostFilterResult(NOT_ASKED)  # upstream fails if its PreFilter never ran
        if not isinstance(prepared, DevicesPrepared):
            return PostFilterResult(
                NOTHING_DONE if self._quiet else SOME_CLAIMS if pod.spec.resource_claims else NO_CLAIMS
            )
        needs = prepared.needs
        rows = [row for status, rows in failure.refused if status.reasons == NOT_AVAILABLE.reasons for row in rows]
        for index in sorted({index for row in rows for index in prepared.unavailable(row)}):
            claim = needs.claims[index]
            if not claim.reserved_for or (len(claim.reserved_for) == 1 and claim.reserved_by(pod.metadata.uid)):
                return PostFilterResult(DEALLOCATED, (deallocation(claim),))
        if needs.stale is not None:
            return PostFilterResult(DELETED, deletion(needs.stale))
        return PostFilterResult(NOTHING_DONE if self._quiet else SOME_CLAIMS)

    # -- reserving and binding

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        if not isinstance(prepared, DevicesPrepared):
            return SUCCESS
        needs = needs_of(pod, requests(pod), self._catalogue, self._timeout)
        if needs is None or needs.refusal is not None or needs != prepared.needs:
            return error("the pod's claims changed during scheduling")
        users = self.tables.stand_in_users
        opened = users.assumed.get(pod.metadata.key, "") if self._catalogue.holds else ""
        plan = prepared.plan(row, new_share, needs.claims, opened)
        if isinstance(plan, Status):
            return plan
        allocations = {} if plan is None else plan.allocations
        if isinstance(pod, StandIn):
            self._catalogue.holds.given[pod.metadata.key] = {name: each for (_, name), each in allocations.items()}
            return SUCCESS
        if opened:
            self._catalogue.used_by(pod, opened)
        uids = {claim.key: claim.uid for claim in needs.claims}
        uids[pod.metadata.namespace, IN_MEMORY_NAME] = made_uid(pod.metadata.uid)
        for key, allocated in allocations.items():
            self._catalogue.choose(uids[key], allocated)
        self._catalogue.reserved[pod.metadata.key] = ReservedDevices(
            tuple(needs.claims),
            allocations,
            None if plan is None else plan.extended,
            tuple(uids[key] for key in allocations),
        )
        return SUCCESS

    def unreserve(self, pod: Pod, row: int) -> None:
        self._settle(pod)
        self._catalogue.holds.given.pop(pod.metadata.key, None)
        if self._catalogue.holds:
            self._catalogue.not_used_by(pod.metadata.key)

    def commit(self, pod: Pod) -> None:
        self._settle(pod)

    def _settle(self, pod: Pod) -> None:
        """The claims themselves say which devices they have, if any."""
        reserved = self._catalogue.reserved.pop(pod.metadata.key, None)
        for uid in reserved.uids if reserved is not None else ():
            self._catalogue.settle(uid)

    def pre_bind(self, pod: Pod, node_name: str) -> Mapping[str, str]:
        given = self._catalogue.holds.given.get(pod.metadata.key)
        return {HELD_DEVICES: devices_record(given)} if given else {}

    def before_binding(self, pod: Pod, node_name: str) -> Preparation | None:
        reserved = self._catalogue.reserved.get(pod.metadata.key)
        if reserved is None or (not reserved.claims and not reserved.allocations):
            return None
        return ClaimsBound(self._catalogue, pod, node_name, reserved, self._timeout)

    # -- explanations

    def explained(self, pod: Pod, rows: Sequence[int]) -> Iterable[ExplainedTable]:
        needs = needs_of(pod, requests(pod), self._catalogue, self._timeout)
        if needs is None or needs.refusal is not None:
            return ()
        shape = self.tables.shapes.extended(self.tables.shapes.of(pod), pod, (needs,))
        prepared = DevicesPrepared(self._catalogue, shape, needs, self._most_steps)
        found = device_table(prepared, rows, [self.tables.name(row) for row in rows])
        return () if found is None else (found,)

    # -- queueing

    def wake_ups(self) -> tuple[WakeUp, ...]:
        changed = Action.ADD | Action.UPDATE
        return (
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
            WakeUp(CLAIM, Action.ALL, self._claim_helps, self._pods_of_claim),
            WakeUp(CLASS, changed),
            WakeUp(SLICE, changed),
            WakeUp(TAINT_RULE, Action.ALL),
            WakeUp(TEMPLATE, changed, lambda pod, old, new: isinstance(pod, StandIn)),
            # A pod that was not bound after all gives back the devices that were chosen for it.
            WakeUp(POD, Action.DELETE, _devices_returned),
        )

    def _claim_helps(self, pod: Pod, old: Any, new: Any) -> bool:
        """As upstream's isSchedulableAfterClaimChange. Beyond that, a pod is tried again when a claim that an earlier attempt
        made for it is gone, for which upstream lets it wait for five minutes, and when devices are free again of which a
        watch never reported that they were allocated."""
        if new is None:
            owners = old["metadata"].get("ownerReferences") or ()
            return self._gives_back(old, new) or any(each.get("uid") == pod.metadata.uid for each in owners)
        try:
            own = pod_claims(pod, self._catalogue.claims)
        except ClaimRefused:
            return False
        if self._gives_back(old, new):
            return True
        if all(each.uid != new["metadata"].get("uid") for each in own):
            return False
        return old is None or old.get("status") != new.get("status")

    def _gives_back(self, old: Any, new: Any) -> bool:
        if old is not None and _allocation(old) is not None and (new is None or _allocation(new) is None):
            return True
        metadata = (old if new is None else new)["metadata"]
        return self._catalogue.freed == (metadata.get("namespace", ""), metadata["name"])

    def _pods_of_claim(self, old: Any, new: Any) -> Collection[ObjectKey] | None:
        """The pod that a claim was made for; None if others may use it, or if it gives devices back."""
        if self._gives_back(old, new):
            return None
        metadata = (old if new is None else new)["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and owner.get("kind") == "Pod":
                return ((metadata.get("namespace", ""), owner.get("name", "")),)
        return None


def new_share() -> str:
    return str(uuid.uuid4())


def _allocation(claim: Any) -> Any:
    return (claim.get("status") or {}).get("allocation")


def _devices_returned(pod: Pod, old: Any, new: Any) -> bool:
    return bool(old.spec.resource_claims) or any("/" in name for name in requests(old))


plugins = (DynamicResources,)
