"""Two Grafana dashboards as ConfigMaps, which Grafana's sidecar finds by their label: the scheduler, and the systems.

The names of upstream's metrics are unchanged, so dashboards for kube-scheduler work, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from wharfinger.api.registry import Document

LABEL = {"grafana_dashboard": "1"}
_WIDTH, _HEIGHT = 12, 8  # of a panel; a row of Grafana has 24 columns
_RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class GrafanaPanel:
    title: str
    queries: tuple[tuple[str, str], ...]  # PromQL, and the legend
    unit: str = "short"


def _slowest(what: str, metric: str, legend: str, by: str = "") -> GrafanaPanel:
    grouped = f"le, {by}" if by else "le"
    query = f"histogram_quantile(0.99, sum by ({grouped}) (rate({metric}_bucket[{_RATE}])))"
    return GrafanaPanel(f"{what}, 99th percentile", ((query, legend),), "s")


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[{_RATE}]))"


SCHEDULER = (
    GrafanaPanel("Attempts", ((_rate("scheduler_schedule_attempts_total", "result"), "{{result}}"),), "ops"),
    GrafanaPanel("Pending pods", (("sum by (queue) (scheduler_pending_pods)", "{{queue}}"),)),
    _slowest("Time of an attempt", "scheduler_scheduling_attempt_duration_seconds", "{{result}}", "result"),
    _slowest("Time of a decision", "scheduler_scheduling_algorithm_duration_seconds", "decision"),
    _slowest(
        "From arrival to bound", "scheduler_pod_scheduling_sli_duration_seconds", "{{attempts}} attempts", "attempts"
    ),
    GrafanaPanel(
        "Added to the queues", ((_rate("scheduler_queue_incoming_pods_total", "queue, event"), "{{event}}"),), "ops"
    ),
    GrafanaPanel(
        "Preemption",
        (
            (f"sum(rate(scheduler_preemption_attempts_total[{_RATE}]))", "attempts"),
            (f"sum(rate(scheduler_preemption_victims_sum[{_RATE}]))", "victims"),
        ),
        "ops",
    ),
    GrafanaPanel("Pods of other schedulers on our nodes", (("sum(wharfinger_foreign_pods_total)", "pods"),)),
)

SYSTEMS = (
    GrafanaPanel("Reservations", (("sum by (phase) (wharfinger_reservations)", "{{phase}}"),)),
    GrafanaPanel(
        "Reserved resources in use",
        (("wharfinger_reserved_resources_used / (wharfinger_reserved_resources > 0)", "{{resource}}"),),
        "percentunit",
    ),
    GrafanaPanel("Resources that reservations wait for", (("wharfinger_reserved_resources_waiting", "{{resource}}"),)),
    GrafanaPanel(
        "Pods in units",
        (("wharfinger_resource_policy_unit_pods", "{{namespace}}/{{policy}} {{unit}}"),),
    ),
    GrafanaPanel(
        "Violations of scheduling policies",
        ((_rate("wharfinger_scheduling_policy_violations_total", "policy, mode"), "{{policy}} ({{mode}})"),),
        "ops",
    ),
    GrafanaPanel("Reviews", ((_rate("wharfinger_scheduling_policy_reviews_total", "outcome"), "{{outcome}}"),), "ops"),
    _slowest("Time of a review", "wharfinger_webhook_duration_seconds", "{{phase}}", "phase"),
    _slowest("Time to decide a placement", "scheduling_scheduling_duration_seconds", "placement"),
    _slowest("Time to reconcile", "wharfinger_reconcile_duration_seconds", "{{controller}}", "controller"),
    GrafanaPanel("Work", ((_rate("wharfinger_workqueue_adds_total", "controller"), "{{controller}}"),), "ops"),
)

DASHBOARDS = {"scheduler": ("Wharfinger / Scheduler", SCHEDULER), "systems": ("Wharfinger / Systems", SYSTEMS)}


def grafana_dashboards(namespace: str) -> list[Document]:
    """A ConfigMap for each dashboard."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"wharfinger-dashboard-{name}", "namespace": namespace, "labels": dict(LABEL)},
            "data": {f"wharfinger-{name}.json": msgspec.json.encode(dashboard(name, title, panels)).decode()},
        }
        for name, (title, panels) in DASHBOARDS.items()
    ]


def dashboard(name: str, title: str, panels: Sequence[GrafanaPanel]) -> Document:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "uid": f"wharfinger-{name}",
        "title": title,
        "tags": ["wharfinger"],
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]
        },
        "panels": [
            {
                "id": position + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": position % 2 * _WIDTH, "y": position // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": source}
                    for index, (query, legend) in enumerate(panel.queries)
                ],
            }
            for position, panel in enumerate(panels)
        ],
    }
