"""The agent of a member cluster: health, lease and scores, also after a pause of either side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.systems.placement.hub import Hub, add_on, binding, built_in, cluster, exact, placement
from tests.systems.placement.members import Member, node, pod

from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.kinds.builtin import LEASES, NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views import Pod
from wharfinger.api.views.base import view
from wharfinger.client.local import LocalClient
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES, MANAGED_CLUSTERS
from wharfinger.systems.placement.scores.agent import Scales, scores_of, usage_of

AVAILABLE = "ManagedClusterConditionAvailable"


def accept(hub: Hub, name: str, **spec: Any) -> None:
    hub.patch(MANAGED_CLUSTERS, name, {"spec": {"hubAcceptsClient": True, **spec}})


def available(hub: Hub, name: str) -> str:
    conditions = (hub.get(MANAGED_CLUSTERS, name).get("status") or {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == AVAILABLE), "")


def test_agents_report_health_and_scores_and_a_silent_one_is_left() -> None:
    with Hub(implicit=False) as hub:
        members = {name: Member(hub, name, cpu) for name, cpu in (("east", "4"), ("west", "8"))}
        policy = exact(add_on(1, "resource-usage", "cpuAvailable"))
        hub.apply(binding(), placement(1, prioritizerPolicy=policy))
        for member in members.values():
            member.start(hub)
        assert hub.get(MANAGED_CLUSTERS, "west")["spec"]["hubAcceptsClient"] is False
        assert hub.selected() == []  # nobody has let them in yet
        for name in members:
            hub.patch(MANAGED_CLUSTERS, name, {"spec": {"hubAcceptsClient": True}})
        hub.advance(61)
        west = hub.get(MANAGED_CLUSTERS, "west")
        assert west["status"]["allocatable"] == {"cpu": "8", "memory": "8Gi"}
        assert west["status"]["version"] == {"kubernetes": "v1.37.1"}
        assert {"name": "zone", "value": "west"} in west["status"]["clusterClaims"]
        assert hub.find(LEASES, "managed-cluster-lease", "west") is not None
        assert hub.selected() == ["west"]
        hub.run(members["west"].client.create(PODS, pod("big", "n1", "7"), "default"))
        hub.advance(31)
        assert hub.selected() == ["east"]  # west has one core left
        members["east"].stop(hub)
        hub.advance(250)
        assert hub.selected() == ["east"]
        hub.advance(90)
        east = hub.get(MANAGED_CLUSTERS, "east")
        (available,) = [c for c in east["status"]["conditions"] if c["type"] == "ManagedClusterConditionAvailable"]
        assert available["status"] == "Unknown"
        assert hub.selected() == ["west"]
        members["east"].start(hub)
        assert hub.selected() == ["east"]


def test_what_a_member_has_no_longer_leaves_its_status_too() -> None:
    with Hub(implicit=False) as hub:
        member = Member(hub, "east", "4")
        more = {"status": {part: {"example.com/gpu": "2"} for part in ("capacity", "allocatable")}}
        hub.run(member.client.patch(NODES, "n1", more, subresource="status"))
        member.start(hub)
        hub.patch(MANAGED_CLUSTERS, "east", {"spec": {"hubAcceptsClient": True}})
        hub.advance(31)
        assert hub.get(MANAGED_CLUSTERS, "east")["status"]["allocatable"]["example.com/gpu"] == "2"
        less = {"status": {part: {"example.com/gpu": None} for part in ("capacity", "allocatable")}}
        hub.run(member.client.patch(NODES, "n1", less, subresource="status"))
        hub.advance(31)
        found = hub.get(MANAGED_CLUSTERS, "east")
        assert found["status"]["capacity"] == found["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi"}
        hub.advance(31)
        assert hub.get(MANAGED_CLUSTERS, "east")["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


class Network(LocalClient):
    """Every request takes a while, and watches of leases are behind all others."""

    async def send(self, request: ApiRequest[Any]) -> Any:
        await asyncio.sleep(0.05)
        return await super().send(request)

    async def stream(self, request: ApiRequest[Any]) -> AsyncIterator[Any]:
        async for event in super().stream(request):
            if request.resource.group_plural == LEASES.group_plural:
                await asyncio.sleep(1)
            yield event


@pytest.mark.parametrize("slow", ["agent", "hub", "both", ""])
def test_a_cluster_is_available_as_soon_as_its_agent_returns(slow: str) -> None:
    with Hub(implicit=False) as hub:
        network = Network(hub.store)
        if slow in ("hub", "both"):
            hub.controllers_client = network
            hub.restart()
        member = Member(hub, "east", to=network if slow in ("agent", "both") else None)
        hub.apply(cluster("east"))
        member.start(hub)
        assert available(hub, "east") == "True"
        member.stop(hub)
        hub.advance(400)
        assert available(hub, "east") == "Unknown"
        member.start(hub)
        hub.advance(5)
        assert available(hub, "east") == "True"
        assert hub.get(MANAGED_CLUSTERS, "east")["spec"].get("taints", []) == []


def test_a_single_report_makes_a_returning_cluster_available() -> None:
    with Hub(implicit=False) as hub:
        member = Member(hub, "east", to=Network(hub.store))
        hub.apply(cluster("east"))
        for _ in range(2):
            assert hub.run(member.agent.report())
            hub.settle()
            assert available(hub, "east") == "True"
            hub.advance(299)
            assert available(hub, "east") == "True"
            hub.advance(2)
            assert available(hub, "east") == "Unknown"


@pytest.mark.parametrize("seconds", [0, -5])
def test_a_lease_duration_that_is_not_positive_means_the_default(seconds: int) -> None:
    with Hub(implicit=False) as hub:
        member = Member(hub, "east")
        hub.apply(cluster("east"))
        accept(hub, "east", leaseDurationSeconds=seconds)
        member.start(hub)
        hub.advance(50)
        assert available(hub, "east") == "True"
        member.stop(hub)
        hub.advance(250)
        assert available(hub, "east") == "True"
        hub.advance(100)
        assert available(hub, "east") == "Unknown"


@pytest.mark.parametrize("seconds", [1, 5, 20, 600])
def test_the_agent_renews_its_lease_as_often_as_the_cluster_asks(seconds: int) -> None:
    with Hub(implicit=False) as hub:
        member = Member(hub, "east")
        made = cluster("east")
        made["spec"]["leaseDurationSeconds"] = seconds
        hub.apply(made)
        member.start(hub)
        known = hub.get(MANAGED_CLUSTERS, "east")["metadata"]["resourceVersion"]
        hub.advance(20 * seconds)
        assert available(hub, "east") == "True"
        assert hub.get(MANAGED_CLUSTERS, "east")["metadata"]["resourceVersion"] == known  # never Unknown between
        member.stop(hub)
        hub.advance(6 * seconds + 1)
        assert available(hub, "east") == "Unknown"


def test_a_shorter_lease_holds_from_the_moment_it_is_set() -> None:
    with Hub(implicit=False) as hub:
        member = Member(hub, "east")
        hub.apply(cluster("east"))
        member.start(hub)
        hub.advance(50)  # the lease is 50 s old
        accept(hub, "east", leaseDurationSeconds=2)
        assert available(hub, "east") == "True"
        hub.advance(100)
        assert available(hub, "east") == "True"
        assert hub.get(LEASES, "managed-cluster-lease", "east")["spec"]["leaseDurationSeconds"] == 2


def test_an_accepted_cluster_reports_at_once() -> None:
    with Hub(implicit=False) as hub:
        member = Member(hub, "east")
        member.start(hub)
        assert available(hub, "east") == ""
        accept(hub, "east")
        hub.advance(1.5)
        assert available(hub, "east") == "True"


def test_a_member_without_an_answer_keeps_its_lease_and_is_unavailable() -> None:
    with Hub(implicit=False) as hub:
        member = Member(hub, "east")
        hub.apply(cluster("east"))
        member.start(hub)

        async def fail(*arguments: Any, **options: Any) -> Any:
            raise ServiceUnavailable("connection refused")

        member.client.send = fail  # type: ignore[method-assign]
        hub.advance(1000)
        assert available(hub, "east") == "False"


def test_conditions_of_others_survive_reports() -> None:
    other = {"type": "Deleting", "status": "False", "reason": "No", "message": "", "lastTransitionTime": None}
    with Hub(implicit=False) as hub:
        member = Member(hub, "east")
        hub.apply(cluster("east"))
        member.start(hub)
        conditions = hub.get(MANAGED_CLUSTERS, "east")["status"]["conditions"]
        other["lastTransitionTime"] = conditions[0]["lastTransitionTime"]
        hub.patch(MANAGED_CLUSTERS, "east", {"status": {"conditions": [*conditions, other]}}, subresource="status")
        hub.run(member.client.patch(NODES, "n1", {"status": {"allocatable": {"cpu": "3"}}}, subresource="status"))
        hub.advance(61)
        found = hub.get(MANAGED_CLUSTERS, "east")["status"]
        assert found["allocatable"]["cpu"] == "3"
        assert {each["type"] for each in found["conditions"]} == {
            "Deleting",
            "HubAcceptedManagedCluster",
            "ManagedClusterJoined",
            AVAILABLE,
        }


READY, NOT_READY, LOST = "True", "False", "Unknown"


@pytest.mark.parametrize(
    ("states", "cpu"), [((READY, READY), "8"), ((READY, LOST), "4"), ((NOT_READY, LOST), "0"), ((LOST, LOST), "0")]
)
def test_nodes_that_are_not_ready_offer_nothing(states: tuple[str, ...], cpu: str) -> None:
    nodes = [with_state(node(f"n{number}", "4", "8Gi"), state) for number, state in enumerate(states)]
    usage = usage_of(nodes, [view(pod("p", "n0", "1"), Pod)])
    assert usage.allocatable["cpu"] == int(cpu) * 10**9
    assert usage.capacity["cpu"] == 8 * 10**9
    scores = scores_of(usage, Scales(8, 16))
    if cpu == "0":
        assert set(scores.values()) == {-100}
    else:
        assert scores["cpuRatio"] > 0


def with_state(document: Document, ready: str) -> Document:
    conditions = [{"type": "Ready", "status": ready}]
    return {**document, "status": {**document["status"], "conditions": conditions}}


def test_a_member_that_loses_its_nodes_loses_its_placements() -> None:
    with Hub(implicit=False) as hub:
        members = {name: Member(hub, name, cpu) for name, cpu in (("east", "4"), ("west", "8"))}
        hub.apply(cluster("east"), cluster("west"), binding())
        usage, resource = add_on(1, "resource-usage", "cpuRatio"), built_in("ResourceAllocatableCPU")
        hub.apply(placement(1, prioritizerPolicy=exact(usage)))
        hub.apply(placement(1, name="q", prioritizerPolicy=exact(resource)))
        for member in members.values():
            member.start(hub)
        lost = {"status": {"conditions": [{"type": "Ready", "status": LOST}]}}
        hub.run(members["west"].client.patch(NODES, "n1", lost, subresource="status"))
        hub.advance(31)
        found = hub.get(MANAGED_CLUSTERS, "west")["status"]
        assert found["allocatable"] == {"cpu": "0", "memory": "0"}
        assert found["capacity"]["cpu"] == "8"
        scores = hub.get(ADDON_PLACEMENT_SCORES, "resource-usage", "west")["status"]["scores"]
        assert {each["value"] for each in scores} == {-100}
        assert hub.selected() == ["east"]
        assert hub.selected("q") == ["east"]
