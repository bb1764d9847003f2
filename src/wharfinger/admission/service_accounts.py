"""The service account of a pod: `default` where none is named; one that is named has to exist."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import forbidden
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document

DEFAULT = "default"
MIRROR = "kubernetes.io/config.mirror"

FindAccount = Callable[[str, str], Document | None]
"""Namespace and name to the service account."""


class ServiceAccountReviewer:
    """Mutates pods on create. Without `find` names are not looked up: in a simulation a policy's subject need not exist.

    Upstream refuses `default` too while its controller has not made it yet; here a pod need not wait for that.
    """

    def __init__(self, find: FindAccount | None = None) -> None:
        self._find = find

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == PODS.plural and not group and not subresource

    def review(self, request: Request) -> Review:
        if request.resource.plural != PODS.plural or request.resource.group or request.subresource:
            return PASS
        pod = request.object or {}
        spec = pod.get("spec")
        if request.operation != "CREATE" or not isinstance(spec, dict):
            return PASS
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            return PASS  # a node's own pod has no account
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if self._find is None:
            return PASS
        account = self._find(request.namespace, name)
        if account is None:
            if name == DEFAULT:
                return PASS
            why = f'error looking up service account {request.namespace}/{name}: serviceaccount "{name}" not found'
            return Review(forbidden("", PODS.plural, request.name, why))
        if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        return PASS
