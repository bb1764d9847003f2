"""The dashboards for Grafana ask only for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

import wharfinger
from wharfinger.cli.commands.install import command
from wharfinger.client.metrics import ControllerMetrics
from wharfinger.install.grafana import DASHBOARDS, grafana_dashboards
from wharfinger.scheduler.metrics import SchedulerMetrics
from wharfinger.system import systems

_METRIC = re.compile(r"\b((?:scheduler|scheduling|wharfinger)_\w+)")
_BY = re.compile(r"by \(([^)]*)\)")
_SUFFIXES = ("_bucket", "_sum", "_count")

#: Metrics that only a running scheduler computes, with their labels (systems/reservation/scheduling/items.py).
SOURCES = {
    "wharfinger_reservations": ("phase",),
    "wharfinger_reserved_resources": ("resource",),
    "wharfinger_reserved_resources_used": ("resource",),
    "wharfinger_reserved_resources_waiting": ("resource",),
}


def exposed() -> dict[str, tuple[str, ...]]:
    """The labels of every metric by name, from the programs that expose them."""
    registry = CollectorRegistry()
    SchedulerMetrics(registry)
    ControllerMetrics(registry)
    found = dict(SOURCES)
    for collector in registry._collector_to_names:
        names = tuple(getattr(collector, "_labelnames", ()))
        for metric in collector.describe() if hasattr(collector, "describe") else ():
            found[_full(metric)] = names
    found |= _declared()
    return found


def test_what_only_running_programs_compute_is_in_their_sources() -> None:
    text = "".join(
        path.read_text() for path in Path(wharfinger.__file__).parent.rglob("*.py") if path.name != "grafana.py"
    )
    for name in exposed():
        assert name.removesuffix("_total") in text or name.startswith("scheduling_"), name


def _full(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _declared() -> dict[str, tuple[str, ...]]:
    """Metrics of the webhook and of the systems' controllers, made as those programs make them."""
    from wharfinger.systems.placement.controllers.scheduling import PlacementMetrics
    from wharfinger.systems.scheduling_policy.admission.violation_counts import ViolationCounts

    registry = CollectorRegistry()
    PlacementMetrics(registry)
    ViolationCounts(registry, lambda: 0.0)
    found = {
        _full(metric): tuple(getattr(collector, "_labelnames", ()))
        for collector in registry._collector_to_names
        for metric in collector.describe()
    }
    return found | {
        "wharfinger_webhook_duration_seconds": ("phase",),
        "wharfinger_scheduling_policy_reviews_total": ("outcome",),
        "wharfinger_resource_policy_unit_pods": ("namespace", "policy", "unit"),
    }


def queries() -> list[tuple[str, str]]:
    return [query for _, panels in DASHBOARDS.values() for panel in panels for query in panel.queries]


@pytest.mark.skipif(len(systems()) < 5, reason="the dashboards are about all systems")
@pytest.mark.parametrize(("query", "legend"), queries())
def test_a_query_asks_for_what_is_exposed(query: str, legend: str) -> None:
    known = exposed()
    for name in _METRIC.findall(query):
        base = next((name.removesuffix(each) for each in _SUFFIXES if name.removesuffix(each) in known), name)
        assert base in known, f"{name} is not exposed"
        grouped = {label.strip() for group in _BY.findall(query) for label in group.split(",")} - {"le"}
        shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
        assert grouped | shown <= set(known[base]), f"{name} has the labels {known[base]}"


def test_the_dashboards_are_config_maps_that_grafana_finds() -> None:
    made = grafana_dashboards("monitoring")
    assert [each["metadata"]["labels"] for each in made] == [{"grafana_dashboard": "1"}] * 2
    for each in made:
        (text,) = each["data"].values()
        document: dict[str, Any] = json.loads(text)
        ids = [panel["id"] for panel in document["panels"]]
        assert len(ids) == len(set(ids)) and all(panel["targets"] for panel in document["panels"])


def test_they_are_installed_by_name() -> None:
    done = CliRunner().invoke(command, ["--offline", "--components", "dashboards", "-o", "json"])
    assert done.exit_code == 0, done.output
    assert "wharfinger-dashboard-scheduler" in done.stdout and "Deployment" not in done.stdout
