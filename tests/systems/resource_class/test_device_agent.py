"""The device agent over real unix sockets with the sample plugin: devices by properties, health, drift, allocations."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.client.controller import run_controllers
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.client.timers import SystemClock
from wharfinger.store import Store
from wharfinger.systems.resource_class.device_agent import api
from wharfinger.systems.resource_class.device_agent.agent import DRIFT, DeviceAgent
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.rules.compute_resources import (
    DEVICE_IDS,
    RECORD,
    compute_resource_name,
    format_record,
)

ROOT = Path(__file__).parents[3]
GPU = "example.com/gpu"


def _sample() -> Any:
    spec = importlib.util.spec_from_file_location("sample_plugin", ROOT / "examples" / "device-plugin" / "plugin.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAMPLE = _sample()


def device(id: str, healthy: bool = True, numa: int | None = None, **properties: str) -> dict[str, Any]:
    made: dict[str, Any] = {"id": id, "healthy": healthy, "properties": properties}
    return made if numa is None else {**made, "numa": numa}


class Bench:
    """A store with one node, an agent, and plugins, on sockets in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "devices.json"
        self.store = Store(registry())
        self.client = LocalClient(self.store)
        self.tasks: list[asyncio.Task[Any]] = []
        self.agent: asyncio.Task[Any] | None = None
        self.publish: Any = "auto"

    async def start(self, *devices: dict[str, Any], plugin: bool = True, **options: Any) -> Any:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}}
        await self.client.create(NODES, node)
        await self.client.create(
            registry().find("Namespace").storage,  # type: ignore[union-attr]  # it is there
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
        )
        self.start_agent()
        self.list(*devices)
        return await self.start_plugin(**options) if plugin else None

    def start_agent(self) -> None:
        informers = InformerSet(self.client)
        agent = DeviceAgent(self.client, informers, SystemClock(), "n1", self.folder, publish=self.publish)
        self.agent = asyncio.create_task(run_controllers([agent], informers))
        self.tasks.append(self.agent)

    async def stop_agent(self) -> None:
        assert self.agent is not None
        self.agent.cancel()
        await asyncio.gather(self.agent, return_exceptions=True)

    async def start_plugin(self, **options: Any) -> Any:
        plugin = SAMPLE.Plugin(GPU, self.file, self.folder, **options)
        self.tasks.append(asyncio.create_task(plugin.run()))
        plugin.task = self.tasks[-1]
        return plugin

    def list(self, *devices: dict[str, Any]) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps(devices))
        beside.replace(self.file)

    def published(self) -> dict[str, tuple[int, int]]:
        """By properties: devices and healthy devices."""
        found = self.store.peek(NODES, "n1")
        assert found is not None
        return _shown(found.document()["status"].get("computeResources", []))

    def node(self) -> dict[str, Any]:
        found = self.store.peek(NODES, "n1")
        assert found is not None
        return found.document()

    async def bind(
        self,
        name: str,
        record: dict[str, dict[str, dict[str, int]]],
        asked: dict[str, dict[str, int]] | None = None,
        **annotations: str,
    ) -> None:
        """A pod with this record, which asks for what the record gives, or for something else."""
        if asked is None:
            asked = {
                each: {name: sum(given.values()) for name, given in names.items()} for each, names in record.items()
            }
        containers = [
            {"name": each, "image": "i", "resources": {"limits": {name: str(count) for name, count in limits.items()}}}
            for each, limits in asked.items()
        ]
        annotations = {RECORD: format_record(record), **annotations}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"nodeName": "n1", "containers": containers},
        }
        await self.client.create(PODS, pod, "default")

    def pod(self, name: str) -> dict[str, Any]:
        found = self.store.peek(PODS, name, "default")
        assert found is not None
        return found.document()

    def ids(self, name: str) -> Any:
        text = self.pod(name)["metadata"].get("annotations", {}).get(DEVICE_IDS)
        return None if text is None else json.loads(text)

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.02)


def _shown(resources: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {
        ",".join(f"{k}={v}" for k, v in sorted(each["properties"].items())): (
            len(each["devices"]),
            len(each["allocatableDevices"]),
        )
        for each in resources
    }


def on_a_bench(test: Callable[[Bench], Awaitable[None]]) -> None:
    async def run(folder: Path) -> None:
        bench = Bench(folder)
        try:
            await test(bench)
        finally:
            for task in bench.tasks:
                task.cancel()
            await asyncio.gather(*bench.tasks, return_exceptions=True)

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # paths of sockets must be short
        asyncio.run(run(Path(folder)))


K80 = compute_resource_name(GPU, {"t": "k80"})
P100 = compute_resource_name(GPU, {"t": "p100"})
FOUR = (device("a", t="k80"), device("b", t="k80"), device("c", t="p100"), device("d", t="p100"))


def test_devices_are_published_by_properties_and_health_follows_at_once() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(*FOUR, device("e", numa=1, t="k80"))
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2), "numaNode=1,t=k80": (1, 1)})
        names = {each["name"] for each in bench.node()["status"]["computeResources"]}
        assert {K80, P100} < names
        bench.list(device("a", healthy=False, t="k80"), *FOUR[1:])
        await bench.until(lambda: bench.published() == {"t=k80": (2, 1), "t=p100": (2, 2)})

    on_a_bench(test)


def test_an_unmodified_plugin_has_devices_without_properties() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(*FOUR, plain=True)
        await bench.until(lambda: bench.published() == {"": (4, 4)})

    on_a_bench(test)


def test_a_plugin_that_goes_leaves_no_healthy_device_until_it_is_back() -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR)
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})
        plugin.task.cancel()
        await bench.until(lambda: bench.published() == {"t=k80": (2, 0), "t=p100": (2, 0)})
        await bench.start_plugin()
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})

    on_a_bench(test)


def test_plugins_register_again_with_an_agent_that_starts_anew() -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR)
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})
        await bench.bind("one", {"c": {"gold": {P100: 1}}})
        await bench.until(lambda: bench.ids("one"))
        await bench.stop_agent()
        bench.start_agent()
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})
        await bench.bind("two", {"c": {"gold": {P100: 1}}})
        await bench.until(lambda: bench.ids("two"))
        assert {bench.ids("one")["c"][P100][0], bench.ids("two")["c"][P100][0]} == {"c", "d"}
        assert sorted(plugin.allocated) == [("c",), ("d",)]

    on_a_bench(test)


def test_allocate_is_called_with_devices_of_the_recorded_compute_resource() -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR)
        await bench.until(lambda: bench.published())
        await bench.bind("p", {"x": {"gold": {P100: 1, K80: 1}}, "y": {GPU: {P100: 1}}})
        await bench.until(lambda: bench.ids("p"))
        assert plugin.allocated == [("c", "a"), ("d",)]
        assert bench.ids("p") == {"x": {P100: ["c"], K80: ["a"]}, "y": {P100: ["d"]}}

    on_a_bench(test)


def test_the_plugins_preference_counts_within_the_recorded_compute_resource() -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR, prefer_last=True)
        await bench.until(lambda: bench.published())
        await bench.bind("p", {"c": {"silver": {K80: 1}}})
        await bench.until(lambda: bench.ids("p"))
        assert plugin.allocated == [("b",)]

    on_a_bench(test)


def test_devices_of_a_pod_that_is_gone_are_given_again() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(device("a", t="k80"))
        await bench.until(lambda: bench.published())
        await bench.bind("one", {"c": {"x": {K80: 1}}})
        await bench.until(lambda: bench.ids("one"))
        await bench.client.delete(PODS, "one", "default", grace_period=0)
        await bench.bind("two", {"c": {"x": {K80: 1}}})
        await bench.until(lambda: bench.ids("two") == {"c": {K80: ["a"]}})

    on_a_bench(test)


def test_a_pod_whose_devices_are_not_there_is_rejected_as_a_kubelet_does() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(device("a", t="k80"))
        await bench.until(lambda: bench.published())
        await bench.bind("greedy", {"c": {"x": {K80: 2}}})
        await bench.until(lambda: bench.pod("greedy")["status"].get("phase") == "Failed")
        status = bench.pod("greedy")["status"]
        assert status["reason"] == "UnexpectedAdmissionError"
        assert "was allocated 2 devices of" in status["message"]

    on_a_bench(test)


@pytest.mark.parametrize(
    ("record", "asked"),
    [
        ({"c": {GPU: {P100: 2}}}, {"c": {GPU: 1}}),
        ({"c": {GPU: {P100: 1}}}, {"c": {}}),
        ({"c": {GPU: {P100: 1}, "x": {K80: 1}}}, {"c": {GPU: 1}}),
        ({"c": {GPU: {P100: 1}}, "other": {GPU: {P100: 1}}}, {"c": {GPU: 1}}),
        ({"c": {"gold": {P100: 2}}}, {"c": {"gold": 1}}),
        ({"c": {"unknown": {P100: 3}}}, {"c": {"unknown": 2}}),
    ],
)
def test_a_record_that_is_worth_more_than_the_requests_gets_nothing(record: Any, asked: Any) -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR)
        await bench.client.create(
            RESOURCE_CLASSES,
            {
                "apiVersion": RESOURCE_CLASSES.api_version,
                "kind": RESOURCE_CLASSES.kind,
                "metadata": {"name": "gold"},
                "spec": {"resourceName": GPU},
            },
        )
        await bench.until(lambda: bench.published())
        await bench.bind("forged", record, asked)
        await bench.until(lambda: bench.pod("forged")["status"].get("phase") == "Failed")
        assert "the pod's record gives" in bench.pod("forged")["status"]["message"]
        assert plugin.allocated == []

    on_a_bench(test)


@pytest.mark.parametrize(
    "ids",
    [
        {"c": {P100: ["c", "d"]}},
        {"c": {P100: ["c", "c"]}},
        {"c": {K80: ["a"]}},
        {"c": {P100: ["c"]}, "other": {P100: ["d"]}},
        ["c"],
    ],
)
def test_device_ids_that_differ_from_the_record_are_replaced(ids: Any) -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR)
        await bench.until(lambda: bench.published())
        await bench.bind("forged", {"c": {GPU: {P100: 1}}}, **{DEVICE_IDS: json.dumps(ids)})
        await bench.until(lambda: plugin.allocated)
        await bench.until(lambda: bench.ids("forged") == {"c": {P100: ["c"]}})
        await bench.bind("next", {"c": {GPU: {P100: 1}}})
        await bench.until(lambda: bench.ids("next") == {"c": {P100: ["d"]}})

    on_a_bench(test)


def test_properties_change_after_the_node_is_drained_and_the_node_says_so() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(*FOUR)
        await bench.until(lambda: bench.published())
        await bench.bind("user", {"c": {"x": {K80: 1}}})
        await bench.until(lambda: bench.ids("user"))
        bench.list(
            device("a", t="k80", driver="2"), device("b", False, t="k80", driver="2"), *FOUR[2:], device("n", t="new")
        )

        def condition() -> str:
            conditions = bench.node()["status"].get("conditions", [])
            return next((str(each["status"]) for each in conditions if each["type"] == DRIFT), "")

        # Health and devices that come count at once, properties of those that were known do not.
        await bench.until(lambda: bench.published() == {"t=k80": (2, 1), "t=p100": (2, 2), "t=new": (1, 1)})
        await bench.until(lambda: condition() == "True")
        await bench.stop_agent()
        bench.start_agent()
        await bench.until(lambda: bench.published() == {"t=k80": (2, 1), "t=p100": (2, 2), "t=new": (1, 1)})
        await bench.client.delete(PODS, "user", "default", grace_period=0)
        await bench.until(lambda: bench.published() == {"driver=2,t=k80": (2, 1), "t=p100": (2, 2), "t=new": (1, 1)})
        await bench.until(lambda: condition() == "False")

    on_a_bench(test)


def test_where_nodes_cannot_hold_them_an_object_does() -> None:
    async def test(bench: Bench) -> None:
        bench.publish = "object"
        await bench.start(*FOUR)

        def shown() -> dict[str, tuple[int, int]]:
            found = bench.store.peek(NODE_COMPUTE_RESOURCES, "n1")
            return _shown(found.document()["spec"]["computeResources"]) if found is not None else {}

        await bench.until(lambda: shown() == {"t=k80": (2, 2), "t=p100": (2, 2)})
        found = bench.store.peek(NODE_COMPUTE_RESOURCES, "n1")
        assert found is not None
        assert found.document()["metadata"]["ownerReferences"][0]["uid"] == bench.node()["metadata"]["uid"]
        assert "computeResources" not in bench.node()["status"]

    on_a_bench(test)


async def register(bench: Bench, message: bytes) -> grpc.StatusCode | None:
    async with grpc.aio.insecure_channel(f"unix:{bench.folder / api.KUBELET_SOCKET}") as channel:
        call = channel.unary_unary(f"/{api.REGISTRATION}/Register")
        try:
            await call(message, timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return None


def test_malformed_registrations_are_refused_and_change_nothing() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(*FOUR)
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})
        bad = [
            (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (b"\x0a\x7fshort", grpc.StatusCode.INVALID_ARGUMENT),
            (registration("v1alpha", "x.sock", GPU), grpc.StatusCode.INVALID_ARGUMENT),
            (registration("v1beta1", "../x.sock", GPU), grpc.StatusCode.INVALID_ARGUMENT),
            (registration("v1beta1", "", GPU), grpc.StatusCode.INVALID_ARGUMENT),
            (registration("v1beta1", "x.sock", "gpu"), grpc.StatusCode.INVALID_ARGUMENT),
        ]
        for message, expected in bad:
            assert await register(bench, message) is expected
        await asyncio.sleep(0.1)
        assert bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)}

    on_a_bench(test)


@pytest.mark.parametrize("answer", [b"\xff\xff", b"\x0a\x02\x0a\xff", b"\x08\x01\x0b"])
def test_a_plugin_that_lists_nonsense_has_no_healthy_devices(answer: bytes) -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR)
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})

        async def nonsense(request: Any, context: Any) -> Any:
            yield answer

        stream = grpc.unary_stream_rpc_method_handler(nonsense)
        options = grpc.unary_unary_rpc_method_handler(plugin.options, lambda data: api.Empty(), api_bytes)
        server = grpc.aio.server()
        methods = {"ListAndWatch": stream, "GetDevicePluginOptions": options}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(api.DEVICE_PLUGIN, methods),))
        server.add_insecure_port(f"unix:{bench.folder / 'broken.sock'}")
        await server.start()
        try:
            assert await register(bench, registration("v1beta1", "broken.sock", GPU)) is None
            await bench.until(lambda: bench.published() == {"t=k80": (2, 0), "t=p100": (2, 0)})
        finally:
            await server.stop(0)

    on_a_bench(test)


def registration(version: str, endpoint: str, resource: str) -> bytes:
    return api_bytes(api.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource))


def api_bytes(message: Any) -> bytes:
    data: bytes = SAMPLE.encode(message)
    return data


def test_devices_are_published_again_for_a_node_that_comes_back() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(*FOUR)
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})
        old = bench.node()
        await bench.client.delete(NODES, "n1")
        fresh = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}}
        await bench.client.create(NODES, fresh)
        await bench.until(lambda: bench.published() == {"t=k80": (2, 2), "t=p100": (2, 2)})
        assert bench.node()["metadata"]["uid"] != old["metadata"]["uid"]

    on_a_bench(test)


def test_the_object_of_a_node_that_comes_back_belongs_to_it() -> None:
    async def test(bench: Bench) -> None:
        bench.publish = "object"
        await bench.start(*FOUR)

        def owner() -> Any:
            found = bench.store.peek(NODE_COMPUTE_RESOURCES, "n1")
            return found and found.document()["metadata"]["ownerReferences"][0]["uid"]

        await bench.until(lambda: owner() == bench.node()["metadata"]["uid"])
        await bench.client.delete(NODES, "n1")
        await bench.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await bench.until(lambda: owner() == bench.node()["metadata"]["uid"])
        await bench.client.delete(NODE_COMPUTE_RESOURCES, "n1")  # as garbage collection does
        await bench.until(lambda: owner() == bench.node()["metadata"]["uid"])

    on_a_bench(test)


@pytest.mark.parametrize("publish", ["auto", "object"])
def test_an_empty_list_reaches_the_object(publish: str) -> None:
    async def test(bench: Bench) -> None:
        bench.publish = publish
        await bench.start(*FOUR, plugin=False)
        inventory = {
            "apiVersion": NODE_COMPUTE_RESOURCES.api_version,
            "kind": NODE_COMPUTE_RESOURCES.kind,
            "metadata": {"name": "n1"},
            "spec": {"computeResources": []},
        }
        await bench.client.create(NODE_COMPUTE_RESOURCES, inventory)
        await bench.start_plugin()

        def shown() -> Any:
            found = bench.store.peek(NODE_COMPUTE_RESOURCES, "n1")
            assert found is not None
            return found.document()["spec"].get("computeResources")

        await bench.until(lambda: bench.published() if publish == "auto" else shown())
        stale = [{"resourceName": GPU, "properties": {"t": "old"}, "devices": ["z"]}]
        if publish == "auto":
            await bench.client.patch(NODE_COMPUTE_RESOURCES, "n1", {"spec": {"computeResources": stale}})
        bench.list()
        await bench.until(lambda: not shown() and not bench.published())

    on_a_bench(test)


def test_every_device_that_drifts_is_told() -> None:
    async def test(bench: Bench) -> None:
        await bench.start(*FOUR)
        await bench.until(lambda: bench.published())
        await bench.bind("user", {"c": {"x": {K80: 1}}})
        await bench.until(lambda: bench.ids("user"))

        def message() -> str:
            conditions = bench.node()["status"].get("conditions", [])
            return next((str(each["message"]) for each in conditions if each["type"] == DRIFT), "")

        bench.list(device("a", t="new"), *FOUR[1:])
        await bench.until(lambda: message().endswith(f"{GPU}: a"))
        bench.list(device("a", t="new"), device("b", t="new"), *FOUR[2:])
        await bench.until(lambda: message().endswith(f"{GPU}: a, b"))
        bench.list(FOUR[0], device("b", t="new"), *FOUR[2:])
        await bench.until(lambda: message().endswith(f"{GPU}: b"))
        await bench.stop_agent()
        bench.start_agent()
        bench.list(*FOUR)
        await bench.until(lambda: message() == "published properties are current")

    on_a_bench(test)


def test_devices_are_allocated_before_the_start_of_the_container_is_prepared() -> None:
    async def test(bench: Bench) -> None:
        plugin = await bench.start(*FOUR, pre_start=True)
        await bench.until(lambda: bench.published())
        await bench.bind("p", {"c": {GPU: {P100: 1}}})
        await bench.until(lambda: bench.ids("p"))
        assert plugin.calls == ["Allocate", "PreStartContainer"]

    on_a_bench(test)
