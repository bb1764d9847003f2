"""Views of ResourceClass and NodeComputeResources."""

from __future__ import annotations

from functools import lru_cache

from msgspec import field

from wharfinger.api.views.base import View
from wharfinger.api.views.meta import Condition, ObjectView
from wharfinger.api.views.nodes import ComputeResource
from wharfinger.systems.resource_class.rules.properties import Expression, Selector

ALIAS_PREFIX = "resourceclass.scheduling.sigs.x-k8s.io/"
CLUSTER_SCOPE = "Cluster"


class PropertyExpression(View, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class PropertySelector(View, frozen=True):
    match_expressions: tuple[PropertyExpression, ...] = ()


class ResourceClassSpec(View, frozen=True):
    resource_name: str = ""
    resource_selector: tuple[PropertySelector, ...] = ()
    label_selector: tuple[PropertySelector, ...] = ()  # other spellings of resource_selector in the design document
    resource_selector_requirements: tuple[PropertySelector, ...] = ()
    alias: str = ""
    scope: str = "Node"
    group_by: str = ""
    group_size: int = 0

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """The alternatives, whichever way they are spelled."""
        return _selectors(self.resource_selector or self.label_selector or self.resource_selector_requirements)


@lru_cache(maxsize=4096)
def _selectors(given: tuple[PropertySelector, ...]) -> tuple[Selector, ...]:
    return tuple(
        tuple(Expression(each.key, each.operator, each.values) for each in selector.match_expressions)
        for selector in given
    )


class ResourceClassStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()


class ResourceClass(ObjectView, frozen=True):
    spec: ResourceClassSpec = field(default_factory=ResourceClassSpec)
    status: ResourceClassStatus = field(default_factory=ResourceClassStatus)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def alias(self) -> str:
        """The qualified name under which a real API server lets pods ask for the class."""
        return self.spec.alias or default_alias(self.metadata.name)

    @property
    def per_cluster(self) -> bool:
        """Whether nodes have nothing to do with it: the devices come from elsewhere."""
        return self.spec.scope == CLUSTER_SCOPE

    @property
    def group_size(self) -> int:
        """How many devices one unit is."""
        return self.spec.group_size if self.spec.group_by and self.spec.group_size > 1 else 1


def default_alias(name: str) -> str:
    return f"{ALIAS_PREFIX}{name}"


class NodeComputeResourcesSpec(View, frozen=True):
    compute_resources: tuple[ComputeResource, ...] = ()


class NodeComputeResources(ObjectView, frozen=True):
    """What a node's devices are, where Node objects cannot say it themselves; named after the node."""

    spec: NodeComputeResourcesSpec = field(default_factory=NodeComputeResourcesSpec)
