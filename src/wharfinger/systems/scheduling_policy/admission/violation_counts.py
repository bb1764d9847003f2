"""How often each policy was violated, for deciding when to go from warning to enforcing: a metric, and the policy's status.

The status counts since the policy last changed, over all replicas of the webhook or API server. It is written now and then, not with
each review.
"""

from __future__ import annotations

import logging
from collections import Counter as Counts
from collections.abc import Callable
from typing import TYPE_CHECKING

from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.times import format_time
from wharfinger.client.interface import Client
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.evaluate import Evaluation

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)


def violated(evaluation: Evaluation) -> tuple[str, ...]:
    """The policies to which violations are attributed: those that require what is missing; where something is not
    allowed, all that were used, since none of them allows it."""
    names = (name for each in evaluation.violations for name in each.policies or evaluation.policies)
    return tuple(dict.fromkeys(names))


class ViolationCounts:
    def __init__(self, metrics: CollectorRegistry, now: Callable[[], float]) -> None:
        from prometheus_client import Counter

        self._now = now
        self._new: Counts[str] = Counts()  # not in the status yet
        self._total = Counter(
            "wharfinger_scheduling_policy_violations_total",
            "Pods and pod templates that violated a policy, whether refused or not.",
            ("policy", "mode"),
            registry=metrics,
        )

    def note(self, evaluation: Evaluation, mode: str) -> None:
        for name in violated(evaluation):
            self._total.labels(name, mode).inc()
            self._new[name] += 1

    async def write(self, client: Client) -> None:
        """Adds what was counted to the status of the policies. What cannot be written is kept for the next time."""
        for name, count in list(self._new.items()):
            try:
                await self._add(client, name, count)
            except NotFound:
                pass  # the policy is gone, and its count with it
            except Conflict:
                continue  # another replica was faster
            except ApiError as error:
                log.warning("cannot write the status of policy %s: %s", name, error)
                continue
            self._new[name] -= count
            if not self._new[name]:
                del self._new[name]

    async def _add(self, client: Client, name: str, count: int) -> None:
        current = await client.get(SCHEDULING_POLICIES, name)
        metadata, status = current["metadata"], current.get("status") or {}
        generation = metadata.get("generation", 0)
        before = status.get("violations", 0) if status.get("observedGeneration") == generation else 0
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {
                "observedGeneration": generation,
                "violations": before + count,
                "lastViolationTime": format_time(self._now()),
            },
        }
        await client.patch(SCHEDULING_POLICIES, name, patch, subresource="status")
