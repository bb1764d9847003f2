"""The fast path places every pod on the node and the devices where the whole control plane places it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from wharfinger.api.kinds import registry
from wharfinger.framework.columns import TieBreaks
from wharfinger.plugins.device_packing.devices import node_keys
from wharfinger.plugins.device_packing.fragmentation import Fragmentation
from wharfinger.plugins.device_packing.registry import POLICIES
from wharfinger.plugins.device_packing.rooms import PodDemand
from wharfinger.replay.openb import OpenbNode, OpenbPod, OpenbTrace
from wharfinger.replay.openb_objects import DRIVER, device_class, node_objects, pod_objects
from wharfinger.replay.packing import PackingRun, PodKind, models_of, workload_of
from wharfinger.simulate.inputs import read_inputs
from wharfinger.simulate.simulation import SimulationOptions, simulate

Document = dict[str, Any]
MODELS = ("A", "B", "C")


def random_trace(seed: int) -> OpenbTrace:
    rng = random.Random(seed)
    nodes = [
        OpenbNode(f"n{number}", rng.choice((16_000, 64_000)), 262_144, rng.choice((0, 1, 2, 4)), rng.choice(MODELS))
        for number in range(6)
    ]
    nodes = [each if each.devices else each._replace(model="") for each in nodes]
    models = {each.model for each in nodes if each.devices}
    pods = []
    for number in range(40):
        cpu = rng.choice((1000, 4000, 12_000))
        demand = rng.choice(
            (
                PodDemand(cpu),
                PodDemand(cpu, 1, rng.choice((100, 250, 460, 500, 700))),
                PodDemand(
                    cpu, 1, rng.choice((300, 810)), frozenset(rng.sample(sorted(models), 1)) if models else frozenset()
                ),
                PodDemand(cpu, rng.choice((1, 2)), 1000),
            )
        )
        pods.append(OpenbPod(f"p{number:02}", demand, rng.choice((1024, 16_384)), None, None, None))
    return OpenbTrace(nodes, pods)


def configuration(policy: str, trace: OpenbTrace, seed: int, told: bool) -> Document:
    args: Document = {"driver": DRIVER, "seed": seed}
    if POLICIES[policy].learns and told:
        args["workload"] = [
            {
                "cpu": f"{shape.demand.cpu}m",
                "devices": shape.demand.devices,
                "milli": shape.demand.milli or 1000,
                "models": sorted(shape.demand.models),
                "weight": shape.weight,
            }
            for shape in workload_of(trace)
        ]
    point = {"enabled": [{"name": policy}], "disabled": [{"name": "*"}]}
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"score": point, "deviceScore": point},
        "pluginConfig": [{"name": policy, "args": args}],
    }
    return {
        "apiVersion": "wharfinger.dev/v1alpha1",
        "kind": "WharfingerConfiguration",
        "scheduler": {"profiles": [profile]},
    }


def fully_simulated(
    policy: str, trace: OpenbTrace, seed: int, *, told: bool = True
) -> dict[str, tuple[str, tuple[str, ...]]]:
    steps = [{"at": f"{10 * index}s", "apply": pod_objects(pod)} for index, pod in enumerate(trace.pods, start=1)]
    scenario = {"apiVersion": "wharfinger.dev/v1alpha1", "kind": "Scenario", "steps": steps}
    objects = [device_class(), *(made for node in trace.nodes for made in node_objects(node))]
    items = [configuration(policy, trace, seed, told), *objects, scenario]
    data = b"\n---\n".join(msgspec.json.encode(each) for each in items)
    report = simulate(read_inputs([("trace.yaml", data)], registry()), SimulationOptions(seed=seed))
    assert all(step["ok"] for step in report["expectations"]), report["expectations"]
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    devices = {}
    for each in report["objects"]:
        if each["kind"] == "ResourceClaim":
            allocation = (each.get("status") or {}).get("allocation") or {"devices": {"results": []}}
            devices[each["metadata"]["name"]] = tuple(
                result["device"] for result in allocation["devices"].get("results") or ()
            )
    for each in report["objects"]:
        if each["kind"] == "Pod":
            name = each["metadata"]["name"]
            found[name] = (each["spec"].get("nodeName") or "", devices.get(name, ()))
    return found


def replayed(policy: str, trace: OpenbTrace, seed: int, *, told: bool = True) -> dict[str, tuple[str, tuple[str, ...]]]:
    models, workload = models_of(trace), workload_of(trace)
    rule = POLICIES[policy](workload if told else (), models, seed)
    kinds = list(dict.fromkeys(PodKind(pod.demand, pod.memory) for pod in trace.pods))
    order = TieBreaks(len(trace.nodes), seed)
    for row in range(len(trace.nodes)):
        order.enter(row)
    run = PackingRun(
        trace.nodes, kinds, rule, Fragmentation(workload, models), order, node_keys([node.name for node in trace.nodes])
    )
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for pod in trace.pods:
        place = run.place(kinds.index(PodKind(pod.demand, pod.memory)))
        found[pod.name] = (
            ("", ())
            if place is None
            else (trace.nodes[place.row].name, tuple(f"gpu-{device}" for device in place.devices))
        )
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_the_fast_path_places_pods_like_the_full_simulation(policy: str, seed: int) -> None:
    trace = random_trace(seed)

    placed = replayed(policy, trace, seed)

    assert any(not node for node, _ in placed.values()), "no pod was refused: the trace is too small"
    assert len({node for node, _ in placed.values()}) > 3
    assert fully_simulated(policy, trace, seed) == placed


@pytest.mark.parametrize("policy", ["FGD", "OpportunityCost"])
def test_a_policy_that_learns_the_workload_places_pods_like_the_full_simulation(policy: str) -> None:
    trace = random_trace(3)

    assert fully_simulated(policy, trace, 3, told=False) == replayed(policy, trace, 3, told=False)
