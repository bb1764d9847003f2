"""Devices as ResourceSlices publish them, parsed once for each version of a slice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from wharfinger.api.node_affinity import NodeTerms, node_term
from wharfinger.api.quantity import parse_nano
from wharfinger.api.selectors import BadSelector, NodeSelector
from wharfinger.api.views import Node, view
from wharfinger.devices.capacity import DeviceCapacity

Document = Mapping[str, Any]
Counters = Mapping[str, int]
"""Counter name to value, in nano-units."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class PoolID(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceContent:
    """What selectors read of a device. Devices with equal content share one, so that a selector is evaluated once."""

    __slots__ = ("__weakref__", "allow_multiple", "attributes", "capacity", "driver", "results")

    def __init__(self, driver: str, allow_multiple: bool, attributes: Document, capacity: Document) -> None:
        self.driver = driver
        self.allow_multiple = allow_multiple
        self.attributes = attributes
        self.capacity = capacity
        self.results: dict[Any, Any] = {}  # by selector; written by `selectors`


_contents: WeakValueDictionary[bytes, DeviceContent] = WeakValueDictionary()


def _content(driver: str, allow_multiple: bool, attributes: Document, capacity: Document) -> DeviceContent:
    key = _encode((driver, allow_multiple, attributes, capacity))
    found = _contents.get(key)
    if found is None:
        found = _contents[key] = DeviceContent(driver, allow_multiple, attributes, capacity)
    return found


class NodeChoice:
    """On which nodes something can be used: one node, all nodes, or those that a node selector matches."""

    __slots__ = ("all_nodes", "fault", "node_name", "selector", "terms")

    def __init__(self, document: Document) -> None:
        self.node_name: str = document.get("nodeName") or ""
        self.all_nodes = bool(document.get("allNodes"))
        self.selector: Document | None = document.get("nodeSelector")
        self.fault = ""
        self.terms: NodeTerms = ()
        if self.selector is not None:
            parsed = view(self.selector, NodeSelector)
            try:
                found = (node_term(term) for term in parsed.node_selector_terms)
                self.terms = tuple(term for term in found if term is not None)
            except BadSelector as error:
                self.fault = str(error)

    @property
    def given(self) -> bool:
        return bool(self.node_name) or self.all_nodes or self.selector is not None

    def matches(self, node: Node) -> bool:
        if self.node_name:
            return node.metadata.name == self.node_name
        return self.all_nodes or any(term.matches(node) for term in self.terms)


class Device:
    """One device of a slice."""

    __slots__ = (
        "allow_multiple",
        "attributes",
        "binding_conditions",
        "binding_failure_conditions",
        "binds_to_node",
        "capacity",
        "choice",
        "consumes",
        "content",
        "id",
        "name",
        "own_taints",
        "taints",
    )

    def __init__(self, document: Document, driver: str, pool: str, *, chooses: bool) -> None:
        self.name: str = document.get("name", "")
        self.id = DeviceID(driver, pool, self.name)
        self.attributes: Document = document.get("attributes") or {}
        capacities: Document = document.get("capacity") or {}
        self.capacity = {name: DeviceCapacity(each) for name, each in capacities.items()}
        self.allow_multiple = bool(document.get("allowMultipleAllocations"))
        self.consumes: Sequence[tuple[str, Counters]] = [
            (each.get("counterSet", ""), counters_of(each)) for each in document.get("consumesCounters") or ()
        ]
        self.own_taints: tuple[Document, ...] = tuple(document.get("taints") or ())
        self.taints = self.own_taints  # and those of taint rules
        self.choice = NodeChoice(document) if chooses else None
        self.binds_to_node = bool(document.get("bindsToNode"))
        self.binding_conditions: Sequence[str] | None = document.get("bindingConditions")
        self.binding_failure_conditions: Sequence[str] | None = document.get("bindingFailureConditions")
        self.content = _content(driver, self.allow_multiple, self.attributes, capacities)

    def attribute(self, name: str) -> Document | None:
        """The attribute with a qualified name; the domain may be left out if it is the driver."""
        found: Document | None = self.attributes.get(name)
        if found is None:
            domain, slash, short = name.partition("/")
            if slash and domain == self.id.driver:
                found = self.attributes.get(short)
        return found


class Slice:
    """A ResourceSlice."""

    __slots__ = (
        "choice",
        "counter_sets",
        "devices",
        "generation",
        "grouped",
        "name",
        "per_device",
        "pool",
        "slice_count",
    )

    def __init__(self, document: Document) -> None:
        spec: Document = document.get("spec") or {}
        pool: Document = spec.get("pool") or {}
        self.name: str = document["metadata"]["name"]
        self.pool = PoolID(spec.get("driver", ""), pool.get("name", ""))
        self.generation: int = pool.get("generation", 0)
        self.slice_count: int = pool.get("resourceSliceCount", 0)
        self.per_device = bool(spec.get("perDeviceNodeSelection"))
        self.choice = NodeChoice(spec)
        devices = spec.get("devices") or ()
        self.devices = [Device(each, *self.pool, chooses=self.per_device) for each in devices]
        self.counter_sets: Sequence[tuple[str, Counters]] = [
            (each.get("name", ""), counters_of(each)) for each in spec.get("sharedCounters") or ()
        ]
        # Devices of compatibility groups are passed over: the feature is off by default.
        self.grouped = any(
            consumed.get("compatibilityGroups") for each in devices for consumed in each.get("consumesCounters") or ()
        )

    def fault(self) -> str:
        """Why node selectors cannot be read; empty if they can."""
        if self.choice.fault:
            return f"failed to perform node selection for slice {self.name}: {self.choice.fault}"
        for device in self.devices:
            if device.choice is not None and device.choice.fault:
                return f"failed to perform node selection for device {device.name} in slice {self.name}: {device.choice.fault}"
        return ""

    def concerns(self, node: Node) -> bool:
        """Whether the node can use some of its devices."""
        if self.choice.given:
            return self.choice.matches(node)
        return self.per_device and any(
            device.choice is not None and device.choice.matches(node) for device in self.devices
        )

    def taint(self, rules: Iterable[Document]) -> bool:
        """Applies the taint rules; returns whether the taints of a device changed."""
        specs = [each.get("spec") or {} for each in rules]
        changed = False
        for device in self.devices:
            added = tuple(spec.get("taint") or {} for spec in specs if _selects(spec.get("deviceSelector"), device.id))
            taints = (*device.own_taints, *added)
            changed = changed or taints != device.taints
            device.taints = taints
        return changed


def counters_of(document: Document) -> Counters:
    counters: Document = document.get("counters") or {}
    return {name: parse_nano(each.get("value", "0")) for name, each in counters.items()}


def _selects(selector: Document | None, device: DeviceID) -> bool:
    """Whether a taint rule selects a device. A rule without a selector selects none."""
    if selector is None:
        return False
    return all(selector.get(part) in (None, value) for part, value in device._asdict().items())
