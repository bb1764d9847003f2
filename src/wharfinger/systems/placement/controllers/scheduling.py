"""The scheduling controller: decides Placements when their inputs change, and writes the result."""

from __future__ import annotations

import math
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.object_meta import controller_reference, reference_document
from wharfinger.api.registry import Document
from wharfinger.api.views.base import view
from wharfinger.client.events import reference
from wharfinger.client.timers import call_later
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.placement.controllers.cache import PlacementCache
from wharfinger.systems.placement.controllers.sets import DEFAULT_SETS
from wharfinger.systems.placement.kinds.names import (
    ADDON_PLACEMENT_SCORES,
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    PLACEMENT_DECISIONS,
    PLACEMENTS,
)
from wharfinger.systems.placement.kinds.views import (
    DISABLE_ANNOTATION,
    AddOnPlacementScore,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    Placement,
    PlacementDecision,
)
from wharfinger.systems.placement.rules.explain import PlacementExplanation, explain
from wharfinger.systems.placement.rules.outcome import PageWrite, PlacementOutcome, decide_placement
from wharfinger.systems.placement.rules.pipeline import ResultCode
from wharfinger.systems.placement.settings import PlacementSettings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Histogram

_BUCKETS = tuple(10.0**power for power in range(-6, 4))


class PlacementMetrics:
    """Upstream's histograms, with buckets from a microsecond to a thousand seconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Histogram

        def histogram(name: str, help: str, labels: tuple[str, ...] = ()) -> Histogram:
            return Histogram(f"scheduling_{name}_seconds", help, labels, registry=registry, buckets=_BUCKETS)

        self.scheduling = histogram("scheduling_duration", "Time taken to decide a placement, in seconds.")
        self.bind = histogram("bind_duration", "Time taken to write a decision, in seconds.")
        self.plugin = histogram(
            "plugin_duration", "Time taken by a filter or prioritizer, in seconds.", ("plugin_type", "plugin_name")
        )
        self.cel = histogram("cel_runtime_duration", "Time taken to filter by CEL expressions, in seconds.")


class PlacementController(ContextController[ObjectKey]):
    name = "placement"

    def __init__(self, context: ControllerContext, metrics: PlacementMetrics | None = None) -> None:
        super().__init__(context)
        self.world = PlacementCache(self.queue.add, context.now)
        self.metrics = metrics
        self.decided = 0  # decisions made, for tests and benchmarks
        informers, world = context.informers, self.world
        clusters = context.documents(MANAGED_CLUSTERS)
        clusters.add_handler(world.put_cluster, lambda old, new: world.put_cluster(new), world.remove_cluster)
        self._sets = informers.of(MANAGED_CLUSTER_SETS, ManagedClusterSet)
        self._sets.add_handler(world.put_set, lambda old, new: world.put_set(new), world.remove_set)
        bindings = informers.of(MANAGED_CLUSTER_SET_BINDINGS, ManagedClusterSetBinding)
        bindings.add_handler(world.put_binding, lambda old, new: world.put_binding(new), world.remove_binding)
        scores = informers.of(ADDON_PLACEMENT_SCORES, AddOnPlacementScore)
        scores.add_handler(lambda new: world.put_score(None, new), world.put_score, world.remove_score)
        pages = informers.of(PLACEMENT_DECISIONS, PlacementDecision)
        pages.add_handler(world.put_page, lambda old, new: world.put_page(new), world.remove_page)
        placements = informers.of(PLACEMENTS, Placement)
        placements.add_handler(world.put_placement, lambda old, new: world.put_placement(new), world.remove_placement)

    async def prepare(self) -> None:
        self._resync()

    def _resync(self) -> None:
        period = self.context.configuration.of(PlacementSettings).resync_seconds
        if period > 0:
            for key in self.world.placements:
                self.queue.add(key)
            call_later(period, self._resync, background=True)

    async def reconcile(self, key: ObjectKey) -> None:
        placement = self.world.placements.get(key)
        if placement is None or why_left_alone(placement):
            return
        now = self.context.now()
        started = time.perf_counter()
        outcome = self._decide(key, placement, now)
        decided = time.perf_counter()
        for write in outcome.writes:
            await self._write(key, placement, write)
        if outcome.status is not None:
            await self._write_status(key, outcome.status)
        for event in outcome.events:
            kind: Any = event.type
            page = {"metadata": {"name": event.page, "namespace": key[0]}}
            self.context.recorder.event(
                PLACEMENTS,
                placement,
                kind,
                event.reason,
                event.message,
                action=f"{event.reason}d",  # DecisionCreate, DecisionCreated
                related=reference(PLACEMENT_DECISIONS, page),
            )
        if outcome.next_change < math.inf:
            self.queue.add_after(key, max(0.001, outcome.next_change - now), background=True)
        if self.metrics is not None:
            self.metrics.scheduling.observe(decided - started)
            self.metrics.bind.observe(time.perf_counter() - decided)

    def _decide(self, key: ObjectKey, placement: Placement, now: float) -> PlacementOutcome:
        self.decided += 1
        world = self.world
        stopwatch = time.perf_counter if self.metrics is not None else None
        outcome = decide_placement(
            world.fleet, placement, world.plan(key), world.scope(key), world.pages.get(key, {}), now, stopwatch
        )
        if self.metrics is not None:
            for kind, name, seconds in outcome.result.timings:
                (
                    self.metrics.cel.observe(seconds)
                    if kind == "cel"
                    else self.metrics.plugin.labels(kind, name).observe(seconds)
                )
        return outcome

    def explain(self, key: ObjectKey) -> PlacementExplanation | None:
        """Explains the current decision of a placement; None if it does not exist."""
        world, now = self.world, self.context.now()
        if key not in world.placements:
            return None
        if self.context.configuration.of(PlacementSettings).default_cluster_set:
            # Manifests may lack the default sets, which always exist on a hub.
            for name, spec in DEFAULT_SETS.items():
                if self._sets.get(name) is None:
                    world.put_set(view({"metadata": {"name": name}, "spec": spec}, ManagedClusterSet))
        placement, plan, scope = world.placements[key], world.plan(key), world.scope(key)
        pages = world.pages.get(key, {})
        outcome = decide_placement(world.fleet, placement, plan, scope, pages, now)
        story = explain(world.fleet, plan, world.fleet.eligible(scope.selectors), outcome.result, now)
        if why := why_left_alone(placement):
            held = (item.cluster_name for _, page in sorted(pages.items()) for item in page.status.decisions)
            return story.holding(tuple(held), "NotDecided", why)
        if outcome.fault is not None:
            message = f"{outcome.fault.plugin}:{outcome.fault.message}"
            return story.holding(outcome.decided, ResultCode.MISCONFIGURED.value, message)
        return story

    async def _write(self, key: ObjectKey, placement: Placement, write: PageWrite) -> None:
        namespace, client = key[0], self.context.client
        known = self.world.pages.get(key, {}).get(write.name)
        if write.delete:
            if known is not None:
                try:
                    gone = await client.delete(PLACEMENT_DECISIONS, write.name, namespace)
                    self.world.deleted_by_us(known, str(gone.get("metadata", {}).get("resourceVersion", "")))
                except NotFound:
                    self.world.remove_page(known, ours=True)
            return
        if write.create and known is None:
            document = _page(placement, write)
            try:
                await self._change_page(key, write.name, client.create(PLACEMENT_DECISIONS, document, namespace))
            except AlreadyExists:
                # A page of this name exists that was not ours: adopt it by setting labels and owner.
                found = await client.get(PLACEMENT_DECISIONS, write.name, namespace, view=PlacementDecision)
                metadata = {**document["metadata"], "ownerReferences": _owners(placement, found)}
                await self._patch_page(key, write.name, {"metadata": metadata})
        elif write.labels is not None or write.annotations is not None:
            changes: dict[str, Any] = {}
            if write.labels is not None:
                changes |= {
                    "labels": write.labels,
                    "ownerReferences": _owners(placement, known),
                }
            if write.annotations is not None:
                changes["annotations"] = write.annotations
            await self._patch_page(key, write.name, {"metadata": changes})
        if write.decisions is not None:
            await self._patch_page(key, write.name, {"status": {"decisions": write.decisions}}, "status")

    async def _patch_page(self, key: ObjectKey, name: str, change: Document, subresource: str = "") -> None:
        patch = self.context.client.patch(PLACEMENT_DECISIONS, name, change, key[0], subresource=subresource)
        await self._change_page(key, name, patch)

    async def _change_page(self, key: ObjectKey, name: str, write: Coroutine[Any, Any, Document]) -> None:
        page, version = (key[0], name), ""
        self.world.begin_write("page", page)
        try:
            written = view(await write, PlacementDecision)
            version = written.metadata.resource_version
            self.world.put_page(written, ours=True)
        finally:
            self.world.end_write("page", page, key, version)

    async def _write_status(self, key: ObjectKey, status: dict[str, Any]) -> None:
        version = ""
        self.world.begin_write("placement", key)
        try:
            patch = self.context.client.patch(PLACEMENTS, key[1], {"status": status}, key[0], subresource="status")
            written = view(await patch, Placement)
            version = written.metadata.resource_version
            self.world.put_placement(written, ours=True)
        except NotFound:
            return
        finally:
            self.world.end_write("placement", key, key, version)


def why_left_alone(placement: Placement) -> str:
    """Why nothing is decided for a placement, so that its decisions stay as they are; empty if it is decided."""
    if placement.metadata.deletion_timestamp:
        return "it is being deleted; its decisions stay as they are"
    if placement.metadata.annotations.get(DISABLE_ANNOTATION) == "true":
        return f'the annotation {DISABLE_ANNOTATION} is "true"; its decisions stay as they are'
    return ""


def _owners(placement: Placement, page: PlacementDecision | None) -> list[Document]:
    """The owner references of a page: the placement as its controller, and those that others have added."""
    others = [
        reference_document(owner)
        for owner in (page.metadata.owner_references if page is not None else ())
        if not owner.controller and owner.uid != placement.metadata.uid
    ]
    return [*others, controller_reference(PLACEMENTS, placement.metadata)]


def _page(placement: Placement, write: PageWrite) -> Document:
    return {
        "apiVersion": PLACEMENT_DECISIONS.api_version,
        "kind": PLACEMENT_DECISIONS.kind,
        "metadata": {
            "name": write.name,
            "namespace": placement.metadata.namespace,
            "labels": write.labels or {},
            "ownerReferences": [controller_reference(PLACEMENTS, placement.metadata)],
        },
    }
