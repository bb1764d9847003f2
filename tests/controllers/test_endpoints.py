"""Endpoints and EndpointSlices of Services, and the certificate authority in every namespace."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
)
from wharfinger.api.registry import Document
from wharfinger.controllers.endpoints.subsets import packed, truncated


def service(name: str = "web", **spec: Any) -> Document:
    stated = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}], **spec}
    wanted = {key: value for key, value in stated.items() if value is not None}
    return {
        "metadata": {"name": name, "labels": {"tier": "front"}},
        "spec": {"clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], **wanted},
    }


def deployment(replicas: int = 2, annotations: dict[str, str] | None = None) -> Document:
    made = workload(DEPLOYMENTS, "web", annotations=annotations, replicas=replicas)
    made["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8080}]
    return made


def slices(world: World, name: str = "web") -> list[Document]:
    return world.list(ENDPOINT_SLICES, selector=f"kubernetes.io/service-name={name}")


def conditions(world: World, name: str = "web") -> dict[str, tuple[bool, bool, bool]]:
    return {
        endpoint["targetRef"]["name"]: tuple(endpoint["conditions"][key] for key in ("ready", "serving", "terminating"))
        for each in slices(world, name)
        for endpoint in each["endpoints"] or ()
    }


def test_a_service_publishes_its_pods() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, deployment())
        made = world.apply(SERVICES, service())
        [each] = slices(world)
        assert each["metadata"]["name"].startswith("web-")
        assert each["metadata"]["labels"] == {
            "tier": "front",
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        [owner] = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Service", made["metadata"]["uid"], True)
        assert each["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        pods = {pod["metadata"]["name"]: pod for pod in world.pods()}
        assert len(each["endpoints"]) == 2
        for endpoint in each["endpoints"]:
            pod = pods[endpoint["targetRef"]["name"]]
            node = world.get(NODES, pod["spec"]["nodeName"])
            assert endpoint["addresses"] == [pod["status"]["podIP"]]
            assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
            assert endpoint["nodeName"] == pod["spec"]["nodeName"]
            assert endpoint["zone"] == node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        [subset] = world.get(ENDPOINTS, "web")["subsets"]
        assert [address["ip"] for address in subset["addresses"]] == sorted(
            pod["status"]["podIP"] for pod in pods.values()
        )
        assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        world.delete(SERVICES, "web")
        assert not slices(world)  # by the garbage collector
        assert not world.exists(ENDPOINTS, "web")


def test_readiness_and_deletion_change_the_conditions() -> None:
    with World() as world:
        world.apply(SERVICES, service())
        [placeholder] = slices(world)
        assert (placeholder["endpoints"], placeholder["ports"]) == (None, None)
        world.create(DEPLOYMENTS, deployment(1, {"wharfinger.dev/ready-after": "60s"}))
        world.loop.run_to(world.loop.time() + 10)
        assert list(conditions(world).values()) == [(False, False, False)]
        [subset] = world.get(ENDPOINTS, "web")["subsets"]
        assert len(subset["notReadyAddresses"]) == 1 and "addresses" not in subset
        world.advance(60)
        assert list(conditions(world).values()) == [(True, True, False)]
        assert len(slices(world)) == 1  # the placeholder was filled
        [pod] = world.pods()
        name = pod["metadata"]["name"]
        world.patch(PODS, name, {"metadata": {"finalizers": ["example.com/hold"]}})
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
        assert not conditions(world)  # its containers have ended
        world.patch(PODS, name, {"metadata": {"finalizers": None}})


def test_a_pod_that_is_stopping_still_serves() -> None:
    with World() as world:
        world.apply(SERVICES, service())
        world.apply(DEPLOYMENTS, deployment(1, {"wharfinger.dev/shutdown-after": "20s"}))
        [pod] = world.pods()
        world._do(world.client.delete(PODS, pod["metadata"]["name"], "default"))
        world.loop.run_to(world.loop.time() + 5)
        assert conditions(world)[pod["metadata"]["name"]] == (False, True, True)
        addresses = [
            address["targetRef"]["name"]
            for subset in world.get(ENDPOINTS, "web").get("subsets") or ()
            for address in subset.get("addresses") or ()
        ]
        assert pod["metadata"]["name"] not in addresses


def test_unready_addresses_are_published_on_request() -> None:
    with World() as world:
        world.apply(SERVICES, service(publishNotReadyAddresses=True))
        world.create(DEPLOYMENTS, deployment(1, {"wharfinger.dev/ready-after": "never"}))
        world.advance(10)
        assert list(conditions(world).values()) == [(True, False, False)]
        assert len(world.get(ENDPOINTS, "web")["subsets"][0]["addresses"]) == 1


def test_a_headless_service_names_its_pods_and_needs_no_ports() -> None:
    with World() as world:
        world.apply(SERVICES, service(clusterIP="None", ports=None))
        pod = {
            "metadata": {"name": "db", "labels": {"app": "web"}},
            "spec": {"hostname": "db", "subdomain": "web", "containers": [{"name": "main", "image": "db:1"}]},
        }
        world.apply(PODS, pod)
        [each] = slices(world)
        assert each["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
        assert each["ports"] is None
        assert each["endpoints"][0]["hostname"] == "db"
        document = world.get(ENDPOINTS, "web")
        assert document["subsets"][0]["addresses"][0]["hostname"] == "db"
        assert "ports" not in document["subsets"][0]


def test_pods_with_other_ports_are_in_other_slices() -> None:
    with World() as world:
        world.apply(SERVICES, service())
        for name, port in (("old", 8080), ("new", 9090)):
            container = {"name": "main", "image": "app:1", "ports": [{"name": "http", "containerPort": port}]}
            world.apply(
                PODS, {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": [container]}}
            )
        found = {each["ports"][0]["port"]: each["endpoints"][0]["targetRef"]["name"] for each in slices(world)}
        assert found == {8080: "old", 9090: "new"}
        assert len(world.get(ENDPOINTS, "web")["subsets"]) == 2


def test_no_slice_has_more_than_a_hundred_endpoints() -> None:
    with World(nodes=5) as world:
        world.apply(SERVICES, service())
        world.apply(DEPLOYMENTS, deployment(230))
        sizes = sorted(len(each["endpoints"]) for each in slices(world))
        assert sum(sizes) == 230 and max(sizes) <= 100
        names = {each["metadata"]["name"] for each in slices(world)}
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 120}})
        assert len(conditions(world)) == 120
        assert {each["metadata"]["name"] for each in slices(world)} <= names  # endpoints stay where they are


def test_traffic_distribution_sets_hints() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, deployment(1))
        world.apply(SERVICES, service(trafficDistribution="PreferSameNode"))
        [endpoint] = slices(world)[0]["endpoints"]
        assert endpoint["hints"] == {
            "forZones": [{"name": endpoint["zone"]}],
            "forNodes": [{"name": endpoint["nodeName"]}],
        }
        world.patch(SERVICES, "web", {"spec": {"trafficDistribution": "PreferSameZone"}})
        assert slices(world)[0]["endpoints"][0]["hints"] == {"forZones": [{"name": endpoint["zone"]}]}
        world.patch(SERVICES, "web", {"spec": {"trafficDistribution": None}})
        assert "hints" not in slices(world)[0]["endpoints"][0]


def test_slices_follow_the_labels_of_the_service_and_are_restored() -> None:
    with World() as world:
        world.apply(DEPLOYMENTS, deployment(1))
        world.apply(SERVICES, service())
        world.patch(SERVICES, "web", {"metadata": {"labels": {"tier": None, "new": "1"}}})
        [each] = slices(world)
        assert each["metadata"]["labels"]["new"] == "1" and "tier" not in each["metadata"]["labels"]
        world.patch(ENDPOINT_SLICES, each["metadata"]["name"], {"endpoints": []})
        assert len(conditions(world)) == 1
        world.delete(ENDPOINT_SLICES, each["metadata"]["name"])
        assert len(conditions(world)) == 1
        world.delete(ENDPOINTS, "web")
        assert world.get(ENDPOINTS, "web")["subsets"]


def test_endpoints_of_a_service_without_selector_are_mirrored() -> None:
    with World() as world:
        world.apply(SERVICES, service(selector=None))
        written: Document = {
            "metadata": {"name": "web", "labels": {"by": "hand"}, "annotations": {"note": "x"}},
            "subsets": [
                {
                    "addresses": [{"ip": "192.168.0.1"}, {"ip": "2001:db8::1"}],
                    "notReadyAddresses": [{"ip": "192.168.0.2", "hostname": "two"}],
                    "ports": [{"port": 80}],
                }
            ],
        }
        world.apply(ENDPOINTS, written)
        found = {each["addressType"]: each for each in slices(world)}
        assert set(found) == {"IPv4", "IPv6"}
        ready = {each["addresses"][0]: each["conditions"]["ready"] for each in found["IPv4"]["endpoints"]}
        assert ready == {"192.168.0.1": True, "192.168.0.2": False}
        metadata = found["IPv4"]["metadata"]
        assert (
            metadata["labels"]["endpointslice.kubernetes.io/managed-by"] == "endpointslicemirroring-controller.k8s.io"
        )
        assert (metadata["labels"]["by"], metadata["annotations"]) == ("hand", {"note": "x"})
        assert metadata["ownerReferences"][0]["kind"] == "Endpoints"
        world.patch(ENDPOINTS, "web", {"subsets": [{"addresses": [{"ip": "192.168.0.7"}], "ports": [{"port": 80}]}]})
        [each] = slices(world)
        assert each["endpoints"][0]["addresses"] == ["192.168.0.7"]
        world.patch(ENDPOINTS, "web", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}})
        assert not slices(world)


@pytest.mark.parametrize("seed", range(2))
def test_failing_writes_and_restarts_leave_one_set_of_slices(seed: int) -> None:
    with World(failing=0.2) as world:
        world.apply(SERVICES, service())
        world.apply(DEPLOYMENTS, deployment(20 + seed))
        world.advance(120)
        world.restart()
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}})
        world.advance(120)
        running = {pod["metadata"]["name"] for pod in world.pods(phase="Running")}
        assert set(conditions(world)) == running and len(running) == 5


def test_subsets_are_packed_by_addresses_and_ports() -> None:
    one, two = {"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}
    loose = [
        {"addresses": [one], "ports": [{"port": 80}]},
        {"addresses": [one], "ports": [{"port": 81}]},
        {"notReadyAddresses": [two], "ports": [{"port": 80}]},
        {"notReadyAddresses": [two], "ports": [{"port": 81}]},
    ]
    assert packed(loose) == [{"addresses": [one], "notReadyAddresses": [two], "ports": [{"port": 80}, {"port": 81}]}]
    many = [{"addresses": [{"ip": str(number)} for number in range(1200)], "notReadyAddresses": [one]}]
    [cut], over = truncated(many)
    assert over and len(cut["addresses"]) == 1000 and "notReadyAddresses" not in cut


def test_the_certificate_authority_is_in_every_namespace() -> None:
    with World(root_ca="PEM") as world:
        assert world.get(CONFIG_MAPS, "kube-root-ca.crt")["data"] == {"ca.crt": "PEM"}
        world.apply(NAMESPACES, {"metadata": {"name": "new"}})
        assert world.exists(CONFIG_MAPS, "kube-root-ca.crt", "new")
        world.patch(CONFIG_MAPS, "kube-root-ca.crt", {"data": {"ca.crt": "other", "more": "x"}}, "new")
        assert world.get(CONFIG_MAPS, "kube-root-ca.crt", "new")["data"] == {"ca.crt": "PEM"}
        world.delete(CONFIG_MAPS, "kube-root-ca.crt", "new")
        restored = world.get(CONFIG_MAPS, "kube-root-ca.crt", "new")
        assert restored["metadata"]["annotations"]["kubernetes.io/description"].startswith("Contains a CA bundle")
        world.delete(NAMESPACES, "new")
        assert not world.exists(NAMESPACES, "new")
