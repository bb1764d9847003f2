"""The stock admission plugins: what they change and refuse, with the texts of Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from wharfinger.admission.priority import system_classes
from wharfinger.api.errors import ApiError, Forbidden
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import (
    LIMIT_RANGES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
)
from wharfinger.api.requests import PatchType
from wharfinger.store.default_chain import extend_chain
from wharfinger.store.store import Store


def with_store(scenario: Callable[[Store], Coroutine[Any, Any, Any]], *, complete: bool = True) -> Any:
    """Runs a scenario on a store in memory with the default chain and the system's classes."""

    async def run() -> Any:
        store = Store(registry())
        extend_chain(store.chain, store, complete=complete)
        await store.create(NAMESPACES, {"metadata": {"name": "n"}})
        for document in system_classes():
            await store.create(PRIORITY_CLASSES, document)
        return await scenario(store)

    return asyncio.run(run())


def pod(name: str = "p", resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", **({"resources": resources} if resources else {})}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def refusal(store: Store, document: dict[str, Any]) -> str:
    with pytest.raises(Forbidden) as caught:
        await store.create(PODS, document, "n")
    return caught.value.message


def test_a_priority_class_sets_the_priority() -> None:
    async def scenario(store: Store) -> None:
        plain = (await store.create(PODS, pod("plain"), "n")).document["spec"]
        assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")
        assert "priorityClassName" not in plain
        critical = (await store.create(PODS, pod("c", priorityClassName="system-node-critical"), "n")).document["spec"]
        assert critical["priority"] == 2_000_001_000
        assert await refusal(store, pod(priorityClassName="nosuch")) == (
            'pods "p" is forbidden: no PriorityClass with name nosuch was found'
        )
        assert await refusal(store, pod(priority=7)) == (
            'pods "p" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission '
            "controller computed 0 from the given PriorityClass name"
        )
        assert (await store.create(PODS, pod("same", priority=0), "n")).document["spec"]["priority"] == 0

    with_store(scenario)


def test_only_one_global_default_class_is_allowed() -> None:
    async def scenario(store: Store) -> None:
        default = {"metadata": {"name": "usual"}, "value": 50, "globalDefault": True, "preemptionPolicy": "Never"}
        await store.create(PRIORITY_CLASSES, default)
        spec = (await store.create(PODS, pod(), "n")).document["spec"]
        assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("usual", 50, "Never")
        assert "the string value of PreemptionPolicy (PreemptLowerPriority)" in await refusal(
            store, pod("q", preemptionPolicy="PreemptLowerPriority")
        )
        with pytest.raises(Forbidden, match="PriorityClass usual is already marked as default"):
            await store.create(PRIORITY_CLASSES, {"metadata": {"name": "other"}, "value": 1, "globalDefault": True})
        await store.patch(PRIORITY_CLASSES, "usual", {"description": "d"}, type=PatchType.MERGE)

    with_store(scenario)


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], ["not-ready", "unreachable"]),
        ([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}], ["unreachable"]),
        (
            [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}],
            ["not-ready", "unreachable"],
        ),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoExecute"}], []),
    ],
)
def test_pods_tolerate_unready_nodes_for_five_minutes(given: list[Any], added: list[str]) -> None:
    async def scenario(store: Store) -> list[Any]:
        return (await store.create(PODS, pod(tolerations=given), "n")).document["spec"].get("tolerations") or []

    found = with_store(scenario)
    assert found[len(given) :] == [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for name in added
    ]


def test_a_pod_gets_a_service_account() -> None:
    async def scenario(store: Store) -> None:
        spec = (await store.create(PODS, pod(), "n")).document["spec"]
        assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
        assert await refusal(store, pod("q", serviceAccountName="bot")) == (
            'pods "q" is forbidden: error looking up service account n/bot: serviceaccount "bot" not found'
        )
        account = {"metadata": {"name": "bot"}, "imagePullSecrets": [{"name": "pull"}]}
        await store.create(SERVICE_ACCOUNTS, account, "n")
        spec = (await store.create(PODS, pod("q", serviceAccountName="bot"), "n")).document["spec"]
        assert spec["imagePullSecrets"] == [{"name": "pull"}]

    with_store(scenario)


def test_without_lookup_service_accounts_need_not_exist() -> None:
    async def scenario(store: Store) -> Any:
        return (await store.create(PODS, pod(serviceAccountName="bot"), "n")).document["spec"]["serviceAccountName"]

    assert with_store(scenario, complete=False) == "bot"


def limits(**limit: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **limit}]}}


def test_containers_get_the_defaults_of_their_namespace() -> None:
    async def scenario(store: Store) -> None:
        bounds = limits(default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "500m"})
        await store.create(LIMIT_RANGES, bounds, "n")
        made = (await store.create(PODS, pod(resources={"limits": {"memory": "2Gi"}}), "n")).document
        resources = made["spec"]["containers"][0]["resources"]
        assert resources["limits"] == {"memory": "2Gi", "cpu": "1"}
        assert resources["requests"]["cpu"] == "500m"
        assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        )

    with_store(scenario)


BOUNDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"min": {"cpu": "500m"}}, {"requests": {"cpu": "100m"}}, "minimum cpu usage per Container is 500m, but request is 100m"),
    ({"type": "Pod", "min": {"cpu": "500m"}}, {}, "minimum cpu usage per Pod is 500m.  No request is specified"),
    ({"max": {"memory": "1Gi"}}, {"limits": {"memory": "2G"}}, "maximum memory usage per Container is 1Gi, but limit is 2G"),
    ({"type": "Pod", "max": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, "maximum cpu usage per Pod is 1.  No limit is specified"),
    ({"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}, "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
    ({"maxLimitRequestRatio": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"),
]  # fmt: skip


@pytest.mark.parametrize(("bounds", "resources", "why"), BOUNDS)
def test_limit_ranges_are_enforced(bounds: dict[str, Any], resources: dict[str, Any], why: str) -> None:
    async def scenario(store: Store) -> str:
        await store.create(LIMIT_RANGES, limits(**bounds), "n")
        return await refusal(store, pod(resources=resources))

    assert with_store(scenario) == f'pods "p" is forbidden: {why}'


def test_limit_ranges_of_claims_and_whole_pods() -> None:
    async def scenario(store: Store) -> None:
        bounds = [
            {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
            {"type": "Pod", "max": {"cpu": "1"}},
        ]
        await store.create(LIMIT_RANGES, {"metadata": {"name": "l"}, "spec": {"limits": bounds}}, "n")
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
        with pytest.raises(
            ApiError, match="maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
        ):
            await store.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "c"}, "spec": spec}, "n")
        two = pod(resources={"limits": {"cpu": "600m"}})
        two["spec"]["containers"].append({**two["spec"]["containers"][0], "name": "d"})
        assert "maximum cpu usage per Pod is 1, but limit is 1200m" in await refusal(store, two)

    with_store(scenario)


@pytest.mark.parametrize(
    "given", [[], ["example.com/own"], ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"]]
)
def test_new_claims_and_volumes_get_a_finalizer(given: list[str]) -> None:
    async def scenario(store: Store) -> None:
        shape = {"accessModes": ["ReadWriteOnce"]}
        metadata = {"name": "x", "finalizers": given}
        claim = {"metadata": metadata, "spec": {**shape, "resources": {"requests": {"storage": "1Gi"}}}}
        volume = {"metadata": metadata, "spec": {**shape, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}
        for resource, document, name in (
            (PERSISTENT_VOLUME_CLAIMS, claim, "kubernetes.io/pvc-protection"),
            (PERSISTENT_VOLUMES, volume, "kubernetes.io/pv-protection"),
        ):
            namespace = "n" if resource.namespaced else ""
            made = (await store.create(resource, document, namespace)).document
            assert made["metadata"]["finalizers"] == (given if name in given else [*given, name])
            taken = {"metadata": {"finalizers": None}}  # only when they are made: a controller looks after them later
            kind = PatchType.MERGE
            assert (
                "finalizers" not in (await store.patch(resource, "x", taken, namespace, type=kind)).document["metadata"]
            )

    with_store(scenario)


SANDBOX = {
    "metadata": {"name": "sandbox"},
    "handler": "gv",
    "overhead": {"podFixed": {"cpu": "100m"}},
    "scheduling": {
        "nodeSelector": {"sandbox": "yes"},
        "tolerations": [{"key": "sandbox", "operator": "Exists"}],
    },
}


def test_a_runtime_class_sets_overhead_node_selector_and_tolerations() -> None:
    async def scenario(store: Store) -> None:
        await store.create(RUNTIME_CLASSES, SANDBOX)
        await store.create(RUNTIME_CLASSES, {"metadata": {"name": "bare"}, "handler": "h"})
        narrow = {"key": "sandbox", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
        wish = pod("a", runtimeClassName="sandbox", nodeSelector={"disk": "ssd"}, tolerations=[narrow])
        made = (await store.create(PODS, wish, "n")).document["spec"]
        assert made["overhead"] == {"cpu": "100m"}
        assert made["nodeSelector"] == {"disk": "ssd", "sandbox": "yes"}
        keys = [each["key"] for each in made["tolerations"]]
        assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "sandbox"]
        assert made["tolerations"][-1] == {"key": "sandbox", "operator": "Exists"}  # it covers the narrow one
        same = pod("b", runtimeClassName="sandbox", overhead={"cpu": "0.1"})
        assert (await store.create(PODS, same, "n")).document["spec"]["overhead"] == {"cpu": "100m"}
        for wish, why in (
            (pod(runtimeClassName="nosuch"), 'pod rejected: RuntimeClass "nosuch" not found'),
            (
                pod(runtimeClassName="sandbox", overhead={"cpu": "1"}),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                pod(runtimeClassName="bare", overhead={"cpu": "1"}),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                pod(overhead={"cpu": "1"}),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ),
            (
                pod(runtimeClassName="sandbox", nodeSelector={"sandbox": "no"}),
                "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; pod.spec.nodeSelector[sandbox] = no",
            ),
        ):
            assert await refusal(store, wish) == f'pods "p" is forbidden: {why}'

    with_store(scenario)


def test_a_missing_runtime_class_is_ignored_unless_required() -> None:
    async def scenario(store: Store) -> None:
        made = await store.create(PODS, pod(runtimeClassName="unknown", overhead={"cpu": "1"}), "n")
        assert made.document["spec"]["overhead"] == {"cpu": "1"}

    with_store(scenario, complete=False)
