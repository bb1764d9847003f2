"""What the claims and extended resources of a pod require of a node. Pods with equal needs share a shape."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from wharfinger.api.views import Pod
from wharfinger.devices.claims import Claim, ClaimRefused, pod_claims
from wharfinger.devices.extended import may_be_served
from wharfinger.devices.readiness import is_unusable
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import Status, error, unresolvable
from wharfinger.plugins.dynamic_resources.catalogue import DeviceCatalogue


class DeviceNeeds:
    """The claims of a pod, allocated or not, and its extended resources that devices may serve."""

    __slots__ = ("claims", "extended", "key", "refusal", "stale", "unusable")

    def __init__(
        self,
        key: Hashable,
        claims: Sequence[Claim] = (),
        *,
        unusable: Collection[int] = (),
        extended: Sequence[str] = (),
        stale: Claim | None = None,
        refusal: Status | None = None,
    ) -> None:
        self.key = key
        self.claims = claims  # those of the first pod with these needs
        self.unusable = unusable  # numbers of the claims whose devices cannot be made ready
        self.extended = extended  # names of resources
        self.stale = stale  # the claim for extended resources of an earlier attempt
        self.refusal = refusal

    @property
    def made_before(self) -> bool:
        """Whether an earlier attempt allocated the claim for extended resources, without requests."""
        return self.stale is not None and self.stale.allocation is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceNeeds) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def needs_of(pod: Pod, requests: dict[str, int], catalogue: DeviceCatalogue, timeout: float) -> DeviceNeeds | None:
    """None if the pod needs no devices. `requests` are its requests by resource name."""
    extended: list[str] = []
    if catalogue.classes:
        extended = sorted(
            name
            for name, amount in requests.items()
            if amount and may_be_served(name) and catalogue.classes.serving(name) is not None
        )
    if not pod.spec.resource_claims and not extended:
        return None
    try:
        claims = stand_in_claims(pod, catalogue) if isinstance(pod, StandIn) else pod_claims(pod, catalogue.claims)
    except ClaimRefused as refused:
        return _refused(str(refused))
    stale = catalogue.made_for(pod) if extended and not isinstance(pod, StandIn) else None
    if not claims and not extended:
        return None
    now = catalogue.tables.clock()
    parts: list[Hashable] = []
    unusable = set()
    for index, claim in enumerate(claims):
        if claim.allocation is None:
            fault = _fault(claim, catalogue)
            if fault is not None:
                return _refused(fault.message, fault)
            parts.append(claim.spec.key)
        else:
            # Claims with devices are rarely shared by many pods, so what they require is not compared.
            if is_unusable(claim, now, timeout):
                unusable.add(index)
            parts.append((claim.uid, claim.resource_version, index in unusable))
    if stale is not None and stale.allocation is None and stale.uid in catalogue.pending:
        return _refused(f"resource claim {stale} is in the process of being allocated")
    made = None if stale is None else (stale.uid, stale.resource_version)
    key: Hashable = (tuple(parts), tuple(extended), made)
    if key in catalogue.failing:
        key = (key, tuple(map(str, claims)))  # errors name the claim
    return DeviceNeeds(key, claims, unusable=unusable, extended=extended, stale=stale)


def stand_in_claims(pod: StandIn, catalogue: DeviceCatalogue) -> list[Claim]:
    """What a stand-in keeps devices for: claims as the pods that use it will have them. Raises ClaimRefused."""
    namespace, found = pod.metadata.namespace, []
    for reference in pod.spec.resource_claims:
        if reference.resource_claim_name is not None:
            claim = catalogue.claims.get((namespace, reference.resource_claim_name))
            if claim is None:
                raise ClaimRefused(f'could not find ResourceClaim "{namespace}/{reference.resource_claim_name}"')
            if claim.allocation is not None:
                found.append(claim)
                continue
            spec = claim.document.get("spec") or {}
        else:
            name = reference.resource_claim_template_name or ""
            template = catalogue.templates.get((namespace, name))
            if template is None:
                raise ClaimRefused(f'could not find ResourceClaimTemplate "{namespace}/{name}"')
            spec = (template.get("spec") or {}).get("spec") or {}
        metadata = {"name": reference.name, "namespace": namespace, "uid": f"{pod.metadata.uid}/{reference.name}"}
        found.append(Claim({"metadata": metadata, "spec": spec}))
    return found


def _refused(why: str, status: Status | None = None) -> DeviceNeeds:
    status = status or unresolvable(why)
    return DeviceNeeds((status,), refusal=status)


def _fault(claim: Claim, catalogue: DeviceCatalogue) -> Status | None:
    """Why an unallocated claim cannot be allocated on any node."""
    if claim.uid in catalogue.pending:
        return unresolvable(f"resource claim {claim} is in the process of being allocated")
    for entry in claim.spec.requests:
        if not entry.all:
            return unresolvable(f"resource claim {claim}, request {entry.name}: unknown request type")
        for request in entry.all:
            if not request.class_name:
                return error(f"request {request.qualified}: unsupported request type")
            if request.class_name not in catalogue.classes.by_name:
                return unresolvable(f"request {request.qualified}: device class {request.class_name} does not exist")
    return None
