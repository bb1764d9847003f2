"""Everyday `kubectl` commands with the embedded server."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.running import Api
from tests.support import require

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "nginx:1", ports: [{containerPort: 80}], resources: {requests: {cpu: 100m}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {app: one}}
spec:
  containers: [{name: main, image: nginx}]
"""


class Kubectl:
    """`kubectl` with the administrator's kubeconfig, in one namespace; the one on the PATH unless told otherwise."""

    def __init__(self, api: Api, namespace: str, directory: Path, program: str = "") -> None:
        self._program = program or require("kubectl")
        self._namespace = namespace
        self.directory = directory
        self._env = {**os.environ, "KUBECONFIG": str(api.kubeconfig), "HOME": str(directory)}

    def try_(self, *arguments: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        command = [self._program, "-n", self._namespace, f"--cache-dir={self.directory / 'cache'}", *arguments]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=60, env={**self._env, **env}
        )

    def __call__(self, *arguments: str, stdin: str | None = None, **env: str) -> str:
        done = self.try_(*arguments, stdin=stdin, **env)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self("get", *arguments, "-o", "json"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [self._program, "-n", self._namespace, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._env)


@pytest.fixture
def kubectl(api: Api, namespace: str, tmp_path: Path) -> Kubectl:
    return Kubectl(api, namespace, tmp_path)


def test_apply_creates_configures_and_leaves_unchanged(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web created\n"
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web unchanged\n"
    changed = DEPLOYMENT.replace("nginx:1", "nginx:2").replace("replicas: 2", "replicas: 4")
    assert kubectl("apply", "-f", "-", stdin=changed) == "deployment.apps/web configured\n"
    spec = kubectl.get("deployment", "web")["spec"]
    assert (spec["replicas"], spec["template"]["spec"]["containers"][0]["image"]) == (4, "nginx:2")
    ports = kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.template.spec.containers[0].ports[0].containerPort}")
    assert ports == "80"


def test_diff_and_dry_run_change_nothing(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("apply", "--server-side", "-f", "-", stdin=DEPLOYMENT)
    changed = DEPLOYMENT.replace("nginx:1", "nginx:2")
    diff = kubectl.try_("diff", "-f", "-", stdin=changed)
    assert diff.returncode == 1, diff.stderr
    assert "-        - image: nginx:1" in diff.stdout.replace("-      - image", "-        - image")
    assert (
        kubectl("apply", "--dry-run=server", "-f", "-", stdin=changed)
        == "deployment.apps/web configured (server dry run)\n"
    )
    assert "nginx:1" in json.dumps(kubectl.get("deployment", "web"))


def test_mistakes_in_a_manifest_are_found_before_anything_is_stored(kubectl: Kubectl) -> None:
    wrong = kubectl.try_("apply", "-f", "-", stdin=POD.replace("image:", "imgae:"))
    assert wrong.returncode != 0
    assert 'strict decoding error: unknown field "spec.containers[0].imgae"' in wrong.stderr
    assert kubectl.try_("get", "pod", "one").returncode == 1
    warned = kubectl.try_(
        "apply", "--validate=warn", "-f", "-", stdin=POD.replace("image: nginx", "image: nginx, extra: 1")
    )
    assert 'Warning: unknown field "spec.containers[0].extra"' in warned.stderr
    assert warned.returncode == 0


def test_tables_have_headers_rows_and_wide_columns(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    header, row = kubectl("get", "pods").splitlines()
    assert header.split()[0] == "NAME"
    assert "AGE" in header
    assert row.startswith("one ")
    assert kubectl("get", "pods", "-o", "name") == "pod/one\n"
    assert kubectl("get", "pods", "--no-headers", "-o", "custom-columns=N:.metadata.name") == "one\n"
    assert len(kubectl("get", "pods", "-o", "wide").splitlines()) == 2
    assert kubectl("get", "po", "-l", "app=one", "-o", "name") == "pod/one\n"
    assert kubectl("get", "pods", "--show-labels").splitlines()[1].split()[-1] == "app=one"
    assert kubectl("get", "pods", "--field-selector=metadata.name=other", "-o", "name") == ""


def test_get_watch_shows_changes(kubectl: Kubectl) -> None:
    watch = kubectl.start("get", "pods", "-w", "-o", "name")
    try:
        assert watch.stdout is not None
        deadline = time.monotonic() + 20
        kubectl("apply", "-f", "-", stdin=POD)
        assert watch.stdout.readline() == "pod/one\n"
        assert time.monotonic() < deadline
    finally:
        watch.terminate()
        watch.communicate()


def test_describe(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    text = kubectl("describe", "pod", "one")
    assert "Name:" in text
    assert "main:" in text


def test_patch_label_annotate(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl(
        "patch", "deploy", "web", "-p", '{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"b"}]}}}}'
    )
    kubectl("patch", "deploy", "web", "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":7}]')
    kubectl("patch", "deploy", "web", "--type=merge", "-p", '{"spec":{"paused":true}}')
    spec = kubectl.get("deploy", "web")["spec"]
    assert (spec["replicas"], spec["paused"]) == (7, True)
    container = spec["template"]["spec"]["containers"][0]
    assert (container["image"], container["ports"][0]["containerPort"]) == ("b", 80)
    assert kubectl("label", "deploy", "web", "tier=front") == "deployment.apps/web labeled\n"
    assert kubectl("label", "deploy", "web", "tier-") == "deployment.apps/web unlabeled\n"
    assert kubectl("annotate", "deploy", "web", "note=x") == "deployment.apps/web annotated\n"
    assert kubectl.get("deploy", "web")["metadata"]["annotations"]["note"] == "x"


def test_edit_and_replace(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    editor = kubectl.directory / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/replicas: 2/replicas: 9/' \"$1\"\n")
    editor.chmod(0o755)
    assert kubectl("edit", "deploy", "web", KUBE_EDITOR=str(editor)) == "deployment.apps/web edited\n"
    assert kubectl.get("deploy", "web")["spec"]["replicas"] == 9
    assert kubectl("replace", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web replaced\n"
    assert kubectl.get("deploy", "web")["spec"]["replicas"] == 2
    assert "replaced" in kubectl("replace", "--force", "-f", "-", stdin=DEPLOYMENT)


def test_scale_and_set(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert kubectl("scale", "deploy/web", "--replicas=5") == "deployment.apps/web scaled\n"
    assert kubectl.try_("scale", "deploy/web", "--current-replicas=2", "--replicas=6").returncode == 1
    assert kubectl.get("deploy", "web")["spec"]["replicas"] == 5
    assert kubectl("set", "image", "deploy/web", "main=nginx:3") == "deployment.apps/web image updated\n"
    assert kubectl("set", "resources", "deploy/web", "--limits=cpu=1").endswith("resource requirements updated\n")
    assert "restarted" in kubectl("rollout", "restart", "deploy/web")


def test_create_in_all_its_forms(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=0", "--port=80")
    assert kubectl.get("deploy", "d")["spec"]["replicas"] == 0
    kubectl("create", "configmap", "c", "--from-literal=a=b")
    assert kubectl.get("cm", "c")["data"] == {"a": "b"}
    kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
    assert kubectl.get("secret", "s")["data"] == {"a": "Yg=="}
    kubectl("create", "serviceaccount", "bot")
    kubectl("create", "role", "r", "--verb=get", "--resource=pods,deployments.apps")
    kubectl("create", "rolebinding", "b", "--role=r", "--serviceaccount=default:bot", "--user=u", "--group=g")
    assert [one["kind"] for one in kubectl.get("rolebinding", "b")["subjects"]] == ["User", "Group", "ServiceAccount"]
    kubectl("create", "quota", "q", "--hard=pods=3,services=2")
    assert kubectl.get("quota", "q")["spec"]["hard"] == {"pods": "3", "services": "2"}
    kubectl("create", "poddisruptionbudget", "p", "--min-available=50%", "--selector=a=b")
    assert kubectl.get("pdb", "p")["spec"]["minAvailable"] == "50%"
    kubectl("create", "job", "j", "--image=busybox", "--", "true")
    assert kubectl.get("job", "j")["spec"]["template"]["spec"]["containers"][0]["command"] == ["true"]
    kubectl("run", "r", "--image=nginx", "--labels=x=y", "--env=A=B")
    assert kubectl.get("pod", "r")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "B"}]
    kubectl("expose", "deploy", "d", "--port=80", "--target-port=http")
    assert kubectl.get("svc", "d")["spec"]["ports"][0]["targetPort"] == "http"


def test_nodes_are_tainted_cordoned_and_drained(kubectl: Kubectl, namespace: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{namespace}"}}
    name = node["metadata"]["name"]  # type: ignore[index]
    kubectl("create", "-f", "-", stdin=json.dumps(node))
    kubectl("taint", "node", name, "key=value:NoSchedule")
    assert kubectl.get("node", name)["spec"]["taints"] == [{"key": "key", "value": "value", "effect": "NoSchedule"}]
    kubectl("taint", "node", name, "key-")
    assert kubectl("cordon", name) == f"node/{name} cordoned\n"
    assert kubectl.get("node", name)["spec"]["unschedulable"] is True
    assert kubectl("uncordon", name) == f"node/{name} uncordoned\n"
    kubectl(
        "apply", "-f", "-", stdin=POD.replace("spec:", f"spec:\n  nodeName: {name}\n  terminationGracePeriodSeconds: 0")
    )
    drained = kubectl("drain", name, "--force", "--grace-period=0", "--timeout=20s")
    assert "evicting pod" in drained or "drained" in drained
    assert kubectl.try_("get", "pod", "one").returncode == 1


def test_delete_waits_until_it_is_gone(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    assert kubectl("delete", "pod", "one", "--timeout=20s").startswith('pod "one" deleted')
    kubectl("apply", "-f", "-", stdin=POD + "---" + DEPLOYMENT)
    kubectl("delete", "pods,deployments", "--all", "--timeout=20s")
    assert kubectl("get", "all", "-o", "name") == ""
    assert "NotFound" in kubectl.try_("delete", "pod", "one").stderr
    kubectl("delete", "pod", "one", "--ignore-not-found")


def test_wait_sees_conditions(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    waiting = kubectl.start("wait", "--for=condition=Ready", "pod/one", "--timeout=30s")
    status = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "one", "--subresource=status", "--type=merge", "-p", status)
    out, _ = waiting.communicate(timeout=40)
    assert out == "pod/one condition met\n"
    assert "condition met" in kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/one", "--timeout=10s")


def test_explain_knows_kubernetes_kinds_and_ours(kubectl: Kubectl) -> None:
    assert "VERSION:    v1" in kubectl("explain", "pod.spec.containers.resources")
    assert "-required-" in kubectl("explain", "pod.spec.containers")
    assert "ResourcePolicy" in kubectl("explain", "resourcepolicies.spec")
    assert "maxUnavailable" in kubectl("explain", "deployment", "--recursive")


def test_explain_works_with_openapi_v2(kubectl: Kubectl) -> None:
    text = kubectl("explain", "pod.spec.affinity", "--output=plaintext-openapiv2")
    assert "RESOURCE: affinity <Object>" in text
    assert "podAntiAffinity\t<Object>" in text
    # Of a kind that version 3 does not know, kubectl looks into version 2, as protobuf, before it says so.
    unknown = kubectl.try_("apply", "-f", "-", stdin="apiVersion: v1\nkind: Nope\nmetadata: {name: x}\n")
    assert 'no matches for kind "Nope" in version "v1"' in unknown.stderr, unknown.stderr


def test_warnings_and_addresses_are_shown(kubectl: Kubectl) -> None:
    pod = POD.replace("image: nginx", "image: nginx, env: [{name: A, value: one}, {name: A, value: two}]")
    done = kubectl.try_("apply", "-f", "-", stdin=pod)
    hidden = 'hides previous definition of "A", which may be dropped when using apply'
    assert done.stderr == f"Warning: spec.containers[0].env[1]: {hidden}\n"
    kubectl("create", "service", "nodeport", "front", "--tcp=80")
    row = kubectl("get", "service", "front", "--no-headers").split()
    assert (row[1], row[2].split(".")[0], row[4].split(":")[0]) == ("NodePort", "10", "80")
    assert kubectl.try_("get", "endpoints").stderr.startswith("Warning: v1 Endpoints is deprecated in v1.33+")


def test_resources_and_versions_are_listed(kubectl: Kubectl) -> None:
    names = kubectl("api-resources", "--verbs=list", "-o", "name").split()
    assert {"pods", "deployments.apps", "resourcepolicies.scheduling.sigs.x-k8s.io"} <= set(names)
    assert "apps/v1" in kubectl("api-versions").split()
    assert json.loads(kubectl("version", "-o", "json"))["serverVersion"]["major"] == "1"
    assert "is running at https://127.0.0.1" in kubectl("cluster-info")
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_auth_can_i(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "delete", "nodes") == "yes\n"
    assert kubectl.try_("auth", "can-i", "list", "secrets", "--as=bob").stdout == "no\n"
    refused = kubectl.try_("get", "secrets", "--as=bob", "--as-group=devs")
    assert (
        'Error from server (Forbidden): secrets is forbidden: User "bob" cannot list resource "secrets"'
        in refused.stderr
    )
    assert "system:admin" in kubectl("auth", "whoami")
    assert "selfsubjectaccessreviews" in kubectl("auth", "can-i", "--list", "--as=bob")


def test_create_token(kubectl: Kubectl, api: Api, namespace: str) -> None:
    kubectl("create", "serviceaccount", "bot")
    token = kubectl(
        "create", "token", "bot", "--duration=20m", "--audience=https://kubernetes.default.svc.cluster.local"
    ).strip()
    answer = Api(api.kubeconfig, token).ask("GET", f"/api/v1/namespaces/{namespace}/pods")
    assert f"system:serviceaccount:{namespace}:bot" in answer.message


def test_events_are_shown(kubectl: Kubectl, namespace: str) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "one", "namespace": namespace},
        "reason": "Tested",
        "message": "it was tested",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    assert "it was tested" in kubectl("events")
    assert "Tested" in kubectl("get", "events")


def test_our_kinds_are_applied_like_any_other(kubectl: Kubectl) -> None:
    policy = """
apiVersion: scheduling.sigs.x-k8s.io/v1alpha1
kind: ResourcePolicy
metadata: {name: rp}
spec:
  podSelector: {matchLabels: {key: value}}
  units:
  - {name: first, priority: 5, maxCount: 2, nodeSelector: {matchLabels: {zone: a}}}
"""
    first = kubectl.try_("apply", "-f", "-", stdin=policy)
    assert first.returncode == 0, first.stderr
    assert kubectl("get", "resourcepolicies", "-o", "name") == "resourcepolicy.scheduling.sigs.x-k8s.io/rp\n"
    assert "rp" in kubectl("get", "resourcepolicies")


def test_server_side_apply_finds_conflicts(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--server-side", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web serverside-applied\n"
    kubectl("scale", "deploy/web", "--replicas=7")
    refused = kubectl.try_("apply", "--server-side", "-f", "-", stdin=DEPLOYMENT)
    assert refused.returncode == 1
    assert 'conflict with "kubectl" with subresource "scale" using apps/v1' in refused.stderr
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=DEPLOYMENT)
    assert kubectl.get("deploy", "web")["spec"]["replicas"] == 2
    assert kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=DEPLOYMENT).endswith(
        "(server dry run)\n"
    )
    assert kubectl.try_("diff", "--server-side", "-f", "-", stdin=DEPLOYMENT).returncode == 0


def test_field_managers_are_recorded_from_the_first_write(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "c", "--from-literal=a=1")
    shown = json.loads(kubectl("get", "configmap", "c", "-o", "json", "--show-managed-fields"))
    entry = shown["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("kubectl-create", "Update", "v1")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:a": {}}}
    kubectl("label", "configmap", "c", "x=y")
    config = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "2"}})
    refused = kubectl.try_("apply", "--server-side", "-f", "-", stdin=config)
    assert 'conflict with "kubectl-create" using v1' in refused.stderr
    assert ".data.a" in refused.stderr
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=config)
    shown = json.loads(kubectl("get", "configmap", "c", "-o", "json", "--show-managed-fields"))
    owned = {entry["manager"]: entry["fieldsV1"] for entry in shown["metadata"]["managedFields"]}
    assert owned["kubectl"] == {"f:data": {"f:a": {}}}
    assert owned["kubectl-label"] == {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}
    assert owned["kubectl-create"] == {"f:data": {}}


def test_server_side_apply_takes_over_from_client_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("apply", "--server-side", "-f", "-", stdin=DEPLOYMENT)
    changed = DEPLOYMENT.replace("nginx:1", "nginx:2").replace("replicas: 2", "replicas: 3")
    kubectl("apply", "--server-side", "-f", "-", stdin=changed)
    found = kubectl.get("deploy", "web")
    assert (found["spec"]["replicas"], found["spec"]["template"]["spec"]["containers"][0]["image"]) == (3, "nginx:2")
    without = changed.replace(", ports: [{containerPort: 80}]", "")
    kubectl("apply", "--server-side", "-f", "-", stdin=without)
    assert "ports" not in kubectl.get("deploy", "web")["spec"]["template"]["spec"]["containers"][0]
