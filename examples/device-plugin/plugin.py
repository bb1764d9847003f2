"""A device plugin to try things with: its devices are what a JSON file says, and follow the file as it changes.

    python plugin.py --resource example.com/gpu --devices devices.json --plugin-dir /var/lib/kubelet/device-plugins

The file lists devices; properties are the extension, everything else is the kubelet's own device-plugin API v1beta1:

    [{"id": "gpu-0", "healthy": true, "numa": 0, "properties": {"gpuType": "p100", "memory": "16Gi"}}]

With `--plain` it says nothing of properties, as an unmodified plugin does. When the kubelet (or `wharf device-agent`)
starts anew, the plugin notices the new socket and registers again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from wharfinger.systems.resource_class.device_agent import api

POLL = 0.2  # seconds between looks at the file and at the kubelet's socket


class Plugin:
    def __init__(
        self,
        resource: str,
        devices: Path,
        folder: Path,
        *,
        plain: bool = False,
        prefer_last: bool = False,
        pre_start: bool = False,
    ) -> None:
        self.resource = resource
        self.calls: list[str] = []  # methods that prepare devices for a container, in order
        self.allocated: list[tuple[str, ...]] = []  # what Allocate was called with
        self._devices = devices
        self._folder = folder
        self._plain = plain
        self._prefer_last = prefer_last
        self._pre_start = pre_start
        self._endpoint = f"{resource.replace('/', '-')}.sock"
        self._server: Any = None

    def listed(self) -> Any:
        return api.ListAndWatchResponse(devices=map(self._device, json.loads(self._devices.read_text())))

    def _device(self, entry: dict[str, Any]) -> Any:
        return api.Device(
            id=entry["id"],
            health=api.HEALTHY if entry.get("healthy", True) else "Unhealthy",
            topology=api.TopologyInfo(nodes=[api.NumaNode(id=entry["numa"])]) if "numa" in entry else None,
            properties={} if self._plain else entry.get("properties", {}),
        )

    # the service

    async def options(self, request: Any, context: Any) -> Message:
        return api.DevicePluginOptions(
            pre_start_required=self._pre_start, get_preferred_allocation_available=self._prefer_last
        )

    async def list_and_watch(self, request: Any, context: Any) -> AsyncIterator[Message]:
        told = None
        while True:
            now = self.listed()
            if now != told:
                told = now
                yield now
            await asyncio.sleep(POLL)

    async def preferred(self, request: Any, context: Any) -> Message:
        chosen = (
            api.ContainerPreferredAllocationResponse(ids=sorted(each.available)[-each.size :])
            for each in request.containers
        )
        return api.PreferredAllocationResponse(containers=chosen)

    async def allocate(self, request: Any, context: Any) -> Message:
        self.calls.append("Allocate")
        self.allocated += [tuple(each.ids) for each in request.containers]
        known = {device.id for device in self.listed().devices}
        for each in request.containers:
            if not known.issuperset(each.ids):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown devices: {set(each.ids) - known}")
        variable = self.resource.rpartition("/")[2].upper().replace("-", "_")
        answers = (
            api.ContainerAllocateResponse(envs={f"{variable}_IDS": ",".join(each.ids)}) for each in request.containers
        )
        return api.AllocateResponse(containers=answers)

    async def pre_start(self, request: Any, context: Any) -> Message:
        self.calls.append("PreStartContainer")
        return api.Empty()

    # its life

    async def start(self) -> None:
        """Serves on a socket of its own."""
        socket = self._folder / self._endpoint
        socket.unlink(missing_ok=True)
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": unary(self.options, api.Empty.FromString, encode),
            "ListAndWatch": stream(self.list_and_watch, api.Empty.FromString, encode),
            "GetPreferredAllocation": unary(self.preferred, api.PreferredAllocationRequest.FromString, encode),
            "PreStartContainer": unary(self.pre_start, api.PreStartContainerRequest.FromString, encode),
            "Allocate": unary(self.allocate, api.AllocateRequest.FromString, encode),
        }
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(api.DEVICE_PLUGIN, methods),))
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self._folder / api.KUBELET_SOCKET}") as channel:
            request = api.RegisterRequest(version=api.VERSION, endpoint=self._endpoint, resource_name=self.resource)
            call = channel.unary_unary(
                f"/{api.REGISTRATION}/Register",
                request_serializer=encode,
                response_deserializer=api.Empty.FromString,
            )
            await call(request, timeout=10)

    async def run(self) -> None:
        """Serves, and registers whenever the kubelet's socket is a new one."""
        await self.start()
        try:
            await self._keep_registered()
        finally:
            await self.stop()

    def _kubelet(self) -> int | None:
        """What tells one socket of the kubelet from the next: when it was made."""
        try:
            return (self._folder / api.KUBELET_SOCKET).stat().st_ctime_ns
        except FileNotFoundError:
            return None

    async def _keep_registered(self) -> None:
        seen = None
        while True:
            current = self._kubelet()
            if current is not None and current != seen:
                try:
                    await self.register()
                    seen = current
                    print(f"registered {self.resource}", flush=True)
                except grpc.aio.AioRpcError as error:
                    print(f"cannot register: {error.details()}", flush=True)
            await asyncio.sleep(POLL)


def encode(message: Message) -> bytes:
    return message.SerializeToString()


def main() -> None:
    parser = argparse.ArgumentParser(description="A device plugin whose devices are what a file says.")
    parser.add_argument("--resource", default="example.com/gpu")
    parser.add_argument("--devices", type=Path, required=True)
    parser.add_argument("--plugin-dir", type=Path, default=Path(api.PLUGIN_FOLDER))
    parser.add_argument("--plain", action="store_true", help="say nothing of properties")
    given = parser.parse_args()
    asyncio.run(Plugin(given.resource, given.devices, given.plugin_dir, plain=given.plain).run())


if __name__ == "__main__":
    main()
