"""`wharf policy` from files: what is injected, refused, by which policy; who may; and a policy for what runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.systems.scheduling_policy.policies import grant, pod, policy

from wharfinger.systems.scheduling_policy.commands.policy import command

ARCH = {
    "required": {"nodeSelectors": {"arch": ["amd64", "arm64"]}},
    "allowed": {"schedulerNames": ["default-scheduler"]},
    "default": {"nodeSelector": {"arch": "amd64"}},
}
RBAC = "rbac.authorization.k8s.io/v1"


def objects(*more: dict[str, Any]) -> list[dict[str, Any]]:
    granted = grant("arch", ("ServiceAccount", "web", "shop"), namespace="shop")
    return [policy("arch", ARCH), *({**each, "apiVersion": RBAC} for each in granted), *more]


def write(path: Path, documents: list[dict[str, Any]]) -> str:
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def wharf(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(command, arguments, input=stdin)


def checked(tmp_path: Path, document: dict[str, Any], *arguments: str) -> tuple[int, dict[str, Any]]:
    result = wharf("check", "-f", write(tmp_path / "all.yaml", objects(document)), *arguments, "-o", "json")
    return result.exit_code, json.loads(result.stdout)["items"][0]


def test_check_shows_what_is_injected_and_by_which_policy(tmp_path: Path) -> None:
    code, report = checked(tmp_path, pod({"serviceAccountName": "web"}, namespace="shop"), "--as", "ann")
    assert code == 0 and report["admitted"]
    assert report["policies"] == ["arch", "restricted"]
    assert report["injected"] == [{"path": "spec.nodeSelector[arch]", "value": "amd64", "policy": "arch"}]
    assert report["requester"] == "ann" and report["identities"] == ["system:serviceaccount:shop:web"]


def test_check_shows_what_is_refused_and_ends_with_1(tmp_path: Path) -> None:
    wishing = pod({"nodeSelector": {"arch": "s390x"}, "nodeName": "n1"}, namespace="shop")
    code, report = checked(tmp_path, wishing, "--service-account", "web")
    assert code == 1 and not report["admitted"]
    assert [(each["path"], each["policies"]) for each in report["violations"]] == [
        ("spec.nodeSelector[arch]", ["arch"]),
        ("spec.nodeName", []),
    ]


def test_the_requester_is_not_the_pods_account(tmp_path: Path) -> None:
    plain = {key: value for key, value in pod()["metadata"].items() if key != "namespace"}
    _, report = checked(tmp_path, {**pod(), "metadata": plain}, "--as", "system:serviceaccount:shop:web")
    assert report["namespace"] == "shop"
    assert report["identities"] == ["system:serviceaccount:shop:default"]


def test_a_workload_is_admitted_with_warnings(tmp_path: Path) -> None:
    template = {"spec": {"nodeName": "n1"}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "shop"},
        "spec": {"template": template},
    }
    code, report = checked(tmp_path, deployment)
    assert code == 0 and "spec.template.spec.nodeName" in report["warnings"][0]


def test_a_workload_reads_as_what_becomes_of_its_pods(tmp_path: Path) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "shop"},
        "spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
    }
    path = write(tmp_path / "all.yaml", objects(deployment))
    result = wharf("check", "-f", path)
    assert result.stdout.startswith("Deployment shop/d: admitted, but its pods would be refused\n")
    assert wharf("who-can", "-f", path).stdout.startswith("nobody")
    suggested = wharf("suggest", "-n", "shop", "-f", path).stdout
    assert next(yaml.safe_load_all(suggested))["spec"]["required"]["nodeSelectors"] == {"disk": ["ssd"]}


def test_pods_read_from_a_cluster_are_judged_as_they_were_made(tmp_path: Path) -> None:
    bound = pod({"nodeName": "n1", "serviceAccountName": "web"}, namespace="shop", uid="1")
    unscheduled = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "2", "controller": True}
    daemon = pod({"nodeName": "n1", "tolerations": [unscheduled]}, namespace="shop", uid="3", ownerReferences=[owner])
    for running in (bound, daemon):
        assert checked(tmp_path, running)[0] == 0
        written = {**running, "metadata": {**running["metadata"], "uid": None}}
        assert checked(tmp_path, written)[0] == 1
    told = wharf("check", "-f", write(tmp_path / "daemon.yaml", objects(daemon))).stdout
    assert "added by the DaemonSet controller" in told and "does not count" not in told


def test_aggregated_roles_count_with_their_parts(tmp_path: Path) -> None:
    granted, bound = grant("arch", ("ServiceAccount", "web", "shop"), namespace="shop")
    part = {**granted, "apiVersion": RBAC, "metadata": {"name": "part", "labels": {"part": "yes"}}}
    rule = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
    whole = {**granted, "apiVersion": RBAC, "aggregationRule": rule, "rules": []}
    asked = pod({"serviceAccountName": "web"}, namespace="shop")
    path = write(tmp_path / "all.yaml", [policy("arch", ARCH), part, whole, {**bound, "apiVersion": RBAC}, asked])
    report = json.loads(wharf("check", "-f", path, "-o", "json").stdout)["items"][0]
    assert report["policies"] == ["arch", "restricted"]


def test_without_a_cluster_the_question_is_not_answered_as_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = wharf("check", "-f", write(tmp_path / "pod.yaml", [pod()]))
    assert result.exit_code == 2 and "give the policies in files" in result.output
    assert wharf("check").exit_code == 2


def test_the_table_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", objects(pod({"tolerations": [{"key": "a"}]}, namespace="shop")))
    result = wharf("check", "-f", path)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:4] == [
        "Pod shop/p: refused",
        "  identity:   system:serviceaccount:shop:default in namespace shop",
        "  policies:   restricted",
        "  refused:",
    ]


def test_the_documents_slips_are_mended_and_settings_taken_from_files(tmp_path: Path) -> None:
    slip = """
apiVersion: extensions/valpha1
Kind: SchedulingPolicy
metadata: {name: restricted}
spec: {allowed: {SchedulerNames: [default-scheduler]}}
---
apiVersion: wharfinger.dev/v1alpha1
kind: WharfingerConfiguration
schedulingPolicy: {mode: audit}
---
"""
    path = tmp_path / "all.yaml"
    path.write_text(slip + yaml.safe_dump(pod({"nodeName": "n1"})))
    result = wharf("check", "-f", str(path), "-o", "json")
    report = json.loads(result.stdout)["items"][0]
    assert result.exit_code == 0
    assert report["mode"] == "audit" and report["admitted"] and not report["admittedWhenEnforced"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "all.yaml"),
        ("[]", "no pod and no workload"),
        ("a: b", "document 1, line 1: kind: Required value"),
        (
            yaml.safe_dump_all([policy("p", {"required": {"schedulerNames": []}}), pod()]),
            "SchedulingPolicy p: spec.required.schedulerNames",
        ),
        (yaml.safe_dump(policy("p", {})), "no pod and no workload"),
    ],
)
def test_bad_input_ends_with_2(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(text)
    result = wharf("check", "-f", str(path))
    assert result.exit_code == 2
    assert words in result.output


def test_who_can(tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", objects(pod({"nodeSelector": {"arch": "arm64"}}, namespace="shop")))
    result = wharf("who-can", "-f", path, "-o", "json")
    items = json.loads(result.stdout)["items"]
    assert [(each["identity"], each["policies"]) for each in items] == [
        ("system:serviceaccount:shop:web", ["arch", "restricted"])
    ]
    alike = write(tmp_path / "alike.yaml", objects(pod(namespace="other")))
    assert wharf("who-can", "-f", alike).stdout.splitlines()[1].split(maxsplit=3) == [
        "Pod", "other/p", "other", "any service account of other   restricted"
    ]  # fmt: skip
    path = write(tmp_path / "none.yaml", objects(pod({"nodeName": "n1"}, namespace="shop")))
    assert wharf("who-can", "-f", path).stdout.startswith("nobody")


def test_who_can_knows_accounts_that_are_bound_as_users(tmp_path: Path) -> None:
    granted = grant("arch", ("User", "system:serviceaccount:shop:robot"))
    documents = [*({**each, "apiVersion": RBAC} for each in granted), policy("arch", ARCH)]
    asked = pod({"nodeSelector": {"arch": "arm64"}}, namespace="shop")
    path = write(tmp_path / "all.yaml", [*documents, asked])
    items = json.loads(wharf("who-can", "-f", path, "-o", "json").stdout)["items"]
    assert [each["identity"] for each in items] == ["system:serviceaccount:shop:robot"]


def test_who_can_reserve_is_asked_of_users_and_groups_too(tmp_path: Path) -> None:
    granted = grant("arch", ("ServiceAccount", "web", "shop"), ("User", "ann"), ("Group", "devs"), namespace="shop")
    template = {"metadata": {"namespace": "shop"}, "spec": {"nodeSelector": {"arch": "arm64"}}}
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"template": template, "owners": [{"object": {"name": "x"}}]},
    }
    documents = [policy("arch", ARCH), *({**each, "apiVersion": RBAC} for each in granted), reservation]
    path = write(tmp_path / "all.yaml", documents)
    items = json.loads(wharf("who-can", "-f", path, "-o", "json").stdout)["items"]
    assert [each["identity"] for each in items] == ["system:serviceaccount:shop:web", "Group devs", "User ann"]
    assert wharf("check", "-f", path, "--as", "bob").stdout.startswith("Reservation r: admitted, with a warning\n")


def test_check_says_when_the_account_asked_about_does_not_count(tmp_path: Path) -> None:
    path = write(tmp_path / "all.yaml", objects(pod({}, namespace="shop")))
    text = wharf("check", "-f", path, "--as", "system:serviceaccount:shop:web").stdout
    assert "system:serviceaccount:shop:web does not count; --service-account runs the pod as it" in text


def test_suggest_writes_what_admits_the_pods_it_saw(tmp_path: Path) -> None:
    running = [pod({"nodeSelector": {"arch": "amd64"}}, namespace="shop", name=name) for name in ("a", "b")]
    result = wharf(
        "suggest", "-n", "shop", "-f", "-", stdin=yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": running})
    )
    assert result.exit_code == 0
    suggested = list(yaml.safe_load_all(result.stdout))
    assert suggested[0]["spec"] == {
        "required": {"schedulerNames": ["default-scheduler"], "nodeSelectors": {"arch": ["amd64"]}}
    }
    path = write(tmp_path / "all.yaml", [*suggested, *running])
    assert wharf("check", "-f", path).exit_code == 0
    assert wharf("suggest", "-n", "empty", "-f", path).exit_code == 2
    assert wharf("suggest", "-n", "shop", "-f", path, "--name", "Not A Name").exit_code == 2
