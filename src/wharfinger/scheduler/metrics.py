"""The scheduler's metrics, under upstream's names so that existing dashboards work."""

from __future__ import annotations

from wharfinger.api.metrics import Metrics

_FINE = (
    0.00001,
    0.000025,
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.5,
    1.0,
    5.0,
)
_LONG = (0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_COUNTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class SchedulerMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.attempts = metrics.counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods, by the result: scheduled, unschedulable or error.",
            ("result", "profile"),
        )
        self.attempt_seconds = metrics.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one scheduling attempt (the decision and the binding).",
            ("result", "profile"),
            _FINE,
        )
        self.algorithm_seconds = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time of one decision.", (), _FINE
        )
        self.pending = metrics.gauge("scheduler_pending_pods", "Pods that wait, by the queue they wait in.", ("queue",))
        self.incoming = metrics.counter(
            "scheduler_queue_incoming_pods_total",
            "Pods added to the queues, by the event that brought them.",
            ("queue", "event"),
        )
        self.pod_attempts = metrics.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts until a pod was scheduled.", (), _COUNTS
        )
        self.sli_seconds = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from a pod's coming to the queue until it was bound.",
            ("attempts",),
            _LONG,
        )
        self.preemption_attempts = metrics.counter(
            "scheduler_preemption_attempts_total", "Attempts to make room by preemption."
        )
        self.preemption_victims = metrics.histogram(
            "scheduler_preemption_victims", "Pods chosen to be preempted at once.", (), _COUNTS
        )
        self.foreign = metrics.counter(
            "wharfinger_foreign_pods_total", "Pods that others bound onto the nodes that are ours."
        )
