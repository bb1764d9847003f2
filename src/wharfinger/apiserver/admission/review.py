"""An admission request as others see it: the AdmissionReview sent to webhooks, the variables of CEL expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.admission.request import Request
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.apiserver.admission.authorizer import authorizer
from wharfinger.apiserver.admission.matching import is_namespace, labels_of
from wharfinger.store.objects import StoredObject
from wharfinger.store.scale import scale_of, scaled
from wharfinger.store.versions import copy, incoming, outgoing, stored_as_is

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_POSTED = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}
_CONNECTED = {  # by plural and subresource: the kind of the options
    ("pods", "exec"): "PodExecOptions",
    ("pods", "attach"): "PodAttachOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
    ("pods", "proxy"): "PodProxyOptions",
    ("services", "proxy"): "ServiceProxyOptions",
    ("nodes", "proxy"): "NodeProxyOptions",
}
_SCALE = ("autoscaling", "v1", "Scale")
_HIDDEN_OF_NAMESPACES = ("managedFields", "ownerReferences", "selfLink")

Peek = Callable[[Resource, str], StoredObject | None]


def admission_request(request: Request, matched: Resource, uid: str = "") -> Document:
    """The `request` of an AdmissionReview without its objects; `matched` is the resource that the rule matched."""
    resource, user = request.resource, request.user
    user_info: Document = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    if user.extra:
        user_info["extra"] = {key: list(values) for key, values in user.extra.items()}
    document: Document = {
        "uid": uid,
        "kind": _kind(matched, request.subresource),
        "resource": _resource(matched),
        "subResource": request.subresource,
        "requestKind": _kind(resource, request.subresource),
        "requestResource": _resource(resource),
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request.name if is_namespace(resource) else request.namespace,
        "operation": request.operation,
        "userInfo": {key: value for key, value in user_info.items() if value},
        "dryRun": request.dry_run,
        "options": _options(request),
    }
    return {key: value for key, value in document.items() if value != "" or key == "uid"}


def connected_kind(resource: Resource, subresource: str) -> str | None:
    """The kind of the options with which a connection is opened; None for other requests."""
    return None if resource.group else _CONNECTED.get((resource.plural, subresource))


def _kind(resource: Resource, subresource: str) -> Document:
    if (options := connected_kind(resource, subresource)) is not None:
        return {"group": "", "version": "v1", "kind": options}
    own = _SCALE if subresource == "scale" else (resource.group, resource.version, resource.kind)
    group, version, kind = _POSTED.get(subresource, own)
    return {"group": group, "version": version, "kind": kind}


def _resource(resource: Resource) -> Document:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _options(request: Request) -> Document | None:
    kind = _OPTIONS.get(request.operation)
    if kind is None:
        return None
    document: Document = {"kind": kind, "apiVersion": "meta.k8s.io/v1", **request.options}
    return {**document, "dryRun": ["All"]} if request.dry_run else document


def as_matched(document: Document | None, registry: Registry, matched: Resource, subresource: str) -> Document | None:
    """An object of the request, converted from the storage version to the version that the rule matched."""
    kind = registry.of_plural(matched.group, matched.plural)
    if document is None or subresource in _POSTED or kind is None or connected_kind(matched, subresource):
        return document
    if subresource == "scale":
        return scale_of(kind, document)
    if stored_as_is(kind, matched):
        return {**document, "apiVersion": matched.api_version, "kind": matched.kind}
    return outgoing(kind, matched, copy(document))


def as_stored(document: Document, registry: Registry, matched: Resource, request: Request) -> Document:
    """The reverse of `as_matched`."""
    kind = registry.of_plural(matched.group, matched.plural)
    if kind is None or request.subresource in _POSTED or connected_kind(matched, request.subresource):
        return document
    if request.subresource == "scale" and request.object is not None:
        version = request.object["metadata"].get("resourceVersion")
        return scaled(kind, copy(request.object), {"metadata": {"resourceVersion": version}, "spec": document["spec"]})
    return incoming(kind, matched, document)


def namespace_of(request: Request, peek: Peek) -> Document | None:
    """The object's namespace, as the variable `namespaceObject` shows it; None for cluster-scoped objects."""
    if is_namespace(request.resource) or not request.namespace:
        return None
    stored = peek(NAMESPACES, request.namespace)
    if stored is None:
        return None
    found = stored.document()
    metadata = {key: value for key, value in found["metadata"].items() if key not in _HIDDEN_OF_NAMESPACES}
    return {**found, "metadata": metadata}


def namespace_labels(request: Request, peek: Peek) -> dict[str, str] | None:
    """Labels of the object's namespace, or of the object if it is a namespace; None for other cluster-scoped objects."""
    if is_namespace(request.resource):
        return labels_of(request.object or request.old or {})
    if not request.namespace:
        return None
    stored = peek(NAMESPACES, request.namespace)
    return {} if stored is None else dict(stored.labels)


def variables(request: Request, registry: Registry, matched: Resource) -> dict[str, Any]:
    """The CEL variables that every expression about a request may use."""
    return {
        "object": as_matched(request.object, registry, matched, request.subresource),
        "oldObject": as_matched(request.old, registry, matched, request.subresource),
        "request": admission_request(request, matched),
        "authorizer": authorizer(request),
    }
