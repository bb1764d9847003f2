"""Faults on purpose: bindings that fail or come late, and a client that lets them."""

from __future__ import annotations

import asyncio
from typing import Any

from wharfinger.api.errors import InternalError
from wharfinger.api.registry import Document, Resource
from wharfinger.client.local import LocalClient
from wharfinger.scenario.document import Fault
from wharfinger.scenario.extension import Extensions


class BindFaults:
    """What is still to go wrong; shared between a scenario and whoever every binding passes."""

    def __init__(self) -> None:
        self._failures = 0
        self._delays = 0
        self._delay = 0.0

    def add(self, fault: Fault) -> None:
        if fault.bind == "fail":
            self._failures += fault.count
        else:
            self._delays, self._delay = self._delays + fault.count, fault.delay

    async def go_wrong(self) -> None:
        """To be called for each binding: fails, or returns late, as long as that is wanted."""
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
        self._extensions = Extensions()

    async def create(self, resource: Resource, document: Document, namespace: str = "", **options: Any) -> Document:
        if options.get("subresource") == "binding":
            await self._faults.go_wrong()
        return await super().create(resource, document, namespace, **options)

    async def patch(self, resource: Resource, name: str, patch: Any, namespace: str = "", **options: Any) -> Document:
        if self._extensions.binds(resource, patch, options.get("subresource", "")):
            await self._faults.go_wrong()
        return await super().patch(resource, name, patch, namespace, **options)
