"""Which rows are alike for a pod: rows whose devices match, and are in use, in the same way have the same verdict."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from wharfinger.devices.claims import ALL, Claim
from wharfinger.devices.classes import DeviceClasses
from wharfinger.devices.pools import Pool
from wharfinger.devices.selectors import BadSelectorExpression, SelectorError, device_selector
from wharfinger.devices.slices import Device
from wharfinger.devices.usage import DeviceUsage

_encode = msgspec.json.Encoder(order="deterministic").encode
MOST_DEVICES_KNOWN = 1 << 17
MOST_POOLS_KNOWN = 1 << 16
_FAILS = -1  # in place of a kind: a selector fails on the device


class RowLikeness:
    """For the claims to allocate of one shape. Where errors would name a device or a pool, rows are not alike."""

    def __init__(self, claims: Sequence[Claim], classes: DeviceClasses, usage: DeviceUsage) -> None:
        self._usage = usage
        specs = [claim.spec for claim in claims]
        requests = [request for spec in specs for entry in spec.requests for request in entry.all]
        self._wanted = sorted({(each.class_name, each.selectors) for each in requests}, key=str)
        self._attributes = sorted(
            {
                name
                for spec in specs
                for each in spec.constraints
                if (name := each.get("matchAttribute") or each.get("distinctAttribute"))
            }
        )
        self._classes = classes
        self._kinds: dict[Device, int] = {}
        self._pools: dict[Pool, tuple[int, int]] = {}  # version and number
        self._numbers: dict[Hashable, int] = {}
        # Requests for all devices end in errors that name them.
        self.possible = all(claim.allocation is None for claim in claims) and all(
            request.mode != ALL for request in requests
        )

    def key(self, pools: Sequence[Pool]) -> Hashable | None:
        """Equal for rows that are alike; None if the row is like no other."""
        if not self.possible:
            return None
        found = []
        for pool in pools:
            known = self._pools.get(pool)
            if known is None or known[0] != pool.version:
                if len(self._pools) >= MOST_POOLS_KNOWN:
                    self._pools.clear()  # most were replaced
                known = self._pools[pool] = (pool.version, self._of_pool(pool))
            if known[1] == _FAILS:
                return None
            found.append(known[1])
        return tuple(found)

    def _of_pool(self, pool: Pool) -> int:
        """A number for pools whose devices match, and are in use, in the same way."""
        if pool.counter_sets:
            return _FAILS
        parts: list[Hashable] = [pool.incomplete, bool(pool.invalid)]
        usage, kinds = self._usage, self._kinds
        for candidate in pool.candidates:
            device = candidate.device
            kind = kinds.get(device)
            if kind is None:
                if len(kinds) >= MOST_DEVICES_KNOWN:
                    kinds.clear()  # most are of slices that were replaced
                kind = kinds[device] = self._kind(device)
            if kind == _FAILS:
                return _FAILS
            if usage.exclusive(device.id):
                parts.append((kind, True))
            elif usage.shared(device.id):
                parts.append((kind, tuple(sorted(usage.consumed(device.id).items()))))
            else:
                parts.append(kind)
        return self._numbers.setdefault(tuple(parts), len(self._numbers))

    def _kind(self, device: Device) -> int:
        """A number for devices that do not differ for these claims."""
        if device.choice is not None:
            return _FAILS
        try:
            matches = tuple(self._matches(*each, device) for each in self._wanted)
        except (BadSelectorExpression, SelectorError):
            return _FAILS
        described = (
            matches,
            device.allow_multiple,
            _encode([device.attribute(name) for name in self._attributes]),
            _encode(device.content.capacity) if device.capacity else b"",
            _encode(device.taints) if device.taints else b"",
        )
        return self._numbers.setdefault(described, len(self._numbers))

    def _matches(self, class_name: str, selectors: tuple[str | None, ...], device: Device) -> bool:
        device_class = self._classes.by_name.get(class_name)
        own = device_class.selectors if device_class is not None else ()
        return all(device_selector(each or "").matches(device.content) for each in (*own, *selectors))
