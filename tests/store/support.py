"""Objects, a clock and a custom kind for tests of the store."""

from __future__ import annotations

from typing import Any

from wharfinger.api import kinds
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document, Kind, Registry, Resource, Scale
from wharfinger.api.requests import PatchType
from wharfinger.store import Store

START = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time


def _convert(document: Document, version: str) -> Document:
    """The field spec.size of v1 is spec.length in v1beta1."""
    old, new = ("length", "size") if version == "v1" else ("size", "length")
    spec = dict(document.get("spec") or {})
    if old in spec:
        spec[new] = spec.pop(old)
    return {**document, "spec": spec}


WIDGET_KIND = Kind(
    "example.com",
    "Widget",
    "widgets",
    versions=("v1", "v1beta1"),
    status=True,
    scale=Scale(),
    convert=_convert,
    custom=True,
)
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
OLD_WIDGETS = Resource("example.com", "v1beta1", "widgets", "Widget")


def registry() -> Registry:
    known = kinds.registry()
    known.add(WIDGET_KIND)
    return known


def pod(name: str = "p", **metadata: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
    }


def config(name: str = "c", data: dict[str, str] | None = None, **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}, "data": data or {}}


def widget(name: str = "w", spec: Document | None = None, **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}, "spec": spec or {}}


async def bind(store: Store, name: str = "p", node: str = "n1", **metadata: Any) -> None:
    binding = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
    await store.create(PODS, binding, "default", name=name, subresource="binding")


async def set_status(store: Store, name: str = "p", **status: Any) -> None:
    await store.patch(PODS, name, {"status": status}, "default", type=MERGE, subresource="status")


JSON, MERGE, STRATEGIC, APPLY = PatchType.JSON, PatchType.MERGE, PatchType.STRATEGIC, PatchType.APPLY
