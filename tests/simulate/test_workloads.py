"""`wharf explain` for workloads and policies: what runs, fits, waits, is missing or refused."""

import json
from pathlib import Path
from typing import Any

from tests.simulate.test_commands import NODE
from tests.simulate.test_explain import STATEFUL, TAINTED, files
from tests.support import wharf_here as wharf


def workload(kind: str, extra: str = "", cpu: str = "1500m", api: str = "apps/v1", pod: str = "") -> str:
    return f"""
apiVersion: {api}
kind: {kind}
metadata: {{name: web, namespace: shop}}
spec:
  {extra}
  {"selector: {matchLabels: {app: web}}" if kind != "Job" else ""}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{{pod}containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}}}}}}}]}}
"""


def explained(tmp_path: Path, kind: str, name: str, *documents: str) -> Any:
    done = wharf("explain", kind, name, "-f", files(tmp_path, *documents), "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_deployment_is_explained_as_a_whole(tmp_path: Path) -> None:
    found = explained(tmp_path, "deployment", "shop/web", NODE, TAINTED, workload("Deployment", "replicas: 5"))
    assert (found["wanted"], found["running"], found["fitting"], found["missing"]) == (5, 0, {"n1": 2}, 0)
    (waiting,) = found["waiting"]
    assert waiting["count"] == 3
    assert waiting["asked"] == {"cpu": "1500m"}
    helpful = {each["kind"]: (each["change"], each["letsIn"]) for each in waiting["wouldHelp"]}
    assert helpful["toleration"] == ("tolerate a=b:NoSchedule", 2)  # the tainted node has room for two
    assert helpful["node"] == ("add 2 nodes like n1 (4 cpu, 8Gi memory; there is 1)", 3)
    text = wharf("explain", "deploy", "shop/web", "-f", str(tmp_path)).stdout
    assert text.startswith(
        "Deployment shop/web: 5 wanted, 0 on nodes (0 ready), 2 fit now, 3 wait\nWould go to: n1 (2)"
    )
    assert "add 2 nodes like n1 (4 cpu, 8Gi memory; there is 1): lets 3 of 3 pods in" in text


def test_pods_that_a_stateful_set_makes_later_are_looked_at_now(tmp_path: Path) -> None:
    found = explained(tmp_path, "sts", "shop/db", NODE, STATEFUL)
    assert (found["fitting"], found["missing"]) == ({"n1": 1}, 1)
    assert [each["pods"] for each in found["waiting"]] == [["db-1"]]
    assert found["notes"] == ["pods are created one after the other: db-0 is not ready"]


def test_a_daemon_set_says_which_nodes_it_leaves_out(tmp_path: Path) -> None:
    busy = """
apiVersion: v1
kind: Pod
metadata: {name: busy, namespace: shop}
spec: {nodeName: n1, containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]}
"""
    found = explained(tmp_path, "daemonset", "shop/web", NODE, TAINTED, busy, workload("DaemonSet"))
    assert (found["wanted"], found["fitting"]) == (1, {})
    assert found["notes"] == ["1 node gets no pod because of a=b:NoSchedule: n2"]
    (waiting,) = found["waiting"]
    assert waiting["nearest"][0]["resources"]["cpu"] == {"asked": "1500m", "free": "1", "lacking": "500m"}


def test_pods_that_the_api_refuses_are_told_apart_from_those_that_wait(tmp_path: Path) -> None:
    quota = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: shop}
spec: {hard: {pods: "1"}}
"""
    job = workload("Job", "parallelism: 3", api="batch/v1", pod="restartPolicy: Never, ")
    found = explained(tmp_path, "job", "shop/web", NODE, quota, job)
    assert (found["wanted"], found["fitting"], found["missing"], found["waiting"]) == (3, {"n1": 1}, 2, [])
    assert "exceeded quota: q" in found["refused"]
    assert "The API server refuses further pods" in wharf("explain", "job", "shop/web", "-f", str(tmp_path)).stdout


def test_what_is_no_workload_is_said(tmp_path: Path) -> None:
    where = files(tmp_path, NODE)
    assert "is no kind of workload" in wharf("explain", "workload", "service", "shop/a", "-f", where).stderr
    missing = wharf("explain", "deployment", "shop/none", "-f", where)
    assert (missing.returncode, "not found" in missing.stderr) == (2, True)


UNITS = """
apiVersion: scheduling.sigs.x-k8s.io/v1alpha1
kind: ResourcePolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  matchLabelKeys: [team]
  strategy: prefer
  units:
  - {name: second, priority: 1, maxCount: 5, nodeSelector: {matchLabels: {pool: b}}}
  - {name: first, priority: 2, maxCount: 1, nodeSelector: {matchLabels: {pool: a}}}
"""


def of_team(name: str, team: str, node: str) -> str:
    owner = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: rs, controller: true}]"
    created = f'uid: {name}, creationTimestamp: "2026-01-01T00:00:00Z"'
    place = f"nodeName: {node}, " if node else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, labels: {{app: web, team: {team}}}, {created}, {owner}}}
spec: {{{place}containers: [{{name: c, image: i}}]}}
status: {{phase: {"Running" if node else "Pending"}}}
"""


def test_a_policy_tells_its_units_groups_outsiders_and_the_order_of_scale_in(tmp_path: Path) -> None:
    def labelled(name: str, labels: str) -> str:
        return NODE.replace("name: n1", f"name: {name}, labels: {labels}")

    nodes = (labelled("a1", "{pool: a}"), labelled("b1", "{pool: b}"), labelled("c1", "{pool: c}"))
    pods = (of_team("p1", "x", "a1"), of_team("p2", "x", "b1"), of_team("p3", "z", "a1"), of_team("p4", "x", "c1"))
    found = explained(tmp_path, "policy", "shop/web", *nodes, UNITS, *pods, of_team("p5", "x", ""))
    assert [(each["unit"], each["group"], each["count"], each["max"], each["pods"]) for each in found["units"]] == [
        ("first", "team=x", 1, "1", ["p1"]),
        ("first", "team=z", 1, "1", ["p3"]),
        ("second", "team=x", 1, "5", ["p2"]),
        ("second", "team=z", 0, "5", []),
    ]
    assert found["outside"] == ["p4"]
    assert [each["pod"] for each in found["waiting"]] == ["p5"]
    (order,) = found["scaleInOrder"].values()
    assert [each.split()[0] for each in order[:3]] == ["p5", "p4", "p2"]
    text = wharf("explain", "policy", "shop/web", "-f", str(tmp_path)).stdout
    assert "Outside all units: 1 pod\n  p4" in text
    assert wharf("explain", "policy", "shop/none", "-f", str(tmp_path)).returncode == 2
