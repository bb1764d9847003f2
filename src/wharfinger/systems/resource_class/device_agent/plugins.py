"""Talking to device plugins over unix sockets: taking registrations, following their devices, asking for allocations.

A plugin that registers again replaces its older connection. When a plugin's stream ends, breaks or makes no sense, its
devices count as lost until it registers again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from wharfinger.api.validation.resources import is_extended
from wharfinger.systems.resource_class.device_agent.api import (
    DEVICE_PLUGIN,
    KUBELET_SOCKET,
    REGISTRATION,
    VERSION,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    RegisterRequest,
)
from wharfinger.systems.resource_class.device_agent.inventory import Known, known
from wharfinger.systems.resource_class.device_agent.protobuf import BadMessage, decode, encode

log = logging.getLogger(__name__)

SECONDS = 30.0  # for any one answer of a plugin, as kubelet waits for PreStartContainer


class PluginError(Exception):
    """A plugin did not do what was asked; the message says what it said."""


class Connection:
    """One registered plugin."""

    def __init__(self, raw: str, path: Path) -> None:
        self.raw = raw
        self.options = DevicePluginOptions()
        self._channel = grpc.aio.insecure_channel(f"unix:{path}")

    async def follow(self, tell: Callable[[dict[str, Known]], None]) -> None:
        """Tells every list of devices until the stream ends."""
        self.options = await self._ask("GetDevicePluginOptions", Empty(), DevicePluginOptions)
        call = self._channel.unary_stream(f"/{DEVICE_PLUGIN}/ListAndWatch", request_serializer=encode)
        async for data in call(Empty()):
            tell(known(decode(data, ListAndWatchResponse).devices))

    async def allocate(self, ids: Sequence[str]) -> ContainerAllocateResponse:
        """What one container needs to use these devices. Raises PluginError."""
        if self.options.pre_start_required:
            await self._ask("PreStartContainer", PreStartContainerRequest(tuple(ids)), Empty)
        request = AllocateRequest((ContainerAllocateRequest(tuple(ids)),))
        answer: AllocateResponse = await self._ask("Allocate", request, AllocateResponse)
        if len(answer.containers) != 1:
            raise PluginError(f"{self.raw}: {len(answer.containers)} answers for one container")
        return answer.containers[0]

    async def preferred(self, free: Sequence[str], count: int) -> list[str]:
        """The free devices, those that the plugin would rather give first."""
        if not self.options.get_preferred_allocation_available or count >= len(free):
            return list(free)
        wish = ContainerPreferredAllocationRequest(tuple(free), (), count)
        try:
            answer = await self._ask(
                "GetPreferredAllocation", PreferredAllocationRequest((wish,)), PreferredAllocationResponse
            )
        except PluginError as error:
            log.warning("no preference: %s", error)
            return list(free)
        ids = [id for each in answer.containers for id in each.ids if id in free]
        return [*dict.fromkeys(ids), *(id for id in free if id not in ids)]

    async def _ask(self, method: str, request: Any, type: type[Any]) -> Any:
        call = self._channel.unary_unary(f"/{DEVICE_PLUGIN}/{method}", request_serializer=encode)
        try:
            return decode(await call(request, timeout=SECONDS), type)
        except BadMessage as error:
            raise PluginError(f"{self.raw}: {method}: the answer makes no sense: {error}") from error
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"{self.raw}: {method}: {error.code().name}: {error.details()}") from error

    async def close(self) -> None:
        await self._channel.close()


class Plugins:
    """The registration service, and a connection for each resource."""

    def __init__(
        self, folder: Path, tell: Callable[[str, dict[str, Known]], None], lose: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._tell = tell
        self._lose = lose
        self._connections: dict[str, Connection] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._server: Any = None

    def connection(self, raw: str) -> Connection | None:
        return self._connections.get(raw)

    async def start(self) -> None:
        """Serves registrations on the kubelet's socket; plugins notice a new one and register again."""
        socket = self._folder / KUBELET_SOCKET
        self._folder.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        handler = grpc.unary_unary_rpc_method_handler(self._register, response_serializer=encode)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(REGISTRATION, {"Register": handler}),)
        )
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0)
        (self._folder / KUBELET_SOCKET).unlink(missing_ok=True)

    async def _register(self, data: bytes, context: Any) -> Empty:
        # Read here and not by gRPC, which would tell a plugin no more than that something broke.
        try:
            request = decode(data, RegisterRequest)
            fault = self._fault(request)
        except BadMessage as error:
            request, fault = RegisterRequest(), f"not a RegisterRequest: {error}"
        if fault:
            log.warning("registration refused: %s", fault)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, fault)
        raw = request.resource_name
        old = self._tasks.pop(raw, None)
        if old is not None:
            old.cancel()
        connection = Connection(raw, self._folder / request.endpoint)
        self._connections[raw] = connection
        self._tasks[raw] = asyncio.create_task(self._follow(raw, connection), name=f"device plugin {raw}")
        log.info("device plugin of %s registered at %s", raw, request.endpoint)
        return Empty()

    def _fault(self, request: RegisterRequest) -> str:
        if request.version != VERSION:
            return f'API version "{request.version}" is not supported; "{VERSION}" is'
        if not is_extended(request.resource_name):
            return f'resource name "{request.resource_name}" is not that of an extended resource'
        if (
            not request.endpoint
            or request.endpoint in (".", "..")
            or "/" in request.endpoint
            or "\0" in request.endpoint
        ):
            return f'endpoint "{request.endpoint}" is not the name of a socket in the plugin folder'
        return ""

    async def _follow(self, raw: str, connection: Connection) -> None:
        try:
            await connection.follow(lambda devices: self._tell(raw, devices))
            log.warning("device plugin of %s ended its list", raw)
        except (PluginError, BadMessage, grpc.aio.AioRpcError) as error:
            log.warning("device plugin of %s is lost: %s", raw, error)
        finally:
            if self._connections.get(raw) is connection:
                del self._connections[raw]
                self._lose(raw)
            with contextlib.suppress(asyncio.CancelledError):
                await connection.close()
