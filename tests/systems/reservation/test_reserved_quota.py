"""What reservations take of quotas, told on the quotas of clusters whose own controller does not count it."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.controllers.world import World

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import NODES, PODS, RESOURCE_QUOTAS
from wharfinger.api.registry import Document
from wharfinger.systems.reservation.controllers.quotas import RESERVED
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.settings import ReservationSettings

CHARGED = Configuration().having(ReservationSettings(charge_quota=True))


def pod(name: str, cpu: str, app: str) -> Document:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "labels": {"app": app}}, "spec": {"containers": [container]}}


def reservation(name: str, cpu: str) -> Document:
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    return {"metadata": {"name": name}, "spec": {"template": pod("", cpu, "web"), "owners": owners}}


def quota(name: str, **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": {"hard": {"requests.cpu": "4", "pods": "10"}, **spec}}


def taken(world: World, name: str = "q") -> dict[str, str] | None:
    text = (world.get(RESOURCE_QUOTAS, name)["metadata"].get("annotations") or {}).get(RESERVED)
    return None if text is None else msgspec.json.decode(text, type=dict[str, str])


def running(configuration: Configuration) -> World:
    world = World(nodes=1, controllers=("reservedquota",))
    world.configuration = configuration
    world.restart()
    for each in (quota("q"), quota("scoped", scopes=["BestEffort"])):
        each["spec"]["hard"] = {"pods": "10"} if "scopes" in each["spec"] else each["spec"]["hard"]
        world.apply(RESOURCE_QUOTAS, each)
    return world


def test_the_annotation_follows_reservations_and_their_owners() -> None:
    with running(CHARGED) as world:
        assert taken(world) is None
        world.apply(RESERVATIONS, reservation("r", "3"))
        assert taken(world) == {"requests.cpu": "3"}  # of the names that the quota limits
        assert taken(world, "scoped") is None
        world.apply(RESERVATIONS, reservation("s", "500m"))
        assert taken(world) == {"requests.cpu": "3500m"}
        owner = pod("owner", "500m", "web")
        owner["spec"]["schedulingGates"] = [{"name": "not-yet"}]
        world.apply(PODS, owner)
        assert taken(world) == {
            "requests.cpu": "3500m"
        }  # none of them holds a node, so the owner is charged beside them
        (node,) = world.list(NODES)
        held = {"phase": "Available", "nodeName": node["metadata"]["name"], "allocatable": {"cpu": "3"}}
        world.patch(RESERVATIONS, "r", {"status": held}, "", subresource="status")
        assert taken(world) == {"requests.cpu": "3"}  # it will use this one, and stands for a part of it from now on
        for name in ("r", "s"):
            world.delete(RESERVATIONS, name)
        assert taken(world) is None


def test_nothing_is_told_where_reservations_are_not_charged() -> None:
    with running(Configuration()) as world:
        world.apply(RESERVATIONS, reservation("r", "3"))
        assert taken(world) is None
