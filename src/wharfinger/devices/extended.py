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
from wharfinger.devices.claims import EXACT_COUNT, MOST_DEVICES
from wharfinger.devices.classes import IMPLICIT_PREFIX, DeviceClass, DeviceClasses
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


def made_uid(pod_uid: str) -> str:
    """The UID of the claim for a pod until it is written."""
    return f"extended/{pod_uid}"


def owner_of_made(document: Document) -> tuple[str, str] | None:
    """The name and UID of the pod for whose extended resources a claim was made; None for other claims."""
    metadata = document["metadata"]
    if (metadata.get("annotations") or {}).get(ANNOTATION) != "true":
        return None
    owners = (each for each in metadata.get("ownerReferences") or () if each.get("controller"))
    return next(((each.get("name", ""), each.get("uid", "")) for each in owners), None)


class ExtendedRequests:
    """The requests of the claim on some node, and which containers use which of them."""

    __slots__ = ("constraints", "mappings", "requests")

    def __init__(self, pod: Pod, resources: Iterable[str], classes: DeviceClasses) -> None:
        self.requests: list[dict[str, Any]] = []
        self.mappings: list[dict[str, str]] = []
        self.constraints: list[dict[str, Any]] = []  # of resources that are served in groups
        containers = [*pod.spec.init_containers, *pod.spec.containers]
        first = len(pod.spec.init_containers)
        for resource in sorted(resources):
            device_class = classes.serving(resource)
            if device_class is not None:
                self._add(containers, first, _ServedResource(resource, device_class))
        self.requests.sort(key=lambda each: str(each["name"]))

    @property
    def devices(self) -> Document:
        """The `spec.devices` of the claim."""
        found: Document = {"requests": self.requests} if self.requests else {}
        return {**found, "constraints": self.constraints} if self.constraints else found

    def _add(self, containers: Sequence[Container], first: int, served: _ServedResource) -> None:
        """Containers that end before others start use the devices of later ones, and share what they need beyond that."""
        passing = [index for index, each in enumerate(containers[:first]) if each.restart_policy != "Always"]
        lasting: list[list[dict[str, Any]]] = [[] for _ in containers]
        mappings: list[dict[str, str]] = []
        for index, container in enumerate(containers):
            if index not in passing:
                lasting[index], used = served.requests(index, container, ())
                mappings += used
        largest: list[dict[str, Any]] = []
        numbers: dict[str, int] = {}  # of the requests of passing containers
        passing_mappings: list[dict[str, str]] = []
        for index in passing:
            later = [each for own in lasting[index:] for each in own]
            own, used = served.requests(index, containers[index], later)
            numbers |= {each["name"]: number for number, each in enumerate(own)}
            if _devices(own) > _devices(largest):
                largest = own
            passing_mappings += used
        for mapping in passing_mappings:
            if mapping["requestName"] in numbers:
                mapping["requestName"] = largest[numbers[mapping["requestName"]]]["name"]
        added = [*largest, *(each for own in lasting for each in own)]
        self.requests += added
        self.constraints += served.constraints(added)
        self.mappings += mappings + passing_mappings


class _ServedResource:
    """An extended resource and the class that serves it: one request for all devices of a container, or one for each group."""

    __slots__ = ("_class_name", "_grouping", "_resource")

    def __init__(self, resource: str, device_class: DeviceClass) -> None:
        self._resource = resource
        self._class_name = device_class.name
        self._grouping = device_class.grouping_of(resource)

    def requests(
        self, index: int, container: Container, reusable: Collection[dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """The requests that a container needs beyond those it can reuse, and which requests it uses."""
        requests, resource = container.resources.requests, self._resource
        nano = parse_nano(requests[resource]) if resource in requests else 0
        if not nano or nano % NANO:
            return [], []
        count, mappings = nano // NANO, []
        for each in reusable:
            mappings.append(self._mapping(container, each["name"]))
            count -= 1 if self._grouping is not None else each["exactly"]["count"]
            if count <= 0:
                return [], mappings
        name = f"container-{index}-request-{sorted(requests).index(resource)}"
        if self._grouping is None:
            own = [self._request(name, count)]
        else:
            groups = range(min(count, MOST_DEVICES + 1))  # more are too many in any case
            own = [self._request(f"{name}-group-{number}", self._grouping.size) for number in groups]
        return own, mappings + [self._mapping(container, each["name"]) for each in own]

    def constraints(self, requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._grouping is None:
            return []
        return [{"requests": [each["name"]], "matchAttribute": self._grouping.attribute} for each in requests]

    def _request(self, name: str, count: int) -> dict[str, Any]:
        exactly = {"deviceClassName": self._class_name, "allocationMode": EXACT_COUNT, "count": count}
        return {"name": name, "exactly": exactly}

    def _mapping(self, container: Container, request: str) -> dict[str, str]:
        return {"containerName": container.name, "resourceName": self._resource, "requestName": request}


def _devices(requests: Iterable[dict[str, Any]]) -> int:
    return sum(each["exactly"]["count"] for each in requests)
