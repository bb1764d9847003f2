"""Admission of ManagedClusters and ManagedClusterSetBindings: the cluster set label, the times of taints, and the
permissions to accept, join and bind.

Permissions are checked through an `authorize` function, so that both in-process RBAC and SubjectAccessReviews can be
used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from wharfinger.admission.extension import AdmissionContext, SystemReviewers
from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import PASS, Request, Review, Reviewer
from wharfinger.api.errors import ApiError, BadRequest, forbidden
from wharfinger.api.fields import show
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.names import dns_label
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, format_time, parse_time
from wharfinger.systems.placement.admission.addresses import is_https_url
from wharfinger.systems.placement.kinds.names import (
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    OCM,
)
from wharfinger.systems.placement.kinds.views import CLUSTER_SET_LABEL
from wharfinger.systems.placement.settings import PlacementSettings

DEFAULT_SET = "default"
REGISTER_GROUP = "register.open-cluster-management.io"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_ACCEPT = f"{MANAGED_CLUSTERS.plural}/accept"
_OTHER_NAME = "The ManagedClusterSetBinding must have the same name as the target ManagedClusterSet"

Authorize = Callable[[Attributes], bool]


def _is(request: Request, plural: str, *operations: str) -> bool:
    return (
        request.resource.group == OCM
        and request.resource.plural == plural
        and request.operation in operations
        and not request.subresource
        and request.object is not None
    )


class ClusterDefaultsReviewer:
    """Mutating: adds a cluster without a set to `default`, sets the times of taints, which clients may not set, and adds
    fields that were left out."""

    def __init__(self, now: Callable[[], float], *, default_set: bool = True) -> None:
        self._now = now
        self._default_set = default_set

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return group == OCM and not subresource

    def review(self, request: Request) -> Review:
        if not _is(request, MANAGED_CLUSTERS.plural, "CREATE", "UPDATE"):
            return PASS
        assert request.object is not None
        _fill_in(request.object)
        if fault := _bundle_fault(request.object):
            return Review(denied=BadRequest(fault, reason=""))
        if refused := _set_times(request.object, request.old, format_time(self._now())):
            keys = show(",".join(refused))
            return Review(denied=BadRequest(f"It is not allowed to set TimeAdded of Taint {keys}."))
        if self._default_set:
            metadata = request.object.setdefault("metadata", {})
            labels = metadata.get("labels") or {}
            if not labels.get(CLUSTER_SET_LABEL):
                metadata["labels"] = {**labels, CLUSTER_SET_LABEL: DEFAULT_SET}
        return PASS


def _fill_in(document: Document) -> None:
    """Adds the fields that Open Cluster Management's webhook, a typed client, never leaves out."""
    spec = document.setdefault("spec", {})
    if not isinstance(spec, dict):
        return
    spec.setdefault("hubAcceptsClient", False)
    for taint in _taints(document):
        taint.setdefault("key", "")
        taint.setdefault("effect", "")
    configs = spec.get("managedClusterClientConfigs")
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, dict):
            config.setdefault("url", "")


def _bundle_fault(document: Document) -> str:
    """What Go says of the first bundle of certificates that is not base64; empty if all are."""
    spec = document["spec"]
    configs = spec.get("managedClusterClientConfigs") if isinstance(spec, dict) else None
    for config in configs if isinstance(configs, list) else ():
        bundle = config.get("caBundle") if isinstance(config, dict) else None
        if isinstance(bundle, str) and not _BASE64.fullmatch(text := re.sub(r"[\r\n]", "", bundle)):
            found = _NO_BASE64.search(text)
            return f"illegal base64 data at input byte {found.start() if found else len(text) // 4 * 4}"
    return ""


def _set_times(document: Document, old: Document | None, now: str) -> list[str]:
    """Sets the times of new and changed taints. Returns the keys of those whose time the client set or changed."""
    refused = []
    for taint in _taints(document):
        key, given = str(taint.get("key") or ""), _moment(taint.get("timeAdded"))
        known = next((each for each in _taints(old) if str(each.get("key") or "") == key), None)
        if old is not None and known is not None and _same(known, taint):
            if given != _moment(known.get("timeAdded")):
                refused.append(key)
        elif old is not None and given is not None:
            refused.append(key)
        else:
            taint["timeAdded"] = now
    return refused


def _moment(value: object) -> float | str | None:
    """When a taint was added; None if it has no time."""
    try:
        return parse_time(str(value)) if value else None
    except BadTime:
        return str(value)


def _taints(document: Document | None) -> list[dict[str, Any]]:
    spec = (document or {}).get("spec")
    taints = spec.get("taints") if isinstance(spec, dict) else None
    return [taint for taint in taints if isinstance(taint, dict)] if isinstance(taints, list) else []


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one.get("value") or "", one.get("effect")) == (other.get("value") or "", other.get("effect"))


class Needed(msgspec.Struct, frozen=True):
    """A required permission, and the error for users who lack it."""

    question: Attributes
    refusal: ApiError


def needed(request: Request) -> list[Needed]:
    """The permissions that writing a cluster or binding requires in addition to the write itself: to accept, join or
    bind."""
    if _is(request, MANAGED_CLUSTERS.plural, "CREATE", "UPDATE"):
        return [*_acceptance(request), *_membership(request)]
    if _is(request, MANAGED_CLUSTER_SET_BINDINGS.plural, "CREATE"):
        return _binding(request)
    return []


def _acceptance(request: Request) -> list[Needed]:
    if not accepts(request):
        return []
    question = Attributes(request.user, "update", REGISTER_GROUP, MANAGED_CLUSTERS.plural, "accept", name=request.name)
    why = f'user "{request.user.name}" cannot update the HubAcceptsClient field'
    return [Needed(question, forbidden(OCM, _ACCEPT, request.name, why))]


def _membership(request: Request) -> list[Needed]:
    old, new = _set_of(request.old), _set_of(request.object)
    rights = []
    for name in filter(None, (old, new) if old != new else ()):
        question = Attributes(request.user, "create", OCM, MANAGED_CLUSTER_SETS.plural, "join", name=name)
        why = f'user "{request.user.name}" cannot add/remove a ManagedCluster to/from ManagedClusterSet "{name}"'
        rights.append(Needed(question, forbidden(OCM, f"{MANAGED_CLUSTER_SETS.plural}/join", name, why)))
    return rights


def _binding(request: Request) -> list[Needed]:
    name = _bound_set(request.object)
    question = Attributes(request.user, "create", OCM, MANAGED_CLUSTER_SETS.plural, "bind", name=name)
    why = f'user "{request.user.name}" is not allowed to bind cluster set "{name}"'
    return [Needed(question, forbidden(OCM, f"{MANAGED_CLUSTER_SETS.plural}/bind", name, why))]


def accepts(request: Request) -> bool:
    """Whether the request accepts a cluster."""
    return _accepts(request.object) and not _accepts(request.old)


def _accepts(document: Document | None) -> bool:
    return bool(((document or {}).get("spec") or {}).get("hubAcceptsClient"))


def _set_of(document: Document | None) -> str:
    labels = ((document or {}).get("metadata") or {}).get("labels") or {}
    return str(labels.get(CLUSTER_SET_LABEL) or "")


def _bound_set(document: Document | None) -> str:
    return str(((document or {}).get("spec") or {}).get("clusterSet") or "")


class PermissionReviewer:
    """Validating: accepting a cluster, moving it between sets and binding a set need separate permissions."""

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return group == OCM and not subresource

    def review(self, request: Request) -> Review:
        for right in needed(request):
            if not self._authorize(right.question):
                return Review(denied=right.refusal)
        return PASS


class ShapeReviewer:
    """Validating: a cluster has the name of a namespace and secure addresses, and is not accepted while its namespace is
    terminating; a binding has the name of its set."""

    def __init__(self, terminating: Callable[[str], bool] = lambda namespace: False) -> None:
        self._terminating = terminating

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return group == OCM and not subresource

    def review(self, request: Request) -> Review:
        if _is(request, MANAGED_CLUSTER_SET_BINDINGS.plural, "CREATE", "UPDATE"):
            assert request.object is not None
            if _bound_set(request.object) != str(request.object.get("metadata", {}).get("name") or request.name):
                return Review(denied=BadRequest(_OTHER_NAME))
        if _is(request, MANAGED_CLUSTERS.plural, "CREATE", "UPDATE"):
            assert request.object is not None
            if faults := _cluster_faults(request.object, request.name):
                return Review(denied=BadRequest("\n".join(faults)))
            if accepts(request) and self._terminating(request.name):
                why = f'cluster namespace "{request.name}" is terminating'
                return Review(denied=forbidden(OCM, _ACCEPT, request.name, why))
        return PASS


def _cluster_faults(document: Document, name: str) -> list[str]:
    wrong = dns_label(str(document.get("metadata", {}).get("name") or name))
    faults = [f"metadata.name format is not correct: {','.join(wrong)}"] if wrong else []
    spec = document.get("spec")
    for config in (spec.get("managedClusterClientConfigs") if isinstance(spec, dict) else None) or ():
        if not is_https_url(config["url"]):
            faults.append(f"url {show(config['url'])} is invalid in client configs")
    return sorted(faults)


def placement_reviewers(
    now: Callable[[], float],
    authorize: Authorize,
    terminating: Callable[[str], bool] = lambda namespace: False,
    *,
    default_set: bool = True,
) -> tuple[list[Reviewer], list[Reviewer]]:
    """All reviewers of placement: the mutating and the validating ones."""
    return (
        [ClusterDefaultsReviewer(now, default_set=default_set)],
        [ShapeReviewer(terminating), PermissionReviewer(authorize)],
    )


def stored_reviewers(context: AdmissionContext) -> SystemReviewers:
    """The reviewers for an in-process store."""

    def terminating(namespace: str) -> bool:
        found = context.objects.peek(NAMESPACES, namespace)
        return found is not None and "deletionTimestamp" in found.document()["metadata"]

    mutating, validating = placement_reviewers(
        context.now,
        context.authorize,
        terminating,
        default_set=context.configuration.of(PlacementSettings).default_cluster_set,
    )
    return SystemReviewers(mutating=mutating, validating=validating)
