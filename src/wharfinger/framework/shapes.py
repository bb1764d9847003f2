"""Pod shapes: pods with equal scheduling needs share one parsed description.

The key covers everything that the stock plugins read of a pod except its name, priority, node and claims; plugins that
read more add to the key (`Plugin.shape_key`). Claims are left out because pods do not share them: the plugins for volumes
and devices add what the claims require of a node.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.api import resources
from wharfinger.api.node_affinity import RequiredNodeAffinity, required_node_affinity
from wharfinger.api.selectors import BadSelector
from wharfinger.api.views import ObjectMeta, Pod
from wharfinger.api.views.pods import PodAffinityTerm, PodStatus, WeightedPodAffinityTerm
from wharfinger.framework.counters import Counting, TermCounter, TermKind
from wharfinger.framework.pod_selectors import AffinityTerm, affinity_term

if TYPE_CHECKING:
    from wharfinger.framework.tables import PodOnNode

HostPort = tuple[str, str, int]
"""(address, protocol, port); the address 0.0.0.0 means all addresses."""

ANY_ADDRESS = "0.0.0.0"

_PLAIN = frozenset((resources.CPU, resources.MEMORY, resources.EPHEMERAL_STORAGE))

_encode = msgspec.msgpack.Encoder().encode


def have_one_shape(one: Pod, other: Pod) -> bool:
    """Whether two states of a pod are known to have the same shape: a quick test, which fails where parts of their views that
    `shape_key` looks at are not shared."""
    before, after = one.metadata, other.metadata
    if before.namespace != after.namespace or before.owner_references is not after.owner_references:
        return False
    was, spec = one.spec, other.spec
    return (
        before.labels is after.labels
        and was.containers is spec.containers
        and was.init_containers is spec.init_containers
        and was.overhead is spec.overhead
        and was.resources is spec.resources
        and was.node_selector is spec.node_selector
        and was.affinity is spec.affinity
        and was.tolerations is spec.tolerations
        and was.topology_spread_constraints is spec.topology_spread_constraints
        and was.volumes is spec.volumes
        and was.resource_claims is spec.resource_claims
        and was.scheduling_group == spec.scheduling_group
        and was.host_network == spec.host_network
        and was.host_users == spec.host_users
    )


def shape_key(pod: Pod, *, node_name: str = "") -> bytes:
    spec, metadata = pod.spec, pod.metadata
    controller = metadata.controller if metadata.owner_references else None
    return _encode(
        (
            metadata.namespace,
            metadata.labels,
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            [(volume.image, volume.csi) for volume in spec.volumes] if spec.volumes else (),
            bool(spec.resource_claims),
            spec.scheduling_group,
            spec.host_network and spec.host_users is False,
            None if controller is None else (controller.api_version, controller.kind, controller.name),
            node_name,
        )
    )


class Shape:
    """What pods with the same key need.

    `pod` is one of them, without its status: read from it only what the key covers. `extra` is what plugins added to the
    key, and `plain` the shape without it.
    """

    def __init__(self, number: int, pod: Pod, plain: Shape | None = None, extra: Hashable = None) -> None:
        self.number = number
        self.pod = pod
        self.plain = plain or self
        self.extra = extra
        self.namespace: str = pod.metadata.namespace
        self.labels: Mapping[str, str] = pod.metadata.labels
        self.parsing_error = ""

        # Written by the tables.
        self.references = 0  # pods of this shape that are on nodes
        self.placed: set[PodOnNode] = set()  # those whose nodes are known
        self.charge: Any = None  # `Charge` of a pod of this shape
        self.listeners: list[Any] = []  # the listeners that its pods concern
        self.listeners_version = -1

        # Written by the counters.
        self.counted: list[Counting] = []  # the counters that count its pods
        self.counted_version = -1
        self.terms: list[TermCounter] = []  # the counters of its affinity terms
        self.terms_generation = -1

        affinity = pod.spec.affinity
        self.has_terms = affinity is not None and not (
            affinity.pod_affinity is None and affinity.pod_anti_affinity is None
        )

    @cached_property
    def requests(self) -> dict[str, int]:
        """What the pod requests: cpu in millicores, everything else in whole units."""
        return resources.requests(self.pod)

    @cached_property
    def nonzero(self) -> tuple[int, int]:
        return resources.nonzero_requests(self.pod)

    @cached_property
    def devices(self) -> bool:
        """Whether a container names resources other than cpu, memory and ephemeral storage, or has devices allocated."""
        return any(
            each.allocated_compute_resources
            or not each.resources.limits.keys() <= _PLAIN
            or not each.resources.requests.keys() <= _PLAIN
            for each in (*self.pod.spec.init_containers, *self.pod.spec.containers)
        )

    @cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        return host_ports(self.pod)

    @cached_property
    def node_affinity(self) -> RequiredNodeAffinity:
        return required_node_affinity(self.pod.spec)

    @cached_property
    def required_affinity(self) -> tuple[AffinityTerm, ...]:
        affinity = self.pod.spec.affinity
        return self._terms(affinity.pod_affinity.required if affinity and affinity.pod_affinity else ())

    @cached_property
    def required_anti_affinity(self) -> tuple[AffinityTerm, ...]:
        affinity = self.pod.spec.affinity
        return self._terms(affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ())

    @cached_property
    def preferred_affinity(self) -> tuple[tuple[AffinityTerm, int], ...]:
        affinity = self.pod.spec.affinity
        return self._weighted_terms(affinity.pod_affinity.preferred if affinity and affinity.pod_affinity else ())

    @cached_property
    def preferred_anti_affinity(self) -> tuple[tuple[AffinityTerm, int], ...]:
        affinity = self.pod.spec.affinity
        anti_affinity = affinity.pod_anti_affinity if affinity else None
        return self._weighted_terms(anti_affinity.preferred if anti_affinity else ())

    @cached_property
    def term_kinds(self) -> tuple[TermKind, ...]:
        """The affinity terms that its pods impose on others once they are on a node."""
        return (
            *(TermKind("requiredAffinity", 0, term) for term in self.required_affinity),
            *(TermKind("requiredAntiAffinity", 0, term) for term in self.required_anti_affinity),
            *(TermKind("preferredAffinity", weight, term) for term, weight in self.preferred_affinity),
            *(TermKind("preferredAntiAffinity", weight, term) for term, weight in self.preferred_anti_affinity),
        )

    def _weighted_terms(self, weighted: tuple[WeightedPodAffinityTerm, ...]) -> tuple[tuple[AffinityTerm, int], ...]:
        terms = self._terms(tuple(item.pod_affinity_term for item in weighted))
        return tuple(zip(terms, (item.weight for item in weighted), strict=bool(terms)))

    def _terms(self, terms: tuple[PodAffinityTerm, ...]) -> tuple[AffinityTerm, ...]:
        """A list with an invalid term counts as empty; the pod itself is refused because of `parsing_error`."""
        try:
            return tuple(affinity_term(term, self.namespace) for term in terms)
        except BadSelector as fault:
            self.parsing_error = self.parsing_error or str(fault)
            return ()


class Shapes:
    """All shapes in use, by key. When there are too many, shapes without pods on nodes are dropped."""

    LIMIT = 8192

    def __init__(self) -> None:
        self._by_key: dict[Any, Shape] = {}
        self._last: tuple[Pod, str, Shape] | None = None  # pods of a workload come one after the other
        self._next = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, pod: Pod, *, node_name: str = "") -> Shape:
        """The plain shape of a pod."""
        last = self._last
        if last is not None and last[1] == node_name and have_one_shape(last[0], pod):
            return last[2]
        key = shape_key(pod, node_name=node_name)
        found = self._by_key.get(key)
        if found is None:
            metadata = msgspec.structs.replace(pod.metadata, annotations={})  # the key does not cover them
            found = self._new(key, Shape(self._next, _representative(pod, metadata, node_name)))
        self._last = (pod, node_name, found)
        return found

    def extended(self, plain: Shape, pod: Pod, extra: Hashable) -> Shape:
        """The shape for a plain shape and what plugins add to the key."""
        key = (plain.number, extra)
        found = self._by_key.get(key)
        if found is None:
            representative = _representative(pod, pod.metadata, plain.pod.spec.node_name)
            found = self._new(key, Shape(self._next, representative, plain, extra))
        return found

    def _new(self, key: Any, shape: Shape) -> Shape:
        if len(self._by_key) >= self.LIMIT:
            self._sweep()
        self._by_key[key] = shape
        self._next += 1
        return shape

    def _sweep(self) -> None:
        self._last = None
        unused = [key for key, shape in self._by_key.items() if not shape.references]
        for key in unused[: max(len(unused) * 3 // 4, 1)]:
            del self._by_key[key]


def _representative(pod: Pod, metadata: ObjectMeta, node_name: str) -> Pod:
    """The pod without what differs between pods of a shape: its node and its status."""
    spec = msgspec.structs.replace(pod.spec, node_name=node_name)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=PodStatus())


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports that containers and sidecars use."""
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    return tuple(
        (port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*sidecars, *pod.spec.containers)
        for port in container.ports
        if port.host_port > 0
    )
