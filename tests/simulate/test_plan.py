"""`wharf plan`: what a change does, told by exit status and by data."""

import json
from pathlib import Path

from tests.simulate.test_commands import NODE, POD, wharf

CLASS = "\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n"


def plan(tmp_path: Path, cluster: list[str], change: list[str], *more: str) -> tuple[int, dict[str, object]]:
    (tmp_path / "cluster.yaml").write_text("---".join(cluster))
    (tmp_path / "change.yaml").write_text("---".join(change))
    done = wharf(
        "plan", "-f", str(tmp_path / "change.yaml"), "--cluster", str(tmp_path / "cluster.yaml"), "-o", "json", *more
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}


def test_a_new_node_lets_a_waiting_pod_start(tmp_path: Path) -> None:
    big = NODE.replace("n1", "n2").replace('cpu: "4"', 'cpu: "16"')
    status, found = plan(tmp_path, [NODE, POD.replace("CPU", "9")], [big])
    assert status == 2
    (change,) = found["changes"]  # type: ignore[misc]
    assert (change["change"], change["name"], change["after"]["node"]) == ("scheduled", "a", "n2")


def test_what_changes_nothing_exits_with_zero(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE, POD.replace("CPU", "9")], [NODE.replace("n1", "n2")])
    assert (status, found["changes"]) == (0, [])


def test_an_important_pod_shows_whom_it_would_preempt(tmp_path: Path) -> None:
    important = (
        POD.replace("name: a", "name: b").replace("CPU", "4").replace("spec: {", "spec: {priorityClassName: high, ")
    )
    status, found = plan(tmp_path, [NODE, CLASS, POD.replace("CPU", "4")], [important])
    assert status == 2
    assert {(each["name"], each["change"]) for each in found["changes"]} == {("a", "preempted"), ("b", "new")}  # type: ignore[attr-defined]


def test_a_refused_change_is_told(tmp_path: Path) -> None:
    limit = "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: shop}\nspec: {hard: {pods: '0'}}\n"
    status, found = plan(tmp_path, [NODE, limit], [POD.replace("CPU", "1")])
    assert status == 2
    (refused,) = found["refused"]  # type: ignore[misc]
    assert "exceeded quota: q" in refused["message"]


def test_an_invalid_change_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE], [POD.replace("containers: [", "containers: []}\n#")])
    assert status == 1
    assert "change.yaml, document 1, line 5: spec.containers: Required value" in str(found["stderr"])


def test_bad_input_is_an_error_not_a_change(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE], ["kind: ["])
    assert status == 1
    assert "change.yaml" in str(found["stderr"])


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, uid: d-1, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
"""
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
"""
SCALED = "\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 4}\n"
TWO_PODS = "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: shop}\nspec: {hard: {pods: '3'}}\n"
FEWER = """
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- patch: {kind: Deployment, namespace: shop, name: web, merge: {spec: {replicas: 1}}}
- expect: [{kind: Pod, namespace: shop, selector: app=web, count: WANTED}]
"""


def asked(tmp_path: Path, cluster: list[str], *question: str) -> tuple[int, dict[str, list[dict[str, object]]]]:
    (tmp_path / "cluster.yaml").write_text("---".join(cluster))
    done = wharf("plan", *question, "--cluster", str(tmp_path / "cluster.yaml"), "-o", "json")
    return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": [{"text": done.stderr}]}


def test_a_drained_node_shows_where_its_pods_go_and_what_a_budget_keeps_there(tmp_path: Path) -> None:
    other = NODE.replace("n1", "n2").replace("name: n2", "name: n2, labels: {pool: other}")
    selected = DEPLOYMENT.replace("spec: {containers", "spec: {nodeSelector: {pool: other}, containers")
    status, found = asked(tmp_path, [NODE, other, selected], "--drain", "n2")
    assert status == 2
    by_sort = sorted((str(each["kind"]), str(each["change"])) for each in found["changes"])
    assert by_sort == [("Deployment", "changed"), *[("Pod", "gone")] * 2, *[("Pod", "new")] * 2]
    assert all(each["after"]["node"] is None for each in found["changes"] if each["change"] == "new")  # type: ignore[index]

    status, found = asked(tmp_path, [NODE, other, selected, BUDGET], "--drain", "n2")
    assert (status, found["changes"]) == (2, [])
    assert ["disruption budget" in str(each["message"]) for each in found["refused"]] == [True, True]


def test_what_is_deleted_is_named_by_kind_and_name(tmp_path: Path) -> None:
    status, found = asked(tmp_path, [NODE, POD.replace("CPU", "1")], "--delete", "pod/shop/a")
    assert (status, [each["change"] for each in found["changes"]]) == (2, ["gone"])
    for question, why in (("pod/shop/b", 'pods "b" not found'), ("thing/a", "no kind is called"), ("node/a/b", "want")):
        status, found = asked(tmp_path, [NODE], "--delete", question)
        assert status == 1
        assert why in str(found["stderr"])


def test_part_of_an_object_of_the_snapshot_may_be_changed_and_what_a_quota_refuses_is_told(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE, DEPLOYMENT, TWO_PODS], [SCALED])
    assert status == 2
    workload, pod = found["changes"]  # type: ignore[misc]
    assert (workload["kind"], workload["before"]["wanted"]) == ("Deployment", 2)
    assert (workload["after"]["wanted"], workload["after"]["ready"]) == (4, 3)
    assert "exceeded quota: q" in workload["after"]["message"]
    assert pod["change"] == "new"


def test_scenarios_of_a_change_are_played(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE, DEPLOYMENT], [FEWER.replace("WANTED", "1")])
    assert status == 2
    assert {each["change"] for each in found["changes"]} == {"changed", "gone"}  # type: ignore[attr-defined]
    status, found = plan(tmp_path, [NODE, DEPLOYMENT], [FEWER.replace("WANTED", "2")])
    assert status == 1
    assert "expected 2, found 1" in str(found["failed"])


def test_a_slip_in_the_call_is_an_error_not_a_change() -> None:
    assert wharf("plan").returncode == 1
    assert wharf("plan", "--nonsense").returncode == 1


def test_what_every_cluster_has_is_taken_as_the_snapshot_has_it(tmp_path: Path) -> None:
    """The namespace `default` was made by another server there, and has labels of its own."""
    namespace = """
apiVersion: v1
kind: Namespace
metadata: {name: default, uid: u-9, creationTimestamp: "2026-01-01T00:00:00Z", labels: {team: web}}
"""
    status, found = asked(tmp_path, [NODE, namespace], "-f", str(tmp_path / "cluster.yaml"))
    assert (status, found["leftOut"], found["refused"]) == (0, [], [])
    done = wharf("simulate", "-f", str(tmp_path / "cluster.yaml"), "-o", "json")
    (kept,) = [each for each in json.loads(done.stdout)["objects"] if each["kind"] == "Namespace"]
    assert kept["metadata"]["labels"]["team"] == "web"


POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "has(object.spec.priorityClassName) && object.spec.priorityClassName == 'x'", message: no class}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits}
spec: {policyName: limits, validationActions: [Deny]}
"""


def test_a_policy_that_would_refuse_the_next_pods_of_a_running_workload_is_told(tmp_path: Path) -> None:
    status, found = plan(tmp_path, [NODE, DEPLOYMENT], [POLICY])
    assert (status, found["changes"]) == (2, [])
    (refused,) = found["whenCreatedAnew"]  # type: ignore[misc]
    assert (refused["kind"], refused["name"], refused["before"]) == ("Deployment", "web", None)
    assert "no class" in refused["after"]


def test_a_deletion_cost_that_changes_is_a_change(tmp_path: Path) -> None:
    annotations = '{"controller.kubernetes.io/pod-deletion-cost": "5"}'
    cost = f"""
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- patch: {{kind: Pod, namespace: shop, name: a, merge: {{metadata: {{annotations: {annotations}}}}}}}
"""
    status, found = plan(tmp_path, [NODE, POD.replace("CPU", "1")], [cost])
    assert status == 2
    (change,) = found["changes"]  # type: ignore[misc]
    assert (change["change"], change["after"]["deletionCost"]) == ("changed", "5")


def test_pods_that_a_quota_refused_come_when_it_is_raised(tmp_path: Path) -> None:
    quota = "\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: shop}\nspec: {hard: {pods: 'N'}}\n"
    refused = (
        "\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web, namespace: shop}\nspec:\n"
        "  {replicas: 3, selector: {matchLabels: {app: web}},"
        " template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}\n"
    )
    status, found = plan(tmp_path, [NODE, quota.replace("N", "1"), refused], [quota.replace("N", "5")])
    assert status == 2
    changes = [(each["kind"], each["change"]) for each in found["changes"]]  # type: ignore[attr-defined]
    assert sorted(changes) == [("Pod", "new"), ("Pod", "new"), ("ReplicaSet", "changed")]
