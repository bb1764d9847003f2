"""`wharf explain pod` from files: the choice, the reasons, the form of the answer, and pods that already run."""

import json
from pathlib import Path

from tests.simulate.test_commands import NODE, POD, wharf

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


def test_a_pod_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = wharf("explain", "pod", "shop/none", "-f", files(tmp_path, NODE))
    assert done.returncode == 2
    assert 'pods "shop/none" not found' in done.stderr


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
