"""The kubelet's side of the device plugin API: accepts registrations, watches device lists, requests allocations.

A plugin that registers again replaces its earlier connection. When a plugin's stream ends, fails or cannot be decoded, its
devices count as unhealthy until it registers again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from wharfinger.api.validation.resources import is_extended
from wharfinger.client.tasks import cancel
from wharfinger.systems.resource_class.device_agent.api import (
    DEVICE_PLUGIN,
    KUBELET_SOCKET,
    REGISTRATION,
    VERSION,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredAllocationRequest,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    RegisterRequest,
)
from wharfinger.systems.resource_class.device_agent.inventory import ReportedDevice, reported_devices

log = logging.getLogger(__name__)

CALL_TIMEOUT = 30.0  # seconds; the kubelet allows PreStartContainer as much


class PluginError(Exception):
    """A call to a plugin failed; the message names the resource, the method and the plugin's error."""


class PluginConnection:
    """One registered plugin."""

    def __init__(self, resource: str, path: Path) -> None:
        self.resource = resource
        self.options = DevicePluginOptions()
        self._channel = grpc.aio.insecure_channel(f"unix:{path}")

    async def watch(self, report: Callable[[dict[str, ReportedDevice]], None]) -> None:
        """Reports every list of devices until the stream ends."""
        self.options = await self._call("GetDevicePluginOptions", Empty(), DevicePluginOptions)
        call = self._channel.unary_stream(f"/{DEVICE_PLUGIN}/ListAndWatch", request_serializer=_encode)
        async for data in call(Empty()):
            report(reported_devices(ListAndWatchResponse.FromString(data).devices))

    async def allocate(self, ids: Sequence[str]) -> Message:
        """The ContainerAllocateResponse for these devices, which are also prepared for the start of the container if the
        plugin wants that. Raises PluginError."""
        request = AllocateRequest(containers=[ContainerAllocateRequest(ids=ids)])
        response = await self._call("Allocate", request, AllocateResponse)
        if len(response.containers) != 1:
            raise PluginError(f"{self.resource}: Allocate: {len(response.containers)} responses for one container")
        allocated: Message = response.containers[0]
        if self.options.pre_start_required:
            await self._call("PreStartContainer", PreStartContainerRequest(ids=ids), Empty)
        return allocated

    async def preferred(self, free: Sequence[str], count: int) -> list[str]:
        """The free devices, those that the plugin prefers first."""
        if not self.options.get_preferred_allocation_available or count >= len(free):
            return list(free)
        container = ContainerPreferredAllocationRequest(available=free, size=count)
        try:
            response = await self._call(
                "GetPreferredAllocation",
                PreferredAllocationRequest(containers=[container]),
                PreferredAllocationResponse,
            )
        except PluginError as error:
            log.warning("preferred allocation ignored: %s", error)
            return list(free)
        ids = [id for each in response.containers for id in each.ids if id in free]
        return [*dict.fromkeys(ids), *(id for id in free if id not in ids)]

    async def _call(self, method: str, request: Message, response_type: Any) -> Any:
        call = self._channel.unary_unary(f"/{DEVICE_PLUGIN}/{method}", request_serializer=_encode)
        try:
            return response_type.FromString(await call(request, timeout=CALL_TIMEOUT))
        except DecodeError as error:
            raise PluginError(f"{self.resource}: {method}: invalid response: {error}") from error
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"{self.resource}: {method}: {error.code().name}: {error.details()}") from error

    async def close(self) -> None:
        await self._channel.close()


class PluginRegistry:
    """The registration service, and a connection for each resource."""

    def __init__(
        self,
        folder: Path,
        report: Callable[[str, dict[str, ReportedDevice]], None],
        disconnected: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._report = report
        self._disconnected = disconnected
        self._connections: dict[str, PluginConnection] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._server: Any = None

    def connection(self, resource: str) -> PluginConnection | None:
        return self._connections.get(resource)

    async def start(self) -> None:
        """Serves registrations on the kubelet's socket. Plugins watch for a new socket and register again."""
        socket = self._folder / KUBELET_SOCKET
        self._folder.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        handler = grpc.unary_unary_rpc_method_handler(self._register, response_serializer=_encode)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(REGISTRATION, {"Register": handler}),)
        )
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        await cancel(self._tasks.values())
        if self._server is not None:
            await self._server.stop(0)
        (self._folder / KUBELET_SOCKET).unlink(missing_ok=True)

    async def _register(self, data: bytes, context: Any) -> Message:
        # Decoded here and not by gRPC, which would report a malformed request as an internal error.
        try:
            request = RegisterRequest.FromString(data)
            fault = self._fault(request)
        except DecodeError as error:
            request, fault = RegisterRequest(), f"not a RegisterRequest: {error}"
        if fault:
            log.warning("registration refused: %s", fault)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, fault)
        resource = request.resource_name
        old = self._tasks.pop(resource, None)
        if old is not None:
            old.cancel()
        connection = PluginConnection(resource, self._folder / request.endpoint)
        self._connections[resource] = connection
        self._tasks[resource] = asyncio.create_task(self._watch(resource, connection), name=f"device plugin {resource}")
        log.info("device plugin of %s registered at %s", resource, request.endpoint)
        empty: Message = Empty()
        return empty

    def _fault(self, request: Any) -> str:
        if request.version != VERSION:
            return f'API version "{request.version}" is not supported; "{VERSION}" is'
        if not is_extended(request.resource_name):
            return f'resource name "{request.resource_name}" is not that of an extended resource'
        endpoint = request.endpoint
        if not endpoint or endpoint in (".", "..") or "/" in endpoint or "\0" in endpoint:
            return f'endpoint "{endpoint}" is not the name of a socket in the plugin folder'
        return ""

    async def _watch(self, resource: str, connection: PluginConnection) -> None:
        try:
            await connection.watch(lambda devices: self._report(resource, devices))
            log.warning("device plugin of %s closed its ListAndWatch stream", resource)
        except (PluginError, DecodeError, grpc.aio.AioRpcError) as error:
            log.warning("device plugin of %s disconnected: %s", resource, error)
        finally:
            if self._connections.get(resource) is connection:
                del self._connections[resource]
                self._disconnected(resource)
            with contextlib.suppress(asyncio.CancelledError):
                await connection.close()


def _encode(message: Message) -> bytes:
    return message.SerializeToString()
