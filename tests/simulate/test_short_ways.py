"""The short ways of a simulation (writes that repeat earlier ones are not reviewed again) and the full way store the same
bytes: every version of every object, in the same order and at the same time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.simulate import random_worlds

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import PODS
from wharfinger.scenario import runner
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import Inputs, read_inputs
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare
from wharfinger.store.repeats import RepeatedWrites

SCENARIOS = Path(__file__).parents[2] / "scenarios"

WORKLOADS = """
apiVersion: wharfinger.dev/v1alpha1
kind: WharfingerConfiguration
nodes: {count: 4}
---
{apiVersion: v1, kind: Namespace, metadata: {name: counted}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: counted}, spec: {hard: {pods: "3"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: limited}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: l, namespace: limited}
spec: {limits: [{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m, memory: 64Mi}}]}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: limited}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: limited}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- apply:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web, namespace: limited}
    spec:
      replicas: 12
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}, annotations: {note: 'null and "nodeName":"x"'}}
        spec:
          priorityClassName: high
          containers: [{name: c, image: i}, {name: d, image: i, ports: [{containerPort: 80, name: http}]}]
          topologySpreadConstraints:
          - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway,
             labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [pod-template-hash]}
  - apiVersion: apps/v1
    kind: ReplicaSet
    metadata: {name: more, namespace: counted}
    spec:
      replicas: 5
      selector: {matchLabels: {app: more}}
      template: {metadata: {labels: {app: more}}, spec: {containers: [{name: c, image: i}]}}
  - apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: db}
    spec:
      replicas: 4
      podManagementPolicy: Parallel
      serviceName: db
      selector: {matchLabels: {app: db}}
      template:
        metadata: {labels: {app: db}}
        spec: {hostNetwork: true, containers: [{name: c, image: i}]}
  - apiVersion: batch/v1
    kind: Job
    metadata: {name: sums}
    spec:
      completions: 6
      parallelism: 3
      template:
        metadata: {annotations: {wharfinger.dev/run-for: 5s}}
        spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
  - apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: agent}
    spec:
      selector: {matchLabels: {app: agent}}
      template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: i}]}}
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: large}
    spec:
      replicas: 6
      selector: {matchLabels: {app: large}}
      template:
        metadata: {labels: {app: large}}
        spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]}
- at: 30s
  patch: {apiVersion: apps/v1, kind: Deployment, namespace: limited, name: web, merge: {spec: {replicas: 20}}}
- fault: [{restart: all}, {node: node-2, down: true}, {bind: fail, count: 3}]
- at: 40s
  apply: [{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: other}, value: 5, globalDefault: true}]
- patch: {apiVersion: apps/v1, kind: Deployment, name: large, merge: {spec: {replicas: 9}}}
- at: 20m
- delete: {apiVersion: apps/v1, kind: Deployment, namespace: limited, name: web}
- at: 25m
"""


class Stored(msgspec.Struct):
    versions: list[tuple[float, str, str, int, bytes]]  # when, kind, event, version, and the object
    short: int = 0  # writes that took a short way


def stored(inputs: Inputs, monkeypatch: pytest.MonkeyPatch, *, short: bool, extra: Any = None) -> Stored:
    """Everything that a store gets to hold while the inputs are played."""
    monkeypatch.setattr(SimulatedCluster, "short_ways", short)
    found = Stored([])
    ways = {name: getattr(RepeatedWrites, name) for name in ("create", "patch")}
    for name, way in ways.items():

        def counted(*arguments: Any, way: Any = way) -> Any:
            result = way(*arguments)
            found.short += bool(result)
            return result

        monkeypatch.setattr(RepeatedWrites, name, counted)
    world = SimulatedCluster(inputs.configuration, start=inputs.start())
    if extra is not None:
        world.store.chain.validating.append(extra)
    try:
        world.loop.complete(_play(world, inputs))
        for plural, change in world.store.changes(0):
            assert change.event.object is not None
            found.versions.append((change.at, plural, change.event.type, change.version, change.event.object.data))
    finally:
        world.close()
        for name, way in ways.items():
            monkeypatch.setattr(RepeatedWrites, name, way)
    return found


async def _play(world: SimulatedCluster, inputs: Inputs) -> None:
    results, options = runner.Results(), SimulationOptions()
    rest = await prepare(world, inputs, options, results)
    await apply_manifests(world, rest, options, results)
    for scenario, _ in inputs.scenarios:
        await runner.run(scenario, world, results)
    await world.settle()


def compare(text: str | bytes, monkeypatch: pytest.MonkeyPatch) -> Stored:
    short = stored(read_inputs([("f", text)], registry()), monkeypatch, short=True)
    full = stored(read_inputs([("f", text)], registry()), monkeypatch, short=False)
    assert full.short == 0
    assert len(short.versions) == len(full.versions)
    for ours, theirs in zip(short.versions, full.versions):
        assert ours == theirs
    return short


def test_workloads_in_all_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compare(WORKLOADS, monkeypatch).short > 150


@pytest.mark.parametrize("seed", range(4))
def test_random_clusters(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = random_worlds.cluster(random.Random(seed))
    for each in objects:
        if each["kind"] == "Deployment":
            each["spec"]["replicas"] *= 3
    compare(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects}), monkeypatch)


@pytest.mark.parametrize(
    "name",
    ["reservation/05-several-consumers", "resource-policy/01-limit-then-next-unit", "basics/deployment-on-two-nodes"],
)
def test_scenarios(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare((SCENARIOS / f"{name}.yaml").read_text(), monkeypatch)


class OddNames:
    """Refuses pods by name, so that no pod says anything about the next one."""

    def review(self, request: Request) -> Review:
        if request.resource == PODS and not request.subresource and request.operation == "CREATE":
            if request.name[-1] in "bcdfgh":
                return request.refused("an odd name")
        return PASS


def test_a_reviewer_that_does_not_say_that_it_repeats_is_always_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    short = stored(read_inputs([("f", WORKLOADS)], registry()), monkeypatch, short=True, extra=OddNames())
    full = stored(read_inputs([("f", WORKLOADS)], registry()), monkeypatch, short=False, extra=OddNames())
    assert short.versions == full.versions
    assert short.short == 0
