"""What is written to claims before a pod is bound: the devices that were chosen, and that they are for this pod.

The same steps and messages as upstream's bindClaim. Where it is not known whether a write took effect, the claim is read
again before its devices are given up, so that no other claim gets them.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from typing import Any, NamedTuple

from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.times import format_time
from wharfinger.api.views import Pod
from wharfinger.devices.claims import FINALIZER, Claim
from wharfinger.devices.extended import ANNOTATION, IN_MEMORY_NAME, ExtendedRequests
from wharfinger.devices.readiness import DevicesFailed, deadline, is_ready, waits_for_devices
from wharfinger.devices.slices import Document
from wharfinger.framework.events import POD
from wharfinger.framework.prebinding import Preparation, StepFailed, Steps, Watched, Write
from wharfinger.framework.status import SUCCESS, Status, error
from wharfinger.plugins.dynamic_resources.catalogue import CLAIM, DeviceCatalogue

_TRIES = 5  # as often as upstream after conflicts

ClaimSteps = Generator[Write, Mapping[str, Any], Claim]


class ReservedDevices(NamedTuple):
    """What is reserved for an assumed pod."""

    claims: tuple[Claim, ...]
    allocations: Mapping[ObjectKey, Document]  # by claim, for those that had no devices
    extended: ExtendedRequests | None
    uids: tuple[str, ...]  # under which the catalogue holds the devices


class ClaimsBound(Preparation):
    """Writes what is reserved for an assumed pod, and waits until its devices are ready."""

    def __init__(
        self, catalogue: DeviceCatalogue, pod: Pod, node_name: str, reserved: ReservedDevices, timeout: float
    ) -> None:
        self.timeout = timeout
        self._catalogue = catalogue
        self._pod = pod
        self._node_name = node_name
        self._reserved = reserved
        self._bound: list[ObjectKey] = []  # claims that are reserved for the pod
        self._made: Claim | None = None  # the claim for extended resources

    def steps(self) -> Steps:
        uid = self._pod.metadata.uid
        for claim in self._reserved.claims:
            current = self._catalogue.claims.get(claim.key)
            if current is None or current.uid != claim.uid:
                raise StepFailed(f"claim {claim} got deleted in the meantime")
            allocation = self._reserved.allocations.get(claim.key)
            if allocation is not None or not current.reserved_by(uid):
                yield from self._bind(current, allocation)
            self._bound.append(claim.key)
        made = self._reserved.allocations.get((self._pod.metadata.namespace, IN_MEMORY_NAME))
        if made is not None and self._reserved.extended is not None and self._reserved.extended.requests:
            yield from self._make(self._reserved.extended, made)

    def _bind(self, claim: Claim, allocation: Document | None) -> ClaimSteps:
        """Writes the allocation, if there is one, and reserves the claim for the pod."""
        for attempt in range(_TRIES):
            if claim.deleting:
                raise StepFailed(f"claim {claim} got deleted in the meantime")
            if allocation is not None and claim.allocation is not None:
                raise StepFailed(f"claim {claim} got allocated elsewhere in the meantime")
            if allocation is None and claim.allocation is None:
                raise StepFailed(f"claim {claim} got deallocated elsewhere in the meantime")
            try:
                if allocation is not None:
                    claim = yield from self._protect(claim)
                document = yield self._reservation(claim, allocation)
            except Conflict as conflict:
                if attempt == _TRIES - 1:
                    raise StepFailed(f"{_doing(claim, allocation)}: {conflict}") from conflict
                claim = yield from self._latest(claim)
            except ApiError as failed:
                # The answer may have been lost after the write.
                yield from self._latest(claim, gone_is_fine=True)
                raise StepFailed(f"{_doing(claim, allocation)}: {failed}") from failed
            else:
                self._catalogue.assume(document)
                return Claim(document)
        raise AssertionError("the last attempt returns or raises")

    def _protect(self, claim: Claim) -> ClaimSteps:
        metadata = claim.document["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        if FINALIZER in finalizers:
            return claim
        patch = {"metadata": {**_version(claim), "finalizers": [*finalizers, FINALIZER]}}
        return Claim((yield Write(CLAIM, claim.namespace, claim.name, patch)))

    def _reservation(self, claim: Claim, allocation: Document | None) -> Write:
        metadata = self._pod.metadata
        consumer = {"resource": "pods", "name": metadata.name, "uid": metadata.uid}
        status: dict[str, Any] = {"reservedFor": [*claim.reserved_for, consumer]}
        now = format_time(self._catalogue.tables.clock())
        if allocation is not None:
            status["allocation"] = {**allocation, "allocationTimestamp": now}
        elif (claim.allocation or {}).get("allocationTimestamp") is None:
            status["allocation"] = {"allocationTimestamp": now}
        return Write(CLAIM, claim.namespace, claim.name, {"metadata": _version(claim), "status": status}, "status")

    def _latest(self, claim: Claim, *, gone_is_fine: bool = False) -> ClaimSteps:
        try:
            document = yield Write(CLAIM, claim.namespace, claim.name, verb="get")
        except NotFound as missing:
            if gone_is_fine:
                return claim
            raise StepFailed(f"get updated claim {claim} after conflict: {missing}") from missing
        found = Claim(document)
        if found.uid == claim.uid:
            self._catalogue.assume(document)
        elif not gone_is_fine:
            raise StepFailed(f"claim {claim} got deleted in the meantime")
        return found

    # -- the claim for extended resources

    def _make(self, extended: ExtendedRequests, allocation: Document) -> Steps:
        pod = self._pod.metadata
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": CLAIM,
            "metadata": {
                "namespace": pod.namespace,
                "generateName": f"{pod.name}-extended-resources-",
                "annotations": {ANNOTATION: "true"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": extended.devices},
        }
        try:
            created = yield Write(CLAIM, pod.namespace, "", document, verb="create")
        except ApiError as failed:
            what = f"create claim for extended resources {pod.namespace}/"
            raise StepFailed(f"{what}: {failed}") from failed
        self._made = Claim(created)
        self._catalogue.assume(created)
        self._made = yield from self._bind(self._made, allocation)
        status = {"resourceClaimName": self._made.name, "requestMappings": extended.mappings}
        patch = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
        yield Write(POD, pod.namespace, pod.name, patch, "status")

    # -- waiting for devices

    def waiting_for(self) -> tuple[str, str] | None:
        if not any(waits_for_devices(claim) for claim in self._current()):
            return None
        return "BindingConditionsPending", f"waiting for binding conditions for device on node {self._node_name}"

    def check(self) -> Status | None:
        for claim in self._current():
            if not waits_for_devices(claim):
                continue
            try:
                if is_ready(claim):
                    continue
            except DevicesFailed as failed:
                return error(str(failed))
            until = deadline(claim, self.timeout)
            if until is not None and until < self._catalogue.tables.clock():
                return error(f"device binding timeout: claim={claim.name}")
            return None
        return SUCCESS

    def expired(self) -> Status:
        return error("device binding timeout: context deadline exceeded")

    def watched(self) -> Collection[Watched]:
        pod = self._pod.metadata
        return {(POD, pod.namespace, pod.name), *((CLAIM, *claim.key) for claim in self._current())}

    def _current(self) -> list[Claim]:
        keys = [each.key for each in self._reserved.claims]
        if self._made is not None:
            keys.append(self._made.key)
        found = (self._catalogue.claims.get(key) for key in keys)
        return [claim for claim in found if claim is not None]

    # -- undoing

    def undo(self) -> Steps:
        """The pod was not bound: it no longer needs its claims. Those that have devices keep them for the next attempt."""
        uid = self._pod.metadata.uid
        for key in self._bound:
            claim = self._catalogue.claims.get(key)
            if claim is None or claim.allocation is None or not claim.reserved_by(uid):
                continue
            left = [each for each in claim.reserved_for if each.get("uid") != uid]
            patch = {"metadata": _version(claim), "status": {"reservedFor": left or None}}
            try:
                self._catalogue.assume((yield Write(CLAIM, *key, patch, "status")))
            except ApiError:
                continue  # somebody changed it; the next attempt finds it reserved
        if self._made is not None:
            yield from self._delete(self._catalogue.claims.get(self._made.key, self._made))

    def _delete(self, claim: Claim) -> Steps:
        for write in deletion(claim):
            try:
                yield write
            except ApiError:
                continue
        # Whatever became of these requests, the next attempt must know whether the claim is still there.
        try:
            document = yield Write(CLAIM, claim.namespace, claim.name, verb="get")
        except NotFound:
            self._catalogue.gone(claim)
        else:
            self._catalogue.assume(document)


def _doing(claim: Claim, allocation: Document | None) -> str:
    what = "reservation" if allocation is None else "allocation and reservation"
    return f"add {what} to claim {claim}"


def _version(claim: Claim) -> dict[str, str]:
    return {"resourceVersion": claim.resource_version, "uid": claim.uid}


def deallocation(claim: Claim) -> Write:
    """Takes back the devices of a claim that nobody else uses."""
    status = {"allocation": None, "reservedFor": None, "devices": None}
    return Write(CLAIM, claim.namespace, claim.name, {"metadata": _version(claim), "status": status}, "status")


def deletion(claim: Claim) -> tuple[Write, ...]:
    """Deletes a claim that an earlier attempt made."""
    kept = [each for each in claim.document["metadata"].get("finalizers") or () if each != FINALIZER]
    patch = {"metadata": {"uid": claim.uid, "finalizers": kept or None}}
    return (
        Write(CLAIM, claim.namespace, claim.name, patch),
        Write(CLAIM, claim.namespace, claim.name, verb="delete"),
    )
