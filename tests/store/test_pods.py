"""Binding pods to nodes and evicting them within their budgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import JSON, MERGE, bind, pod, set_status

from wharfinger.api.errors import ApiError, Conflict, TooManyRequests
from wharfinger.api.kinds.builtin import POD_DISRUPTION_BUDGETS, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.store import Store

Run = Callable[..., Any]
BINDINGS = Resource("", "v1", "bindings", "Binding")


def test_a_binding_sets_node_metadata_and_condition_in_one_write(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(PODS, pod(labels={"a": "b"}, annotations={"x": "y"}), "default")
        before = store.version
        await bind(store, labels={"a": "c"}, annotations={"devices": "0,1"})
        assert store.version == before + 1
        document = (await store.get(PODS, "p", "default")).document()
        assert document["spec"]["nodeName"] == "n1"
        assert document["metadata"]["labels"] == {"a": "c"}
        assert document["metadata"]["annotations"] == {"x": "y", "devices": "0,1"}
        conditions = [(item["type"], item["status"]) for item in document["status"]["conditions"]]
        assert ("PodScheduled", "True") in conditions
        assert document["metadata"]["generation"] == 1

    run(scenario)


def test_bindings_can_be_posted_to_their_own_collection(run: Run) -> None:
    async def scenario(store: Store) -> str:
        await store.create(PODS, pod(), "default")
        written = await store.create(BINDINGS, {"metadata": {"name": "p"}, "target": {"name": "n2"}}, "default")
        assert written.document["status"] == "Success"
        return str((await store.get(PODS, "p", "default")).document()["spec"]["nodeName"])

    assert run(scenario) == "n2"


async def prepare_bound(store: Store) -> None:
    await bind(store)


async def prepare_going(store: Store) -> None:
    await store.patch(PODS, "p", {"metadata": {"finalizers": ["a.example/x"]}}, "default", type=MERGE)
    await store.delete(PODS, "p", "default")


async def prepare_gated(store: Store) -> None:
    await store.delete(PODS, "p", "default")
    gated = pod()
    gated["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
    await store.create(PODS, gated, "default")


UNBINDABLE: list[tuple[str, Any, Document, int, str]] = [
    ("bound", prepare_bound, {}, 409, 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'),
    ("going", prepare_going, {}, 409, "pod p is being deleted, cannot be assigned to a host"),
    ("gated", prepare_gated, {}, 409, "pod p has non-empty .spec.schedulingGates"),
    ("another uid", None, {"uid": "x"}, 409, "Precondition failed: UID in precondition: x, UID in object meta:"),
    ("another version", None, {"resourceVersion": "1"}, 409, "Precondition failed: ResourceVersion in precondition: 1"),
    ("no node", None, {"node": ""}, 422, "target.name: Required value"),
    ("no pod", None, {"name": "q"}, 404, 'pods "q" not found'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("prepare", "given", "code", "text"), [c[1:] for c in UNBINDABLE], ids=[c[0] for c in UNBINDABLE]
)
def test_pods_that_cannot_be_bound(run: Run, prepare: Any, given: Document, code: int, text: str) -> None:
    async def scenario(store: Store) -> ApiError:
        await store.create(PODS, pod(), "default")
        if prepare is not None:
            await prepare(store)
        with pytest.raises(ApiError) as caught:
            await bind(store, **{"node": "n9", **given})
        return caught.value

    error = run(scenario)
    assert error.code == code
    assert text in error.message


async def evict(store: Store, name: str = "p", dry_run: bool = False, **options: Any) -> Document:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": options,
    }
    written = await store.create(PODS, eviction, "default", name=name, subresource="eviction", dry_run=dry_run)
    return written.document


async def running(store: Store, name: str = "p", ready: str = "True") -> None:
    await store.create(PODS, pod(name, labels={"app": "web"}), "default")
    await bind(store, name)
    await set_status(store, name, phase="Running", conditions=[{"type": "Ready", "status": ready}])


async def budget(store: Store, name: str = "b", policy: str = "", **status: Any) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    await store.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": name}, "spec": spec}, "default")
    given = {"status": {"observedGeneration": 1, **status}}
    await store.patch(POD_DISRUPTION_BUDGETS, name, given, "default", type=MERGE, subresource="status")


def test_an_eviction_takes_one_disruption_and_deletes_gracefully(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await running(store)
        await budget(store, disruptionsAllowed=1, currentHealthy=3, desiredHealthy=2, expectedPods=3)
        assert (await evict(store, gracePeriodSeconds=7))["status"] == "Success"
        document = (await store.get(PODS, "p", "default")).document()
        assert document["metadata"]["deletionGracePeriodSeconds"] == 7
        target = next(item for item in document["status"]["conditions"] if item["type"] == "DisruptionTarget")
        assert (target["status"], target["reason"], target["message"]) == (
            "True",
            "EvictionByEvictionAPI",
            "Eviction API: evicting",
        )
        status = (await store.get(POD_DISRUPTION_BUDGETS, "b", "default")).document()["status"]
        assert status["disruptionsAllowed"] == 0
        assert status["disruptedPods"] == {"p": "2027-01-15T08:00:00Z"}
        allowed = next(item for item in status["conditions"] if item["type"] == "DisruptionAllowed")
        assert (allowed["status"], allowed["reason"]) == ("False", "InsufficientPods")

    run(scenario)


REFUSED: list[tuple[str, str, str, Document, str]] = [
    ("no disruption left", "True", "", {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}, "The disruption budget b needs 2 healthy pods and has 2 currently"),
    ("failed sync", "True", "", {"disruptionsAllowed": 0, "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "why"}]}, "The disruption budget b does not allow evicting pods currently because it failed sync: why"),
    ("told", "True", "", {"disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2, "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "R", "message": "m"}]}, "The disruption budget b does not allow evicting pods currently (R): m"),
    ("untold", "True", "", {"disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2}, "The disruption budget b does not allow evicting pods currently"),
    ("not yet observed", "True", "", {"observedGeneration": 0, "disruptionsAllowed": 1}, "The disruption budget b is still being processed by the server."),
    ("unhealthy pod of an unhealthy application", "False", "", {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2}, "The disruption budget b needs 2 healthy pods and has 1 currently"),
]  # fmt: skip


@pytest.mark.parametrize(("ready", "policy", "status", "text"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused_evictions(run: Run, ready: str, policy: str, status: Document, text: str) -> None:
    async def scenario(store: Store) -> TooManyRequests:
        await running(store, ready=ready)
        await budget(store, policy=policy, **status)
        before = store.version
        with pytest.raises(TooManyRequests) as caught:
            await evict(store)
        assert store.version == before
        return caught.value

    error = run(scenario)
    assert error.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert error.details["causes"] == [{"reason": "DisruptionBudget", "message": text}]


ALLOWED: list[tuple[str, str, str, Document]] = [
    ("unhealthy pod of a healthy application", "False", "", {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}),
    ("unhealthy pod, always allowed", "False", "AlwaysAllow", {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("ready", "policy", "status"), [c[1:] for c in ALLOWED], ids=[c[0] for c in ALLOWED])
def test_unhealthy_pods_do_not_use_up_the_budget(run: Run, ready: str, policy: str, status: Document) -> None:
    async def scenario(store: Store) -> None:
        await running(store, ready=ready)
        await budget(store, policy=policy, **status)
        before = (await store.get(POD_DISRUPTION_BUDGETS, "b", "default")).version
        await evict(store, gracePeriodSeconds=0)
        assert store.peek(PODS, "p", "default") is None
        assert (await store.get(POD_DISRUPTION_BUDGETS, "b", "default")).version == before

    run(scenario)


def test_finished_pods_need_no_budget(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await running(store)
        await set_status(store, phase="Succeeded")
        await budget(store, disruptionsAllowed=0)
        await evict(store)
        assert store.peek(PODS, "p", "default") is None

    run(scenario)


def test_an_eviction_with_several_budgets_is_an_error(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await running(store)
        await budget(store, disruptionsAllowed=1)
        await budget(store, "b2", disruptionsAllowed=1)
        with pytest.raises(ApiError, match="This pod has more than one PodDisruptionBudget") as caught:
            await evict(store)
        assert caught.value.code == 500

    run(scenario)


def test_evictions_with_preconditions_and_dry_run(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await running(store)
        await budget(store, disruptionsAllowed=1, currentHealthy=3, desiredHealthy=2)
        before = store.version
        await evict(store, dry_run=True)
        assert store.version == before
        with pytest.raises(Conflict):
            await evict(store, preconditions={"uid": "other"})
        with pytest.raises(ApiError, match="name in URL does not match name in Eviction object"):
            await store.create(PODS, {"metadata": {"name": "q"}}, "default", name="p", subresource="eviction")
        assert store.version == before

    run(scenario)


def test_ephemeral_containers_and_resize_write_only_their_part(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(PODS, pod(), "default")
        await bind(store)
        debugger = {"name": "d", "image": "registry.example/debug:1"}
        patch = [
            {"op": "add", "path": "/spec/ephemeralContainers", "value": [debugger]},
            {"op": "replace", "path": "/spec/containers/0/image", "value": "registry.example/other:1"},
        ]
        written = await store.patch(PODS, "p", patch, "default", type=JSON, subresource="ephemeralcontainers")
        spec = written.document["spec"]
        assert spec["ephemeralContainers"][0]["name"] == "d"
        assert spec["containers"][0]["image"] == "registry.example/app:1"
        patch = [
            {"op": "add", "path": "/spec/containers/0/resources", "value": {"requests": {"cpu": "2"}}},
            {"op": "replace", "path": "/spec/containers/0/image", "value": "registry.example/other:1"},
        ]
        written = await store.patch(PODS, "p", patch, "default", type=JSON, subresource="resize")
        container = written.document["spec"]["containers"][0]
        assert container["resources"]["requests"] == {"cpu": "2"}
        assert container["image"] == "registry.example/app:1"
        assert written.document["metadata"]["generation"] == 3

    run(scenario)


def test_a_pods_status_keeps_its_owner_references_and_qos_class(run: Run) -> None:
    async def scenario(store: Store) -> None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}
        await store.create(PODS, pod(ownerReferences=[owner]), "default")
        await set_status(store, qosClass="BestEffort", phase="Pending")
        document = (await store.get(PODS, "p", "default")).document()
        document["metadata"].pop("ownerReferences")
        document["status"] = {"phase": "Running"}
        written = (await store.update(PODS, document, "default", subresource="status")).document
        assert written["metadata"]["ownerReferences"] == [owner]
        assert written["status"] == {"phase": "Running", "qosClass": "BestEffort"}

    run(scenario)


def test_an_eviction_may_shorten_a_deletion_in_progress(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await running(store)
        await store.delete(PODS, "p", "default", grace_period=30)
        await evict(store, gracePeriodSeconds=0)
        assert store.peek(PODS, "p", "default") is None

    run(scenario)
