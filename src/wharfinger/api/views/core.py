"""Views of the core kinds other than Pod and Node."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.selectors import SelectorExpression
from wharfinger.api.views.base import View
from wharfinger.api.views.meta import Condition, ObjectView
from wharfinger.api.views.pods import Quantities


class NamespaceSpec(View, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(View, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(ObjectView, frozen=True):
    spec: NamespaceSpec = field(default_factory=NamespaceSpec)
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


class ServicePort(View, frozen=True):
    name: str = ""
    port: int = 0
    protocol: str = "TCP"


class ServiceSpec(View, frozen=True):
    selector: dict[str, str] = field(default_factory=dict)
    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()


class Service(ObjectView, frozen=True):
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class ServiceAccount(ObjectView, frozen=True):
    pass


class ScopeExpression(View, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def expression(self) -> SelectorExpression:
        return SelectorExpression(self.scope_name, self.operator, self.values)


class ScopeSelector(View, frozen=True):
    """Matches if all expressions match."""

    match_expressions: tuple[ScopeExpression, ...] = ()


class ResourceQuotaSpec(View, frozen=True):
    hard: Quantities = field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(View, frozen=True):
    hard: Quantities = field(default_factory=dict)
    used: Quantities = field(default_factory=dict)


class ResourceQuota(ObjectView, frozen=True):
    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)


class LimitRangeItem(View, frozen=True):
    type: str = ""
    max: Quantities = field(default_factory=dict)
    min: Quantities = field(default_factory=dict)
    default: Quantities = field(default_factory=dict)
    default_request: Quantities = field(default_factory=dict)
    max_limit_request_ratio: Quantities = field(default_factory=dict)


class LimitRangeSpec(View, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(ObjectView, frozen=True):
    spec: LimitRangeSpec = field(default_factory=LimitRangeSpec)


class ObjectReference(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class ReplicationControllerSpec(View, frozen=True):
    replicas: int = 1
    selector: dict[str, str] = field(default_factory=dict)


class ReplicationController(ObjectView, frozen=True):
    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)
