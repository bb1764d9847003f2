"""Admission of ManagedClusters and bindings: the set label, the times of taints, and who may accept, join and bind.

Permissions are asked of an `authorize` function, so that RBAC in process and subject access reviews serve alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import PASS, Request, Review, Reviewer
from wharfinger.api.errors import ApiError, BadRequest, forbidden
from wharfinger.api.kinds.ours import MANAGED_CLUSTER_SET_BINDINGS, MANAGED_CLUSTER_SETS, MANAGED_CLUSTERS, OCM
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.views.placement import CLUSTER_SET_LABEL

DEFAULT_SET = "default"
REGISTER_GROUP = "register.open-cluster-management.io"

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
    """Mutating: a cluster without a set belongs to `default`; the server owns the times of taints."""

    def __init__(self, now: Callable[[], float], *, default_set: bool = True) -> None:
        self._now = now
        self._default_set = default_set

    def review(self, request: Request) -> Review:
        if not _is(request, MANAGED_CLUSTERS.plural, "CREATE", "UPDATE"):
            return PASS
        assert request.object is not None
        if self._default_set:
            metadata = request.object.setdefault("metadata", {})
            labels = metadata.get("labels") or {}
            if not labels.get(CLUSTER_SET_LABEL):
                metadata["labels"] = {**labels, CLUSTER_SET_LABEL: DEFAULT_SET}
        return self._taints(request.object, request.old)

    def _taints(self, document: Document, old: Document | None) -> Review:
        now = format_time(self._now())
        before = {taint.get("key"): taint for taint in _taints(old)} if old is not None else {}
        for taint in _taints(document):
            known = before.get(taint.get("key"))
            given = taint.get("timeAdded")
            if old is None:
                taint["timeAdded"] = now
            elif known is not None and _same(known, taint):
                if given != known.get("timeAdded"):
                    return Review(
                        denied=BadRequest(f"It is not allowed to modify TimeAdded of Taint {taint.get('key')!r}.")
                    )
            elif given:
                return Review(denied=BadRequest(f"It is not allowed to set TimeAdded of Taint {taint.get('key')!r}."))
            else:
                taint["timeAdded"] = now
        return PASS


def _taints(document: Document | None) -> list[dict[str, Any]]:
    spec = (document or {}).get("spec")
    taints = spec.get("taints") if isinstance(spec, dict) else None
    return [taint for taint in taints if isinstance(taint, dict)] if isinstance(taints, list) else []


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one.get("value") or "", one.get("effect")) == (other.get("value") or "", other.get("effect"))


class ClusterAccessReviewer:
    """Validating: accepting a cluster and moving it between sets are rights of their own."""

    def __init__(self, authorize: Authorize, terminating: Callable[[str], bool] = lambda namespace: False) -> None:
        self._authorize = authorize
        self._terminating = terminating

    def review(self, request: Request) -> Review:
        if not _is(request, MANAGED_CLUSTERS.plural, "CREATE", "UPDATE"):
            return PASS
        assert request.object is not None
        denied = self._acceptance(request) or self._membership(request)
        return Review(denied=denied) if denied is not None else PASS

    def _acceptance(self, request: Request) -> ApiError | None:
        if not _accepts(request.object) or _accepts(request.old):
            return None
        question = Attributes(
            request.user, "update", REGISTER_GROUP, MANAGED_CLUSTERS.plural, "accept", name=request.name
        )
        if not self._authorize(question):
            why = f'user "{request.user.name}" cannot update the HubAcceptsClient field'
            return forbidden(OCM, MANAGED_CLUSTERS.plural, request.name, why)
        if self._terminating(request.name):
            why = f'the namespace "{request.name}" of the cluster is terminating'
            return forbidden(OCM, MANAGED_CLUSTERS.plural, request.name, why)
        return None

    def _membership(self, request: Request) -> ApiError | None:
        old, new = _set_of(request.old), _set_of(request.object)
        if old == new:
            return None
        for name in filter(None, (old, new)):
            question = Attributes(request.user, "create", OCM, MANAGED_CLUSTER_SETS.plural, "join", name=name)
            if not self._authorize(question):
                why = f'user "{request.user.name}" cannot add or remove clusters of the ManagedClusterSet "{name}"'
                return forbidden(OCM, MANAGED_CLUSTERS.plural, request.name, why)
        return None


def _accepts(document: Document | None) -> bool:
    return bool(((document or {}).get("spec") or {}).get("hubAcceptsClient"))


def _set_of(document: Document | None) -> str:
    labels = ((document or {}).get("metadata") or {}).get("labels") or {}
    return str(labels.get(CLUSTER_SET_LABEL) or "")


class BindingReviewer:
    """Validating: a binding is named after its set, and binding a set is a right of its own."""

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def review(self, request: Request) -> Review:
        if not _is(request, MANAGED_CLUSTER_SET_BINDINGS.plural, "CREATE", "UPDATE"):
            return PASS
        assert request.object is not None
        cluster_set = str((request.object.get("spec") or {}).get("clusterSet") or "")
        name = str(request.object.get("metadata", {}).get("name") or request.name)
        if cluster_set != name:
            message = (
                f'The ManagedClusterSetBinding must have the same name as the target ManagedClusterSet "{cluster_set}"'
            )
            return Review(denied=BadRequest(message))
        if request.operation == "CREATE":
            question = Attributes(request.user, "create", OCM, MANAGED_CLUSTER_SETS.plural, "bind", name=cluster_set)
            if not self._authorize(question):
                why = f'user "{request.user.name}" is not allowed to bind cluster set "{cluster_set}"'
                return Review(denied=forbidden(OCM, MANAGED_CLUSTER_SET_BINDINGS.plural, name, why))
        return PASS


def placement_reviewers(
    now: Callable[[], float],
    authorize: Authorize,
    terminating: Callable[[str], bool] = lambda namespace: False,
    *,
    default_set: bool = True,
) -> tuple[list[Reviewer], list[Reviewer]]:
    """All reviewers of placement: the mutating ones, and the validating ones."""
    return (
        [ClusterDefaultsReviewer(now, default_set=default_set)],
        [ClusterAccessReviewer(authorize, terminating), BindingReviewer(authorize)],
    )
