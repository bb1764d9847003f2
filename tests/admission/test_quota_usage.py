"""Quota usage is updated with writes: after any history it equals a fresh count."""

from __future__ import annotations

import asyncio
import random

import pytest

from wharfinger.admission.quota import Usage
from wharfinger.api import quota as rules
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.views import ResourceQuota, view
from wharfinger.store import Store

QUOTAS = [
    view({"metadata": {"name": "all"}, "spec": {"hard": {"pods": "9"}}}, ResourceQuota),
    view({"metadata": {"name": "best"}, "spec": {"hard": {"pods": "9"}, "scopes": ["BestEffort"]}}, ResourceQuota),
]


def pod(name: str, cpu: int) -> Document:
    resources = {"requests": {"cpu": str(cpu)}} if cpu else {}
    container = {"name": "c", "image": "i", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("between", [1, 1500], ids=["asked often", "asked after more changes than are remembered"])
def test_usage_follows_writes(seed: int, between: int) -> None:
    source = random.Random(seed)

    async def scenario() -> None:
        store = Store(registry())
        for name in ("a", "b"):
            await store.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        usage = Usage(store, PODS, "a")
        for step in range(40 if between == 1 else 2):
            for number in range(between):
                namespace, name = source.choice("aab"), f"p{source.randrange(8)}"
                if store.peek(PODS, name, namespace) is None:
                    await store.create(PODS, pod(name, source.randrange(3)), namespace)
                elif source.random() < 0.5:
                    await store.delete(PODS, name, namespace, grace_period=source.choice((0, 30)))
                else:
                    labels = {"metadata": {"labels": {"n": f"{step}-{number}"}}}
                    await store.patch(PODS, name, labels, namespace, type=PatchType.MERGE)
            fresh = Usage(store, PODS, "a")
            for each in (usage, fresh):
                each.refresh(rules.usage, 0.0)
            for quota in QUOTAS:
                followed = {name: amount for name, amount in usage.total(quota).items() if amount}
                assert followed == {name: amount for name, amount in fresh.total(quota).items() if amount}

    asyncio.run(scenario())
