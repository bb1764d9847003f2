"""Writes that fail, and conflicting hands: decisions end up right, and no selected cluster is lost on the way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.systems.placement.hub import Hub, P, add_on, binding, cluster, exact, placement, score

from wharfinger.api.errors import Conflict, ServiceUnavailable
from wharfinger.api.registry import Document
from wharfinger.systems.placement.kinds.names import (
    ADDON_PLACEMENT_SCORES,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    PLACEMENT_DECISIONS,
    PLACEMENTS,
)


class Flaky:
    """A client whose writes fail now and then, some of them after they have been carried out."""

    def __init__(self, client: Any, source: random.Random) -> None:
        self._client = client
        self._source = source
        self.failing = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in ("create", "update", "patch", "delete"):
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            luck = self._source.random() if self.failing else 1.0
            if luck < 0.15:
                raise ServiceUnavailable("the server is away")
            if luck < 0.25:
                raise Conflict("the object has been modified")
            answer = await method(*arguments, **options)
            if luck < 0.35:
                raise ServiceUnavailable("the answer was lost")
            return answer

        return write


@pytest.mark.parametrize("seed", range(3))
def test_decisions_come_right_although_writes_fail(seed: int) -> None:
    source = random.Random(seed)
    with Hub() as hub:
        hub.controllers_client = flaky = Flaky(hub.client, source)  # type: ignore[assignment]  # fits by its methods
        hub.restart()
        hub.apply(binding(), *(cluster(f"c{i:03d}") for i in range(130)))
        hub.apply(placement(110, prioritizerPolicy=exact(add_on()), scoreRateLimit="1s"))
        for _ in range(12):
            name = f"c{source.randrange(130):03d}"
            if source.random() < 0.5:
                hub.score(name, a=source.randrange(-100, 101))
            else:
                hub.taint(name)
                hub.taint(name, {"key": "x", "effect": "NoSelect"})
        hub.advance(120)
        flaky.failing = False
        hub.advance(120)
        expected = hub.scheduling.explain(("ns1", "p"))
        assert expected is not None
        assert hub.selected() == sorted(expected.selected)
        assert hub.placement()["status"]["numberOfSelectedClusters"] == len(expected.selected)
        assert all(len(names) <= 100 for names in hub.pages().values())


def test_a_page_that_bears_the_name_already_is_taken_over(hub: Hub) -> None:
    foreign = {
        "apiVersion": PLACEMENT_DECISIONS.api_version,
        "kind": PLACEMENT_DECISIONS.kind,
        "metadata": {"name": "p-decision-1", "namespace": "ns1"},
        "status": {"decisions": [{"clusterName": "nowhere", "reason": ""}]},
    }
    hub.apply(foreign, placement())
    assert hub.pages() == {"p-decision-1": ["c1", "c2", "c3"]}
    page = hub.get(PLACEMENT_DECISIONS, "p-decision-1", "ns1")
    assert page["metadata"]["labels"][P + "placement"] == "p"
    assert page["metadata"]["ownerReferences"][0]["name"] == "p"


def test_a_surplus_page_is_removed(hub: Hub) -> None:
    hub.apply(placement())
    extra = {
        "apiVersion": PLACEMENT_DECISIONS.api_version,
        "kind": PLACEMENT_DECISIONS.kind,
        "metadata": {"name": "p-decision-7", "namespace": "ns1", "labels": {P + "placement": "p"}},
    }
    hub.apply(extra)
    assert list(hub.pages()) == ["p-decision-1"]
    assert [event["message"].split()[1] for event in hub.events("DecisionDelete")] == ["p-decision-7"]


def test_a_status_written_by_others_is_put_right(hub: Hub) -> None:
    hub.apply(placement())
    hub.patch(PLACEMENTS, "p", {"status": {"numberOfSelectedClusters": 99}}, "ns1", "status")
    assert hub.placement()["status"]["numberOfSelectedClusters"] == 3


def test_hundreds_of_changes_at_once_settle(hub: Hub) -> None:
    hub.apply(*(placement(1, name=f"p{i}", prioritizerPolicy=exact(add_on())) for i in range(20)))

    async def burst() -> None:
        for value in range(60):
            document = score("c2", a=value)
            if value == 0:
                await hub.client.create(ADDON_PLACEMENT_SCORES, {**document, "status": {}}, "c2")
            await hub.client.patch(
                ADDON_PLACEMENT_SCORES, "demo", {"status": document["status"]}, "c2", subresource="status"
            )
            change = {"metadata": {"labels": {"n": str(value)}}}
            await hub.client.patch(MANAGED_CLUSTERS, "c1", change)

    before = hub.scheduling.decided
    hub.run(burst())
    hub.settle()
    assert all(hub.selected(f"p{i}") == ["c2"] for i in range(20))
    assert hub.scheduling.decided - before < 20 * 60  # changes that come together are decided together


class Interrupted:
    """A client before whose first write to a status another hand writes there."""

    def __init__(self, client: Any, other: dict[str, Any]) -> None:
        self._client = client
        self._other: dict[str, Any] | None = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str = "", **options: Any) -> Any:
        if resource == MANAGED_CLUSTERS and options.get("subresource") == "status" and self._other is not None:
            other, self._other = self._other, None
            await self._client.patch(resource, name, {"status": other}, subresource="status")
        return await self._client.patch(resource, name, patch, namespace, **options)


def test_conditions_that_an_agent_writes_meanwhile_stay() -> None:
    joined = {"type": "ManagedClusterJoined", "status": "True", "reason": "Joined", "message": ""}
    told = {"conditions": [{**joined, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    with Hub() as hub:
        hub.controllers_client = Interrupted(hub.client, told)  # type: ignore[assignment]  # fits by its methods
        hub.restart()
        hub.apply(cluster("c1"))
        hub.settle()
        conditions = {each["type"] for each in hub.get(MANAGED_CLUSTERS, "c1")["status"]["conditions"]}
        assert {"ManagedClusterJoined", "HubAcceptedManagedCluster"} <= conditions


OTHER = {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": "prod"}, "matchExpressions": []}}


@pytest.mark.parametrize(
    ("name", "shipped"),
    [
        ("default", {"selectorType": "ExclusiveClusterSetLabel"}),
        ("global", {"selectorType": "LabelSelector", "labelSelector": {}}),
    ],
)
def test_the_sets_that_are_always_there_are_put_right_unless_kept(hub: Hub, name: str, shipped: Document) -> None:
    def selector() -> Document:
        found: Document = hub.get(MANAGED_CLUSTER_SETS, name)["spec"]["clusterSelector"]
        return found

    hub.patch(MANAGED_CLUSTER_SETS, name, {"spec": {"clusterSelector": OTHER}})
    assert selector() == shipped
    hub.delete(MANAGED_CLUSTER_SETS, name)
    assert selector() == shipped
    kept = {"metadata": {"annotations": {f"{P}autoupdate": "false"}}, "spec": {"clusterSelector": OTHER}}
    hub.patch(MANAGED_CLUSTER_SETS, name, kept)
    assert selector()["labelSelector"]["matchLabels"] == {"env": "prod"}
