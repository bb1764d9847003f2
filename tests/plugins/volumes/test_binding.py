"""VolumeBinding: which nodes a pod's claims allow, which volumes are chosen, and what is reserved and written."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.plugins.volumes.objects import (
    HOST,
    SELECTED,
    ZONE,
    claim,
    driver,
    engine_with,
    node,
    place,
    pod,
    pool,
    refused,
    storage_class,
    tell,
    volume,
    whole,
)

from wharfinger.api.quantity import value
from wharfinger.engine import Engine, default_profile
from wharfinger.framework.prebinding import Preparation

UNRESOLVABLE = "UnschedulableAndUnresolvable"
CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

LOCAL = storage_class("local")


def versioned(document: Any, version: str) -> Any:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": version}}


NODES = (node("a", zone="z1"), node("b", zone="z2"), node("c", zone="z2"))


@pytest.mark.parametrize(
    ("claims", "asking", "message"),
    [
        ((), pod("p", "data"), None),  # VolumeRestrictions refuses it first, with the same reason
        ((), pod("p", ephemeral=["x"]), 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-x"'),
        (
            (claim("p-x", bound="v"),),
            pod("p", ephemeral=["x"]),
            "PVC default/p-x was not created for pod default/p (pod is not owner)",
        ),
        (
            (claim("data", bound="gone", phase="Lost") | {"status": {"phase": "Lost"}},),
            pod("p", "data"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"',
        ),
        ((claim("data", deleted=True),), pod("p", "data"), 'persistentvolumeclaim "data" is being deleted'),
        ((claim("data", storage_class=""),), pod("p", "data"), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim("data", storage_class="unknown"),), pod("p", "data"), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim("data", storage_class="now"),), pod("p", "data"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            (claim("data", volumeName="static"),),  # names a volume, but is not bound to it yet
            pod("p", "data"),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)  # fmt: skip
def test_pods_whose_claims_are_not_ready_are_refused_as_a_whole(
    claims: tuple[Any, ...], asking: Any, message: str | None
) -> None:
    engine = engine_with(*NODES, LOCAL, storage_class("now", "disk.example.com", waits=False), *claims)
    plugin, code, text = whole(engine, asking)
    assert code == UNRESOLVABLE
    if message is None:
        assert (plugin, text) == ("VolumeRestrictions", 'persistentvolumeclaim "data" not found')
    else:
        assert (plugin, text) == ("VolumeBinding", message)


def test_bound_volumes_admit_the_nodes_of_their_affinity() -> None:
    engine = engine_with(*NODES, volume("v", only={ZONE: ["z2"]}), claim("data", bound="v"))
    assert refused(engine, pod("p", "data")) == {"a": ("VolumeBinding", UNRESOLVABLE, (CONFLICT,))}
    tell(engine, volume("v", only={ZONE: ["z1", "z3"]}))
    assert set(refused(engine, pod("p", "data"))) == {"b", "c"}
    assert place(engine, pod("p", "data")) == "a"


def test_a_missing_volume_refuses_the_nodes_that_earlier_volumes_allow() -> None:
    engine = Engine([default_profile(without=["VolumeZone"])])  # which would refuse the pod as a whole
    tell(engine, *NODES, volume("v", only={ZONE: ["z1"]}), claim("first", bound="v"), claim("second", bound="gone"))
    found = {name: status[2] for name, status in refused(engine, pod("p", "first", "second")).items()}
    assert found == {"a": (GONE,), "b": (CONFLICT,), "c": (CONFLICT,)}
    assert {status[2] for status in refused(engine, pod("p", "second", "first")).values()} == {(GONE,)}


def test_an_ephemeral_claim_is_treated_like_any_other() -> None:
    engine = engine_with(*NODES, volume("v", only={HOST: ["c"]}), claim("p-scratch", bound="v", owner="uid-p"))
    assert place(engine, pod("p", ephemeral=["scratch"])) == "c"


@pytest.mark.parametrize(
    ("volumes", "wanted", "taken"),
    [
        ([volume("small", "4Gi", storage_class="local"), volume("big", "9Gi", storage_class="local")], claim("d"), "big"),
        ([volume("x", "9Gi", storage_class="local"), volume("y", "6Gi", storage_class="local")], claim("d"), "y"),
        ([volume("x", storage_class="other"), volume("y", storage_class="")], claim("d"), None),
        ([volume("x", storage_class="local", phase="Released")], claim("d"), None),
        ([volume("x", storage_class="local", phase="")], claim("d"), None),
        ([volume("x", storage_class="local", volumeMode="Block")], claim("d"), None),
        ([volume("x", storage_class="local", volumeMode="Block")], claim("d", volumeMode="Block"), "x"),
        ([volume("x", storage_class="local", modes=["ReadOnlyMany"])], claim("d"), None),
        ([volume("x", storage_class="local", modes=["ReadOnlyMany", "ReadWriteOnce"])], claim("d"), "x"),
        ([volume("x", storage_class="local", volumeAttributesClassName="gold")], claim("d"), None),
        (
            [volume("x", storage_class="local"), volume("y", "20Gi", storage_class="local", labels={"disk": "ssd"})],
            claim("d", selector={"matchLabels": {"disk": "ssd"}}),
            "y",
        ),
        ([volume("x", storage_class="local", claim="default/other")], claim("d"), None),
        ([volume("x", "9Gi", storage_class="local", claim="default/d"), volume("y", "6Gi", storage_class="local")], claim("d"), "x"),
        ([volume("x", storage_class="local", claim="default/d", uid="uid-d", phase="Bound")], claim("d"), "x"),
        ([volume("x", storage_class="local", claim="default/d", uid="another")], claim("d"), None),
        ([volume("x", "4Gi", storage_class="local", claim="default/d")], claim("d"), None),
        ([volume("x", storage_class="local", modes=[], claim="default/d", labels={})], claim("d"), "x"),
    ],
)  # fmt: skip
def test_a_waiting_claim_takes_the_smallest_volume_that_matches(
    volumes: list[Any], wanted: Any, taken: str | None
) -> None:
    engine = engine_with(node("a"), LOCAL, *volumes, wanted)
    if taken is None:
        assert refused(engine, pod("p", "d")) == {"a": ("VolumeBinding", UNRESOLVABLE, (NO_MATCH,))}
        return
    assert place(engine, pod("p", "d")) == "a"
    assert volumes_for(engine, pod("p", "d")) == [taken]


def test_volumes_are_matched_on_the_nodes_they_can_be_used_on() -> None:
    engine = engine_with(*NODES, LOCAL, claim("d"), volume("x", storage_class="local", only={HOST: ["b"]}))
    assert {name: status[2] for name, status in refused(engine, pod("p", "d")).items()} == {
        "a": (NO_MATCH,),
        "c": (NO_MATCH,),
    }
    assert place(engine, pod("p", "d")) == "b"
    # A volume with a claimRef to the claim is taken, even if others match.
    engine = engine_with(
        *NODES,
        LOCAL,
        claim("d"),
        volume("mine", storage_class="local", claim="default/d", only={HOST: ["c"]}),
        *(volume(f"free-{name}", storage_class="local", only={HOST: [name]}) for name in "abc"),
    )
    assert place(engine, pod("p", "d")) == "c"


def test_several_claims_do_not_take_the_same_volume() -> None:
    both = pod("p", "large", "small")
    engine = engine_with(*NODES, LOCAL, claim("large", "8Gi"), claim("small", "2Gi"))
    tell(engine, volume("a1", "9Gi", storage_class="local", only={HOST: ["a"]}))
    assert set(refused(engine, both)) == {"a", "b", "c"}
    tell(engine, volume("b1", "10Gi", storage_class="local", only={HOST: ["b"]}))
    tell(engine, volume("b2", "9Gi", storage_class="local", only={HOST: ["b"]}))
    assert set(refused(engine, both)) == {"a", "c"}
    assert place(engine, both) == "b"
    # The smaller claim chooses first and takes the smallest.
    plan = engine.preparations(both, "b")[0][1]
    chosen = {write.name: write.patch["spec"]["claimRef"]["name"] for write in plan.writes}
    assert chosen == {"b2": "small", "b1": "large"}


def test_two_pods_that_race_for_the_last_volume() -> None:
    engine = engine_with(
        *NODES, LOCAL, claim("one"), claim("two"), volume("v", storage_class="local", only={HOST: ["b"]})
    )
    first, second = pod("first", "one"), pod("second", "two")
    assert place(engine, first) == "b"
    assert place(engine, second) is None
    engine.forget(first)
    assert place(engine, second) == "b"
    assert place(engine, first) is None
    tell(engine, volume("w", storage_class="local"))  # usable anywhere
    assert place(engine, first) is not None


def test_updates_from_the_api_server_replace_assumptions() -> None:
    engine = engine_with(*NODES, LOCAL, claim("one"), claim("two"), volume("v", storage_class="local"))
    assert place(engine, pod("first", "one")) is not None
    tell(engine, volume("v", storage_class="local", claim="default/other", uid="x", phase="Bound"))
    tell(engine, volume("w", storage_class="local", only={HOST: ["c"]}))
    assert place(engine, pod("second", "two")) == "c"


DYNAMIC = storage_class("dynamic", "disk.example.com")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ((DYNAMIC,), {}),
        ((storage_class("dynamic"),), {"a": NO_MATCH, "b": NO_MATCH, "c": NO_MATCH}),
        ((storage_class("dynamic", "disk.example.com", topologies=[{ZONE: ["z2", "z9"]}]),), {"a": NO_MATCH}),
        (
            (storage_class("dynamic", "disk.example.com", topologies=[{ZONE: ["z2"], HOST: ["b"]}, {HOST: ["a"]}]),),
            {"c": NO_MATCH},
        ),
        ((storage_class("dynamic", "disk.example.com", topologies=[{}]),), {"a": NO_MATCH, "b": NO_MATCH, "c": NO_MATCH}),
        ((DYNAMIC, driver(capacity=False)), {}),
        ((DYNAMIC, driver()), {"a": NO_SPACE, "b": NO_SPACE, "c": NO_SPACE}),
        ((DYNAMIC, driver(), pool("p1", "5Gi", "z1")), {"b": NO_SPACE, "c": NO_SPACE}),
        ((DYNAMIC, driver(), pool("p1", "5120Mi", "z1"), pool("p2", "5Gi", "z2")), {}),
        ((DYNAMIC, driver(), pool("p1", "4Gi", "z1"), pool("p2", "9Gi", "z2")), {"a": NO_SPACE}),
        ((DYNAMIC, driver(), pool("p1", "99Gi", "z1", largest="4Gi")), {"a": NO_SPACE, "b": NO_SPACE, "c": NO_SPACE}),
        ((DYNAMIC, driver(), pool("p1", None, "z1")), {"a": NO_SPACE, "b": NO_SPACE, "c": NO_SPACE}),
        ((DYNAMIC, driver(), pool("p1", "9Gi", "z1", storage_class="x")), {"a": NO_SPACE, "b": NO_SPACE, "c": NO_SPACE}),
    ],
)  # fmt: skip
def test_provisioning_honours_topologies_and_capacity(objects: tuple[Any, ...], expected: dict[str, str]) -> None:
    engine = engine_with(*NODES, *objects, claim("d", storage_class="dynamic"))
    found = {name: status[2] for name, status in refused(engine, pod("p", "d")).items()}
    assert found == {name: (reason,) for name, reason in expected.items()}


def test_a_node_that_was_selected_stays_selected() -> None:
    engine = engine_with(*NODES, DYNAMIC, claim("d", storage_class="dynamic", selected="b"))
    assert {name: status[2] for name, status in refused(engine, pod("p", "d")).items()} == {
        "a": (NO_MATCH,),
        "c": (NO_MATCH,),
    }
    assert place(engine, pod("p", "d")) == "b"
    # Another pod with the same claim goes to the same node, even before anything is written.
    engine = engine_with(*NODES, DYNAMIC, claim("d", storage_class="dynamic"))
    chosen = place(engine, pod("p", "d"))
    assert place(engine, pod("q", "d")) == chosen
    assert set(refused(engine, pod("r", "d"))) == {"a", "b", "c"} - {chosen}
    engine.forget(pod("p", "d"))
    assert set(refused(engine, pod("r", "d"))) == {"a", "b", "c"} - {chosen}
    engine.forget(pod("q", "d"))
    assert refused(engine, pod("r", "d")) == {}


def test_reasons_of_one_node_are_listed_together() -> None:
    engine = engine_with(
        *NODES,
        DYNAMIC,
        driver(),
        volume("v", only={ZONE: ["z1"]}),
        claim("have", bound="v"),
        claim("d", storage_class="dynamic"),
    )
    assert {name: status[2] for name, status in refused(engine, pod("p", "have", "d")).items()} == {
        "a": (NO_SPACE,),
        "b": (CONFLICT, NO_SPACE),
        "c": (CONFLICT, NO_SPACE),
    }


def test_pods_with_equal_volumes_share_a_shape() -> None:
    engine = engine_with(
        *NODES,
        *(volume(f"v{i}", only={ZONE: ["z2"]}) for i in range(5)),
        *(claim(f"d{i}", bound=f"v{i}") for i in range(5)),
    )
    profile = engine.profile(pod("p"))
    assert profile.shape(pod("p")).extra is None
    assert len({profile.shape(pod(f"p{i}", f"d{i}")).number for i in range(5)}) == 1
    tell(engine, volume("v3", only={ZONE: ["z1"]}))
    assert profile.shape(pod("p3", "d3")).number != profile.shape(pod("p1", "d1")).number


# -- before binding


def test_a_static_binding_is_written_and_waited_for() -> None:
    engine = engine_with(*NODES, LOCAL, versioned(claim("d"), "7"), versioned(volume("v", storage_class="local"), "3"))
    asking = pod("p", "d")
    chosen = place(engine, asking)
    assert chosen is not None
    ((plugin, step),) = engine.preparations(asking, chosen)
    (write,) = step.writes
    assert plugin == "VolumeBinding" and (write.kind, write.namespace, write.name) == ("PersistentVolume", "", "v")
    assert write.patch == {
        "metadata": {"resourceVersion": "3", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": "d",
                "uid": "uid-d",
                "resourceVersion": "7",
            }
        },
    }
    assert step.check() is None  # the write has not been observed yet
    tell(engine, versioned(volume("v", storage_class="local", claim="default/d", uid="uid-d"), "4"))
    assert step.check() is None
    assert ("PersistentVolumeClaim", "default", "d") in step.watched() and (
        "PersistentVolume",
        "",
        "v",
    ) in step.watched()
    tell(engine, versioned(claim("d", bound="v"), "8"))
    assert verdict(step) == ""


def test_provisioning_is_written_and_waited_for() -> None:
    engine = engine_with(*NODES, DYNAMIC, versioned(claim("d", storage_class="dynamic"), "7"))
    asking = pod("p", "d")
    chosen = place(engine, asking)
    assert chosen is not None
    ((_, step),) = engine.preparations(asking, chosen)
    (write,) = step.writes
    assert write.kind == "PersistentVolumeClaim"
    assert write.patch == {"metadata": {"resourceVersion": "7", "annotations": {SELECTED: chosen}}}
    tell(engine, versioned(claim("d", storage_class="dynamic", selected=chosen), "8"))
    assert step.check() is None
    tell(engine, versioned(claim("d", storage_class="dynamic", selected=chosen, bound="new"), "9"))
    assert step.check() is None  # the volume has not been observed yet
    assert ("PersistentVolume", "", "new") in step.watched()
    tell(engine, versioned(volume("new", only={HOST: [chosen]}), "10"))
    assert verdict(step) == ""


def test_a_restarted_scheduler_continues_where_the_previous_one_stopped() -> None:
    """The previous scheduler selected the node and bound the volume to the claim: nothing is left to write."""
    selected = claim("d", storage_class="dynamic", selected="b")
    engine = engine_with(*NODES, DYNAMIC, selected)
    assert place(engine, pod("p", "d")) == "b"
    ((_, step),) = engine.preparations(pod("p", "d"), "b")
    assert step.writes == () and step.check() is None
    static = volume("v", storage_class="local", only={HOST: ["c"]}, claim="default/s", uid="uid-s")
    engine = engine_with(*NODES, LOCAL, claim("s"), static)
    assert place(engine, pod("p", "s")) == "c"
    ((_, step),) = engine.preparations(pod("p", "s"), "c")
    assert step.writes == () and step.check() is None


@pytest.mark.parametrize(
    ("happens", "message"),
    [
        (versioned(claim("d", storage_class="dynamic"), "8"), 'selectedNode annotation reset for PVC "d"'),
        (versioned({**claim("d", storage_class="dynamic"), "metadata": {**claim("d")["metadata"], "annotations": {"x": "y"}}}, "8"), 'provisioning failed for PVC "d"'),
        (versioned(claim("d", storage_class="dynamic", selected="z"), "8"), 'provisioning failed for PVC "d"'),
        (None, 'failed to check provisioning pvc: persistentvolumeclaims "default/d" not found'),
        ("node", 'failed to get node "a": node "a" not found'),
        ("pod", 'pod does not exist any more: pod "p" not found'),
        ("volume", 'pv "v" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
    ],
)  # fmt: skip
def test_what_ends_the_wait_for_a_volume(happens: Any, message: str) -> None:
    engine = engine_with(node("a"), DYNAMIC, versioned(claim("d", storage_class="dynamic"), "7"))
    asking = pod("p", "d")
    place(engine, asking)
    ((_, step),) = engine.preparations(asking, "a")
    if happens is None:
        engine.apply("PersistentVolumeClaim", claim("d"), deleted=True)
    elif happens == "node":
        engine.remove_node("a")
    elif happens == "pod":
        engine.remove_pod("default", "p")
    elif happens == "volume":
        tell(engine, volume("v", only={HOST: ["b"]}))
        tell(engine, versioned(claim("d", storage_class="dynamic", selected="a", bound="v"), "8"))
    else:
        tell(engine, happens)
    assert verdict(step) == f"binding volumes: {message}"
    # After it is undone, nothing is left.
    engine.forget(asking)
    assert not engine.tables.shared["volumes"].plans
    assert not engine.tables.shared["volumes"]._assumed_nodes


def test_a_static_binding_whose_reference_is_reset_fails() -> None:
    engine = engine_with(node("a"), LOCAL, claim("d"), versioned(volume("v", storage_class="local"), "3"))
    place(engine, pod("p", "d"))
    ((_, step),) = engine.preparations(pod("p", "d"), "a")
    tell(engine, versioned(volume("v", storage_class="local"), "4"))
    assert verdict(step) == 'binding volumes: ClaimRef got reset for pv "v"'


def test_bound_pods_need_no_preparation_and_a_commit_ends_it() -> None:
    engine = engine_with(
        node("a"), LOCAL, volume("v"), claim("have", bound="v"), volume("w", storage_class="local"), claim("d")
    )
    assert place(engine, pod("p", "have")) == "a"
    assert engine.preparations(pod("p", "have"), "a") == []
    assert place(engine, pod("q", "d")) == "a"
    engine.commit(pod("q", "d"))
    assert engine.preparations(pod("q", "d"), "a") == []


# -- compared with the rules, node by node


def test_the_answers_equal_the_rules_applied_node_by_node() -> None:
    rng = random.Random(12)
    for _ in range(60):
        nodes = [node(f"n{i}", zone=rng.choice(["z1", "z2"])) for i in range(rng.randint(1, 6))]
        volumes = []
        for index in range(rng.randint(0, 8)):
            only: Any = rng.choice([None, {ZONE: [rng.choice(["z1", "z2"])]}, {HOST: [f"n{rng.randint(0, 6)}"]}])
            volumes.append(
                volume(
                    f"v{index}",
                    f"{rng.randint(1, 9)}Gi",
                    storage_class=rng.choice(["local", "dynamic"]),
                    only=only,
                    phase=rng.choice(["Available", "Available", "Available", "Released"]),
                )
            )
        wanted = [
            claim(f"d{i}", f"{rng.randint(1, 9)}Gi", storage_class=rng.choice(["local", "dynamic"]))
            for i in range(rng.randint(1, 3))
        ]
        allowed = rng.choice([None, [{ZONE: ["z1"]}]])
        classes = [LOCAL, storage_class("dynamic", "disk.example.com", topologies=allowed)]
        pools = [pool("p1", f"{rng.randint(1, 9)}Gi", "z1"), pool("p2", f"{rng.randint(1, 9)}Gi", "z2")]
        limited = rng.random() < 0.5
        objects = [*nodes, *classes, *volumes, *wanted, *([driver(), *pools] if limited else [])]
        engine = engine_with(*nodes)
        rest = objects[len(nodes) :]
        rng.shuffle(rest)
        asking = pod("p", *(each["metadata"]["name"] for each in wanted))
        for document in rest:
            tell(engine, document)
            if rng.random() < 0.3 and len(engine.tables.shared["volumes"].claims) == len(wanted):
                engine.schedule(asking)  # so that later objects change cached answers
        expected = {
            each.metadata.name: judged(each, volumes, wanted, allowed, pools if limited else None) for each in nodes
        }
        found = {each.metadata.name: refused(engine, asking).get(each.metadata.name, ("", "", ()))[2] for each in nodes}
        assert found == expected
        decision = engine.schedule(asking)
        assert (decision.node is None) == all(expected.values())
        assert decision.node is None or not expected[decision.node]


def judged(on: Any, volumes: list[Any], wanted: list[Any], allowed: Any, pools: Any) -> tuple[str, ...]:
    labels = on.metadata.labels
    taken: set[str] = set()
    unmatched = []
    for each in sorted(wanted, key=lambda each: value(each["spec"]["resources"]["requests"]["storage"])):
        size = value(each["spec"]["resources"]["requests"]["storage"])
        fitting = [
            (value(one["spec"]["capacity"]["storage"]), one["metadata"]["name"])
            for one in volumes
            if one["metadata"]["name"] not in taken
            and one["status"]["phase"] == "Available"
            and one["spec"]["storageClassName"] == each["spec"]["storageClassName"]
            and value(one["spec"]["capacity"]["storage"]) >= size
            and usable(one, labels)
        ]
        if fitting:
            taken.add(min(fitting)[1])
        else:
            unmatched.append((each["spec"]["storageClassName"], size))
    for class_name, size in unmatched:
        if class_name == "local" or (allowed is not None and labels[ZONE] not in allowed[0][ZONE]):
            return (NO_MATCH,)
        if pools is not None and not any(
            value(each["capacity"]) >= size and each["nodeTopology"]["matchLabels"][ZONE] == labels[ZONE]
            for each in pools
        ):
            return (NO_SPACE,)
    return ()


def usable(one: Any, labels: dict[str, str]) -> bool:
    affinity = one["spec"].get("nodeAffinity")
    if affinity is None:
        return True
    terms = affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"]
    return all(labels.get(term["key"]) in term["values"] for term in terms)


# -- helpers


def volumes_for(engine: Engine, asking: Any) -> list[str]:
    return [name for name, _ in engine.tables.shared["volumes"].plans[asking.metadata.key].bindings]


def verdict(step: Preparation) -> str:
    status = step.check()
    assert status is not None
    return status.message
