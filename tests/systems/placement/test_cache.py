"""The cache of the placement controller: what comes late must not bring back what is gone."""

from __future__ import annotations

from typing import Any

from tests.systems.placement.hub import decision, placement

from wharfinger.api.registry import Document
from wharfinger.api.views.base import view
from wharfinger.systems.placement.controllers.cache import PlacementCache
from wharfinger.systems.placement.kinds.views import Placement, PlacementDecision


def at(document: Document, version: int, kind: Any) -> Any:
    metadata = {**document["metadata"], "uid": "one", "resourceVersion": str(version)}
    return view({**document, "metadata": metadata}, kind)


def test_a_response_does_not_bring_back_a_placement_that_was_deleted() -> None:
    cache = PlacementCache(lambda key: None, lambda: 0.0)
    stored = at(placement(), 1, Placement)
    key = stored.metadata.key
    cache.put_placement(stored)
    cache.begin_write("placement", key)
    cache.remove_placement(at(placement(), 3, Placement))
    cache.put_placement(at(placement(), 2, Placement), ours=True)
    cache.end_write("placement", key, key, "2")
    assert not cache.placements


def test_a_response_does_not_bring_back_a_page_that_was_deleted() -> None:
    cache = PlacementCache(lambda key: None, lambda: 0.0)
    page = at(decision(["c1"]), 2, PlacementDecision)
    cache.begin_write("page", page.metadata.key)
    cache.put_page(page)
    cache.remove_page(at(decision(["c1"]), 3, PlacementDecision))
    cache.put_page(page, ours=True)
    assert not any(cache.pages.values())
