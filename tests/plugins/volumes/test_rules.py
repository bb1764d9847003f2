"""VolumeZone, VolumeRestrictions and NodeVolumeLimits: the nodes they refuse, the reasons, and queueing hints."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plugins.volumes.objects import (
    HOST,
    ZONE,
    attachment,
    claim,
    csi_node,
    engine_with,
    node,
    place,
    pod,
    refused,
    storage_class,
    tell,
    volume,
    whole,
)

from wharfinger.api.views import view
from wharfinger.engine import Engine, default_profile
from wharfinger.engine.engine import VIEWS
from wharfinger.framework import Action, ClusterEvent

UNRESOLVABLE = "UnschedulableAndUnresolvable"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
NO_ZONE = ("VolumeZone", UNRESOLVABLE, ("node(s) had no available volume zone",))


# -- zones


@pytest.mark.parametrize(
    ("labels", "accepted"),
    [
        ({ZONE: "z1"}, {"z1", "plain"}),
        ({ZONE: "z1__z2"}, {"z1", "z2", "plain"}),
        ({ZONE: "z1__"}, {"z1", "z2", "beta", "region", "plain"}),  # an invalid label is ignored
        ({BETA_ZONE: "z1"}, {"z1", "beta", "plain"}),  # also matches the stable label
        ({ZONE: "z1", REGION: "r1"}, {"plain"}),
        ({REGION: "r1"}, {"region", "plain"}),
        ({"other": "z1"}, {"z1", "z2", "beta", "region", "plain"}),
    ],
)
def test_volumes_with_zones_allow_nodes_in_these_zones(labels: dict[str, str], accepted: set[str]) -> None:
    nodes = [
        node("z1", zone="z1"),
        node("z2", zone="z2"),
        node("beta", **{BETA_ZONE: "z1"}),
        node("region", **{REGION: "r1"}),
        node("plain"),
    ]
    engine = engine_with(*nodes, volume("v", labels=labels), claim("d", bound="v"))
    found = refused(engine, pod("p", "d"))
    assert found == {each.metadata.name: NO_ZONE for each in nodes if each.metadata.name not in accepted}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([claim("d", storage_class="")], "PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim("d", storage_class="x")], 'storageclass.storage.k8s.io "x" not found'),
        ([claim("d", storage_class="x"), storage_class("x", waits=False)], "PersistentVolume had no name"),
        ([claim("d", bound="gone")], 'persistentvolume "gone" not found'),
        ([], 'persistentvolumeclaim "d" not found'),
    ],
)
def test_pods_whose_volumes_have_no_known_zone(objects: list[Any], message: str) -> None:
    engine = Engine([default_profile(without=["VolumeBinding", "VolumeRestrictions"])])
    tell(engine, node("a"), *objects)
    assert whole(engine, pod("p", "d")) == ("VolumeZone", UNRESOLVABLE, message)


# -- disks and ReadWriteOncePod claims


def gce(name: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(name: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(iqn: str, *, read_only: bool = False) -> dict[str, Any]:
    return {"iscsi": {"iqn": iqn, "readOnly": read_only, "targetPortal": "t"}}


def rbd(monitors: list[str], image: str, *, pool: str = "rbd", read_only: bool = False) -> dict[str, Any]:
    return {"rbd": {"monitors": monitors, "image": image, "pool": pool, "readOnly": read_only}}


@pytest.mark.parametrize(
    ("there", "wanted", "conflict"),
    [
        (gce("d"), gce("d"), True),
        (gce("d"), gce("e"), False),
        (gce("d", read_only=True), gce("d", read_only=True), False),
        (gce("d", read_only=True), gce("d"), True),
        (ebs("d", read_only=True), ebs("d", read_only=True), True),
        (ebs("d"), ebs("e"), False),
        (iscsi("i"), iscsi("i", read_only=True), True),
        (iscsi("i", read_only=True), iscsi("i", read_only=True), False),
        (rbd(["m1", "m2"], "i"), rbd(["m2"], "i"), True),
        (rbd(["m1"], "i"), rbd(["m2"], "i"), False),
        (rbd(["m1"], "i"), rbd(["m1"], "i", pool="other"), False),
        (rbd(["m1"], "i", read_only=True), rbd(["m1"], "i", read_only=True), False),
        (gce("d"), ebs("d"), False),
    ],
)
def test_a_disk_in_use_on_the_node(there: dict[str, Any], wanted: dict[str, Any], conflict: bool) -> None:
    engine = engine_with(node("a"), node("b"), pod("there", on="a", volumes=[there]))
    expected = {"a": ("VolumeRestrictions", "Unschedulable", ("node(s) had no available disk",))} if conflict else {}
    assert refused(engine, pod("p", volumes=[wanted])) == expected
    assert place(engine, pod("p", volumes=[wanted])) in ({"b"} if conflict else {"a", "b"})
    engine.remove_pod("default", "there")
    assert "a" not in refused(engine, pod("q", volumes=[wanted])) or not conflict


IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def exclusive() -> list[Any]:
    return [node("a"), node("b"), volume("v"), claim("d", bound="v", modes=["ReadWriteOncePod"])]


def test_a_read_write_once_pod_claim_is_refused_everywhere_while_in_use() -> None:
    engine = engine_with(*exclusive())
    first = pod("first", "d")
    assert place(engine, first) is not None
    assert refused(engine, pod("second", "d")) == dict.fromkeys(
        "ab", ("VolumeRestrictions", "Unschedulable", (IN_USE,))
    )
    assert place(engine, pod("second", "d")) is None
    assert place(engine, pod("elsewhere", "d", namespace="other")) is None  # no such claim there
    engine.forget(first)
    assert place(engine, pod("second", "d")) is not None


def test_preemption_frees_a_read_write_once_pod_claim() -> None:
    engine = engine_with(*exclusive(), pod("low", "d", on="a"), pod("bystander", on="b"))
    asking = pod("high", "d", priority=10)
    assert engine.schedule(asking).node is None
    result = engine.preempt(asking)
    assert result.node == "a" and [victim.metadata.name for victim in result.victims] == ["low"]
    assert engine.preempt(pod("equal", "d")).node is None


# -- limits

EXCEEDED = ("NodeVolumeLimits", "Unschedulable", ("node(s) exceed max volume count",))


def disks(count: int, **options: Any) -> list[Any]:
    return [
        *(volume(f"v{index}", **options) for index in range(count)),
        *(claim(f"d{index}", bound=f"v{index}") for index in range(count)),
    ]


def test_a_node_takes_as_many_volumes_as_its_driver_allows() -> None:
    engine = engine_with(node("a"), node("b"), csi_node("a", 2), csi_node("b", None), *disks(6))
    tell(engine, pod("one", "d0", "d1", on="a"))
    assert refused(engine, pod("p", "d2")) == {"a": EXCEEDED}
    assert refused(engine, pod("p", "d1")) == {}  # already attached there
    assert refused(engine, pod("p", "d1", "d2")) == {"a": EXCEEDED}
    tell(engine, csi_node("a", 3))
    assert refused(engine, pod("p", "d2")) == {}
    assert set(refused(engine, pod("p", "d2", "d3"))) == {"a"}
    tell(engine, csi_node("b", 0))
    assert set(refused(engine, pod("p", "d2", "d3"))) == {"a", "b"}
    engine.remove_pod("default", "one")
    assert set(refused(engine, pod("p", "d2", "d3"))) == {"b"}


def test_a_volume_that_two_pods_share_counts_once() -> None:
    engine = engine_with(node("a"), csi_node("a", 2), *disks(3), pod("one", "d0", on="a"), pod("two", "d0", on="a"))
    assert place(engine, pod("p", "d1")) == "a"
    engine.remove_pod("default", "one")
    assert refused(engine, pod("q", "d2")) == {"a": EXCEEDED}
    engine.remove_pod("default", "two")
    assert refused(engine, pod("q", "d2")) == {}


def test_volumes_still_attached_count_and_those_of_other_drivers_do_not() -> None:
    engine = engine_with(node("a"), csi_node("a", 1), *disks(3), attachment("x", "a", "v0"))
    assert refused(engine, pod("p", "d1")) == {"a": EXCEEDED}
    engine.apply("VolumeAttachment", attachment("x", "a", "v0"), deleted=True)
    assert refused(engine, pod("p", "d1")) == {}
    other = volume("w", csi={"driver": "other.example.com", "volumeHandle": "w"})
    tell(engine, other, claim("e", bound="w"), pod("one", "d0", on="a"))
    assert refused(engine, pod("p", "e")) == {}
    assert refused(engine, pod("p", "d1")) == {"a": EXCEEDED}


def test_unbound_claims_count_for_the_driver_of_their_class() -> None:
    dynamic = storage_class("dynamic", "disk.example.com")
    engine = engine_with(node("a"), csi_node("a", 1), dynamic, *(claim(f"d{i}", storage_class="dynamic") for i in "12"))
    assert place(engine, pod("p", "d1")) == "a"
    assert refused(engine, pod("q", "d2")) == {"a": EXCEEDED}
    # Once bound, it counts as its volume, and still only once.
    tell(engine, volume("v"), claim("d1", storage_class="dynamic", bound="v"))
    assert refused(engine, pod("q", "d2")) == {"a": EXCEEDED}
    tell(engine, csi_node("a", 2))
    assert place(engine, pod("q", "d2")) == "a"


@pytest.mark.parametrize(
    ("source", "driver"),
    [
        (ebs("vol-1"), "ebs.csi.aws.com"),
        (gce("disk"), "pd.csi.storage.gke.io"),
        ({"azureDisk": {"diskName": "n", "diskURI": "/x/n"}}, "disk.csi.azure.com"),
        ({"cinder": {"volumeID": "c"}}, "cinder.csi.openstack.org"),
        ({"portworxVolume": {"volumeID": "p"}}, "pxd.portworx.com"),
    ],
)
def test_volumes_of_drivers_that_moved_to_csi_count_there(source: dict[str, Any], driver: str) -> None:
    engine = engine_with(node("a"), csi_node("a", 0, driver), volume("v", csi=None, **source), claim("d", bound="v"))
    assert refused(engine, pod("p", "d")) == {"a": EXCEEDED}
    assert refused(engine, pod("p", volumes=[source])) == {"a": EXCEEDED}


def test_preemption_makes_room_for_volumes() -> None:
    engine = engine_with(node("a"), csi_node("a", 2), *disks(4))
    tell(engine, pod("low", "d0", on="a"), pod("lower", "d1", on="a", priority=-5), pod("none", on="a"))
    asking = pod("high", "d2", priority=10)
    assert engine.schedule(asking).node is None
    result = engine.preempt(asking)
    assert [victim.metadata.name for victim in result.victims] == ["lower"]


def test_limits_follow_nodes_that_are_added_later_and_reused_rows() -> None:
    engine = engine_with(csi_node("a", 1), csi_node("b", 5), *disks(3), pod("one", "d0", on="a"))
    assert engine.schedule(pod("p", "d1")).error
    tell(engine, node("a"))
    assert refused(engine, pod("p", "d1")) == {"a": EXCEEDED}
    engine.remove_node("a")
    tell(engine, node("b"))
    assert place(engine, pod("p", "d1")) == "b"
    for index in range(200):
        tell(engine, node(f"more-{index}"))
    tell(engine, node("a"), csi_node("more-7", 0))
    assert set(refused(engine, pod("q", "d2"))) == {"a", "more-7"}


def test_pods_with_their_own_equal_volumes_share_a_shape() -> None:
    engine = engine_with(node("a"), csi_node("a", 40), *disks(4))
    profile = engine.profile(pod("p"))
    assert len({profile.shape(pod(f"p{i}", f"d{i}")).number for i in range(4)}) == 1
    work = engine.tables.work
    for index in range(4):
        assert place(engine, pod(f"p{index}", f"d{index}")) == "a"
    assert work.rebuilt == 1


# -- queueing hints


def of_kind(document: dict[str, Any]) -> Any:
    return view(document, VIEWS[document["kind"]])


@pytest.mark.parametrize(
    ("plugin", "action", "old", "new", "wakes"),
    [
        ("VolumeBinding", Action.ADD, None, claim("d"), True),
        ("VolumeBinding", Action.UPDATE_OTHER, claim("d"), claim("d", bound="v"), True),
        ("VolumeBinding", Action.ADD, None, claim("other"), False),
        ("VolumeBinding", Action.ADD, None, claim("d", namespace="other"), False),
        ("VolumeBinding", Action.ADD, None, volume("v"), True),
        ("VolumeBinding", Action.ADD, None, storage_class("x"), True),
        ("VolumeBinding", Action.UPDATE_OTHER, storage_class("x"), storage_class("x", topologies=[{HOST: ["a"]}]), True),
        ("VolumeBinding", Action.UPDATE_OTHER, storage_class("x"), storage_class("x"), False),
        ("VolumeZone", Action.ADD, None, storage_class("x"), True),
        ("VolumeZone", Action.ADD, None, storage_class("x", waits=False), False),
        ("VolumeZone", Action.UPDATE_OTHER, volume("v"), volume("v", labels={ZONE: "z"}), True),
        ("VolumeZone", Action.UPDATE_OTHER, volume("v"), volume("v", labels={"x": "z"}), False),
        ("VolumeRestrictions", Action.ADD, None, claim("d"), True),
        ("VolumeRestrictions", Action.ADD, None, claim("e"), False),
        ("NodeVolumeLimits", Action.ADD, None, csi_node("a", 1), True),
        ("NodeVolumeLimits", Action.UPDATE_OTHER, csi_node("a", 1), csi_node("a", 2), True),
        ("NodeVolumeLimits", Action.UPDATE_OTHER, csi_node("a", 2), csi_node("a", 1), False),
        ("NodeVolumeLimits", Action.DELETE, attachment("x", "a", "v"), None, True),
    ],
)  # fmt: skip
def test_events_that_wake_a_pod_with_volumes(plugin: str, action: Action, old: Any, new: Any, wakes: bool) -> None:
    known = new or old
    event = ClusterEvent(known["kind"], action, old and of_kind(old), new and of_kind(new))
    assert engine_with(node("a")).wakes(pod("p", "d"), (plugin,), event) is wakes


@pytest.mark.parametrize(
    ("plugin", "gone", "wakes"),
    [
        ("VolumeRestrictions", pod("x", "d", on="a"), True),
        ("VolumeRestrictions", pod("x", "e", on="a"), False),
        ("VolumeRestrictions", pod("x", "d", on="a", namespace="other"), False),
        ("NodeVolumeLimits", pod("x", "e", on="a"), True),
        ("NodeVolumeLimits", pod("x", on="a"), False),
        ("NodeVolumeLimits", pod("x", "e"), False),
    ],
)
def test_deleted_pods_wake_a_pod_with_volumes(plugin: str, gone: Any, wakes: bool) -> None:
    event = ClusterEvent("Pod", Action.DELETE, gone, None)
    assert engine_with(node("a")).wakes(pod("p", "d"), (plugin,), event) is wakes
