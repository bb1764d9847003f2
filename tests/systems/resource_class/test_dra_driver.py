"""The device agent as a DRA driver, over real unix sockets with the sample plugin: slices, generations, and claims that a
kubelet asks it to prepare."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.systems.resource_class.test_device_agent import SAMPLE, device

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from wharfinger.client.controller import run_controllers
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.store import Store
from wharfinger.systems.resource_class.device_agent import dra_api
from wharfinger.systems.resource_class.device_agent.dra_driver import DraDriver
from wharfinger.systems.resource_class.device_agent.inventory import ReportedDevice
from wharfinger.systems.resource_class.device_agent.slices import DEVICES_PER_SLICE, pool_devices, pool_slices

DRIVER = "gpu.example.com"
GPU = "example.com/gpu"


class Bench:
    """A store with one node, a driver and a plugin, on sockets in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "devices.json"
        self.client = LocalClient(Store(registry()))
        self.tasks: list[asyncio.Task[Any]] = []
        self.plugin: Any = None

    async def start(self, *devices: dict[str, Any]) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        await self.client.create(NODES, node)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        await self.client.create(registry().find("Namespace").storage, namespace)  # type: ignore[union-attr]  # it is there
        self.list(*devices)
        self.start_driver()
        self.plugin = SAMPLE.Plugin(GPU, self.file, self.folder)
        self.tasks.append(asyncio.create_task(self.plugin.run()))

    def start_driver(self) -> None:
        informers = InformerSet(self.client)
        kubelet, cdi = self.folder / "kubelet", self.folder / "cdi"
        driver = DraDriver(self.client, informers, "n1", DRIVER, plugins=self.folder, kubelet=kubelet, cdi=cdi)
        self.tasks.insert(0, asyncio.create_task(run_controllers([driver], informers)))

    async def stop_driver(self) -> None:
        task = self.tasks.pop(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def list(self, *devices: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(devices))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def slices(self) -> list[dict[str, Any]]:
        return [each["spec"] for each in (await self.client.list(RESOURCE_SLICES)).items]

    async def devices(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for spec in await self.slices() for each in spec.get("devices", ())}

    async def until(self, holds: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(20):
            while not (found := await holds()):
                await asyncio.sleep(0.02)
            return found

    async def ask(self, socket: str, method: str, request: Any, answer: Any) -> Any:
        """As the kubelet."""
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            call = channel.unary_unary(method, request_serializer=lambda message: message.SerializeToString())
            return answer.FromString(await call(request, timeout=10))

    async def info(self) -> Any:
        socket = self.folder / "kubelet" / "plugins_registry" / f"{DRIVER}-reg.sock"
        await self.until(lambda: asyncio.sleep(0, socket.exists()))
        request = dra_api.RegistrationStatusResponse()  # as empty as an InfoRequest
        return await self.ask(str(socket), f"/{dra_api.REGISTRATION_SERVICE}/GetInfo", request, dra_api.PluginInfo)

    async def prepare(self, claim: dict[str, Any]) -> Any:
        metadata = claim["metadata"]
        request = dra_api.ClaimsRequest(claims=[{key: metadata[key] for key in ("namespace", "name", "uid")}])
        answer = await self.ask(
            (await self.info()).endpoint,
            f"/{dra_api.DRA_SERVICE}/NodePrepareResources",
            request,
            dra_api.NodePrepareResourcesResponse,
        )
        (entry,) = answer.claims
        assert entry.key == metadata["uid"]
        return entry.value

    async def unprepare(self, claim: dict[str, Any]) -> None:
        request = dra_api.ClaimsRequest(claims=[{"uid": claim["metadata"]["uid"]}])
        answer = await self.ask(
            (await self.info()).endpoint,
            f"/{dra_api.DRA_SERVICE}/NodeUnprepareResources",
            request,
            dra_api.NodeUnprepareResourcesResponse,
        )
        assert [each.value.error for each in answer.claims] == [""]

    async def claim(self, name: str, *devices: str) -> dict[str, Any]:
        """An allocated claim."""
        request = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": len(devices)}}
        made = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        }
        created = await self.client.create(RESOURCE_CLAIMS, made, "default")
        results = [{"request": "gpus", "driver": DRIVER, "pool": "n1", "device": each} for each in devices]
        status = {"allocation": {"devices": {"results": results}}}
        return await self.client.update(RESOURCE_CLAIMS, {**created, "status": status}, "default", subresource="status")

    def cdi(self) -> list[dict[str, Any]]:
        return [json.loads(each.read_text()) for each in (self.folder / "cdi").glob("*.json")]


def play(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # paths of sockets must be short
            bench = Bench(Path(folder))
            try:
                await story(bench)
            finally:
                await bench.stop()

    asyncio.run(run())


def test_devices_are_published_with_their_properties_and_follow_the_plugin() -> None:
    async def story(bench: Bench) -> None:
        await bench.start(
            device("gpu-0", numa=1, gpuType="p100", memory="16Gi", ecc="true"), device("GPU_1", healthy=False)
        )
        found = await bench.until(bench.devices)
        assert found["gpu-0"]["attributes"] == {
            "id": {"string": "gpu-0"},
            "resourceName": {"string": GPU},
            "gpuType": {"string": "p100"},
            "numaNode": {"int": 1},
            "ecc": {"bool": True},
        }
        assert found["gpu-0"]["capacity"] == {"memory": {"value": "16Gi"}}
        (other,) = found.keys() - {"gpu-0"}
        assert other.startswith("gpu-1-")
        assert found[other]["taints"][0]["effect"] == "NoSchedule"
        (slice,) = await bench.slices()
        assert (slice["nodeName"], slice["pool"]["name"], slice["pool"]["resourceSliceCount"]) == ("n1", "n1", 1)
        generation = slice["pool"]["generation"]
        bench.list(device("gpu-0"), device("gpu-2"))
        await bench.until(lambda: _named(bench, {"gpu-0", "gpu-2"}))
        (slice,) = await bench.slices()
        assert slice["pool"]["generation"] == generation + 1

    play(story)


async def _named(bench: Bench, names: set[str]) -> bool:
    return (await bench.devices()).keys() == names


def test_many_devices_take_several_slices_of_one_generation() -> None:
    async def story(bench: Bench) -> None:
        many = DEVICES_PER_SLICE * 2 + 1
        await bench.start(*(device(f"gpu-{number}") for number in range(many)))
        await bench.until(lambda: _counted(bench, many))
        pools = [each["pool"] for each in await bench.slices()]
        assert [each["resourceSliceCount"] for each in pools] == [3, 3, 3]
        assert len({each["generation"] for each in pools}) == 1
        bench.list(device("gpu-0"))
        await bench.until(lambda: _counted(bench, 1))
        (slice,) = await bench.slices()
        assert slice["pool"] == {
            "name": "n1",
            "generation": pools[0]["generation"] + 1,
            "resourceSliceCount": 1,
        }

    play(story)


async def _counted(bench: Bench, count: int) -> bool:
    slices = await bench.slices()
    return len(await bench.devices()) == count and len(slices) == slices[0]["pool"]["resourceSliceCount"]


def test_a_restart_publishes_nothing_anew_and_taints_nothing() -> None:
    async def story(bench: Bench) -> None:
        await bench.start(device("gpu-0"), device("gpu-1"))
        await bench.until(bench.devices)
        before = await bench.slices()
        await bench.stop_driver()
        bench.start_driver()
        registered = len(bench.plugin.calls)
        claim = await bench.claim("c", "gpu-1")
        await bench.until(lambda: _prepared(bench, claim))
        assert len(bench.plugin.calls) > registered
        assert await bench.slices() == before

    play(story)


async def _prepared(bench: Bench, claim: dict[str, Any]) -> bool:
    return not (await bench.prepare(claim)).error


def test_a_claim_is_prepared_with_a_cdi_file_and_unprepared() -> None:
    async def story(bench: Bench) -> None:
        await bench.start(device("gpu-0"), device("gpu-1"), device("gpu-2"))
        await bench.until(bench.devices)
        info = await bench.info()
        assert (info.type, info.name, list(info.supported_versions)) == ("DRAPlugin", DRIVER, ["v1.DRAPlugin"])
        claim = await bench.claim("c", "gpu-0", "gpu-2")
        prepared = await bench.prepare(claim)
        assert not prepared.error
        assert [(list(each.request_names), each.device_name) for each in prepared.devices] == [
            (["gpus"], "gpu-0"),
            (["gpus"], "gpu-2"),
        ]
        (id,) = [id for each in prepared.devices for id in each.cdi_device_ids]
        (file,) = bench.cdi()
        (made,) = file["devices"]
        assert id == f"{file['kind']}={made['name']}"
        assert made["containerEdits"]["env"] == ["GPU_IDS=gpu-0,gpu-2", "WHARFINGER_DEVICES=gpu-0,gpu-2"]
        assert await bench.prepare(claim) == prepared  # a kubelet asks again after a restart
        assert len(bench.cdi()) == 1
        await bench.unprepare(claim)
        await bench.unprepare(claim)
        assert not bench.cdi()

    play(story)


def test_what_cannot_be_prepared_says_why() -> None:
    async def story(bench: Bench) -> None:
        await bench.start(device("gpu-0"))
        await bench.until(bench.devices)
        unknown = await bench.claim("unknown", "gpu-9")
        assert "no plugin has device gpu-9" in (await bench.prepare(unknown)).error
        missing = {"metadata": {"namespace": "default", "name": "missing", "uid": "u"}}
        assert "cannot read claim default/missing" in (await bench.prepare(missing)).error
        replaced = {"metadata": {**unknown["metadata"], "uid": "another"}}
        assert "was replaced" in (await bench.prepare(replaced)).error
        assert not bench.cdi()

    play(story)


@pytest.mark.parametrize("value", ["16Gi", "1500m", "12", "-4", "true", "p100", "1.2.3", "", "x" * 65, "12e", "Gi"])
def test_every_property_can_be_published(value: str) -> None:
    """The API server accepts what is made of a property, whatever the plugin says."""
    many = {f"p{number}": value for number in range(40)} | {"not a name": value, "x" * 33: value}
    devices = pool_devices({GPU: {"gpu-0": ReportedDevice(True, many)}})
    node = {"metadata": {"name": "n1", "uid": "u"}}

    async def store() -> None:
        client = LocalClient(Store(registry()))
        for document in pool_slices(DRIVER, node, devices, 1):
            await client.create(RESOURCE_SLICES, document)

    asyncio.run(store())
