"""Injected faults: bindings that fail or take long, and the client that injects them."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from wharfinger.api.errors import InternalError
from wharfinger.api.requests import ApiRequest
from wharfinger.client.local import LocalClient
from wharfinger.scenario.document import Fault
from wharfinger.systems.reservation.kinds.names import RESERVATIONS

T = TypeVar("T")


class BindFaults:
    """The faults still to inject; shared by a scenario and the clients that bind."""

    def __init__(self) -> None:
        self._failures = 0
        self._delays = 0
        self._delay = 0.0

    def add(self, fault: Fault) -> None:
        if fault.bind == "fail":
            self._failures += fault.count
        else:
            self._delays, self._delay = self._delays + fault.count, fault.delay

    async def inject(self) -> None:
        """Called once for each binding: raises, or delays it, while faults are left."""
        if self._failures > 0:
            self._failures -= 1
            raise InternalError("the binding was made to fail")
        if self._delays > 0:
            self._delays -= 1
            await asyncio.sleep(self._delay)


class FaultyClient(LocalClient):
    """The scheduler's client in a simulation."""

    def __init__(self, client: LocalClient, faults: BindFaults) -> None:
        super().__init__(client.store, client.user)
        self._faults = faults

    async def send(self, request: ApiRequest[T]) -> T:
        if _binds(request):
            await self._faults.inject()
        return await super().send(request)


def _binds(request: ApiRequest[Any]) -> bool:
    """Pods are bound by their binding subresource, reservations by their status."""
    if request.verb == "create":
        return request.subresource == "binding"
    return (
        request.verb == "patch"
        and request.resource == RESERVATIONS
        and request.subresource == "status"
        and "nodeName" in request.body.get("status", {})
    )
