"""Injected faults: bindings that fail or take long, and the client that injects them."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TypeVar

from wharfinger.api.errors import Conflict
from wharfinger.api.requests import ApiRequest
from wharfinger.client.local import LocalClient
from wharfinger.scenario.document import ScenarioFault
from wharfinger.scenario.extension import Extensions

T = TypeVar("T")


class BindFaults:
    """The faults still to inject; shared by a scenario and the clients that bind."""

    def __init__(self) -> None:
        self._failures = 0
        self._delays = 0
        self._delay = 0.0

    def add(self, fault: ScenarioFault) -> None:
        if fault.bind == "fail":
            self._failures += fault.count
        else:
            self._delays, self._delay = self._delays + fault.count, fault.delay

    @property
    def armed(self) -> bool:
        return self._failures > 0 or self._delays > 0

    async def inject(self) -> None:
        """Called once for each binding: raises, or delays it, while faults are left."""
        if self._failures > 0:
            self._failures -= 1
            raise Conflict("the binding was made to fail")  # not a transient error, which would be tried again at once
        if self._delays > 0:
            self._delays -= 1
            await asyncio.sleep(self._delay)


class FaultyClient(LocalClient):
    """The scheduler's client in a simulation."""

    def __init__(self, client: LocalClient, faults: BindFaults) -> None:
        super().__init__(client.store, client.user)
        self._faults = faults

    async def send(self, request: ApiRequest[T]) -> T:
        if self._faults.armed and self._binds(request):
            await self._faults.inject()
        return await super().send(request)

    def _binds(self, request: ApiRequest[T]) -> bool:
        return (request.verb == "create" and request.subresource == "binding") or self._extensions.binds(request)

    @cached_property
    def _extensions(self) -> Extensions:  # of all systems: loaded by the first fault
        return Extensions()
