"""Publishes AddOnPlacementScores: writes them when they change, renews them before they expire, and restores them if they
are deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from wharfinger.api.conditions import new_condition, set_condition
from wharfinger.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, not_found
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.wording import listed
from wharfinger.client.informer import Informer
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, SystemClock, background_sleep
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES, MANAGED_CLUSTERS
from wharfinger.systems.placement.kinds.views import AddOnPlacementScore
from wharfinger.systems.placement.scores.normalise import HIGHEST, LOWEST

log = logging.getLogger(__name__)

UPDATED = "AddOnPlacementScoreUpdated"

FAILURES = (ApiError, OSError, TimeoutError, ValueError)
"""Errors that are logged, and retried in the next round."""

KNOWN_FOR, UNKNOWN_FOR = 600.0, 60.0  # seconds until the hub is asked again whether it has a cluster
_ATTEMPTS = 5  # to write an object that others write, too
_NAMED = 10  # clusters in a message

Produce = Callable[[], Awaitable[Mapping[str, Mapping[str, int]]]]
"""Measures scores, by cluster and score name."""


class _Written(msgspec.Struct):
    """What was last written for a cluster."""

    scores: dict[str, int]
    condition: Document | None
    at: float
    object: Document  # as the hub returned it


class ScorePublisher:
    """Writes the AddOnPlacementScore of one name in each cluster's namespace on the hub.

    Scores count as 0 if they are not renewed within `valid_for` seconds; None means that they never expire. Without
    `create`, objects must exist.
    """

    def __init__(
        self,
        client: Client,
        resource_name: str,
        *,
        valid_for: float | None = 300.0,
        create: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._name = resource_name
        self._valid_for = valid_for
        self._create = create
        self._clock = clock or SystemClock()
        self._written: dict[str, _Written] = {}  # by cluster
        self._clusters: dict[str, tuple[bool, float]] = {}  # whether the hub has it, and until when to believe that
        self._unknown: frozenset[str] = frozenset()

    async def publish(
        self, cluster: str, scores: Mapping[str, int], *, again_in: float = 0.0, condition: Document | None = None
    ) -> bool:
        """Publishes the cluster's scores, and a condition (without times) beside the usual one.

        Unchanged scores are renewed after half of their validity, or earlier if the next call, `again_in` seconds from
        now, would come too late to retry a failure of this one. Returns whether anything was written. Raises ValueError
        for a score that is not an integer or out of range.
        """
        wanted: dict[str, Any] = dict(scores)  # from programs of others, whatever their types say
        for name, value in wanted.items():
            if not isinstance(value, int) or not LOWEST <= value <= HIGHEST:
                raise ValueError(
                    f"the score {name} of {cluster} is {value!r}, not an integer between {LOWEST} and {HIGHEST}"
                )
        now = self._clock.now()
        known = self._written.get(cluster)
        if (
            known is not None
            and (known.scores, known.condition) == (wanted, condition)
            and self._is_fresh(now - known.at, again_in)
        ):
            return False
        await self._write(cluster, partial(_same, wanted), now, condition)
        return True

    def _is_fresh(self, age: float, again_in: float) -> bool:
        """Whether scores of this age need no renewal yet."""
        if self._valid_for is None:
            return True
        return age < self._valid_for / 2 and age + 2 * again_in < self._valid_for

    async def merge(self, cluster: str, changes: Mapping[str, int | None]) -> dict[str, int]:
        """Changes some scores of a cluster, None to remove one, and keeps the others. Returns all scores."""

        def merged(found: Document) -> dict[str, int]:
            scores = {each["name"]: each.get("value", 0) for each in (found.get("status") or {}).get("scores") or ()}
            return {name: value for name, value in {**scores, **changes}.items() if value is not None}

        return await self._write(cluster, merged, self._clock.now())

    async def withdraw(self, cluster: str) -> None:
        """Removes the cluster's scores."""
        self._written.pop(cluster, None)
        with suppress(NotFound):
            await self._client.delete(ADDON_PLACEMENT_SCORES, self._name, cluster)

    async def _write(
        self,
        cluster: str,
        choose: Callable[[Document], dict[str, int]],
        at: float,
        condition: Document | None = None,
    ) -> dict[str, int]:
        """Writes the scores that `choose` makes of the present object, and returns them."""
        known = self._written.get(cluster)
        found = known.object if known is not None else await self._current(cluster)
        for left in reversed(range(_ATTEMPTS)):
            # The list of conditions is replaced as a whole: use the resource version to keep those of others.
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            scores = choose(found)
            change = {"metadata": version, "status": self._status(found, scores, at, condition)}
            try:
                written = await self._client.patch(
                    ADDON_PLACEMENT_SCORES, self._name, change, cluster, subresource="status"
                )
            except (Conflict, NotFound):
                self._written.pop(cluster, None)
                if not left:
                    raise
                found = await self._current(cluster)
            else:
                self._written[cluster] = _Written(scores, condition, at, written)
                return scores
        raise AssertionError("the last attempt returns or raises")

    async def _current(self, cluster: str) -> Document:
        """The cluster's object, created if it does not exist."""
        with suppress(NotFound):
            return await self._client.get(ADDON_PLACEMENT_SCORES, self._name, cluster)
        if not self._create:
            raise not_found(ADDON_PLACEMENT_SCORES.group, ADDON_PLACEMENT_SCORES.plural, self._name)
        document = {
            "apiVersion": ADDON_PLACEMENT_SCORES.api_version,
            "kind": ADDON_PLACEMENT_SCORES.kind,
            "metadata": {"name": self._name, "namespace": cluster},
        }
        with suppress(AlreadyExists):
            return await self._client.create(ADDON_PLACEMENT_SCORES, document, cluster)
        return await self._client.get(ADDON_PLACEMENT_SCORES, self._name, cluster)

    def _status(
        self, found: Document, scores: Mapping[str, int], at: float, condition: Document | None
    ) -> dict[str, Any]:
        now = self._clock.now()
        updated = new_condition(UPDATED, True, UPDATED, "AddOnPlacementScore updated successfully", now)
        conditions = set_condition((found.get("status") or {}).get("conditions") or (), updated)
        if condition is not None:
            conditions = set_condition(conditions, {**condition, "lastTransitionTime": format_time(now)})
        return {
            "scores": [{"name": name, "value": value} for name, value in sorted(scores.items())],
            "validUntil": None if self._valid_for is None else format_time(at + self._valid_for),
            "conditions": conditions,
        }

    # What others do

    async def guard(self, cluster: str = "") -> None:
        """Until cancelled, writes scores again as soon as somebody deletes them, and in the next round if somebody
        changes them. With `cluster`, only its namespace is watched."""
        deleted: asyncio.Queue[tuple[str, _Written]] = asyncio.Queue()

        def removed(score: AddOnPlacementScore) -> None:
            known = self._written.get(score.metadata.namespace)
            if known is not None and known.object["metadata"].get("uid") == score.metadata.uid:
                del self._written[score.metadata.namespace]
                deleted.put_nowait((score.metadata.namespace, known))

        def changed(_: AddOnPlacementScore, score: AddOnPlacementScore) -> None:
            known = self._written.get(score.metadata.namespace)
            if known is not None and _version(score.metadata.resource_version) > _version(
                str(known.object["metadata"].get("resourceVersion", ""))
            ):
                if {item.name: item.value for item in score.status.scores} != known.scores:
                    del self._written[score.metadata.namespace]

        informer = Informer(
            self._client,
            ADDON_PLACEMENT_SCORES,
            AddOnPlacementScore,
            namespace=cluster,
            field_selector=f"metadata.name={self._name}",
        )
        informer.add_handler(None, changed, removed)
        informer.start()
        try:
            while True:
                name, lost = await deleted.get()
                if name not in self._written:
                    try:
                        await self._write(name, partial(_same, lost.scores), lost.at, lost.condition)
                    except FAILURES as error:
                        log.warning("cannot restore the scores of %s: %s", name, error)
        finally:
            await informer.stop()

    async def known(self, clusters: Mapping[str, object]) -> set[str]:
        """Those of the clusters that the hub has. A warning names the others, whenever they change."""
        found = {name for name in clusters if await self._has(name)}
        unknown = frozenset(clusters.keys() - found)
        if unknown - self._unknown:
            log.warning("ignored, because the hub has no such clusters: %s", listed(sorted(unknown), _NAMED))
        self._unknown = unknown
        return found

    async def _has(self, cluster: str) -> bool:
        there, until = self._clusters.get(cluster, (False, 0.0))
        if self._clock.now() >= until:
            try:
                await self._client.get(MANAGED_CLUSTERS, cluster)
                there = True
            except NotFound:
                there = False
            except Forbidden:  # a producer that may only write the scores of some clusters
                there = True
            self._clusters[cluster] = there, self._clock.now() + (KNOWN_FOR if there else UNKNOWN_FOR)
        return there


def _same(scores: dict[str, int], _: Document) -> dict[str, int]:
    return scores


def _version(text: str) -> int:
    return int(text) if text.isdigit() else 0


async def run_producer(publisher: ScorePublisher, produce: Produce, interval: float) -> None:
    """Measures and publishes every `interval` seconds until cancelled. Failures, whatever they are, are logged and retried
    in the next round. Scores that somebody deletes are written again at once.

    The interval must be at most half of the validity, so that one failed round does not let scores expire.
    """
    guard = asyncio.create_task(publisher.guard(), name="restore deleted scores")
    try:
        while True:
            try:
                await publish_all(publisher, await produce(), again_in=interval)
            except FAILURES as error:
                log.warning("cannot measure scores: %s", error)
            except Exception:  # of `produce`, which is not ours
                log.exception("cannot measure scores")
            await background_sleep(interval)
    finally:
        guard.cancel()
        await asyncio.gather(guard, return_exceptions=True)


def of_known_clusters(publisher: ScorePublisher, produce: Produce) -> Produce:
    """Measures likewise, and leaves out clusters that the hub does not have. A warning names them."""

    async def measure() -> dict[str, Mapping[str, int]]:
        measured = await produce()
        return {cluster: measured[cluster] for cluster in await publisher.known(measured)}

    return measure


async def publish_all(
    publisher: ScorePublisher, measured: Mapping[str, Mapping[str, int]], *, again_in: float = 0.0
) -> tuple[int, dict[str, str]]:
    """Publishes the measured scores. Returns how many clusters were written, and the error of each that failed."""
    written = 0
    failed: dict[str, str] = {}
    for cluster, scores in sorted(measured.items()):
        try:
            written += await publisher.publish(cluster, scores, again_in=again_in)
        except FAILURES as error:
            log.warning("cannot publish the scores of %s: %s", cluster, error)
            failed[cluster] = str(error)
    return written, failed


async def set_by_hand(
    client: Client,
    cluster: str,
    resource_name: str,
    changes: Mapping[str, int | None],
    valid_for: float | None,
    clock: Clock | None = None,
) -> dict[str, int]:
    """Sets some scores of a cluster, removes those that are None and keeps the others. Returns all scores. Raises NotFound
    if the hub does not have the cluster."""
    await client.get(MANAGED_CLUSTERS, cluster)
    publisher = ScorePublisher(client, resource_name, valid_for=valid_for, clock=clock)
    return await publisher.merge(cluster, changes)
