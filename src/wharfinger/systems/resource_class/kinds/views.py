"""Views of ResourceClass and NodeComputeResources."""

from __future__ import annotations

from functools import lru_cache

from msgspec import field

from wharfinger.api.views.base import View
from wharfinger.api.views.meta import Condition, ObjectView
from wharfinger.api.views.nodes import ComputeResource
from wharfinger.systems.resource_class.rules.properties import Expression, Selector

ALIAS_PREFIX = "resourceclass.scheduling.sigs.x-k8s.io/"
FORMER_ALIASES = "scheduling.sigs.x-k8s.io/former-aliases"
"""Annotation of a class: the aliases that it had before, with commas in between. Written when the alias changes."""
CLUSTER_SCOPE = "Cluster"


class PropertyExpression(View, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class PropertySelector(View, frozen=True):
    match_expressions: tuple[PropertyExpression, ...] = ()


class ResourceClassSpec(View, frozen=True):
    resource_name: str = ""
    driver: str = ""  # of DRA devices, which the core allocates
    resource_selector: tuple[PropertySelector, ...] = ()
    label_selector: tuple[PropertySelector, ...] = ()  # the design document's other spellings of resource_selector
    resource_selector_requirements: tuple[PropertySelector, ...] = ()
    alias: str = ""
    scope: str = "Node"
    group_by: str = ""
    group_size: int = 0

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """The selectors, ORed, under whichever field name they were given."""
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
        """The qualified name under which pods can request the class on a real API server."""
        return self.spec.alias or default_alias(self.metadata.name)

    @property
    def former_aliases(self) -> tuple[str, ...]:
        """Aliases that the class had before: pods that were created under them are still counted."""
        return tuple(filter(None, self.metadata.annotations.get(FORMER_ALIASES, "").split(",")))

    @property
    def per_cluster(self) -> bool:
        """Whether the devices belong to the cluster rather than to nodes, so that scheduling ignores them."""
        return self.spec.scope == CLUSTER_SCOPE

    @property
    def group_size(self) -> int:
        """Devices per requested unit."""
        return self.spec.group_size if self.spec.group_by and self.spec.group_size > 1 else 1


def default_alias(name: str) -> str:
    return f"{ALIAS_PREFIX}{name}"


class NodeComputeResourcesSpec(View, frozen=True):
    compute_resources: tuple[ComputeResource, ...] = ()


class NodeComputeResources(ObjectView, frozen=True):
    """The devices of the node of the same name, for API servers whose Node has no field for them."""

    spec: NodeComputeResourcesSpec = field(default_factory=NodeComputeResourcesSpec)
