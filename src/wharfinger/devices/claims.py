"""What ResourceClaims ask for, and what their status says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.node_affinity import NodeTerms, node_terms
from wharfinger.api.selectors import NodeSelector
from wharfinger.api.views import Node, Pod, view
from wharfinger.devices.capacity import Quantity, quantity
from wharfinger.devices.slices import DeviceID, Document

ALL = "All"
EXACT_COUNT = "ExactCount"
MOST_DEVICES = 32  # of one claim
FINALIZER = "resource.kubernetes.io/delete-protection"

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.decode


class DeviceRequest:
    """A request of a claim, or one of the alternatives of a request with `firstAvailable`."""

    __slots__ = (
        "admin_access",
        "alternative",
        "base",
        "capacity",
        "class_name",
        "count",
        "derived",
        "mode",
        "name",
        "qualified",
        "selectors",
        "tolerations",
    )

    def __init__(self, document: Document, name: str, parent: str = "") -> None:
        """`parent` is the name of the request of which this is an alternative."""
        self.name = name
        self.base = parent or name
        self.alternative = bool(parent)
        self.qualified = f"{parent}/{name}" if parent else name
        self.class_name: str = document.get("deviceClassName") or ""
        self.mode: str = document.get("allocationMode") or EXACT_COUNT
        self.count: int = document.get("count", 1 if self.mode == EXACT_COUNT else 0)
        self.admin_access = bool(document.get("adminAccess")) and not self.alternative
        self.selectors: tuple[str | None, ...] = tuple(
            (each.get("cel") or {}).get("expression") for each in document.get("selectors") or ()
        )
        self.tolerations: tuple[Document, ...] = tuple(document.get("tolerations") or ())
        requests: Document = (document.get("capacity") or {}).get("requests") or {}
        self.capacity: Mapping[str, Quantity] = {name: quantity(each) for name, each in requests.items()}
        self.derived = bool(document.get("derivedAttributes"))

    def tolerates(self, taint: Document) -> bool:
        return any(tolerates(each, taint) for each in self.tolerations)


def tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return bool((toleration.get("value") or "") == (taint.get("value") or ""))
    return bool(operator == "Exists")


class ClaimRequest:
    """An entry of `spec.devices.requests`: one request, or several alternatives of which the first possible is taken."""

    __slots__ = ("alternatives", "exactly", "name")

    def __init__(self, document: Document) -> None:
        self.name: str = document.get("name", "")
        exactly = document.get("exactly")
        self.exactly = None if exactly is None else DeviceRequest(exactly, self.name)
        alternatives = document.get("firstAvailable") or ()
        self.alternatives = [DeviceRequest(each, each.get("name", ""), self.name) for each in alternatives]

    @property
    def all(self) -> Sequence[DeviceRequest]:
        return self.alternatives or ([] if self.exactly is None else [self.exactly])


class ClaimSpec:
    """What a claim asks for. Claims with equal specs share one."""

    __slots__ = ("config", "constraints", "key", "requests")

    def __init__(self, key: bytes) -> None:
        devices: Document = _decode(key)
        self.key = key
        self.requests = [ClaimRequest(each) for each in devices.get("requests") or ()]
        self.constraints: Sequence[Document] = devices.get("constraints") or ()
        self.config: Sequence[Document] = devices.get("config") or ()


_spec = lru_cache(maxsize=4096)(ClaimSpec)


def claim_spec(document: Document) -> ClaimSpec:
    """The parsed `spec` of a claim."""
    return _spec(_encode(document.get("devices") or {}))


class Claim:
    """A ResourceClaim."""

    __slots__ = ("_spec", "_terms", "allocation", "document", "key", "name", "namespace", "reserved_for", "uid")

    def __init__(self, document: Document) -> None:
        metadata: Document = document["metadata"]
        status: Document = document.get("status") or {}
        self.document = document
        self.name: str = metadata.get("name", "")
        self.namespace: str = metadata.get("namespace", "")
        self.key: ObjectKey = (self.namespace, self.name)
        self.uid: str = metadata.get("uid", "")
        self.allocation: Document | None = status.get("allocation")
        self.reserved_for: Sequence[Document] = status.get("reservedFor") or ()
        self._spec: ClaimSpec | None = None
        self._terms: NodeTerms | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def spec(self) -> ClaimSpec:
        if self._spec is None:
            self._spec = claim_spec(self.document.get("spec") or {})
        return self._spec

    @property
    def resource_version(self) -> str:
        return str(self.document["metadata"].get("resourceVersion", ""))

    @property
    def deleting(self) -> bool:
        return bool(self.document["metadata"].get("deletionTimestamp"))

    @property
    def status(self) -> Document:
        found: Document = self.document.get("status") or {}
        return found

    @property
    def node_selector(self) -> Document | None:
        return None if self.allocation is None else self.allocation.get("nodeSelector")

    def available_on(self, node: Node) -> bool:
        """Whether the node can use the devices that are allocated."""
        selector = self.node_selector
        if selector is None:
            return True
        if self._terms is None:
            self._terms = node_terms(view(selector, NodeSelector))
        return any(term.matches(node) for term in self._terms)

    def reserved_by(self, uid: str) -> bool:
        return any(each.get("uid") == uid for each in self.reserved_for)

    def owned_by(self, pod: Pod) -> bool:
        """Whether the pod is the controller of the claim."""
        owners = self.document["metadata"].get("ownerReferences") or ()
        return any(each.get("controller") and each.get("uid") == pod.metadata.uid for each in owners)


def results_of(allocation: Document | None) -> Sequence[Document]:
    """The devices of an allocation."""
    if allocation is None:
        return ()
    found: Sequence[Document] = (allocation.get("devices") or {}).get("results") or ()
    return found


def device_id(result: Document) -> DeviceID:
    return DeviceID(result.get("driver", ""), result.get("pool", ""), result.get("device", ""))


class ClaimRefused(Exception):
    """The pod cannot be scheduled because of one of its claims."""


def claim_keys(pod: Pod) -> Iterator[ObjectKey]:
    """The keys of the claims that the pod names and that have a name already."""
    names = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    for each in pod.spec.resource_claims:
        name = each.resource_claim_name or names.get(each.name)
        if name:
            yield pod.metadata.namespace, name


def pod_claims(pod: Pod, claims: Mapping[ObjectKey, Claim]) -> list[Claim]:
    """The claims of a pod, in the order in which it names them. Raises ClaimRefused."""
    namespace, name = pod.metadata.key
    statuses = {each.name: each for each in reversed(pod.status.resource_claim_statuses)}
    found = []
    for reference in pod.spec.resource_claims:
        generated = reference.resource_claim_name is None
        if not generated:
            claim_name = reference.resource_claim_name
        elif reference.resource_claim_template_name is not None:
            if reference.name not in statuses:
                raise ClaimRefused(f'pod "{namespace}/{name}": ResourceClaim not created yet')
            claim_name = statuses[reference.name].resource_claim_name
        else:
            what = f'pod "{namespace}/{name}", spec.resourceClaim "{reference.name}"'
            raise ClaimRefused(f"{what}: none of the supported fields are set")
        if claim_name is None:
            continue  # it was found that no claim is needed
        claim = claims.get((namespace, claim_name))
        if claim is None:
            raise ClaimRefused(f'could not find ResourceClaim "{namespace}/{claim_name}"')
        if claim.deleting:
            raise ClaimRefused(f'resourceclaim "{claim_name}" is being deleted')
        if generated and not claim.owned_by(pod):
            raise ClaimRefused(f"ResourceClaim {claim} was not created for Pod {namespace}/{name} (Pod is not owner)")
        found.append(claim)
    return found
