"""Warnings about names of device resources that mean nothing, or something else than one may think.

They do not refuse: a class or a node may come later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from wharfinger.admission.reads import Derived, Reads
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.kinds import pod_templates
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.validation.resources import is_device, is_unqualified
from wharfinger.api.views import Node, decode, view
from wharfinger.systems.resource_class.admission.names import containers
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ALIAS_PREFIX, NodeComputeResources, ResourceClass

_QUOTA = ("", "resourcequotas")
_CLASS = (RESOURCE_CLASSES.group, RESOURCE_CLASSES.plural)


class UnknownNameReviewer:
    """Validating. `on_nodes` returns the resources that nodes have, or None where they are not known."""

    def __init__(
        self,
        classes: Callable[[], Iterable[ResourceClass]],
        on_nodes: Callable[[], Collection[str] | None] = lambda: None,
    ) -> None:
        self._classes = classes
        self._on_nodes = on_nodes

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        kind = (group, plural)
        return not subresource and (kind in (("", "pods"), _QUOTA, _CLASS) or kind in pod_templates())

    def repeats(self, request: Request) -> bool:
        """For pods, only the classes matter."""
        return (request.resource.group, request.resource.plural) == ("", "pods")

    def review(self, request: Request) -> Review:
        if request.object is None or request.subresource or request.operation not in ("CREATE", "UPDATE"):
            return PASS
        kind = (request.resource.group, request.resource.plural)
        if request.operation == "UPDATE" and (request.object.get("spec") == (request.old or {}).get("spec")):
            return PASS
        if kind == _QUOTA:
            warnings = list(self._of_quota(request.object))
        elif kind == _CLASS:
            warnings = list(self._of_class(view(request.object, ResourceClass)))
        else:
            warnings = list(self._of_containers(request.object, kind))
        return Review(warnings=warnings) if warnings else PASS

    def _of_containers(self, document: dict[str, Any], kind: tuple[str, str]) -> Iterator[str]:
        known: set[str] | None = None
        for container in containers(document, kind):
            resources = container.get("resources")
            if not resources or not isinstance(resources, dict):
                continue
            for name in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}:
                if not _class_like(name):
                    continue
                if known is None:
                    known = {each for found in self._classes() for each in (found.name, found.alias)}
                if name not in known:
                    yield f"container {container.get('name')}: there is no ResourceClass {_class_of(name)}; the pod waits for it"

    def _of_quota(self, document: dict[str, Any]) -> Iterator[str]:
        spec = document.get("spec")
        hard = spec.get("hard") if isinstance(spec, dict) else None
        classes = list(self._classes())
        known = {each for found in classes for each in (found.name, found.alias, *found.former_aliases)}
        for name in sorted(hard) if isinstance(hard, dict) else ():
            counted = name.removeprefix("requests.")
            if counted in known or name.startswith("count/") or not is_device(counted):
                continue
            if _class_like(counted):
                yield f"spec.hard[{name}]: there is no ResourceClass {_class_of(counted)}"
            elif (on_nodes := self._on_nodes()) is not None and counted not in on_nodes:
                raws = {found.spec.resource_name for found in classes}
                if counted not in raws:
                    yield f"spec.hard[{name}]: no node has {counted}, and no ResourceClass is called so"

    def _of_class(self, new: ResourceClass) -> Iterator[str]:
        on_nodes = self._on_nodes()
        if on_nodes is not None and new.alias in on_nodes:
            yield f"spec.alias: nodes have a resource {new.alias}; pods that ask for it get devices of this class instead"


def _class_like(name: str) -> bool:
    return is_unqualified(name) or name.startswith(ALIAS_PREFIX)


def _class_of(name: str) -> str:
    return f'"{name.removeprefix(ALIAS_PREFIX)}"'


class StoredNodeResources:
    """The device resources of the nodes in a store. Read only for quotas and classes, which are written rarely."""

    def __init__(self, reads: Reads) -> None:
        self._nodes = Derived(reads, NODES, lambda found: [decode(each.data, Node) for each in found])
        self._separate = Derived(
            reads, NODE_COMPUTE_RESOURCES, lambda found: [decode(each.data, NodeComputeResources) for each in found]
        )

    def get(self) -> Collection[str]:
        found = {each.resource_name for made in self._separate.get() for each in made.spec.compute_resources}
        for node in self._nodes.get():
            found.update(each.resource_name for each in node.status.compute_resources)
            found.update(name for name in (*node.status.capacity, *node.status.allocatable) if is_device(name))
        return found
