"""Faults on purpose: a client that lets some bindings fail or come late."""

from __future__ import annotations

import asyncio
from typing import Any

from wharfinger.api.errors import InternalError
from wharfinger.api.kinds.ours import RESERVATIONS
from wharfinger.api.registry import Document, Resource
from wharfinger.client.local import LocalClient


class BindFaults:
    """What is still to go wrong; shared between a scenario and the scheduler's client."""

    def __init__(self) -> None:
        self.failures = 0
        self.delays = 0
        self.delay = 0.0


class FaultyClient(LocalClient):
    """The scheduler's client in a simulation."""

    def __init__(self, client: LocalClient, faults: BindFaults) -> None:
        super().__init__(client.store, client.user)
        self._faults = faults

    async def create(self, resource: Resource, document: Document, namespace: str = "", **options: Any) -> Document:
        if options.get("subresource") == "binding":
            await self._go_wrong()
        return await super().create(resource, document, namespace, **options)

    async def patch(self, resource: Resource, name: str, patch: Any, namespace: str = "", **options: Any) -> Document:
        # A reservation is bound by its status.
        if (
            resource == RESERVATIONS
            and options.get("subresource") == "status"
            and "nodeName" in patch.get("status", {})
        ):
            await self._go_wrong()
        return await super().patch(resource, name, patch, namespace, **options)

    async def _go_wrong(self) -> None:
        faults = self._faults
        if faults.failures > 0:
            faults.failures -= 1
            raise InternalError("the binding was made to fail")
        if faults.delays > 0:
            faults.delays -= 1
            await asyncio.sleep(faults.delay)
