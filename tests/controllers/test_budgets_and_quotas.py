"""The status of disruption budgets and quotas, and quota at admission."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.controllers.world import World, template, workload

from wharfinger.admission.quota import QuotaReviewer
from wharfinger.api.errors import ApiError, Forbidden, TooManyRequests
from wharfinger.api.kinds.builtin import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
)
from wharfinger.api.quota import as_written, pod_matches, pod_usage, usage
from wharfinger.api.registry import Document
from wharfinger.api.resource_names import PLAIN, ResourceNames
from wharfinger.api.views import Pod, PodDisruptionBudget, ResourceQuota, view
from wharfinger.controllers.disruption import DisruptionCounts, desired_healthy
from wharfinger.controllers.resource_quota import PodUsages
from wharfinger.store import Store


def budget(name: str = "b", **spec: Any) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "expected", "healthy"),
    [
        ({"maxUnavailable": 1}, 5, 4),
        ({"maxUnavailable": "30%"}, 5, 3),  # rounds up to 2
        ({"maxUnavailable": "100%"}, 5, 0),
        ({"minAvailable": 2}, 5, 2),
        ({"minAvailable": "50%"}, 5, 3),
        ({"minAvailable": "0%"}, 5, 0),
        ({"maxUnavailable": 9}, 5, 0),
    ],
)
def test_desired_healthy(spec: Document, expected: int, healthy: int) -> None:
    assert desired_healthy(view(budget(**spec), PodDisruptionBudget), expected) == healthy


def test_without_expected_pods_no_disruption_is_allowed() -> None:
    assert DisruptionCounts(current_healthy=3, desired_healthy=0, expected=0).allowed == 0
    assert DisruptionCounts(current_healthy=3, desired_healthy=1, expected=3).allowed == 2
    assert DisruptionCounts(current_healthy=1, desired_healthy=2, expected=3).allowed == 0


def numbers(world: World, name: str = "b") -> tuple[int, int, int, int]:
    status = world.get(POD_DISRUPTION_BUDGETS, name)["status"]
    return (
        status["expectedPods"],
        status["currentHealthy"],
        status["desiredHealthy"],
        status["disruptionsAllowed"],
    )


def test_a_budget_follows_its_pods_and_the_size_of_their_deployment() -> None:
    with World() as world:
        world.apply(POD_DISRUPTION_BUDGETS, budget(maxUnavailable="25%"))
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=8))
        assert numbers(world) == (8, 8, 6, 2)
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})
        assert numbers(world) == (4, 4, 3, 1)
        condition = world.get(POD_DISRUPTION_BUDGETS, "b")["status"]["conditions"][0]
        assert (condition["status"], condition["reason"]) == ("True", "SufficientPods")


def test_a_budget_is_not_computed_again_when_only_the_owner_is_scaled() -> None:
    with World() as world:
        world.apply(POD_DISRUPTION_BUDGETS, budget(maxUnavailable=1))
        never = {"wharfinger.dev/ready-after": "never"}
        document = workload(STATEFUL_SETS, "web", replicas=1, annotations=never)
        world.apply(STATEFUL_SETS, document)
        assert numbers(world) == (1, 0, 0, 0)
        world.patch(STATEFUL_SETS, "web", {"spec": {"replicas": 3}})
        assert len(world.pods()) == 1, "the first pod is not ready, so no second one comes"
        assert numbers(world) == (1, 0, 0, 0), "as upstream, which looks at events of pods and budgets alone"
        world.patch(PODS, "web-0", {"metadata": {"annotations": {"a": "b"}}})
        assert numbers(world) == (3, 0, 2, 0)


def evict(world: World, name: str) -> ApiError | None:
    document = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    try:
        world.loop.complete(world.client.create(PODS, document, "default", name=name, subresource="eviction"))
    except ApiError as error:
        return error
    return None


def test_evictions_use_up_the_budget_until_new_pods_are_ready() -> None:
    with World() as world:
        world.apply(POD_DISRUPTION_BUDGETS, budget(minAvailable=2))
        world.apply(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=3))
        first, second, _ = (pod["metadata"]["name"] for pod in world.pods())
        assert evict(world, first) is None
        assert isinstance(evict(world, second), TooManyRequests)
        world.settle()
        assert numbers(world) == (3, 3, 2, 1)
        assert evict(world, second) is None


def test_a_budget_with_an_unknown_owner_allows_nothing_and_reports_it() -> None:
    with World() as world:
        world.apply(POD_DISRUPTION_BUDGETS, budget(maxUnavailable=1))
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u-1", "controller": True}
        pod = {"metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": [owner]}}
        world.create(PODS, {**pod, "spec": template({})["spec"]})
        world.loop.run_to(world.loop.time() + 0.001)
        status = world.get(POD_DISRUPTION_BUDGETS, "b")["status"]
        assert status.get("disruptionsAllowed", 0) == 0


# Quotas


def quota(hard: Document, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "limits"},
        "spec": {"hard": hard, **spec},
    }


def pod(name: str = "p", cpu: str = "500m", memory: str = "1Gi", **spec: Any) -> Document:
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "2", "memory": "2Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec},
    }


def test_usage_of_objects() -> None:
    charged = usage(PODS, pod(), 0.0)
    names = ["pods", "count/pods", "cpu", "requests.cpu", "limits.cpu", "memory", "requests.memory", "limits.memory"]
    written = as_written(dict.fromkeys(names, "0"), charged)
    assert written == {
        "pods": "1",
        "count/pods": "1",
        "cpu": "500m",
        "requests.cpu": "500m",
        "limits.cpu": "2",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.memory": "2Gi",
    }
    finished = usage(PODS, {**pod(), "status": {"phase": "Succeeded"}}, 0.0)
    assert set(finished) == {"count/pods"}
    service = {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}, {"port": 81}]}}
    amounts = as_written(
        dict.fromkeys(("services", "services.nodeports", "services.loadbalancers"), "0"), usage(SERVICES, service, 0.0)
    )
    assert amounts == {"services": "1", "services.nodeports": "2", "services.loadbalancers": "1"}


SCOPES = [
    ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, True),
    ({"scopes": ["Terminating"]}, {}, False),
    ({"scopes": ["NotTerminating"]}, {}, True),
    ({"scopes": ["BestEffort"]}, {}, False),
    ({"scopes": ["NotBestEffort"]}, {}, True),
    ({"scopes": ["PriorityClass"]}, {"priorityClassName": "high"}, True),
    (
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}},
        {"priorityClassName": "low"},
        False,
    ),
    (
        {
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]
            }
        },
        {},
        True,
    ),
    ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, {}, True),
]


@pytest.mark.parametrize(("scopes", "spec", "expected"), SCOPES)
def test_scopes(scopes: Document, spec: Document, expected: bool) -> None:
    assert pod_matches(view(quota({"pods": "1"}, **scopes), ResourceQuota), view(pod(**spec), Pod)) is expected


def enforcing(store: Store) -> None:
    store.chain.final.append(QuotaReviewer(store, lambda: 0.0))


def test_the_status_of_a_quota_follows_its_namespace() -> None:
    with World() as world:
        hard = {"pods": "10", "requests.cpu": "4", "count/configmaps": "5", "count/deployments.apps": "3"}
        world.apply(RESOURCE_QUOTAS, quota(hard))
        world.apply(PODS, pod("a"))
        world.apply(PODS, pod("b", cpu="1500m", restartPolicy="Never"))
        world.apply(CONFIG_MAPS, {"metadata": {"name": "c"}})
        world.apply(DEPLOYMENTS, workload(DEPLOYMENTS, "web", replicas=0))
        world.advance(1)
        status = world.get(RESOURCE_QUOTAS, "limits")["status"]
        assert status["used"] == {
            "pods": "2",
            "requests.cpu": "2",
            "count/configmaps": "1",
            "count/deployments.apps": "1",
        }
        world.patch(PODS, "b", {"status": {"phase": "Succeeded"}}, subresource="status")
        world.patch(RESOURCE_QUOTAS, "limits", {"spec": {"hard": {"count/configmaps": None}}})
        assert world.get(RESOURCE_QUOTAS, "limits")["status"]["used"] == {
            "pods": "1",
            "requests.cpu": "500m",
            "count/deployments.apps": "1",
        }


def test_a_pod_is_counted_again_once_anything_that_counts_has_changed() -> None:
    class Renamed(ResourceNames):
        def others(self, name: str) -> tuple[str, ...]:
            return (f"other.{name}",)

    metadata = {"name": "p", "uid": "u", "deletionTimestamp": "1970-01-01T00:00:10Z", "deletionGracePeriodSeconds": 5}
    one, usages = view({**pod(), "metadata": metadata}, Pod), PodUsages()
    known = usages.at(0.0, PLAIN, 1)(one)
    assert known == pod_usage(one, 0.0)
    assert usages.at(5.0, PLAIN, 1)(one) is known
    assert usages.at(20.0, PLAIN, 1)(one) == {"count/pods": 10**9}
    other = view({**pod(cpu="2"), "metadata": metadata}, Pod)
    assert usages.at(0.0, PLAIN, 1)(other) == pod_usage(other, 0.0) != known
    pages = {"containers": [{"resources": {"requests": {"hugepages-2Mi": "2Mi"}}}]}
    device = view({**pod(), "metadata": {"uid": "d"}, "spec": pages}, Pod)
    plain, renamed = (usages.at(0.0, names, 1)(device) for names in (PLAIN, Renamed()))
    assert renamed == {**plain, "other.hugepages-2Mi": 2**21 * 10**9, "requests.other.hugepages-2Mi": 2**21 * 10**9}


def test_a_request_beyond_the_quota_is_refused() -> None:
    with World(setup=enforcing) as world:
        world.apply(RESOURCE_QUOTAS, quota({"requests.cpu": "1", "limits.memory": "100Gi"}))
        world.apply(PODS, pod("a", cpu="800m"))
        error = world.fails(lambda: world.create(PODS, pod("b")))
        assert isinstance(error, Forbidden)
        assert str(error) == (
            'pods "b" is forbidden: exceeded quota: limits, requested: requests.cpu=500m, used: requests.cpu=800m, '
            "limited: requests.cpu=1"
        )
        bare = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        message = str(world.fails(lambda: world.create(PODS, bare)))
        assert "failed quota: limits: must specify limits.memory for: c; requests.cpu for: c" in message
        world.patch(PODS, "a", {"status": {"phase": "Failed"}}, subresource="status")
        world.create(PODS, pod("b"))


def test_one_of_two_requests_for_the_last_unit_is_refused() -> None:
    with World(setup=enforcing) as world:
        world.apply(RESOURCE_QUOTAS, quota({"pods": "1", "count/configmaps": "1"}))

        async def both() -> list[Any]:
            return await asyncio.gather(
                *(world.client.create(PODS, pod(name), "default") for name in ("a", "b", "c")), return_exceptions=True
            )

        outcomes = world.loop.complete(both())
        assert sum(isinstance(outcome, Forbidden) for outcome in outcomes) == 2
        world.create(CONFIG_MAPS, {"metadata": {"name": "one"}})
        refused = world.fails(lambda: world.create(CONFIG_MAPS, {"metadata": {"name": "two"}}))
        assert (
            "exceeded quota: limits, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1"
            in str(refused)
        )


def test_a_replica_set_creates_what_the_quota_allows_and_reports_the_rest() -> None:
    with World(setup=enforcing) as world:
        world.apply(RESOURCE_QUOTAS, quota({"pods": "2"}))
        world.create(REPLICA_SETS, workload(REPLICA_SETS, "web", replicas=4))
        world.advance(10)
        assert len(world.pods()) == 2
        condition = world.get(REPLICA_SETS, "web")["status"]["conditions"][0]
        assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
        assert "exceeded quota: limits" in condition["message"]
        world.patch(RESOURCE_QUOTAS, "limits", {"spec": {"hard": {"pods": "9"}}})
        world.advance(120)
        assert len(world.pods()) == 4
        assert not world.get(REPLICA_SETS, "web")["status"].get("conditions")
