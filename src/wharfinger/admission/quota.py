"""Quota at admission: a request that would go beyond a ResourceQuota is refused, naming the quota and the numbers.

Runs as a final reviewer, in the same step as the write, and counts what is stored rather than what a status says, so of
two requests for the last unit exactly one passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from wharfinger.admission.device_quota import DeviceClaimCharges
from wharfinger.admission.reads import ObjectVersion, Views
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api import quota as rules
from wharfinger.api.device_quota import ExtendedNames, counts_claims, extended_claim_owner
from wharfinger.api.errors import forbidden
from wharfinger.api.kinds.builtin import PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.resource_names import PLAIN, JointNames, ResourceNames
from wharfinger.api.resources import Amounts
from wharfinger.api.views import Pod, ResourceQuota, view

Charge = Callable[[Resource, Document, float], Amounts]


class QuotaExtension:
    """What a system adds to the counting of quota: other names for resources, and usage besides that of objects."""

    every: QuotaExtension | None = None  # the extensions of all systems together, once they are known

    def names(self) -> ResourceNames:
        """The names that mean the same resource. Returns the same object until one of them changed."""
        return PLAIN

    def names_of_all(self) -> ResourceNames:
        """Those of all systems."""
        return (self.every or self).names()

    def held(self, namespace: str, coming: Pod | None = None) -> Amounts:
        """What is held in a namespace besides what its objects use, once the pod that is being admitted exists."""
        return {}


class QuotaExtensions(QuotaExtension):
    """Those of several systems as one."""

    def __init__(self, extensions: Iterable[QuotaExtension]) -> None:
        self._extensions = tuple(extensions)
        self._parts: list[ResourceNames] = []
        self._names = PLAIN
        for each in self._extensions:
            each.every = self

    def names(self) -> ResourceNames:
        parts = [part for each in self._extensions if (part := each.names()) is not PLAIN]
        if len(parts) != len(self._parts) or any(new is not old for new, old in zip(parts, self._parts)):
            self._parts = parts
            self._names = JointNames(parts) if len(parts) > 1 else parts[0] if parts else PLAIN
        return self._names

    def held(self, namespace: str, coming: Pod | None = None) -> Amounts:
        total: Amounts = {}
        for each in self._extensions:
            rules.add(total, each.held(namespace, coming))
        return total


class Kept(ObjectVersion, Protocol):
    """A stored object, as the store hands it out."""

    @property
    def version(self) -> int: ...


class StoredObjects(Protocol):
    """The latest state of everything, and what of it changed since a revision: the store's own reads."""

    def peek(self, resource: Resource, name: str, namespace: str = "") -> Kept | None: ...

    def scan(self, resource: Resource, namespace: str = "") -> Iterable[Kept]: ...

    def revision(self, resource: Resource) -> int: ...

    def changed_since(self, resource: Resource, namespace: str, revision: int) -> Sequence[str] | None: ...


class _Charged(NamedTuple):
    """What is remembered of one object."""

    amounts: Amounts
    traits: rules.Traits | None


_Scopes = tuple[Any, ...]


class Usage:
    """What the objects of one collection in one namespace cost. Each version of an object is read once, and sums follow
    the changes, so that a review costs the same however many objects there are."""

    def __init__(self, objects: StoredObjects, resource: Resource, namespace: str) -> None:
        self._objects = objects
        self._resource = resource
        self._namespace = namespace
        self._revision = -1
        self._known: dict[str, _Charged] = {}
        self._deleting: set[str] = set()  # and others whose charge depends on more than the object
        self._sums: dict[_Scopes, tuple[ResourceQuota, Amounts]] = {}  # by the scopes of quotas

    def refresh(self, charge: Charge, now: float) -> None:
        at = self._objects.revision(self._resource)
        changed = self._objects.changed_since(self._resource, self._namespace, self._revision)
        if changed is None:
            self._known, self._deleting, self._sums = {}, set(), {}
            for kept in self._objects.scan(self._resource, self._namespace):
                self._put(kept, charge, now)
        else:
            # What is being deleted may stop to count as time passes.
            for name in {*changed, *self._deleting}:
                self._drop(name)
                found = self._objects.peek(self._resource, name, self._namespace)
                if found is not None:
                    self._put(found, charge, now)
        self._revision = at

    def _put(self, kept: Kept, charge: Charge, now: float) -> None:
        document = kept.document()
        if document["metadata"].get("deletionTimestamp") or extended_claim_owner(document) is not None:
            self._deleting.add(kept.name)
        entry = _Charged(charge(self._resource, document, now), rules.traits(self._resource, document))
        self._known[kept.name] = entry
        for quota, total in self._sums.values():
            if _counts(quota, entry):
                rules.add(total, entry.amounts)

    def _drop(self, name: str) -> None:
        self._deleting.discard(name)
        entry = self._known.pop(name, None)
        if entry is not None:
            for quota, total in self._sums.values():
                if _counts(quota, entry):
                    rules.add(total, {resource: -amount for resource, amount in entry.amounts.items()})

    def total(self, quota: ResourceQuota) -> Amounts:
        scopes = (quota.spec.scopes, quota.spec.scope_selector)
        found = self._sums.get(scopes)
        if found is None:
            total: Amounts = {}
            for entry in self._known.values():
                if _counts(quota, entry):
                    rules.add(total, entry.amounts)
            found = self._sums[scopes] = (quota, total)
        return dict(found[1])


def _counts(quota: ResourceQuota, entry: _Charged) -> bool:
    return not rules.is_scoped(quota) or rules.in_scopes(quota, entry.traits)


class QuotaReviewer:
    def __init__(
        self,
        objects: StoredObjects,
        now: Callable[[], float],
        extension: QuotaExtension | None = None,
    ) -> None:
        self._objects = objects
        self._now = now
        self._extension = extension or QuotaExtension()
        self._quotas = Views(objects, RESOURCE_QUOTAS, ResourceQuota)
        self._names = PLAIN
        self._claims = DeviceClaimCharges(objects)
        self._extended: ExtendedNames = {}  # for which usage was computed
        self._usage: dict[tuple[str, str, str], Usage] = {}

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return not subresource or (subresource == "resize" and plural == "pods" and not group)

    def repeats(self, request: Request) -> bool:
        """Usage grows with every object, so only where nothing is counted."""
        return not request.namespace or not self._quotas.get(request.namespace)

    def review(self, request: Request) -> Review:
        if request.object is None or not request.namespace or not _concerns(request):
            return PASS
        quotas = self._quotas.get(request.namespace)
        if not quotas:
            return PASS
        now = self._now()
        if (names := self._extension.names()) is not self._names:
            self._names = names
            self._usage.clear()
        if (extended := self._claims.extended()) is not self._extended:
            self._extended = extended
            self._usage.clear()
        wanted = self._charge(request.resource, request.object, now)
        before = self._charge(request.resource, request.old, now) if request.old is not None else {}
        for quota in sorted(quotas, key=lambda each: each.metadata.name):
            why = self._refusal(quota, request, wanted, before, now)
            if why:
                return Review(denied=forbidden(request.resource.group, request.resource.plural, request.name, why))
        return PASS

    def _charge(self, resource: Resource, document: Document, now: float) -> Amounts:
        if resource.plural == RESOURCE_CLAIMS.plural and resource.group == RESOURCE_CLAIMS.group:
            return self._claims.charge(document, lambda pod: rules.usage(PODS, pod, now, self._names))
        return rules.usage(resource, document, now, self._names)

    def _refusal(self, quota: ResourceQuota, request: Request, wanted: Amounts, before: Amounts, now: float) -> str:
        limits = rules.hard(quota)
        assert request.object is not None
        if not limits.keys() & wanted.keys() and not _must_state(limits, request):
            return ""
        if not rules.in_scopes(quota, rules.traits(request.resource, request.object)):
            return ""
        if request.resource == RESOURCE_CLAIMS and not counts_claims(limits, self._extended):
            return ""
        if _is_new_pod(request):
            missing = rules.missing_amounts(limits, view(request.object, Pod))
            if missing:
                return f"failed quota: {quota.metadata.name}: {missing}"
        old_counts = request.old is not None and rules.in_scopes(quota, rules.traits(request.resource, request.old))
        delta = {
            name: amount - (before.get(name, 0) if old_counts else 0)
            for name, amount in wanted.items()
            if name in limits
        }
        delta = {name: amount for name, amount in delta.items() if amount > 0}
        if not delta:
            return ""
        used = self._used(quota, request, now)
        if not rules.is_scoped(quota) and _is_pod(request):
            rules.add(used, self._extension.held(request.namespace, view(request.object, Pod)))
        elif not rules.is_scoped(quota) and request.resource == RESOURCE_CLAIMS:
            rules.add(used, self._extension.held(request.namespace))
        over = sorted(name for name, amount in delta.items() if used.get(name, 0) + amount > limits[name])
        if not over:
            return ""
        return (
            f"exceeded quota: {quota.metadata.name}, requested: {_pairs(over, delta)}, used: {_pairs(over, used)}, "
            f"limited: {_pairs(over, limits)}"
        )

    def _used(self, quota: ResourceQuota, request: Request, now: float) -> Amounts:
        used = self._total(quota, request.resource, request.namespace, now)
        if request.resource in (PODS, RESOURCE_CLAIMS) and counts_claims(quota.spec.hard, self._extended):
            # Devices count as an extended resource whether pods ask for that or for the devices.
            other = RESOURCE_CLAIMS if request.resource == PODS else PODS
            rules.add(used, self._total(quota, other, request.namespace, now))
        return used

    def _total(self, quota: ResourceQuota, resource: Resource, namespace: str, now: float) -> Amounts:
        key = (resource.group, resource.plural, namespace)
        usage = self._usage.get(key)
        if usage is None:
            usage = self._usage[key] = Usage(self._objects, resource, namespace)
        usage.refresh(self._charge, now)
        return usage.total(quota)


def _concerns(request: Request) -> bool:
    if request.operation == "CREATE":
        return request.subresource == ""
    if request.operation != "UPDATE":
        return False
    if request.resource.group == "" and request.resource.plural == "pods":
        return request.subresource in ("", "resize")
    return request.subresource == ""


def _is_pod(request: Request) -> bool:
    return request.resource.group == "" and request.resource.plural == "pods"


def _is_new_pod(request: Request) -> bool:
    return request.operation == "CREATE" and request.resource.group == "" and request.resource.plural == "pods"


def _must_state(limits: Mapping[str, int], request: Request) -> bool:
    return _is_new_pod(request) and any(name.rpartition(".")[2] in ("cpu", "memory") for name in limits)


def _pairs(names: Iterable[str], amounts: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={rules.shown(name, amounts.get(name, 0))}" for name in names)
