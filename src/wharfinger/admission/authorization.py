"""The authorizers of a cluster in order: the Node authorizer, then RBAC."""

from __future__ import annotations

from typing import Protocol

from wharfinger.admission.node_authorizer import NodeAuthorizer, node_name
from wharfinger.admission.rbac import Attributes, RbacDecision, RbacIndex


class Authorizer(Protocol):
    def allowed(self, asked: Attributes) -> RbacDecision: ...


class ClusterAuthorizer:
    """Allows what one of the authorizers allows; otherwise the reasons of all are given."""

    def __init__(self, node: NodeAuthorizer, rbac: RbacIndex) -> None:
        self._node = node
        self._rbac = rbac

    def allowed(self, asked: Attributes) -> RbacDecision:
        if node_name(asked.user) is None:
            return self._rbac.allowed(asked)
        first = self._node.allowed(asked)
        second = self._rbac.allowed(asked)
        if first.allowed or not (second.allowed or first.reason):
            return first
        return second if second.allowed else RbacDecision(False, "\n".join(filter(None, (first.reason, second.reason))))
