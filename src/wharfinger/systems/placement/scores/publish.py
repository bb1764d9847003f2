"""Publishes AddOnPlacementScores: writes them when they change and renews them before they expire."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, SystemClock, background_sleep
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES
from wharfinger.systems.placement.scores.normalise import HIGHEST, LOWEST

log = logging.getLogger(__name__)

UPDATED = "AddOnPlacementScoreUpdated"

FAILURES = (ApiError, OSError, TimeoutError, ValueError)
"""Errors that are logged, and retried in the next round."""

Produce = Callable[[], Awaitable[Mapping[str, Mapping[str, int]]]]
"""Measures scores, by cluster and score name."""


class ScorePublisher:
    """Writes the AddOnPlacementScore of one name in each cluster's namespace on the hub.

    Scores count as 0 if they are not renewed within `valid_for` seconds; None means that they never expire.
    """

    def __init__(
        self, client: Client, resource_name: str, *, valid_for: float | None = 300.0, clock: Clock | None = None
    ) -> None:
        self._client = client
        self._name = resource_name
        self._valid_for = valid_for
        self._clock = clock or SystemClock()
        self._written: dict[str, tuple[dict[str, int], float]] = {}  # by cluster: scores and when written

    async def publish(self, cluster: str, scores: Mapping[str, int], *, again_in: float = 0.0) -> bool:
        """Publishes the cluster's scores.

        Unchanged scores are renewed after half of their validity, or earlier if the next call, `again_in` seconds from
        now, would come too late to retry a failure of this one. Returns whether anything was written. Raises ValueError
        for a score that is out of range.
        """
        wanted = dict(scores)
        for name, value in wanted.items():
            if not LOWEST <= value <= HIGHEST:
                raise ValueError(f"the score {name} of {cluster} is {value}, not between {LOWEST} and {HIGHEST}")
        now = self._clock.now()
        known = self._written.get(cluster)
        if known is not None and known[0] == wanted and self._is_fresh(now - known[1], again_in):
            return False
        status = {"status": self._status(wanted, now)}
        try:
            await self._patch(cluster, status)
        except NotFound:
            await self._create(cluster)
            await self._patch(cluster, status)
        self._written[cluster] = (wanted, now)
        return True

    def _is_fresh(self, age: float, again_in: float) -> bool:
        """Whether scores of this age need no renewal yet."""
        if self._valid_for is None:
            return True
        return age < self._valid_for / 2 and age + 2 * again_in < self._valid_for

    async def withdraw(self, cluster: str) -> None:
        """Removes the cluster's scores."""
        self._written.pop(cluster, None)
        with suppress(NotFound):
            await self._client.delete(ADDON_PLACEMENT_SCORES, self._name, cluster)

    async def _patch(self, cluster: str, change: Document) -> None:
        await self._client.patch(ADDON_PLACEMENT_SCORES, self._name, change, cluster, subresource="status")

    async def _create(self, cluster: str) -> None:
        document = {
            "apiVersion": ADDON_PLACEMENT_SCORES.api_version,
            "kind": ADDON_PLACEMENT_SCORES.kind,
            "metadata": {"name": self._name, "namespace": cluster},
        }
        with suppress(AlreadyExists):
            await self._client.create(ADDON_PLACEMENT_SCORES, document, cluster)

    def _status(self, scores: Mapping[str, int], now: float) -> dict[str, Any]:
        return {
            "scores": [{"name": name, "value": value} for name, value in sorted(scores.items())],
            "validUntil": None if self._valid_for is None else format_time(now + self._valid_for),
            "conditions": [
                {
                    "type": UPDATED,
                    "status": "True",
                    "reason": UPDATED,
                    "message": "AddOnPlacementScore updated successfully",
                    "lastTransitionTime": format_time(now),
                }
            ],
        }


async def run_producer(publisher: ScorePublisher, produce: Produce, interval: float) -> None:
    """Measures and publishes every `interval` seconds until cancelled. Failures are logged and retried in the next
    round.

    The interval must be at most half of the validity, so that one failed round does not let scores expire.
    """
    while True:
        try:
            await publish_all(publisher, await produce(), again_in=interval)
        except FAILURES as error:
            log.warning("cannot measure scores: %s", error)
        await background_sleep(interval)


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
