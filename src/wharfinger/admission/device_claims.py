"""Who may do what with claims for devices: administrative access, allocation, and the status of drivers' devices.

After pkg/registry/resource of Kubernetes: what its strategies check besides the object itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wharfinger.admission.rbac import Attributes, RbacDecision
from wharfinger.admission.reads import Reads
from wharfinger.admission.request import Request, User
from wharfinger.api.defaults.devices import allocation_results, device_key
from wharfinger.api.fields import FieldError, forbidden
from wharfinger.api.kinds.builtin import NAMESPACES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Document

ADMIN_NAMESPACE_LABEL = "resource.kubernetes.io/admin-access"
_NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
_SERVICE_ACCOUNT = "system:serviceaccount:"
_ADMIN_DETAIL = (
    f"admin access to devices requires the `{ADMIN_NAMESPACE_LABEL}: true` label on the containing namespace"
)


class AdminAccessChecker:
    """Devices that others use may be claimed only in namespaces that are labelled for it."""

    def __init__(self, objects: Reads) -> None:
        self._objects = objects

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        if group != RESOURCE_CLAIMS.group:
            return False
        return plural == RESOURCE_CLAIMS.plural or (plural == RESOURCE_CLAIM_TEMPLATES.plural and not subresource)

    def faults(self, request: Request) -> Iterator[FieldError]:
        new, old = request.object or {}, request.old or {}
        if request.subresource == "status":
            path = "" if _granted(old) else _granted(new)
        else:
            path = _asked(new, request.resource.plural) if request.operation == "CREATE" else ""
        if path and not self._allowed(request.namespace):
            yield forbidden(path, _ADMIN_DETAIL)

    def _allowed(self, namespace: str) -> bool:
        found = self._objects.peek(NAMESPACES, namespace)
        labels = {} if found is None else found.document()["metadata"].get("labels") or {}
        return labels.get(ADMIN_NAMESPACE_LABEL) == "true"


def _asked(document: Document, plural: str) -> str:
    """The path of the first request for administrative access; as upstream, that of a claim even in a template."""
    spec = document.get("spec") or {}
    if plural == RESOURCE_CLAIM_TEMPLATES.plural:
        spec = spec.get("spec") or {}
    requests = (spec.get("devices") or {}).get("requests") or ()
    for index, request in enumerate(requests):
        if (request.get("exactly") or {}).get("adminAccess"):
            return f"spec.devices.requests[{index}].adminAccess"
    return ""


def _granted(document: Document) -> str:
    for index, result in enumerate(allocation_results(document)):
        if result.get("adminAccess"):
            return f"status.allocation.devices.results[{index}].adminAccess"
    return ""


class ClaimStatusChecker:
    """An allocation needs permission for `resourceclaims/binding`, the status of a driver's devices for
    `resourceclaims/driver`."""

    def __init__(self, allowed: Callable[[Attributes], RbacDecision]) -> None:
        self._allowed = allowed

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return group == RESOURCE_CLAIMS.group and plural == RESOURCE_CLAIMS.plural and subresource == "status"

    def faults(self, request: Request) -> Iterator[FieldError]:
        status, before = (request.object or {}).get("status") or {}, (request.old or {}).get("status") or {}
        if any(status.get(name) != before.get(name) for name in ("allocation", "reservedFor")):
            asked = Attributes(request.user, request.verb, RESOURCE_CLAIMS.group, RESOURCE_CLAIMS.plural, "binding")
            if why := self._refusal(asked):
                needs = f'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="{request.verb}" permission: {why}'
                yield forbidden("status.allocation", needs)
        if status.get("allocation") is not None:
            yield from self._device_faults(request, status, before)

    def _device_faults(self, request: Request, status: Document, before: Document) -> Iterator[FieldError]:
        verbs = [f"arbitrary-node:{request.verb}"]
        if _runs_on(request.user, _node_of(status["allocation"])):
            verbs.insert(0, f"associated-node:{request.verb}")
        for driver in sorted(_changed_drivers(status, before)):
            refusals = []
            for each in verbs:
                asked = Attributes(
                    request.user,
                    each,
                    RESOURCE_CLAIMS.group,
                    RESOURCE_CLAIMS.plural,
                    "driver",
                    driver,
                    request.namespace,
                )
                refusals.append(self._refusal(asked))
            if all(refusals):
                needs = f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
                yield forbidden("status.devices", needs)

    def _refusal(self, asked: Attributes) -> str:
        decision = self._allowed(asked)
        return "" if decision.allowed else asked.forbidden(decision.reason).message


def _changed_drivers(status: Document, before: Document) -> set[str]:
    """Drivers whose devices have another status than before."""
    now = {device_key(each): each for each in status.get("devices") or ()}
    past = {device_key(each): each for each in before.get("devices") or ()}
    return {key[0] for key in now.keys() | past.keys() if now.get(key) != past.get(key)}


def _node_of(allocation: Document) -> str:
    """The node to which an allocation is bound; empty if it is not bound to exactly one."""
    terms: list[Document] = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    field = terms[0]["matchFields"][0]
    values: list[str] = field.get("values") or []
    single = field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1
    return values[0] if single else ""


def _runs_on(user: User, node: str) -> bool:
    """Whether the user is a service account with a token that is bound to a pod on the node."""
    names = user.extra.get(_NODE_OF_TOKEN) or ()
    return bool(node) and user.name.startswith(_SERVICE_ACCOUNT) and names == (node,) and not dns_subdomain(node)
