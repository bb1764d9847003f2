"""`wharf explain pod` from files: the choice, the reasons, the form of the answer, and pods that already run."""

import json
from pathlib import Path

import pytest
from tests.simulate.test_commands import NODE, POD
from tests.support import wharf_here as wharf

TAINTED = NODE.replace("n1", "n2").replace(
    "status:", "spec: {taints: [{key: a, value: b, effect: NoSchedule}]}\nstatus:"
)


def files(tmp_path: Path, *documents: str) -> str:
    (tmp_path / "all.yaml").write_text("---".join(documents))
    return str(tmp_path)


def test_every_node_is_explained_and_the_choice_named(tmp_path: Path) -> None:
    where = files(tmp_path, NODE, TAINTED, POD.replace("CPU", "1"))
    done = wharf("explain", "pod", "shop/a", "-f", where, "-o", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["choice"] == "n1"
    assert answer["nodes"]["n2"]["plugin"] == "TaintToleration"
    assert answer["nodes"]["n2"]["code"] == "UnschedulableAndUnresolvable"
    assert answer["nodes"]["n1"]["total"] == sum(answer["nodes"]["n1"]["scores"].values())
    assert "goes to n1" in wharf("explain", "pod", "shop/a", "-f", where).stdout


def test_a_running_pod_is_asked_for_as_if_it_had_no_node(tmp_path: Path) -> None:
    pod = POD.replace("CPU", "3").replace("spec: {", "spec: {nodeName: n1, ")
    done = wharf("explain", "pod", "shop/a", "-f", files(tmp_path, NODE, pod))
    assert done.returncode == 0, done.stderr
    assert "goes to n1" in done.stdout
    assert "it runs on n1" in done.stdout


def test_what_fits_nowhere_says_why(tmp_path: Path) -> None:
    done = wharf("explain", "pod", "shop/a", "-f", files(tmp_path, NODE, TAINTED, POD.replace("CPU", "9")))
    assert (
        "fits nowhere: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)." in done.stdout
    )


def test_kinds_and_names_are_taken_as_kubectl_takes_them(tmp_path: Path) -> None:
    where = files(tmp_path, NODE, POD.replace("CPU", "1"))
    told = wharf("explain", "pod", "a", "-n", "shop", "-f", where).stdout
    assert "goes to n1" in told
    for asked in (("pod/a",), ("pods/a",), ("po", "a"), ("pods", "a")):
        assert wharf("explain", *asked, "-n", "shop", "-f", where).stdout == told, asked
    assert "is no kind of workload" not in wharf("explain", "deploy/a", "-n", "shop", "-f", where).stderr
    assert "No such command 'foo'" in wharf("explain", "foo/a", "-f", where).stderr


DEVICES = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n2-gpus}
spec:
  nodeName: n2
  driver: gpu.example.com
  pool: {name: n2, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, taints: [{key: broken, effect: NoSchedule}]}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: shop}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
"""


def test_a_node_with_a_refused_device_is_nearer_than_one_without_devices(tmp_path: Path) -> None:
    pod = POD.replace("CPU", "1").replace("spec: {", "spec: {resourceClaims: [{name: gpu, resourceClaimName: gpu}], ")
    where = files(tmp_path, NODE, NODE.replace("n1", "n2"), DEVICES, pod)
    answer = json.loads(wharf("explain", "pod", "shop/a", "-f", where, "-o", "json").stdout)
    assert [(each["node"], each["alike"]) for each in answer["nearest"]] == [("n2", 1), ("n1", 1)]
    assert "1 tainted broken:NoSchedule" in answer["nearest"][0]["obstacles"][0]["detail"]


@pytest.mark.parametrize(
    ("asked", "objects", "message"),
    [
        (("pod", "shop/none"), [], 'pods "shop/none" not found; there are none'),
        (("pod", "shop/none"), [POD], 'pods "shop/none" not found; there are shop/a'),
        (("pod", "a"), [POD], 'pods "default/a" not found; did you mean shop/a?'),
        (("pod", "shop/wbe-0"), [POD.replace("name: a", "name: web-0", 1)], "did you mean shop/web-0?"),
        (("deployment", "none"), [], 'deployments.apps "none" not found; there are none'),
    ],
)
def test_a_message_about_an_object_that_does_not_exist_names_those_that_do(
    asked: tuple[str, ...], objects: list[str], message: str, tmp_path: Path
) -> None:
    done = wharf("explain", *asked, "-f", files(tmp_path, NODE, *(each.replace("CPU", "1") for each in objects)))
    assert done.returncode == 2
    assert message in done.stderr


STATEFUL = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]}
"""


def test_pods_that_a_simulation_of_the_file_makes_can_be_explained(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"{NODE}---{STATEFUL}")
    simulated = json.loads(wharf("simulate", "-f", str(path), "-o", "json").stdout)
    (waiting,) = simulated["unscheduled"]
    first = wharf("explain", "pod", "shop/db-0", "-f", str(path), "-o", "json")
    second = wharf("explain", "pod", "shop/db-1", "-f", str(path), "-o", "json")
    assert json.loads(first.stdout)["choice"] == "n1"
    assert (waiting["name"], json.loads(second.stdout)["choice"]) == ("db-1", None)
    assert json.loads(second.stdout)["message"] == waiting["message"]
    assert wharf("explain", "pod", "shop/db-2", "-f", str(path)).returncode == 2


POLICY = """
apiVersion: scheduling.sigs.x-k8s.io/v1alpha1
kind: ResourcePolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  units: [{name: first, maxCount: 1}]
"""
RESERVATION = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: for-db, uid: r1, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  owners: [{labelSelector: {matchLabels: {app: db}}}]
  ttl: 0s
  template:
    metadata: {namespace: shop}
    spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 3}}}]}
status: {phase: Available, nodeName: n1, allocatable: {cpu: "3"}}
"""
CLASS = """
apiVersion: scheduling.sigs.x-k8s.io/v1alpha1
kind: ResourceClass
metadata: {name: gold}
spec: {resourceName: nvidia.com/gpu, resourceSelector: [{matchExpressions: [{key: type, operator: Exists}]}]}
---
apiVersion: v1
kind: Node
metadata: {name: g1}
status:
  capacity: {cpu: 32, memory: 128Gi, pods: 110}
  allocatable: {cpu: 32, memory: 128Gi, pods: 110}
  computeResources: [{resourceName: nvidia.com/gpu, properties: {type: p100}, devices: [a, b, c]}]
"""


def asking(name: str, label: str, resources: str, node: str = "") -> str:
    place = f"nodeName: {node}, " if node else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, labels: {{app: {label}}}}}
spec: {{{place}containers: [{{name: c, image: x, resources: {{requests: {resources}, limits: {resources}}}}}]}}
"""


def help_for(tmp_path: Path, *documents: str) -> list[str]:
    done = wharf("explain", "pod", "shop/w", "-f", files(tmp_path, *documents), "-o", "json")
    assert done.returncode == 0, done.stderr
    return [each["change"] for each in json.loads(done.stdout)["wouldHelp"]]


def test_a_higher_limit_of_a_unit_helps(tmp_path: Path) -> None:
    pods = (asking("a", "web", "{cpu: 1}", "n1"), asking("w", "web", "{cpu: 1}"))
    helpful = help_for(tmp_path, NODE, POLICY, *pods)
    assert 'raise maxCount to 2 in unit "first" of ResourcePolicy shop/web' in helpful


def test_a_reservation_less_helps_outsiders_and_smaller_requests_its_owners(tmp_path: Path) -> None:
    assert "delete Reservation for-db" in help_for(tmp_path, NODE, RESERVATION, asking("w", "web", "{cpu: 2}"))
    helpful = help_for(tmp_path, NODE, RESERVATION, asking("w", "db", "{cpu: 6}"))
    assert helpful == ["request 4 cpu instead of 6"]


def test_fewer_devices_or_a_node_more_with_its_devices_help(tmp_path: Path) -> None:
    pods = (asking("a", "x", "{cpu: 1, gold: 2}", "g1"), asking("w", "x", "{cpu: 1, gold: 2}"))
    helpful = help_for(tmp_path, CLASS, *pods)
    assert helpful[:2] == [
        "request 1 gold instead of 2",
        "add one node like g1 (32 cpu, 128Gi memory; there is 1)",
    ]


def test_text_and_data_tell_the_same(tmp_path: Path) -> None:
    where = files(tmp_path, NODE, TAINTED, POD.replace("CPU", "9"))
    text = wharf("explain", "pod", "shop/a", "-f", where, "--all").stdout
    answer = json.loads(wharf("explain", "pod", "shop/a", "-f", where, "-o", "json").stdout)
    for each in answer["wouldHelp"]:
        assert each["change"] in text
    for each in answer["nearest"]:
        assert f"  {each['node']}" in text
    assert [each["count"] for each in answer["refused"]] == [1, 1]
    assert answer["asked"] == {"cpu": "9"}
