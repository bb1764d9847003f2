"""What commands print for programs: one envelope, `apiVersion` and `kind` before everything else."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
import pytest
import yaml
from click.testing import Result
from tests.cli.test_exit_status import COMMANDS, ask, command_of

from wharfinger.cli.output import envelope

__all__ = ["ask"]  # the fixture

# A line for each command that prints data, and the kind of the data.
LINES = {
    "simulate": ("-f {node.yaml} -f {pod.yaml}", "SimulationReport"),
    "test": ("{scenario.yaml}", "TestReport"),
    "plan": ("-f {pod.yaml} --cluster {node.yaml}", "Plan"),
    "explain pod": ("a -f {node.yaml} -f {pod.yaml}", "PodExplanation"),
    "explain placement": ("hub/all -f {placement.yaml}", "PlacementExplanation"),
    "explain reservation": ("r -f {reservation.yaml}", "ReservationExplanation"),
    "explain workload": ("deployment web -f {node.yaml} -f {workload.yaml}", "WorkloadExplanation"),
    "explain policy": ("units -f {node.yaml} -f {units.yaml}", "ResourcePolicyExplanation"),
    "ask": ("-f {pod.yaml} --cluster {node.yaml}", "Answer"),
    "replay": ("{.}", "ReplayReport"),
    "sweep": ("{sweep.yaml} --jobs 1", "SweepReport"),
    "repack": ("--free-nodes 1 --cluster {node.yaml}", "RepackPlan"),
    "explain admission": ("-f {pod.yaml} -f {policy.yaml}", "PolicyCheck"),
    "policy check": ("-f {pod.yaml} -f {policy.yaml}", "PolicyCheck"),
    "policy who-can": ("-f {pod.yaml} -f {policy.yaml}", "PolicyWhoCan"),
    "policy lint": ("-f {policy.yaml}", "PolicyLint"),
    "policy effective": ("-n default -f {policy.yaml}", "EffectivePolicy"),
    "policy suggest": ("-n default -f {pod.yaml}", "List"),
    "policy preset": ("restricted-multiarch-by-affinity", "List"),
    "capacity": ("-f {big.yaml} --node-group {group.yaml}", "CapacityReport"),
    "classes": ("-f {node.yaml}", "ClassReport"),
    "score capacity": ("--template {pod.yaml} -f {node.yaml}", "CapacityAnswer"),
    "rollout": ("hub/all -f {placement.yaml}", "Rollout"),
    "status": ("--data-dir {nothing}", "Status"),
    "version": ("", "Version"),
    "crds": ("", "List"),
    "install": ("--components scheduler --offline", "List"),
    "bench engine": ("--workload SchedulingBasic --nodes 10 --pods 10", "Benchmark"),
    "bench simulate": ("--nodes 2 --deployments 1 --replicas 2", "Benchmark"),
    "bench placement": ("--placements 5 --clusters 5 --namespaces 1 --users 2", "Benchmark"),
}
NOT_RUN = {"fuzz", "bench apiserver", "bench classes", "bench live", "bench webhook"}  # they take too long


def formats(name: str) -> tuple[str, ...]:
    """The values of -o, if they are formats."""
    for parameter in command_of(name).params:
        if "--output" in parameter.opts and isinstance(parameter.type, click.Choice):
            return tuple(parameter.type.choices)
    return ()


PRINTING = [name for name in COMMANDS if "json" in formats(name)]


def test_every_command_that_prints_data_is_tried() -> None:
    assert {name for name in PRINTING if name not in LINES} == NOT_RUN


@pytest.mark.parametrize("name", [name for name in PRINTING if name in LINES])
def test_data_comes_in_an_envelope(name: str, ask: Callable[[str], Result]) -> None:
    line, kind = LINES[name]
    version = "v1" if kind == "List" else "wharfinger.dev/v1alpha1"
    printed = ask(f"{name} {line} -o json")
    found = json.loads(printed.stdout)
    assert (list(found)[:2], found["apiVersion"], found["kind"]) == (["apiVersion", "kind"], version, kind)
    if "yaml" in formats(name) and kind != "List":  # manifests are YAML documents one after the other
        again = yaml.safe_load(ask(f"{name} {line} -o yaml").stdout)
        assert list(again) == list(found)


def test_fields_keep_their_places_and_lists_become_items() -> None:
    assert envelope({"a": 1, "kind": "Own"}, "Other") == {
        "apiVersion": "wharfinger.dev/v1alpha1",
        "kind": "Own",
        "a": 1,
    }
    assert envelope([1], "Thing")["items"] == [1]
    with pytest.raises(ValueError, match="kind"):
        envelope({})
