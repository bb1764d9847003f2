"""Garbage collection by owner references, and deletion of namespaces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.controllers.world import World, workload

from wharfinger.api.kinds.builtin import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.apiserver.custom_resources import CustomResources
from wharfinger.controllers.pod_gc import SWEEP, PodGarbageCollector


def config(name: str, *owners: Document, block: bool = False, **metadata: Any) -> Document:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": references, **metadata},
    }


def test_background_deletion_of_several_levels() -> None:
    with World(nodes=1) as world:
        top = world.apply(CONFIG_MAPS, config("top"))
        middle = world.apply(CONFIG_MAPS, config("middle", top))
        world.apply(CONFIG_MAPS, config("leaf", middle))
        world.apply(CONFIG_MAPS, config("bystander"))
        world.delete(CONFIG_MAPS, "top", propagation="Background")
        assert [each["metadata"]["name"] for each in world.list(CONFIG_MAPS)] == ["bystander"]


def test_an_object_with_another_owner_is_kept_and_the_dangling_reference_removed() -> None:
    with World(nodes=1) as world:
        first, second = world.apply(CONFIG_MAPS, config("first")), world.apply(CONFIG_MAPS, config("second"))
        world.apply(CONFIG_MAPS, config("shared", first, second))
        world.delete(CONFIG_MAPS, "first")
        shared = world.get(CONFIG_MAPS, "shared")
        assert [owner["name"] for owner in shared["metadata"]["ownerReferences"]] == ["second"]


def test_foreground_deletion_waits_for_blocking_dependents_only() -> None:
    with World(nodes=1) as world:
        owner = world.apply(CONFIG_MAPS, config("owner"))
        world.apply(CONFIG_MAPS, config("blocking", owner, block=True, finalizers=["example.com/hold"]))
        world.apply(CONFIG_MAPS, config("loose", owner, finalizers=["example.com/hold"]))
        world.delete(CONFIG_MAPS, "owner", propagation="Foreground")
        assert world.get(CONFIG_MAPS, "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert world.get(CONFIG_MAPS, "blocking")["metadata"]["deletionTimestamp"]
        world.patch(CONFIG_MAPS, "blocking", {"metadata": {"finalizers": None}})
        assert not world.exists(CONFIG_MAPS, "owner")
        assert world.get(CONFIG_MAPS, "loose")["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_foreground_deletion_is_not_blocked_by_a_circle_of_owners(length: int) -> None:
    with World(nodes=1) as world:
        made = [world.apply(CONFIG_MAPS, config(f"member-{index}")) for index in range(length)]
        for index, one in enumerate(made):
            references = config("", one, block=True)["metadata"]["ownerReferences"]
            follower = f"member-{(index + 1) % length}"
            world.patch(CONFIG_MAPS, follower, {"metadata": {"ownerReferences": references}})
        world.delete(CONFIG_MAPS, "member-0", propagation="Foreground")
        assert world.list(CONFIG_MAPS) == []


def test_orphaning_keeps_dependents() -> None:
    with World(nodes=1) as world:
        owner = world.apply(CONFIG_MAPS, config("owner"))
        world.apply(CONFIG_MAPS, config("child", owner))
        world.delete(CONFIG_MAPS, "owner", propagation="Orphan")
        assert not world.exists(CONFIG_MAPS, "owner")
        assert not world.get(CONFIG_MAPS, "child")["metadata"].get("ownerReferences")


def test_an_owner_of_the_same_name_with_another_uid_does_not_count() -> None:
    with World(nodes=1) as world:
        owner = world.apply(CONFIG_MAPS, config("owner"))
        stranger = {**owner, "metadata": {**owner["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
        world.apply(CONFIG_MAPS, config("child", stranger))
        assert not world.exists(CONFIG_MAPS, "child")
        assert world.exists(CONFIG_MAPS, "owner")


def test_cluster_scoped_owners_and_deletions_missed_before_a_restart() -> None:
    with World(nodes=2) as world:
        world.apply(CONFIG_MAPS, config("of-node", {**world.get(NODES, "node-2")}))
        assert world.exists(CONFIG_MAPS, "of-node")
        world.loop.complete(world.client.delete(NODES, "node-2"))
        world.restart()
        assert not world.exists(CONFIG_MAPS, "of-node")


def definition(*versions: str, served: str) -> Document:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [
                {
                    "name": name,
                    "served": name in served,
                    "storage": name == versions[0],
                    "schema": {"openAPIV3Schema": schema},
                }
                for name in versions
            ],
        },
    }


def test_custom_kinds_are_followed_while_they_are_defined_in_a_version_that_is_served() -> None:
    old, new = (Resource("example.com", version, "widgets", "Widget", True) for version in ("v1", "v2"))

    def followed() -> list[str]:
        tasks = asyncio.all_tasks(world.loop)
        return [task.get_name() for task in tasks if "widgets" in task.get_name()]

    def collected(resource: Resource) -> bool:
        widget = world.apply(resource, {"metadata": {"name": "owner"}})
        world.apply(CONFIG_MAPS, config("dependent", widget))
        world.delete(resource, "owner", propagation="Background")
        return not world.exists(CONFIG_MAPS, "dependent")

    with World(nodes=1) as world:
        world._do(CustomResources(world.store, lambda kind: None).start())
        for _ in range(2):
            world.apply(CUSTOM_RESOURCE_DEFINITIONS, definition("v1", "v2", served="v1 v2"))
            assert len(followed()) == 1
            assert collected(old)
            versions = definition("v1", "v2", served="v2")["spec"]["versions"]
            world.patch(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com", {"spec": {"versions": versions}})
            assert len(followed()) == 1
            assert collected(new)
            widget = world.apply(new, {"metadata": {"name": "last"}})
            world.apply(CONFIG_MAPS, config("of-the-last", widget))
            world.delete(CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
            assert followed() == []
            world.advance(120)
            assert followed() == []
            assert world.exists(CONFIG_MAPS, "of-the-last"), "nothing is known of an owner whose kind is not served"
            world.delete(CONFIG_MAPS, "of-the-last")


def test_a_namespace_is_emptied_and_every_new_one_has_a_service_account() -> None:
    with World(nodes=1) as world:
        world.apply(NAMESPACES, {"metadata": {"name": "team"}})
        assert world.exists(SERVICE_ACCOUNTS, "default", "team")
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=3), "team")
        world.create(CONFIG_MAPS, config("settings"), "team")
        assert len(world.list(PODS, "team")) == 3
        world.delete(NAMESPACES, "team")
        world.advance(5)
        assert not world.exists(NAMESPACES, "team")
        assert world.list(PODS, "team") == []
        assert world.list(CONFIG_MAPS, "team") == []


def test_conditions_of_a_terminating_namespace() -> None:
    with World(nodes=1) as world:
        world.apply(NAMESPACES, {"metadata": {"name": "team"}})
        world.create(CONFIG_MAPS, config("held", finalizers=["example.com/hold"]), "team")
        world.delete(NAMESPACES, "team")
        conditions = {c["type"]: c for c in world.get(NAMESPACES, "team")["status"]["conditions"]}
        assert conditions["NamespaceFinalizersRemaining"]["message"] == (
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        )
        assert conditions["NamespaceContentRemaining"]["message"] == (
            "Some resources are remaining: configmaps. has 1 resource instances"
        )
        world.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, "team")
        world.advance(100)
        assert not world.exists(NAMESPACES, "team")


def test_the_oldest_finished_pods_beyond_the_limit_are_deleted() -> None:
    def ended(name: str, phase: str) -> None:
        world.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
        world.settle()
        world.patch(PODS, name, {"status": {"phase": phase}}, subresource="status")
        world.advance(2)

    with World(nodes=1, controllers=("podgc",)) as world:
        collector = next(each for each in world.controllers if isinstance(each, PodGarbageCollector))
        collector.finished_limit = 2
        for number in range(4):
            ended(f"done-{number}", "Succeeded" if number % 2 else "Failed")
        ended("gone", "Succeeded")
        world.delete(PODS, "gone", grace_period=0)
        world.apply(PODS, {"metadata": {"name": "runs"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
        world.advance(2 * SWEEP)
        assert sorted(each["metadata"]["name"] for each in world.list(PODS)) == ["done-2", "done-3", "runs"]
