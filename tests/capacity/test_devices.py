"""How many nodes of which group waiting pods need, devices included, and that a silent node is not asked for twice."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.systems.resource_class.device_objects import GPU, Document, expression, klass, machine, pod, resource

from wharfinger.cli.main import wharf

AT = "2026-01-01T00:10:00Z"


def group(name: str, *devices: Document, cpu: int = 8, **spec: Any) -> Document:
    template = {"capacity": {"cpu": cpu, "memory": "32Gi"}, "computeResources": list(devices)}
    return {
        "apiVersion": "wharfinger.dev/v1alpha1",
        "kind": "NodeGroup",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def devices(count: int, **properties: str) -> Document:
    return {"resourceName": GPU, "properties": properties, "count": count}


class Capacity:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, objects: list[Document], *groups: Document, options: tuple[str, ...] = ()) -> Any:
        file, group_file = self.folder / "objects.json", self.folder / "groups.yaml"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        group_file.write_text(yaml.safe_dump_all(groups))
        arguments = [
            "capacity",
            "--cluster",
            str(file),
            "--no-timeline",
            "--node-group",
            str(group_file),
            "--at",
            AT,
            *options,
        ]
        return CliRunner().invoke(wharf, arguments, catch_exceptions=False)

    def needs(self, objects: list[Document], *groups: Document, options: tuple[str, ...] = ()) -> Any:
        shown = self(objects, *groups, options=("-o", "json", *options))
        return json.loads(shown.stdout)

    def new(self, objects: list[Document], *groups: Document, options: tuple[str, ...] = ()) -> dict[str, int]:
        return {each["name"]: each["new"] for each in self.needs(objects, *groups, options=options)["groups"]}


@pytest.fixture
def capacity(tmp_path: Path) -> Capacity:
    return Capacity(tmp_path)


GOLD = klass("gold", expression("type", "In", "p100"))
K80, P100 = group("k80", devices(4, type="k80")), group("p100", devices(4, type="p100"))


def test_pods_get_as_many_nodes_as_their_devices_need(capacity: Capacity) -> None:
    pods = [pod(f"p{i}", {"gold": 3}) for i in range(3)]
    found = capacity.needs([GOLD, *pods], K80, P100)
    assert {each["name"]: each["new"] for each in found["groups"]} == {"k80": 0, "p100": 3}
    assert [node["pods"] for node in found["groups"][1]["newNodes"]] == [["default/p0"], ["default/p1"], ["default/p2"]]
    assert found["groups"][1]["newNodes"][0]["reason"] == "no nodes available to schedule pods"


def test_pods_share_new_nodes(capacity: Capacity) -> None:
    assert capacity.new([GOLD, *(pod(f"p{i}", {"gold": 2}) for i in range(4))], P100) == {"p100": 2}


def test_what_is_free_already_is_used_first(capacity: Capacity) -> None:
    node = machine("n1", resource("cr", 4, type="p100"))
    found = capacity.needs([GOLD, node, pod("a", {"gold": 3}), pod("b", {"gold": 3})], P100)
    assert found["fitting"] == {"default/a": "n1"}
    assert found["groups"][0]["new"] == 1


def test_the_first_group_that_fits_is_taken(capacity: Capacity) -> None:
    assert capacity.new([klass("any"), pod("a", {"any": 1})], K80, P100) == {"k80": 1, "p100": 0}


def silent(created: str) -> Document:
    node = machine("n1")
    node["metadata"] |= {"labels": {"wharfinger.dev/node-group": "p100"}, "creationTimestamp": created}
    node["spec"] = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    return node


@pytest.mark.parametrize(
    ("created", "options", "expected"),
    [
        ("2026-01-01T00:00:00Z", (), 0),  # ten minutes: still in the time of grace
        ("2025-12-31T23:50:00Z", (), 1),  # twenty minutes: it will not come any more
        ("2026-01-01T00:00:00Z", ("--grace", "60"), 1),
    ],
)
def test_no_second_node_while_the_first_is_silent(
    capacity: Capacity, created: str, options: tuple[str, ...], expected: int
) -> None:
    assert capacity.new([GOLD, silent(created), pod("a", {"gold": 4})], P100, options=options) == {"p100": expected}


@pytest.mark.parametrize(
    ("published", "new"),
    [
        ([resource("a", 2, type="p100")], 0),  # two more are to come
        ([resource("a", 4, type="k80")], 0),  # of the right name, but other devices
        ([resource("a", 1, type="p100", numa="0"), resource("b", 3, type="p100", numa="1")], 0),  # all are there
        ([resource("a", 4, healthy=2, type="p100")], 1),  # all are there, and two are broken
    ],
)
def test_devices_are_counted_and_not_names(capacity: Capacity, published: list[Document], new: int) -> None:
    node = silent("2026-01-01T00:00:00Z")
    node["status"]["computeResources"] = published
    node["spec"] = {}
    assert capacity.new([GOLD, node, pod("a", {"gold": 4})], P100) == {"p100": new}


@pytest.mark.needs_system("reservation")
def test_reservations_that_wait_need_nodes_too(capacity: Capacity) -> None:
    template = {"spec": pod("t", {"gold": 3})["spec"]}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    waiting = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"template": template, "owners": owners},
    }
    found = capacity.needs([GOLD, waiting, pod("a", {"gold": 3})], P100)
    assert found["groups"][0]["new"] == 2
    assert [each["pods"] for each in found["groups"][0]["newNodes"]] == [["Reservation r"], ["default/a"]]
    ended = {**waiting, "status": {"phase": "Failed"}}
    assert capacity.new([GOLD, ended, pod("a", {"gold": 3})], P100) == {"p100": 1}


def test_a_silent_node_promises_no_more_than_its_template(capacity: Capacity) -> None:
    pods = [pod("a", {"gold": 4}), pod("b", {"gold": 1})]
    assert capacity.new([GOLD, silent("2026-01-01T00:00:00Z"), *pods], P100) == {"p100": 1}


def test_nodes_that_were_asked_for_are_on_their_way(capacity: Capacity) -> None:
    coming = group("p100", devices(4, type="p100"), targetSize=1)
    found = capacity.needs([GOLD, pod("a", {"gold": 4})], coming)
    assert found["fitting"] == {"default/a": "p100-coming-1"} and found["groups"][0]["new"] == 0


def test_what_no_group_can_serve_is_said_with_reasons(capacity: Capacity) -> None:
    full = group("p100", devices(4, type="p100"), maxSize=0)
    shown = capacity([GOLD, pod("a", {"gold": 1}), pod("b", {"silver": 1})], K80, full)
    assert shown.exit_code == 1
    numbers = "devices in the cluster: 0 matching, 0 healthy, 0 free"
    assert f"default/a   k80: Insufficient gold ({numbers}); p100: at its limit of 0 nodes" in shown.stdout
    assert 'default/b   k80: unknown class "silver"' in shown.stdout


def test_devices_of_the_cluster_do_not_count(capacity: Capacity) -> None:
    disk = klass("disk", raw="net.example/disk", scope="Cluster")
    big = pod("a", {"disk": 9, "cpu": 6})
    assert capacity.new([disk, big, pod("b", {"disk": 1, "cpu": 6})], group("plain")) == {"plain": 2}


def test_devices_of_a_driver_are_counted(capacity: Capacity) -> None:
    gpus = [{"name": f"gpu-{number}", "attributes": {"model": {"string": "h100"}}} for number in range(2)]
    dra = group("dra")
    dra["spec"]["template"]["resourceSlices"] = [{"driver": "gpu.example.com", "devices": gpus}]
    chosen = {"deviceClassName": "h100"}
    template = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": chosen}]}}}
    objects = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "h100"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one", "namespace": "default"},
            "spec": template,
        },
    ]
    for number in range(5):
        made = pod(f"p{number}", {"cpu": 1})
        made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        objects.append(made)
    assert capacity.new(objects, group("plain"), dra) == {"plain": 0, "dra": 3}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "NodeGroup"}, "missing required field"),
        (group("g", {"resourceName": "gpu", "count": 1}), "computeResources[0].resourceName"),
        (group("g", devices(1), devices(2)), "computeResources[1]: the same"),
        (group("g", devices(1), sise=3), "sise"),
    ],
)
def test_faulty_groups_are_refused_by_path(capacity: Capacity, wrong: Document, message: str) -> None:
    shown = capacity([], wrong)
    assert shown.exit_code == 2 and message in shown.output
