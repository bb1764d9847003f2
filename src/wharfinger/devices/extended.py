"""Extended resources that devices serve: the requests of the claim that the scheduler makes for a pod.

All extended resources of a pod that a node serves by devices share one claim. Which these are depends on the node: where its
allocatable resources have one, a device plugin serves it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from wharfinger.api.names import qualified_name
from wharfinger.api.quantity import NANO, parse_nano
from wharfinger.api.views import Pod
from wharfinger.api.views.pods import Container
from wharfinger.devices.claims import EXACT_COUNT
from wharfinger.devices.classes import IMPLICIT_PREFIX, DeviceClasses
from wharfinger.devices.slices import Document

IN_MEMORY_NAME = "<extended-resources>"
"""The name of the claim until it is written; not a valid one, so that it cannot be that of another claim."""

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"

_NATIVE = "kubernetes.io/"


def may_be_served(resource: str) -> bool:
    """Whether a resource with this name may be served by a device class."""
    return resource.startswith(IMPLICIT_PREFIX) or is_extended(resource)


def is_extended(resource: str) -> bool:
    if "/" not in resource or _NATIVE in resource or resource.startswith("requests."):
        return False
    return not qualified_name(f"requests.{resource}")


def is_claim_for(document: Document, pod: Pod) -> bool:
    """Whether a claim was made for the extended resources of the pod."""
    metadata = document["metadata"]
    if (metadata.get("annotations") or {}).get(ANNOTATION) != "true":
        return False
    return any(
        each.get("controller") and each.get("name") == pod.metadata.name and each.get("uid") == pod.metadata.uid
        for each in metadata.get("ownerReferences") or ()
    )


class ExtendedRequests:
    """The requests of the claim on some node, and which containers use which of them."""

    __slots__ = ("mappings", "requests")

    def __init__(self, pod: Pod, resources: Iterable[str], classes: DeviceClasses) -> None:
        self.requests: list[dict[str, Any]] = []
        self.mappings: list[dict[str, str]] = []
        containers = [*pod.spec.init_containers, *pod.spec.containers]
        first = len(pod.spec.init_containers)
        for resource in sorted(resources):
            device_class = classes.serving(resource)
            if device_class is not None:
                self._add(containers, first, resource, device_class.name)
        self.requests.sort(key=lambda each: str(each["name"]))

    def _add(self, containers: Sequence[Container], first: int, resource: str, class_name: str) -> None:
        """Containers that end before others start use the devices of later ones, and share what they need beyond that."""
        passing = [index for index, each in enumerate(containers[:first]) if each.restart_policy != "Always"]
        lasting: list[dict[str, Any] | None] = [None] * len(containers)
        mappings: list[dict[str, str]] = []
        for index, container in enumerate(containers):
            if index not in passing:
                lasting[index], used = _request(index, container, resource, class_name, ())
                mappings += used
        largest: dict[str, Any] | None = None
        own_names: set[str] = set()
        passing_mappings: list[dict[str, str]] = []
        for index in passing:
            later = [each for each in lasting[index:] if each is not None]
            request, used = _request(index, containers[index], resource, class_name, later)
            if request is not None:
                own_names.add(request["name"])
                if largest is None or largest["exactly"]["count"] < request["exactly"]["count"]:
                    largest = request
            passing_mappings += used
        if largest is not None:
            for mapping in passing_mappings:
                if mapping["requestName"] in own_names:
                    mapping["requestName"] = largest["name"]
            self.requests.append(largest)
        self.requests += [each for each in lasting if each is not None]
        self.mappings += mappings + passing_mappings


def _request(
    index: int, container: Container, resource: str, class_name: str, reusable: Collection[dict[str, Any]]
) -> tuple[dict[str, Any] | None, list[dict[str, str]]]:
    """The request that a container needs beyond those it can reuse, and all that it uses."""
    requests = container.resources.requests
    nano = parse_nano(requests[resource]) if resource in requests else 0
    if not nano or nano % NANO:
        return None, []
    count, mappings = nano // NANO, []
    for each in reusable:
        mappings.append(_mapping(container, resource, each["name"]))
        count -= each["exactly"]["count"]
        if count <= 0:
            return None, mappings
    name = f"container-{index}-request-{sorted(requests).index(resource)}"
    mappings.append(_mapping(container, resource, name))
    exactly = {"deviceClassName": class_name, "allocationMode": EXACT_COUNT, "count": count}
    return {"name": name, "exactly": exactly}, mappings


def _mapping(container: Container, resource: str, request: str) -> dict[str, str]:
    return {"containerName": container.name, "resourceName": resource, "requestName": request}
