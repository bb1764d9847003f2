"""The client through which a scenario acts on a real cluster.

It records what the scenario created and changed, and waits where a real cluster needs time for what a simulated one does
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import msgspec

from wharfinger.api.conditions import is_true
from wharfinger.api.errors import ApiError, Forbidden, NotFound
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.requests import ApiRequest
from wharfinger.api.taints import NOT_READY
from wharfinger.client.access import ClusterAccess, Impersonation
from wharfinger.client.http import HttpClient
from wharfinger.scenario.extension import ScenarioExtension
from wharfinger.scenario.running.rules import is_shipped

T = TypeVar("T")

Place = tuple[Resource, str, str]
"""A resource, a namespace and a name."""

TIMEOUT = 15.0  # seconds for controllers to create what admission requires, and for nodes to become ready
PAUSE = 0.3  # seconds between objects of different kinds, which components see through different watches
_NOT_YET = (
    "error looking up service account",  # a new namespace has no default service account yet
    "no API token found for service account",
    "status unknown for quota",  # the usage of a new quota has not been counted yet
    "must be a standard resource for quota",  # the webhook that rewrites names does not know the class yet
)


@dataclass(slots=True)
class Footprint:
    """What a scenario changed on the cluster. `before` has the objects of its kinds that existed before it started."""

    before: dict[Place, Document] = field(default_factory=dict)
    made: dict[Place, str] = field(default_factory=dict)  # uids of the created objects, in order of creation
    changed: dict[Place, Document] = field(default_factory=dict)  # the original state of changed objects
    waiting: set[str] = field(default_factory=set)  # created nodes that may not be ready yet
    last: Resource | None = None  # of the last created object

    def create(self, resource: Resource, document: Document) -> None:
        metadata = document["metadata"]
        self.made[resource, str(metadata.get("namespace") or ""), str(metadata["name"])] = str(metadata["uid"])

    def change(self, place: Place) -> None:
        if place in self.before and place not in self.made:
            self.changed.setdefault(place, self.before[place])

    def may_delete(self, place: Place) -> bool:
        return place not in self.before or place in self.made or is_shipped(*place)


class ScenarioClient(HttpClient):
    """One user's client in a scenario."""

    def __init__(
        self,
        access: ClusterAccess,
        user: str,
        footprint: Footprint,
        extension: ScenarioExtension,
        on_warning: Callable[[str], None],
    ) -> None:
        if user:
            access = replace(access, impersonate=Impersonation(user))
        super().__init__(access, component="wharf-test", on_warning=on_warning)
        self._footprint = footprint
        self._extension = extension

    async def send(self, request: ApiRequest[T]) -> T:
        if request.verb == "create":
            return cast("T", await self._create(cast("ApiRequest[Document]", request)))
        if request.verb == "patch":
            return await self._patch(request)
        if request.verb == "delete":
            self._check_deletion(request)
        return await super().send(request)

    async def _create(self, request: ApiRequest[Document]) -> Document:
        resource = request.resource
        await self._wait_for_observers(resource)
        waited = 0.0
        while True:
            try:
                written = await super().send(request)
                break
            except ApiError as error:
                if not any(text in error.message for text in _NOT_YET) or waited > TIMEOUT:
                    raise self._plain(error) from None
                waited += 0.25
                await asyncio.sleep(0.25)
        if not request.subresource and "uid" in (written.get("metadata") or {}):
            self._footprint.create(resource, written)
            await self._extension.created(resource, written)
            if resource == NODES:
                self._footprint.waiting.add(str(written["metadata"]["name"]))
        return written

    async def _wait_for_observers(self, resource: Resource) -> None:
        """Waits until components have seen the objects created so far, as they have at once in a simulation."""
        footprint = self._footprint
        if footprint.last in (None, resource):
            footprint.last = resource
            return
        footprint.last = resource
        for name in sorted(footprint.waiting):
            await self._wait_ready(name)
        footprint.waiting.clear()
        await asyncio.sleep(PAUSE)

    async def _wait_ready(self, name: str) -> None:
        """Waits until a node is ready and no longer has the taint of new nodes. Some scenarios never make a node ready."""
        for _ in range(int(TIMEOUT / 0.1)):
            try:
                node = await self.get(NODES, name)
            except NotFound:
                return
            taints = (node.get("spec") or {}).get("taints") or ()
            conditions = (node.get("status") or {}).get("conditions") or ()
            ready = is_true(conditions, "Ready")
            if ready and not any(each["key"] == NOT_READY for each in taints):
                return
            await asyncio.sleep(0.1)

    async def _patch(self, request: ApiRequest[T]) -> T:
        self._footprint.change((request.resource, request.namespace, request.name))
        patch = await self._extension.patching(request.resource, request.name, request.body)
        request = msgspec.structs.replace(request, body=patch)
        try:
            return await super().send(request)
        except ApiError as error:
            raise self._plain(error) from None

    def _plain(self, error: ApiError) -> ApiError:
        """The error with the scenario's own names in its message."""
        error.message = self._extension.text(error.message)
        return error

    def _check_deletion(self, request: ApiRequest[Any]) -> None:
        resource, name = request.resource, request.name
        if not self._footprint.may_delete((resource, request.namespace, name)):
            raise Forbidden(f"{resource.kind} {name} was on the cluster before the scenario, which must not delete it")
        self._footprint.change((resource, request.namespace, name))
