"""Lists and watches by an indexed field find what a look at all objects would find."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.store.support import bind, pod

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NAMESPACES, PODS
from wharfinger.api.selectors import FieldRequirement
from wharfinger.store import Listing, Store

Run = Callable[..., Any]


def on(node: str) -> FieldRequirement:
    return FieldRequirement("spec.nodeName", node)


async def listed(store: Store, node: str, namespace: str, version: str) -> list[str]:
    """The pods on a node, page by page."""
    found: list[str] = []
    token = ""
    while True:
        exact = {} if token or not version else {"version": version, "version_match": "Exact"}
        page: Listing = await store.list(PODS, namespace, fields=[on(node)], limit=3, continue_token=token, **exact)
        found += [f"{item.namespace}/{item.name}" for item in page.items]
        token = page.continue_token
        if not token:
            return found


def test_pods_are_found_by_their_node_at_any_time(run: Run) -> None:
    choices = random.Random(7)

    async def change(store: Store) -> None:
        name, namespace = f"p{choices.randrange(30)}", choices.choice(("default", "other"))
        try:
            match choices.randrange(8):
                case 0:
                    await store.delete(PODS, name, namespace)
                case 1 | 2 | 3 if namespace == "default":
                    await bind(store, name, f"n{choices.randrange(3)}")
                case _:
                    await store.create(PODS, pod(name), namespace)
        except ApiError:
            pass  # it exists, or does not, or has a node

    async def scenario(store: Store) -> None:
        await store.create(NAMESPACES, {"metadata": {"name": "other"}})
        await listed(store, "n0", "", "")
        past: dict[int, dict[str, str]] = {}
        for _ in range(150):
            await change(store)
            everything = (await store.list(PODS)).items
            past[store.version] = {
                f"{item.namespace}/{item.name}": item.document()["spec"].get("nodeName", "") for item in everything
            }
        for version, nodes in [*past.items()][-40:]:
            for node in ("", "n0", "n1", "n2"):
                for namespace in ("", "default"):
                    expected = sorted(
                        key for key, where in nodes.items() if where == node and key.startswith(namespace)
                    )
                    assert await listed(store, node, namespace, str(version)) == expected
        watch = store.watch(PODS, after=None, fields=[on("n1")])
        latest = past[store.version]
        wanted = sorted(key for key, where in latest.items() if where == "n1")
        assert wanted
        seen = [event.object for event in watch.ready(100)]
        assert [f"{found.namespace}/{found.name}" for found in seen if found is not None] == wanted
        watch.close()

    run(scenario)
