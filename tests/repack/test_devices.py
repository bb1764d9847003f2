"""Moves of pods that have devices: by ResourceClass, by a claim from a template, or by an extended resource."""

from __future__ import annotations

from typing import Any

import pytest
from tests.repack.worlds import inputs, node, pod, replica_set
from tests.systems.resource_class.device_objects import expression, klass, machine, resource

from wharfinger.repack.finding import RepackOptions
from wharfinger.repack.plans import RepackGoal, RepackPlan
from wharfinger.simulate.repacking import repack

Document = dict[str, Any]
EXTENDED = "example.com/gpu"
DEVICES = 4  # of each node
KINDS = ("class", "claim", "extended")


def cluster(kind: str, used: dict[str, int]) -> list[Document]:
    """Nodes of four devices each, with as many pods of one device as `used` says."""
    made: list[Document] = []
    if kind == "class":
        made = [klass("gold", expression("type", "In", "p100"))]
        made += [machine(name, resource(f"of-{name}", DEVICES, type="p100")) for name in used]
    else:
        made = [_class(), _template(), *(_slice(name) for name in used)]
        made += [node(name, 64_000, 64_000) for name in used]
    made.append(replica_set("train", sum(used.values()), 100, 100))
    _ask(made[-1]["spec"]["template"]["spec"], kind, 1)
    for name, count in used.items():
        for number in range(count):
            user = pod(f"on-{name}-{number}", name, 100, 100, owner="train")
            _ask(user["spec"], kind, 1)
            made += [user, *_claims(user, kind, name, number)]
    return made


def waiting(kind: str, amount: int) -> list[Document]:
    found = pod("waits", "", 100, 100)
    if kind == "claim":
        found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "large"}]
        found["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        return [found, _claim("large", amount)]
    _ask(found["spec"], kind, amount)
    return [found]


def _ask(spec: Document, kind: str, amount: int) -> None:
    resources = spec["containers"][0]["resources"]
    if kind == "claim":
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
        resources["claims"] = [{"name": "gpu"}]
        return
    amounts = {"gold" if kind == "class" else EXTENDED: str(amount)}
    resources.update({"requests": {**resources["requests"], **amounts}, "limits": amounts})


def _class() -> Document:
    selector = {"cel": {"expression": "device.driver == 'gpu.example.com'"}}
    spec = {"selectors": [selector], "extendedResourceName": EXTENDED}
    return _object("DeviceClass", "gpu", spec)


def _template() -> Document:
    return {**_object("ResourceClaimTemplate", "one", {"spec": _asking("gpu", 1)}, namespace="default")}


def _slice(name: str) -> Document:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(DEVICES)]
    spec = {"nodeName": name, "driver": "gpu.example.com", "pool": pool, "devices": devices}
    return _object("ResourceSlice", f"of-{name}", spec)


def _claim(name: str, count: int) -> Document:
    return _object("ResourceClaim", name, _asking("gpu", count), namespace="default")


def _asking(request: str, count: int) -> Document:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": request, "exactly": exactly}]}}


def _claims(user: Document, kind: str, where: str, number: int) -> list[Document]:
    """The claim that was made for a pod, with the device that it has."""
    if kind == "class":
        return []
    name = user["metadata"]["name"]
    request = "gpu" if kind == "claim" else "container-0-request-0"
    made = _object("ResourceClaim", f"{name}-gpu", _asking(request, 1), namespace="default")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": user["metadata"]["uid"], "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    result = {"request": request, "driver": "gpu.example.com", "pool": where, "device": f"gpu-{number}"}
    field = {"key": "metadata.name", "operator": "In", "values": [where]}
    made["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": user["metadata"]["uid"]}],
    }
    if kind == "claim":
        made["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
        user["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    else:
        made["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        mapping = {"containerName": "c", "resourceName": EXTENDED, "requestName": request}
        status = {"resourceClaimName": f"{name}-gpu", "requestMappings": [mapping]}
        user["status"]["extendedResourceClaimStatus"] = status
    return [made]


def _object(kind: str, name: str, spec: Document, namespace: str = "") -> Document:
    metadata = {"name": name, "uid": f"uid-{kind}-{name}"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def plan(objects: list[Document], goal: RepackGoal) -> RepackPlan:
    """A plan that was proven by simulation."""
    return repack(inputs(objects), goal, RepackOptions())


def after(used: dict[str, int], found: RepackPlan) -> dict[str, int]:
    counts = dict(used)
    for move in found.moves:
        counts[move.source] -= 1
        counts[move.target] += 1
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_freed_node_gives_its_devices_up(kind: str) -> None:
    used = {"a": 3, "b": 3, "c": 2}
    found = plan(cluster(kind, used), RepackGoal(1))
    assert found.reached and found.optimal, (found.blocked, found.surprise)
    assert (found.freed, len(found.moves)) == (["c"], 2)
    assert after(used, found) == {"a": 4, "b": 4, "c": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_no_node_gets_more_than_it_has_devices(kind: str) -> None:
    found = plan(cluster(kind, {"a": 3, "b": 3, "c": 3}), RepackGoal(1))
    assert not found.reached
    assert not found.moves


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_that_waits_for_devices_gets_a_whole_node(kind: str) -> None:
    found = plan([*cluster(kind, {"a": 1, "b": 2, "c": 2}), *waiting(kind, DEVICES)], RepackGoal(room=True))
    assert found.reached and found.optimal, (found.blocked, found.surprise)
    assert ([move.source for move in found.moves], found.started) == (["a"], {"default/waits": "a"})


@pytest.mark.parametrize("kind", KINDS)
def test_devices_are_gathered_on_fewer_nodes(kind: str) -> None:
    used = {"a": 1, "b": 1, "c": 2}
    name = {"class": "gold", "claim": "gpu", "extended": EXTENDED}[kind]
    found = plan(cluster(kind, used), RepackGoal(defragment=name))
    assert found.reached, found.surprise
    assert (found.before, found.after, len(found.moves)) == (3, 0, 2)
    assert sorted(after(used, found).values()) == [0, 0, 4]
