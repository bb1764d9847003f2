"""Why the devices of a node do not satisfy a claim: for every request, how many devices each cause rules out.

Each device is looked at by itself and counts for the first cause that applies: first that nobody asked for such a device,
then that it is in use, then the rest in the order in which the search checks it. Devices without a cause are usable; if
enough are, but the search found nothing, they do not work together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.views import Node
from wharfinger.api.wording import counted
from wharfinger.devices.allocator import PREVENTING, ClaimToAllocate
from wharfinger.devices.capacity import CapacityError, fits
from wharfinger.devices.claims import ALL, DeviceRequest
from wharfinger.devices.classes import DeviceClass
from wharfinger.devices.constraints import DeviceConstraint, attribute_value, known
from wharfinger.devices.pools import Pool
from wharfinger.devices.selectors import BadSelectorExpression, SelectorError, device_selector
from wharfinger.devices.slices import Device, DeviceID
from wharfinger.devices.usage import DeviceUsage


class RequestDiagnosis(msgspec.Struct, frozen=True):
    """One request on one node."""

    claim: str
    request: str
    needed: int  # devices; 0: all that match
    looked_at: int
    usable: tuple[DeviceID, ...]
    causes: Mapping[str, tuple[DeviceID, ...]]  # cause to the devices that it rules out, the most frequent first
    pools: tuple[str, ...] = ()  # pools that are passed over as a whole, and why
    together: str = ""  # what keeps usable devices from being taken together

    @property
    def missing(self) -> float:
        """The part of the needed devices that are not usable; those that do not even exist count twice."""
        needed = self.needed or 1
        return (max(needed - len(self.usable), 0) + max(needed - self.looked_at, 0)) / needed

    def __str__(self) -> str:
        parts = [f"{len(devices)} {cause}" for cause, devices in self.causes.items()] + list(self.pools)
        if self.together:
            parts.append(self.together)
        wanted = f"{self.needed} needed" if self.needed else "all needed"
        why = f" ({', '.join(parts)})" if parts else ""
        devices = counted(self.looked_at, "device")
        return f"{self.claim}, request {self.request}: {len(self.usable)} of {devices} usable, {wanted}{why}"

    def document(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "request": self.request,
            "needed": self.needed or ALL,
            "lookedAt": self.looked_at,
            "usable": [str(each) for each in self.usable],
            "causes": {cause: [str(each) for each in devices] for cause, devices in self.causes.items()},
            **({"pools": list(self.pools)} if self.pools else {}),
            **({"together": self.together} if self.together else {}),
        }


class DeviceDiagnosis(msgspec.Struct):
    """Looks at the devices of one node."""

    node: Node
    pools: Sequence[Pool]
    usage: DeviceUsage
    classes: Mapping[str, DeviceClass]
    holder: Callable[[DeviceID], str] = lambda device: ""  # the kind and name of the object that holds a device

    def of(self, claims: Sequence[ClaimToAllocate]) -> list[RequestDiagnosis]:
        """A diagnosis for each request, and for each alternative of one."""
        return [
            self._request(claim, request) for claim in claims for entry in claim.spec.requests for request in entry.all
        ]

    def _request(self, claim: ClaimToAllocate, request: DeviceRequest) -> RequestDiagnosis:
        causes: dict[str, list[DeviceID]] = {}
        usable: list[Device] = []
        looked_at = 0
        for device, cause in self._judged(request):
            looked_at += 1
            if cause:
                causes.setdefault(cause, []).append(device.id)
            else:
                usable.append(device)
        needed = 0 if request.mode == ALL else request.count
        ordered = sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
        return RequestDiagnosis(
            claim.name,
            request.qualified,
            needed,
            looked_at,
            tuple(each.id for each in usable),
            {cause: tuple(devices) for cause, devices in ordered},
            tuple(_passed_over(pool) for pool in self.pools if not pool.usable),
            _together(claim, request, usable) if len(usable) >= max(needed, 1) else "",
        )

    def usable(self, request: DeviceRequest) -> list[Device]:
        """The devices that a request can have, each by itself."""
        return [device for device, cause in self._judged(request) if not cause]

    def _judged(self, request: DeviceRequest) -> Iterator[tuple[Device, str]]:
        """Every device, with the first cause that rules it out."""
        for pool in self.pools:
            for _, device in pool.devices if pool.usable else ():
                yield device, next(self._causes(request, pool, device), "")

    def _causes(self, request: DeviceRequest, pool: Pool, device: Device) -> Iterator[str]:
        device_class = self.classes.get(request.class_name)
        if device_class is None:
            yield f"without a class: {request.class_name} does not exist"
            return
        unknown = ""
        try:
            yield from _not_selected(device_class, request, device)
        except _UnknownMatch as failed:
            unknown = str(failed)
        if not request.admin_access and self.usage.exclusive(device.id):
            holder = self.holder(device.id)
            yield f"reserved by {holder}" if holder else "in use"
        if unknown:
            yield unknown  # the search does not ask about devices in use
        if device.choice is not None and not device.choice.matches(self.node):
            yield "for other nodes"
        try:
            if not fits(request.capacity, device.capacity, self.usage.consumed(device.id), {}):
                missing = [name for name in request.capacity if name not in device.capacity]
                yield f"without capacity {missing[0]}" if missing else "with too little capacity left"
        except CapacityError as error:
            yield f"unknown: {error}"
        if device.consumes and not self._counters_left(pool, device):
            yield "whose counters are exhausted"
        for taint in device.taints:
            if taint.get("effect") in PREVENTING and not request.tolerates(taint):
                value = f"={taint['value']}" if taint.get("value") else ""
                yield f"tainted {taint.get('key')}{value}:{taint.get('effect')}"

    def _counters_left(self, pool: Pool, device: Device) -> bool:
        if device.allow_multiple and self.usage.shared(device.id):
            return True
        left = {name: dict(counters) for name, counters in pool.counter_sets.items()}
        devices = [each for _, each in pool.devices]
        devices += [each for slice in pool.elsewhere for each in slice.devices]
        for each in (*(one for one in devices if self.usage.in_use(one.id)), device):
            for name, counters in each.consumes:
                for counter, amount in counters.items():
                    left[name][counter] -= amount
        return all(amount >= 0 for counters in left.values() for amount in counters.values())


class _UnknownMatch(Exception):
    """A selector gives no answer for a device."""


def _not_selected(device_class: DeviceClass, request: DeviceRequest, device: Device) -> Iterator[str]:
    """The first selector that does not select the device. Raises _UnknownMatch."""
    for whose, selectors in (("class", device_class.selectors), ("request", request.selectors)):
        for index, text in enumerate(selectors):
            try:
                if not device_selector(text or "").matches(device.content):
                    yield f"not selected by {whose} selector #{index}"
            except BadSelectorExpression as error:
                raise _UnknownMatch(f"unknown: {whose} selector #{index} does not compile") from error
            except SelectorError as error:
                raise _UnknownMatch(f"unknown: {whose} selector #{index} fails with {error}") from error


def _passed_over(pool: Pool) -> str:
    if pool.incomplete:
        return f"pool {pool.id} is passed over: slices are missing"
    return f"pool {pool.id} is passed over: {pool.invalid}"


def _together(claim: ClaimToAllocate, request: DeviceRequest, usable: Sequence[Device]) -> str:
    """The constraint that too few of the usable devices satisfy; otherwise other requests of the pod want them."""
    for document in claim.spec.constraints:
        if not known(document):
            continue
        constraint = DeviceConstraint(document)
        if not constraint.concerns(request):
            continue
        others = [
            other.name
            for other in claim.spec.requests
            if other.name != request.base and any(constraint.concerns(each) for each in other.all)
        ]
        whom = f" with {', '.join(others)}" if others else ""
        values = [attribute_value(device.attribute(constraint.attribute)) for device in usable]
        having = [value for value in values if value is not None]
        if len(having) < len(usable):
            return f"{len(usable) - len(having)} lack the attribute of {constraint}{whom}"
        alike = max(Counter(having).values())
        if not constraint.distinct and alike < request.count:
            return f"of which at most {alike} have the same {constraint.attribute}"
        if request.count > 1 or others:
            return f"to be taken together under {constraint}{whom}"
    return ""
