"""The service account of a pod: `default` unless the pod names one, which must exist."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.admission.request import PASS, PodReviewer, Request, Review
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document

DEFAULT = "default"
MIRROR = "kubernetes.io/config.mirror"

FindAccount = Callable[[str, str], Document | None]
"""Looks up a service account by namespace and name."""


class ServiceAccountReviewer(PodReviewer):
    """Mutating, on creation. Without `find` names are not looked up: in a simulation service accounts need not exist.

    Upstream also refuses `default` until its controller has created it; here pods need not wait for that.
    """

    def __init__(self, find: FindAccount | None = None) -> None:
        self._find = find

    def review(self, request: Request) -> Review:
        if not request.targets(PODS):
            return PASS
        pod = request.object or {}
        spec = pod.get("spec")
        if request.operation != "CREATE" or not isinstance(spec, dict):
            return PASS
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            return PASS  # a mirror pod has no service account
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        if self._find is None:
            return PASS
        account = self._find(request.namespace, name)
        if account is None:
            if name == DEFAULT:
                return PASS
            why = f'error looking up service account {request.namespace}/{name}: serviceaccount "{name}" not found'
            return request.refused(why)
        if account.get("imagePullSecrets") and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        return PASS
