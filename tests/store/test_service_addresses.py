"""Cluster IPs and node ports: allocated once, kept, and rejected as by a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.store.support import registry

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NAMESPACES, SERVICES
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.store import Store
from wharfinger.store.default_chain import extend_chain

MERGE = PatchType.MERGE
PORTS = [{"port": 80, "name": "a"}]


async def cluster() -> Store:
    store = Store(registry())
    extend_chain(store.chain, store)
    await store.create(NAMESPACES, {"metadata": {"name": "default"}})
    return store


async def create(store: Store, name: str, **spec: Any) -> Document:
    written = await store.create(SERVICES, {"metadata": {"name": name}, "spec": spec}, "default")
    made: Document = written.document["spec"]
    return made


async def change(store: Store, name: str, **spec: Any) -> Document:
    written = await store.patch(SERVICES, name, {"spec": spec}, "default", type=MERGE)
    made: Document = written.document["spec"]
    return made


def test_every_service_gets_its_own_address() -> None:
    async def play() -> None:
        store = await cluster()
        made = await asyncio.gather(*(create(store, f"s{number}", ports=PORTS) for number in range(20)))
        assert len({spec["clusterIP"] for spec in made}) == 20
        first = made[0]
        assert (first["clusterIPs"], first["ipFamilies"]) == ([first["clusterIP"]], ["IPv4"])
        assert first["ipFamilyPolicy"] == "SingleStack"
        await store.delete(SERVICES, "s0", "default")
        again = await create(store, "again", ports=PORTS, clusterIP=first["clusterIP"])
        assert again["clusterIP"] == first["clusterIP"]
        with pytest.raises(ApiError, match="provided IP is already allocated"):
            await create(store, "taken", ports=PORTS, clusterIP=first["clusterIP"])

    asyncio.run(play())


@pytest.mark.parametrize(
    ("spec", "families", "policy", "addresses"),
    [
        ({"clusterIP": "None", "selector": {"a": "b"}}, ["IPv4"], "SingleStack", ["None"]),
        ({"clusterIP": "None"}, ["IPv4", "IPv6"], "RequireDualStack", ["None"]),
        ({"type": "ExternalName", "externalName": "a.b"}, None, None, None),
    ],
)
def test_headless_and_external_services_have_none(spec: Document, families: Any, policy: Any, addresses: Any) -> None:
    async def play() -> None:
        made = await create(await cluster(), "s", **spec)
        assert (made.get("ipFamilies"), made.get("ipFamilyPolicy"), made.get("clusterIPs")) == (
            families,
            policy,
            addresses,
        )

    asyncio.run(play())


def test_node_ports_are_kept_by_name_and_shared_by_protocols() -> None:
    async def play() -> None:
        store = await cluster()
        both = [{"port": 53, "name": "t"}, {"port": 53, "name": "u", "protocol": "UDP"}]
        made = await create(store, "s", type="NodePort", ports=both)
        ports = [port["nodePort"] for port in made["ports"]]
        assert ports[0] == ports[1]
        assert 30000 <= ports[0] < 32768
        moved = await change(store, "s", ports=[{"port": 54, "name": "t"}, {"port": 99, "name": "n"}])
        assert moved["ports"][0]["nodePort"] == ports[0]
        assert moved["ports"][1]["nodePort"] != ports[0]
        plain = await change(store, "s", type="ClusterIP")
        assert [port.get("nodePort") for port in plain["ports"]] == [None, None]
        assert plain["clusterIP"] == made["clusterIP"]
        outside = await change(store, "s", type="ExternalName", externalName="a.b")
        assert "clusterIP" not in outside
        assert "ipFamilies" not in outside

    asyncio.run(play())


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"clusterIP": "1.2.3.4"},
            "failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range.",
        ),
        ({"clusterIP": "x"}, 'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address'),
        ({"clusterIPs": ["10.96.0.9"]}, "must be empty when `clusterIP` is not specified"),
        ({"ipFamilyPolicy": "RequireDualStack"}, "this cluster is not configured for dual-stack services"),
        ({"ipFamilies": ["IPv6"]}, 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'),
        ({"clusterIP": "::1"}, "IPv6 is not configured on this cluster"),
        ({"ipFamilies": ["x"]}, 'spec.ipFamilies[0]: Unsupported value: "x": supported values: "IPv4", "IPv6"'),
        (
            {"type": "NodePort", "ports": [{"port": 1, "nodePort": 1}]},
            "provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        ({"ports": [{"port": 1, "nodePort": 30001}]}, "Forbidden: may not be used when `type` is 'ClusterIP'"),
        ({"externalTrafficPolicy": "Local"}, "may only be set for externally-accessible services"),
        ({"internalTrafficPolicy": "x"}, 'Unsupported value: "x": supported values: "Cluster", "Local"'),
    ],
)
def test_unavailable_addresses_are_rejected(spec: Document, text: str) -> None:
    async def play() -> None:
        with pytest.raises(ApiError) as refused:
            await create(await cluster(), "s", **{"ports": PORTS, **spec})
        assert text in refused.value.message

    asyncio.run(play())


def test_an_address_stays_once_set() -> None:
    async def play() -> None:
        store = await cluster()
        made = await create(store, "s", ports=PORTS)
        with pytest.raises(ApiError, match=r"spec.clusterIPs\[0\]: Invalid value: .*: may not change once set"):
            await change(store, "s", clusterIP="10.96.0.77")
        kept = await change(store, "s", clusterIP=None, clusterIPs=None, ipFamilies=None)
        assert (kept["clusterIP"], kept["clusterIPs"]) == (made["clusterIP"], [made["clusterIP"]])
        assert kept["ipFamilies"] == ["IPv4"]

    asyncio.run(play())
