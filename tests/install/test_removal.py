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
