"""The short ways of a simulation and the full way store the same bytes: every version of every object, in the same order and
at the same time.

On the short ways, writes that repeat earlier ones are not reviewed again. On the full way here, writes to the status of a
workload also default and validate its spec again, and spread scores are computed for each row.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.simulate import random_worlds

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document, Kind
from wharfinger.api.views import Metadata, Pod, decode
from wharfinger.bench.support.deployments import snapshot
from wharfinger.plugins.pod_topology_spread.row_classes import RowClasses
from wharfinger.scenario import runner
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import Inputs, read_inputs
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare
from wharfinger.store.contents import PodContent
from wharfinger.store.objects import StoredObject
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
    composed: int = 0  # pods whose views were not decoded
    short: int = 0  # writes that took a short way
    by_class: int = 0  # spread scores that were not computed for each row


def stored(inputs: Inputs, monkeypatch: pytest.MonkeyPatch, *, short: bool, extra: Any = None) -> Stored:
    """Everything that a store gets to hold while the inputs are played."""
    found = Stored([])
    with monkeypatch.context() as patches:
        _play_on(inputs, found, patches, short=short, extra=extra)
    return found


def _play_on(inputs: Inputs, found: Stored, patches: pytest.MonkeyPatch, *, short: bool, extra: Any) -> None:
    patches.setattr(SimulatedCluster, "short_ways", short)
    ways = {name: getattr(RepeatedWrites, name) for name in ("create", "patch", "bind")}
    for name, way in ways.items():

        def counted(*arguments: Any, way: Any = way) -> Any:
            result = way(*arguments)
            found.short += bool(result)
            return result

        patches.setattr(RepeatedWrites, name, counted)
    by_class = RowClasses.final

    def final(classes: RowClasses) -> Any:
        found.by_class += short
        return by_class(classes) if short else None

    patches.setattr(RowClasses, "final", final)
    if not short:
        _review_specs_again(patches)
    world = SimulatedCluster(inputs.configuration, start=inputs.start())
    if extra is not None:
        world.store.chain.validating.append(extra)
    try:
        world.loop.complete(_play(world, inputs))
        for plural, change in world.store.changes(0):
            assert change.event.object is not None
            found.composed += _check_view(change.event.object)
            found.versions.append((change.at, plural, change.event.type, change.version, change.event.object.data))
    finally:
        world.close()


def _review_specs_again(patches: pytest.MonkeyPatch) -> None:
    """Writes to the status of a workload go through all defaults and rules of the kind."""
    for name in ("defaulter", "validator"):
        chosen = getattr(Kind, name)

        def full(kind: Kind, subresource: str = "", *, chosen: Any = chosen) -> Any:
            return chosen(kind, "" if kind.group == "apps" else subresource)

        patches.setattr(Kind, name, full)


def _check_view(stored: StoredObject) -> bool:
    """A pod that is not held as JSON is shown as if it was. Returns whether it is one."""
    if not isinstance(stored.content, PodContent):
        return False
    assert stored.view(Pod) == decode(stored.data, Pod)
    assert stored.view(Metadata) == decode(stored.data, Metadata)
    return True


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
    assert full.short == full.composed == 0
    assert len(short.versions) == len(full.versions)
    for ours, theirs in zip(short.versions, full.versions):
        assert ours == theirs
    return short


def test_workloads_in_all_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    short = compare(WORKLOADS, monkeypatch)
    assert short.short > 150
    assert short.composed > 80
    assert short.by_class > 10


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


def restored(documents: list[Document], monkeypatch: pytest.MonkeyPatch, *, short: bool) -> list[StoredObject]:
    """The pods of a snapshot as a store holds them."""
    monkeypatch.setattr(SimulatedCluster, "short_ways", short)
    world = SimulatedCluster(Configuration(), start=0.0)

    async def restore() -> None:
        for document in documents:
            await world.store.restore(PODS, document)

    try:
        world.loop.complete(restore())
        return list(world.store.scan(PODS))
    finally:
        world.close()


def running_pods() -> list[Document]:
    """Pods of one workload, which differ in all that pods of a snapshot differ in."""
    items = msgspec.json.decode(snapshot(5, 1, 24))["items"]
    pods: list[Document] = [item for item in items if item["kind"] == "Pod"]
    for number, pod in enumerate(pods):
        metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
        metadata["resourceVersion"] = str(number)
        metadata["managedFields"] = [{"manager": f"m{number}"}]
        status |= {"podIP": f"10.0.0.{number}", "podIPs": [{"ip": f"10.0.0.{number}"}], "hostIP": "10.1.0.1"}
        if number % 2:
            token = f"kube-api-access-{number:05}"
            spec["volumes"] = [{"name": token, "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]
            spec["containers"][0]["volumeMounts"] = [{"name": token, "mountPath": "/var/run"}]
        if number % 3 == 0:
            status["containerStatuses"][0]["containerID"] = f"containerd://{number}"
        if number % 7 == 0:
            metadata["labels"]["statefulset.kubernetes.io/pod-name"] = metadata["name"]
    odd = pods[10:16]
    odd[0]["metadata"]["annotations"] = {"nodeName": odd[0]["spec"]["nodeName"]}
    odd[1]["metadata"]["annotations"] = {"nodeName": odd[0]["spec"]["nodeName"]}
    odd[2]["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    odd[3]["spec"]["hostname"] = None
    odd[4]["status"]["hostIP"] = odd[4]["status"]["podIP"]
    del odd[5]["spec"]["nodeName"]
    return pods


def test_pods_of_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = running_pods()
    full = restored(pods, monkeypatch, short=False)
    for order in (pods, pods[::-1]):
        short = {each.name: each for each in restored(order, monkeypatch, short=True)}
        for theirs in full:
            ours = short[theirs.name]
            version, expected = b'"resourceVersion":"%d"', theirs.data
            assert ours.data == expected.replace(version % theirs.version, version % ours.version, 1)
            assert ours.labels == theirs.labels
            assert ours.view(Pod) == decode(ours.data, Pod)
        assert sum(isinstance(each.content, PodContent) for each in short.values()) > 10
    assert not any(isinstance(each.content, PodContent) for each in full)
