"""Removing an installation while its programs still run."""

from __future__ import annotations

import asyncio

import pytest

from wharfinger.admission.request import SYSTEM
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
)
from wharfinger.api.registry import Document
from wharfinger.client.interface import Client
from wharfinger.client.local import LocalClient
from wharfinger.install.options import MANAGED_BY
from wharfinger.install.removal import remove
from wharfinger.store import Store

DEFINITION = "widgets.example.com"
SERVICE = {"name": "wharfinger-webhook", "namespace": "wharfinger-system"}
CONVERSION = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": SERVICE, "caBundle": ""}},
}


def definition() -> Document:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": DEFINITION, "labels": MANAGED_BY},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            "conversion": CONVERSION,
        },
    }


class StillRunning:
    """The webhook as it writes again what is missing, as long as it may."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def register(self) -> None:
        try:
            await self._client.get(CLUSTER_ROLE_BINDINGS, "system:wharfinger:webhook")
        except NotFound:
            return
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            try:
                await self._client.get(resource, "wharfinger")
            except NotFound:
                await self._client.create(resource, {"metadata": {"name": "wharfinger", "labels": MANAGED_BY}})
        await self._client.patch(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION, {"spec": {"conversion": CONVERSION}})


def test_a_webhook_that_still_runs_leaves_no_registration() -> None:
    async def body() -> None:
        store = Store(registry())
        client = LocalClient(store, SYSTEM)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:wharfinger:webhook"}
        binding = {"metadata": {"name": "system:wharfinger:webhook", "labels": MANAGED_BY}, "roleRef": role}
        await client.create(CLUSTER_ROLE_BINDINGS, binding)
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition())
        webhook = StillRunning(client)
        await webhook.register()
        async for _ in remove(client, "wharfinger-system", []):
            await webhook.register()
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, CLUSTER_ROLE_BINDINGS):
            assert not [
                each for each in (await client.list(resource)).items if "wharfinger" in each["metadata"]["name"]
            ]
        found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
        assert found["spec"]["conversion"] == {"strategy": "None"}
        await store.close()

    asyncio.run(body())


@pytest.mark.parametrize("name", ["wharfinger", "other"])
def test_only_labelled_configurations_are_deleted(name: str) -> None:
    async def body() -> list[str]:
        store = Store(registry())
        client = LocalClient(store, SYSTEM)
        labels = MANAGED_BY if name == "wharfinger" else {}
        await client.create(MUTATING_WEBHOOKS, {"metadata": {"name": name, "labels": labels}})
        lines = [line async for line in remove(client, "wharfinger-system", [])]
        await store.close()
        return lines

    expected = ["MutatingWebhookConfiguration wharfinger deleted"] if name == "wharfinger" else []
    assert asyncio.run(body()) == expected


COST, MARKER = "controller.kubernetes.io/pod-deletion-cost", "scheduling.sigs.x-k8s.io/managed-deletion-cost"
POLICY, NEXT = "scheduling.sigs.x-k8s.io/resource-policy", "scheduling.sigs.x-k8s.io/next-units"
CORDONED, RESERVED = "wharfinger.dev/cordoned-by", "wharfinger.dev/reserved"


def annotated(name: str, **annotations: str) -> Document:
    return {"metadata": {"name": name, "annotations": annotations}}


@pytest.mark.needs_system("reservation")
@pytest.mark.needs_system("resource_policy")
def test_what_programs_wrote_on_objects_of_others_is_taken_back() -> None:
    nodes = [
        {**annotated("freed", **{CORDONED: "repack-policy.nightly", "mine": "kept"}), "spec": {"unschedulable": True}},
        {**annotated("cordoned"), "spec": {"unschedulable": True}},
    ]
    pods = [
        annotated("ours", **{COST: "100", MARKER: "100", POLICY: "web", "mine": "kept"}),
        annotated("changed-by-the-user", **{COST: "7", MARKER: "100", POLICY: "web"}),
        annotated("of-the-user", **{COST: "7"}),
        annotated("waiting", **{NEXT: "1"}),
    ]
    for pod in pods:
        pod["spec"] = {"containers": [{"name": "main", "image": "busybox"}]}
    quotas = [annotated("charged", **{RESERVED: '{"cpu":"2"}'}), annotated("other")]

    async def body() -> tuple[list[str], dict[str, Document]]:
        store = Store(registry())
        client = LocalClient(store, SYSTEM)
        await client.create(NAMESPACES, {"metadata": {"name": "shop"}})
        for resource, documents in ((NODES, nodes), (PODS, pods), (RESOURCE_QUOTAS, quotas)):
            for document in documents:
                await client.create(resource, document, "shop" if resource.namespaced else "")
        lines = [line async for line in remove(client, "wharfinger-system", [])]
        found = {
            each["metadata"]["name"]: each
            for resource in (NODES, PODS, RESOURCE_QUOTAS)
            for each in (await client.list(resource)).items
        }
        await store.close()
        return lines, found

    lines, found = asyncio.run(body())
    annotations = {name: each["metadata"].get("annotations") or {} for name, each in found.items()}
    assert annotations == {
        "freed": {"mine": "kept"},
        "cordoned": {},
        "ours": {"mine": "kept"},
        "changed-by-the-user": {COST: "7"},
        "of-the-user": {COST: "7"},
        "waiting": {},
        "charged": {},
        "other": {},
    }
    assert "unschedulable" not in found["freed"]["spec"]
    assert found["cordoned"]["spec"]["unschedulable"] is True
    assert sorted(lines) == [
        "Node freed takes pods again",
        "Pod shop/changed-by-the-user has no annotations of a resource policy any more",
        "Pod shop/ours has no annotations of a resource policy any more",
        "Pod shop/waiting has no annotations of a resource policy any more",
        "ResourceQuota shop/charged does not show reserved amounts any more",
    ]
