"""The generated reference: the pages are those that the code gives, and the man pages can be read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from scripts.reference.commands import read_command
from scripts.reference.man import man_pages
from scripts.reference.messages import reported, scheduling_reasons
from scripts.reference.metrics import metrics
from scripts.reference.pages import reference_pages

from wharfinger.client.metrics import ControllerMetrics
from wharfinger.scheduler.metrics import SchedulerMetrics
from wharfinger.systems.placement.controllers.scheduling import PlacementMetrics

ROOT = Path(__file__).parents[2]


def test_the_pages_are_up_to_date() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in reference_pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]

    assert stale == [], "run `make reference`"


def test_metrics_of_components_are_found_with_type_labels_and_help() -> None:
    registry = CollectorRegistry()
    for component in (ControllerMetrics, SchedulerMetrics, PlacementMetrics):
        component(registry)
    found = {metric.name: metric for metric in metrics()}
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert (found[name].type, found[name].help) == (family.type, family.documentation)


def test_reasons_of_stock_plugins_and_of_systems_are_found() -> None:
    reasons = scheduling_reasons()

    assert "node(s) had untolerated taint(s)" in reasons["plugins/taint_toleration"]
    assert "Too many pods" in reasons["plugins/node_resources"]
    assert "node(s) no reservations match reservation affinity" in reasons["systems/reservation"]


def test_messages_belong_to_their_reasons() -> None:
    told = {(each.reason, each.message) for each in reported()}

    assert ("Scheduled", "Successfully assigned <title> to <node>") in told
    assert ("WaitingForResources", "waiting for resources on node <node>") in told
    assert ("WaitingForResources", "reserved on node <node>") not in told


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_pages_are_without_faults(tmp_path: Path) -> None:
    pages = man_pages(read_command(), "1.2.3", "2026-01-01")
    for name, text in pages.items():
        (tmp_path / name).write_text(text)

    checked = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-z", *sorted(pages)], cwd=tmp_path, capture_output=True, text=True
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_there_is_a_man_page_for_every_command() -> None:
    pages = man_pages(read_command(), "1.2.3", "2026-01-01")

    assert {"wharf.1", "wharf-simulate.1", "wharf-explain-pod.1", "wharf-policy-who-can.1"} <= pages.keys()
    assert r".TH \(dqWHARF" not in pages["wharf.1"]
    assert r"\fB\-\-namespace\fP" in pages["wharf-explain-pod.1"]
