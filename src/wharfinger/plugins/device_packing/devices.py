"""What the packing policies see of nodes and pods: the devices that ResourceSlices publish, and the claims that take them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wharfinger.api.resources import requests
from wharfinger.api.views import Pod
from wharfinger.devices.claims import Claim, ClaimRefused, DeviceRequest, pod_claims
from wharfinger.devices.extended import may_be_served
from wharfinger.devices.selectors import BadSelectorExpression, SelectorError, device_selector
from wharfinger.devices.slices import Device, Document, Slice
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.shapes import Shape
from wharfinger.framework.tables import Tables
from wharfinger.plugins.device_packing.rooms import WHOLE, ModelNumbers, NodeRooms, PodDemand
from wharfinger.plugins.dynamic_resources.catalogue import RowPools, catalogue_of
from wharfinger.plugins.dynamic_resources.needs import DeviceNeeds

CPU = "cpu"


class AskedDevices(NamedTuple):
    """What a pod asks for, before it is known how large the devices are."""

    devices: int = 0
    amount: int | None = None  # of the capacity of each device, in nano-units; None: all of it

    def demand(self, cpu: int, size: int) -> PodDemand:
        """`size` is the capacity of a device."""
        if not self.devices:
            return PodDemand(cpu)
        milli = WHOLE if self.amount is None or not size else min(-(-self.amount * WHOLE // size), WHOLE)
        return PodDemand(cpu, self.devices, milli)


class _DevicesLeft(NamedTuple):
    """The devices of a row, while its pools stay the same."""

    pools: RowPools
    version: int
    places: dict[Device, int]  # which device of `free` it is
    free: list[int]  # thousandths
    size: int  # the capacity of a device, in nano-units
    model: int


class PackedDevices:
    """The devices of a driver (or of all drivers, if it is empty) that have a capacity, by row."""

    def __init__(self, tables: Tables, driver: str, capacity: str, model: str, models: ModelNumbers) -> None:
        self.tables = tables
        self.catalogue = catalogue_of(tables)
        self._driver = driver
        self._capacity = capacity
        self._model = model
        self._models = models
        self._known: dict[int, _DevicesLeft] = {}
        self._keys: dict[str, int] = {}

    def asked(self, shape: Shape) -> AskedDevices:
        """What the pods of a shape ask for that they do not have yet."""
        keys = shape.extra if isinstance(shape.extra, tuple) else ()
        needs = next((key for key in keys if isinstance(key, DeviceNeeds)), None)
        if needs is None:
            return AskedDevices()
        claimed = self._of_claims(each for each in needs.claims if each.allocation is None)
        extended = sum(shape.requests.get(name, 0) for name in needs.extended)
        return AskedDevices(claimed.devices + extended, None if extended else claimed.amount)

    def of_request(self, request: DeviceRequest) -> AskedDevices:
        given = request.capacity.get(self._capacity)
        return AskedDevices(request.count, None if given is None else given.nano)

    def _of_claims(self, claims: Iterable[Claim]) -> AskedDevices:
        asked = [self.of_request(entry.all[0]) for claim in claims for entry in claim.spec.requests if entry.all]
        amounts = [each.amount for each in asked if each.amount is not None]
        return AskedDevices(
            sum(each.devices for each in asked), max(amounts) if len(amounts) == len(asked) > 0 else None
        )

    def left(self, device: Device) -> int:
        """Thousandths of a device that nobody has."""
        usage = self.catalogue.usage
        if usage.exclusive(device.id):
            return 0
        size = self._size(device)
        if not size:
            return 0 if usage.in_use(device.id) else WHOLE
        return max(size - usage.consumed(device.id).get(self._capacity, 0), 0) * WHOLE // size

    def _size(self, device: Device) -> int:
        capacity = device.capacity.get(self._capacity)
        return 0 if capacity is None else capacity.total.nano

    def _left_on(self, row: int) -> _DevicesLeft:
        pools = self.catalogue.pools(row)
        known = self._known.get(row)
        if known is not None and known.pools is pools and known.version == pools.version:
            return known
        devices = [
            each.device
            for pool in pools.pools
            if pool.usable and self._driver in ("", pool.id.driver)
            for each in pool.candidates
        ]
        free = [self.left(each) for each in devices]
        size = max(map(self._size, devices), default=0)
        model = (devices[0].attribute(self._model) or {}).get("string", "") if devices else ""
        places = {device: place for place, device in enumerate(devices)}
        known = self._known[row] = _DevicesLeft(pools, pools.version, places, free, size, self._models[str(model)])
        return known

    def demand_of(self, pod: Pod, samples: Mapping[str, Device]) -> PodDemand:
        """What a pod on a node has. `samples` has a device of each model, which tell the models that it may have."""
        asked = requests(pod)
        try:
            claims = pod_claims(pod, self.catalogue.claims)
        except ClaimRefused:
            claims = []
        found = self._of_claims(claims)
        served = [name for name in asked if may_be_served(name) and self.catalogue.classes.serving(name) is not None]
        count = found.devices + sum(asked[name] for name in served)
        size = max(map(self._size, samples.values()), default=0)
        demand = AskedDevices(count, None if served else found.amount).demand(asked.get(CPU, 0), size)
        allowed = frozenset(
            model for model, device in samples.items() if all(self._may_have(claim, device) for claim in claims)
        )
        return demand if not claims or len(allowed) == len(samples) else demand._replace(models=allowed)

    def _may_have(self, claim: Claim, device: Device) -> bool:
        """Whether the selectors of one of the requests of a claim let a device pass."""
        for entry in claim.spec.requests:
            for request in entry.all:
                found = self.catalogue.classes.by_name.get(request.class_name)
                selectors = (*(found.selectors if found is not None else ()), *request.selectors)
                try:
                    if all(device_selector(each or "").matches(device.content) for each in selectors):
                        return True
                except (BadSelectorExpression, SelectorError):
                    continue
        return False

    def place(self, row: int, device: Device) -> int | None:
        """Which of the devices of the row it is; None if it does not count."""
        return self._left_on(row).places.get(device)

    def sizes(self, rows: Rows) -> Ints:
        """[row] the capacity of a device there."""
        return np.array([self._left_on(row).size for row in rows.tolist()], dtype=np.int64)

    def rooms(self, rows: Rows, *, kinds: bool) -> NodeRooms:
        """What the nodes of some rows have left. `kinds`: whether the kinds of the pods on them matter."""
        tables = self.tables
        cpu = tables.resource(CPU)
        left = [self._left_on(row) for row in rows.tolist()]
        counts = np.array([len(each.free) for each in left], dtype=np.int64)
        free = np.zeros((len(left), max(counts.max(initial=0), 1)), dtype=np.int64)
        for index, each in enumerate(left):
            free[index, : len(each.free)] = each.free
        return NodeRooms(
            cpu=tables.allocatable[cpu].take(rows) - tables.requested[cpu].take(rows),
            free=free,
            devices=counts,
            model=np.array([each.model for each in left], dtype=np.int64),
            kinds=np.array([self._kinds(row) if kinds else 0 for row in rows.tolist()], dtype=np.int64),
            keys=np.array([self._key(tables.name(row)) for row in rows.tolist()], dtype=np.int64),
        )

    def _kinds(self, row: int) -> int:
        """The kinds of the pods on a row."""
        found = 0
        size = self._left_on(row).size
        for each in self.tables.pods_on[row].values():
            if each.pod.spec.resource_claims:
                try:
                    claims = pod_claims(each.pod, self.catalogue.claims)
                except ClaimRefused:
                    continue
                found |= self._of_claims(claims).demand(0, size).kind
        return found

    def _key(self, name: str) -> int:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = node_key(name)
        return key


class DeviceSupply:
    """How many devices of each model ResourceSlices publish, and one of them."""

    def __init__(self, driver: str, model: str) -> None:
        self._driver = driver
        self._model = model
        self._of_slice: dict[str, list[tuple[str, Device]]] = {}
        self.by_model: Counter[str] = Counter()
        self.samples: dict[str, Device] = {}

    def changed(self, old: Document | None, new: Document | None) -> bool:
        """Takes in the change of a slice; returns whether the numbers are others now."""
        document = old if new is None else new
        assert document is not None
        before = +self.by_model
        for model, _ in self._of_slice.pop(document["metadata"]["name"], ()):
            self.by_model[model] -= 1
        if new is not None:
            found = Slice(new)
            if self._driver in ("", found.pool.driver):
                devices = [(str((each.attribute(self._model) or {}).get("string", "")), each) for each in found.devices]
                self._of_slice[found.name] = devices
                self.by_model.update(model for model, _ in devices)
                self.samples.update({model: device for model, device in devices if model not in self.samples})
        self.by_model = +self.by_model
        self.samples = {model: device for model, device in self.samples.items() if model in self.by_model}
        return self.by_model != before


def node_key(name: str) -> int:
    """A number for a node that looks random."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 2


def node_keys(names: Sequence[str]) -> Ints:
    return np.array([node_key(name) for name in names], dtype=np.int64)
