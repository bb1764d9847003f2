"""The scheduler's metrics, under upstream's names so that existing dashboards work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

from wharfinger.http.metrics import LabelledSeries

if TYPE_CHECKING:
    from wharfinger.scheduler.schedulable import SchedulableKinds

# fmt: off
_FINE = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025,
         0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
# fmt: on
_LONG = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class SchedulableCollector:
    """Collects what the kinds that are scheduled besides pods tell about their objects."""

    def __init__(self, kinds: SchedulableKinds) -> None:
        self._kinds = kinds

    def collect(self) -> Iterable[Metric]:
        return [metric for each in self._kinds.others.values() for metric in each.metrics()]


class SchedulerMetrics:
    """Labelled metrics are `LabelledSeries`: `attempts[result, profile].inc()`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(name, help, labels, registry=registry)

        def histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, help, labels, registry=registry, buckets=buckets)

        self.attempts = LabelledSeries(
            counter(
                "scheduler_schedule_attempts_total",
                "Attempts to schedule pods, by the result: scheduled, unschedulable or error.",
                "result",
                "profile",
            )
        )
        self.attempt_seconds = LabelledSeries(
            histogram(
                "scheduler_scheduling_attempt_duration_seconds",
                "Time of one scheduling attempt (the decision and the binding).",
                _FINE,
                "result",
                "profile",
            )
        )
        self.algorithm_seconds = histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time of one decision.", _FINE
        )
        self.pending = LabelledSeries(
            Gauge("scheduler_pending_pods", "Pods that wait, by the queue they wait in.", ("queue",), registry=registry)
        )
        self.incoming = LabelledSeries(
            counter(
                "scheduler_queue_incoming_pods_total",
                "Pods added to the queues, by the event that added them.",
                "queue",
                "event",
            )
        )
        self.pod_attempts = histogram(
            "scheduler_pod_scheduling_attempts", "Attempts until a pod was scheduled.", _COUNTS
        )
        self.sli_seconds = LabelledSeries(
            histogram(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "Time from a pod's arrival in the queue until it was bound.",
                _LONG,
                "attempts",
            )
        )
        self.preemption_attempts = counter(
            "scheduler_preemption_attempts_total", "Attempts to make room by preemption."
        )
        self.preemption_victims = histogram("scheduler_preemption_victims", "Victims of one preemption.", _COUNTS)
        self.foreign = counter(
            "wharfinger_foreign_pods_total", "Pods that other schedulers bound to nodes of this scheduler."
        )

    def collect_from(self, kinds: SchedulableKinds) -> None:
        """Adds what these kinds tell about their objects."""
        self.registry.register(SchedulableCollector(kinds))
