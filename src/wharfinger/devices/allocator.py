"""The search for devices: the first combination, in the order of the pools, that satisfies all claims of a pod on a node.

As in upstream's `incubating` allocator: claims and their requests one after the other, every device in turn, and back when
no device is left. Devices within a request are only tried in their order, since permutations are equivalent. Another order
than that of the pools gives other devices, but never another answer to whether there are enough.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from wharfinger.api.views import Node
from wharfinger.devices.capacity import Amounts, CapacityError, Quantity, consumption, fits
from wharfinger.devices.claims import ALL, EXACT_COUNT, MOST_DEVICES, ClaimSpec, DeviceRequest
from wharfinger.devices.classes import DeviceClass
from wharfinger.devices.constraints import DeviceConstraint, known
from wharfinger.devices.pools import CandidateDevice, Pool
from wharfinger.devices.selectors import BadSelectorExpression, SelectorError, device_selector
from wharfinger.devices.slices import Device, DeviceID, PoolID, Slice
from wharfinger.devices.usage import DeviceUsage

STEPS_PER_SECOND = 20_000  # devices tried in a second of the time limit; counted, so that the result is repeatable
PREVENTING = ("NoExecute", "NoSchedule")

_NOTHING: Amounts = {}

DeviceRanking = Callable[[DeviceRequest, Sequence[CandidateDevice]], Sequence[CandidateDevice]]


class AllocationError(Exception):
    """Something is wrong with a claim, a class or a pool; the whole attempt to schedule the pod fails."""


class SearchTooLong(AllocationError):
    """The search was given up."""


class InvalidPools(Exception):
    """Nothing could be allocated on this node, and one of its pools is invalid."""


class ClaimToAllocate(NamedTuple):
    name: str  # namespace/name
    spec: ClaimSpec


class ChosenDevice:
    """A device chosen for a request."""

    __slots__ = ("consumed", "device", "request", "shared", "slice")

    def __init__(
        self,
        request: DeviceRequest,
        slice: Slice,
        device: Device,
        consumed: Mapping[str, Quantity] | None,
        shared: bool,
    ) -> None:
        self.request = request
        self.slice = slice
        self.device = device
        self.consumed = consumed
        self.shared = shared  # given as a share


class ChosenDevices:
    """What the search found for one claim: the devices, and the request that was taken of each entry."""

    __slots__ = ("classes", "devices", "spec", "taken")

    def __init__(
        self, spec: ClaimSpec, devices: list[ChosenDevice], taken: list[DeviceRequest], classes: list[DeviceClass]
    ) -> None:
        self.spec = spec
        self.devices = devices
        self.taken = taken  # for each entry of `spec.requests`
        self.classes = classes  # of those requests


class _Wanted:
    """A request during a search."""

    __slots__ = ("all_devices", "candidates", "claim", "count", "device_class", "matches", "request")

    def __init__(
        self,
        request: DeviceRequest,
        claim: int,
        device_class: DeviceClass,
        candidates: Sequence[CandidateDevice],
    ) -> None:
        self.request = request
        self.claim = claim
        self.device_class = device_class
        self.candidates = candidates  # in the order in which they are tried
        self.count = 0
        self.all_devices: list[CandidateDevice] | None = None  # with allocation mode All
        self.matches: dict[Device, bool] = {}


class _Undo(NamedTuple):
    """What taking a device changed."""

    counters: bool
    constraints: int
    marked: bool
    consumed: Mapping[str, Quantity] | None
    held_before: bool  # whether the device had an entry in `taking` before


class _TooMany(Exception):
    """The claim would get more devices than it may have."""


class Search:
    """One search. The state is what is taken at the current point of it."""

    def __init__(
        self,
        node: Node,
        pools: Sequence[Pool],
        claims: Sequence[ClaimToAllocate],
        usage: DeviceUsage,
        classes: Mapping[str, DeviceClass],
        *,
        most_steps: int | None = 10 * STEPS_PER_SECOND,
        ranked: DeviceRanking | None = None,
        first: Collection[DeviceID] = (),
        only_first: bool = False,
    ) -> None:
        """`ranked` puts the devices in the order in which a request tries them, instead of that of the pools. Devices in
        `first` are tried before all others; with `only_first`, no others are."""
        self._node = node
        self._pools = pools
        self._claims = claims
        self._usage = usage
        self._classes = classes
        self._ranked = ranked
        self._steps = sys.maxsize if most_steps is None else most_steps
        usable = [pool.candidates for pool in pools if pool.usable]
        self._devices = usable[0] if len(usable) == 1 else [each for candidates in usable for each in candidates]
        if first:
            others = () if only_first else [each for each in self._devices if each.device.id not in first]
            self._devices = [*(each for each in self._devices if each.device.id in first), *others]
        self._wanted: list[list[list[_Wanted]]] = []  # [claim][request][alternative]
        self._constraints: list[list[DeviceConstraint]] = []  # [claim]
        self._chosen: list[list[ChosenDevice]] = [[] for _ in claims]
        self._taken: list[list[int]] = []  # [claim][request] the alternative
        self._marked: dict[DeviceID, set[int]] = {}  # devices taken as a whole, with the claims
        self._taking: dict[DeviceID, dict[str, int]] = {}  # capacity taken of shared devices
        self._counters: dict[PoolID, dict[str, dict[str, int]]] = {}  # consumed counters
        self._available: dict[PoolID, dict[str, dict[str, int]]] = {}

    def run(self) -> list[ChosenDevices] | None:
        """The devices for each claim; None if there is no solution. Raises AllocationError and InvalidPools."""
        total = 0
        for index, claim in enumerate(self._claims):
            total += self._examine(index, claim)
        with _deep_enough(total + 4 * sum(len(each.spec.requests) + 1 for each in self._claims)):
            try:
                done = self._next(0, 0)
            except _TooMany:
                raise AllocationError("allocation max size exceeded") from None
        if not done:
            if any(pool.invalid for pool in self._pools):
                raise InvalidPools("invalid resource pools were encountered")
            return None
        found = []
        for index, claim in enumerate(self._claims):
            taken = [
                alternatives[chosen]
                for alternatives, chosen in zip(self._wanted[index], self._taken[index], strict=True)
            ]
            requests, classes = [each.request for each in taken], [each.device_class for each in taken]
            found.append(ChosenDevices(claim.spec, self._chosen[index], requests, classes))
        return found

    # -- checks before the search

    def _examine(self, index: int, claim: ClaimToAllocate) -> int:
        """Checks what a claim asks for; returns the smallest number of devices that it needs."""
        needed = 0
        wanted = []
        for entry in claim.spec.requests:
            alternatives = [self._examine_request(index, claim, request) for request in entry.all]
            if not alternatives:
                raise AllocationError(
                    f"claim {claim.name}, request {entry.name}: missing device class name (unsupported request type?)"
                )
            fewest = min(each.count for each in alternatives)
            if fewest > MOST_DEVICES - needed:
                raise AllocationError(
                    f"claim {claim.name}, request {entry.name}: adding {fewest} devices exceeds the claim limit of"
                    f" {MOST_DEVICES}, with {needed} already accounted for"
                )
            needed += fewest
            wanted.append(alternatives)
        for position, constraint in enumerate(claim.spec.constraints):
            if not known(constraint):
                raise AllocationError(
                    f"claim {claim.name}, constraint #{position}: empty constraint (unsupported constraint type?)"
                )
        self._wanted.append(wanted)
        self._taken.append([0] * len(wanted))
        self._constraints.append([DeviceConstraint(each) for each in claim.spec.constraints])
        return needed

    def _examine_request(self, index: int, claim: ClaimToAllocate, request: DeviceRequest) -> _Wanted:
        where = f"claim {claim.name}, request {request.name}"
        if request.derived:
            raise AllocationError(f"{where}: cannot handle request with derived attributes, the feature is disabled")
        for position, selector in enumerate(request.selectors):
            if selector is None:
                raise AllocationError(
                    f"{where}, selector #{position}: CEL expression empty (unsupported selector type?)"
                )
        if not request.class_name:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._classes.get(request.class_name)
        if device_class is None:
            raise AllocationError(
                f"{where}: could not retrieve device class {request.class_name}:"
                f' deviceclass.resource.k8s.io "{request.class_name}" not found'
            )
        devices = self._devices if self._ranked is None else self._ranked(request, self._devices)
        wanted = _Wanted(request, index, device_class, devices)
        if request.mode == EXACT_COUNT:
            wanted.count = request.count
        elif request.mode == ALL:
            wanted.all_devices = self._all_devices(where, wanted)
            wanted.count = len(wanted.all_devices)
        else:
            raise AllocationError(f"{where}: unsupported count mode {request.mode}")
        return wanted

    def _all_devices(self, where: str, wanted: _Wanted) -> list[CandidateDevice]:
        """All devices that match, whether in use or not: if one of them cannot be taken, the request fails."""
        found = []
        for pool in self._pools:
            if not pool.usable:
                state = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool.id} is currently {state}"
                )
            for slice, device in pool.devices:
                if not self._selected(wanted, slice, device):
                    continue
                try:
                    large_enough = fits(wanted.request.capacity, device.capacity, _NOTHING, _NOTHING)
                except CapacityError as error:
                    raise AllocationError(f"{where}: checking capacity for device {device.name}: {error}") from None
                if large_enough:
                    found.append(CandidateDevice(pool, slice, device))
        return found

    def _selected(self, wanted: _Wanted, slice: Slice, device: Device) -> bool:
        """Whether the selectors of class and request match a device, and the node may use it."""
        found = wanted.matches.get(device)
        if found is None:
            found = wanted.matches[device] = (
                self._matches(f"class {wanted.device_class.name}", wanted.device_class.selectors, device)
                and self._matches(f"claim {self._claims[wanted.claim].name}", wanted.request.selectors, device)
                and (device.choice is None or device.choice.matches(self._node))
            )
        return found

    def _matches(self, whose: str, selectors: Sequence[str | None], device: Device) -> bool:
        for index, text in enumerate(selectors):
            try:
                if not device_selector(text or "").matches(device.content):
                    return False
            except BadSelectorExpression as error:
                raise AllocationError(f"{whose}: selector #{index}: CEL compile error: {error}") from None
            except SelectorError as error:
                raise AllocationError(
                    f"{whose}: selector #{index} on device {device.id}: CEL runtime error: {error}"
                ) from None
        return True

    # -- the search

    def _next(self, claim: int, request: int) -> bool:
        """Tries to satisfy the requests of a claim from this one on, and then the other claims."""
        if claim == len(self._claims):
            return True
        requests = self._wanted[claim]
        if request == len(requests):
            try:
                return self._next(claim + 1, 0)
            except _TooMany:
                # Other devices for this claim may allow another alternative in a later one, with fewer devices.
                return False
        alternatives = requests[request]
        if not alternatives[0].request.alternative:
            return self._device(claim, request, alternatives[0], 0, 0)
        too_many = True
        for index, wanted in enumerate(alternatives):
            try:
                done = self._device(claim, request, wanted, 0, 0)
            except _TooMany:
                continue
            too_many = False
            if done:
                self._taken[claim][request] = index
                return True
        if too_many:
            raise _TooMany
        return False

    def _device(self, claim: int, request: int, wanted: _Wanted, number: int, start: int) -> bool:
        """Tries all devices from `start` on as the device with this number of a request."""
        if wanted.all_devices is not None and not wanted.all_devices:
            return False
        if number >= wanted.count:
            return self._next(claim, request + 1)
        if wanted.count - number > MOST_DEVICES - len(self._chosen[claim]):
            raise _TooMany
        if wanted.all_devices is not None:
            candidate = wanted.all_devices[number]
            undo = self._take(wanted, candidate, must=True)
            if undo is None:
                return False
            return self._or_undo(claim, request, wanted, number, 0, candidate, undo)
        admin = wanted.request.admin_access
        for position in range(start, len(wanted.candidates)):
            candidate = wanted.candidates[position]
            device = candidate.device
            if claim in self._marked.get(device.id, ()) if admin else self._in_use(device.id):
                continue
            if not self._selected(wanted, candidate.slice, device) or not self._has_capacity(wanted, device):
                continue
            undo = self._take(wanted, candidate, must=False)
            if undo is None:
                continue
            if self._or_undo(claim, request, wanted, number, position + 1, candidate, undo):
                return True
        return False

    def _or_undo(
        self,
        claim: int,
        request: int,
        wanted: _Wanted,
        number: int,
        start: int,
        candidate: CandidateDevice,
        undo: _Undo,
    ) -> bool:
        """Goes on with the device taken; if there is no solution with it, gives it back."""
        try:
            if self._device(claim, request, wanted, number + 1, start):
                return True
        except _TooMany:
            self._give_back(wanted, candidate, undo)
            raise
        self._give_back(wanted, candidate, undo)
        return False

    def _in_use(self, device: DeviceID) -> bool:
        return self._usage.exclusive(device) or bool(self._marked.get(device))

    def _has_capacity(self, wanted: _Wanted, device: Device, what: str = "checking") -> bool:
        if not device.capacity:
            return not wanted.request.capacity
        try:
            return fits(
                wanted.request.capacity,
                device.capacity,
                self._usage.consumed(device.id),
                self._taking.get(device.id, _NOTHING),
            )
        except CapacityError as error:
            where = f"claim {self._claims[wanted.claim].name}, request {wanted.request.name}"
            raise AllocationError(f"{where}: {what} capacity for device {device.id}: {error}") from None

    def _take(self, wanted: _Wanted, candidate: CandidateDevice, *, must: bool) -> _Undo | None:
        """Takes a device whose selectors match; None if that is not possible."""
        self._steps -= 1
        if self._steps < 0:
            raise SearchTooLong(f"node {self._node.metadata.name}: timed out trying to allocate devices")
        pool, slice, device = candidate
        claim, request = wanted.claim, wanted.request
        if request.admin_access:
            if not device.allow_multiple and claim in self._marked.get(device.id, ()):
                return None
        elif self._in_use(device.id):
            return None
        counted = bool(device.consumes) and not (device.allow_multiple and self._capacity_in_use(device.id))
        if counted and not self._count(pool, device):
            return None
        if any(taint.get("effect") in PREVENTING and not request.tolerates(taint) for taint in device.taints):
            self._uncount(pool, device, counted)
            return None
        constraints = self._constraints[claim]
        for index, constraint in enumerate(constraints):
            if not constraint.add(request, device):
                for earlier in constraints[:index]:
                    earlier.remove(request)
                self._uncount(pool, device, counted)
                if must:
                    raise AllocationError(
                        f"claim {self._claims[claim].name}, request {request.name}: cannot add device {device.id}"
                        " because a claim constraint would not be satisfied"
                    )
                return None
        if not self._has_capacity(wanted, device, "rechecking"):
            for constraint in constraints:
                constraint.remove(request)
            self._uncount(pool, device, counted)
            return None
        consumed: dict[str, Quantity] | None = None
        held = device.id in self._taking
        if device.allow_multiple:
            consumed = consumption(request.capacity, device.capacity)
            taking = self._taking.setdefault(device.id, {})
            for name, amount in consumed.items():
                taking[name] = taking.get(name, 0) + amount.nano
        else:
            self._marked.setdefault(device.id, set()).add(claim)
        self._chosen[claim].append(ChosenDevice(request, slice, device, consumed or None, device.allow_multiple))
        return _Undo(counted, len(constraints), not device.allow_multiple, consumed, held)

    def _give_back(self, wanted: _Wanted, candidate: CandidateDevice, undo: _Undo) -> None:
        device = candidate.device
        self._chosen[wanted.claim].pop()
        if undo.consumed is not None:
            taking = self._taking[device.id]
            for name, amount in undo.consumed.items():
                taking[name] -= amount.nano
            if not undo.held_before:
                del self._taking[device.id]
        if undo.marked:
            self._marked[device.id].discard(wanted.claim)
        for constraint in reversed(self._constraints[wanted.claim]):
            constraint.remove(wanted.request)
        self._uncount(candidate.pool, device, undo.counters)

    def _capacity_in_use(self, device: DeviceID) -> bool:
        return self._usage.shared(device) or device in self._taking

    # -- counters

    def _count(self, pool: Pool, device: Device) -> bool:
        """Consumes the counters of a device; false if there are not enough left."""
        available = self._available.get(pool.id)
        if available is None:
            available = self._available[pool.id] = self._left(pool)
        consumed = self._counters.setdefault(pool.id, {})
        for name, counters in device.consumes:
            of_set = consumed.setdefault(name, {})
            for counter, amount in counters.items():
                of_set[counter] = of_set.get(counter, 0) + amount
        for name, counters in available.items():
            of_set = consumed.get(name, {})
            if any(left < of_set.get(counter, 0) for counter, left in counters.items()):
                self._uncount(pool, device, True)
                return False
        return True

    def _left(self, pool: Pool) -> dict[str, dict[str, int]]:
        """The counters that devices in use leave; may be negative."""
        left = {name: dict(counters) for name, counters in pool.counter_sets.items()}
        devices = [device for _, device in pool.devices]
        devices += [device for slice in pool.elsewhere for device in slice.devices]
        for device in devices:
            if device.consumes and self._usage.in_use(device.id):
                for name, counters in device.consumes:
                    for counter, amount in counters.items():
                        if counter in left.get(name, {}):
                            left[name][counter] -= amount
        return left

    def _uncount(self, pool: Pool, device: Device, counted: bool) -> None:
        if counted:
            consumed = self._counters[pool.id]
            for name, counters in device.consumes:
                for counter, amount in counters.items():
                    consumed[name][counter] -= amount


@contextmanager
def _deep_enough(devices: int) -> Iterator[None]:
    """Each device takes two levels of the stack."""
    limit = sys.getrecursionlimit()
    needed = 500 + 3 * devices
    if needed <= limit:
        yield
        return
    sys.setrecursionlimit(needed + limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
