"""Every verb of kubectl twice, over a built-in kind, one of ours and one of a third party, with kubectl of two versions.

The second time matters: it is then that `apply`, `diff` and `edit` compute patches from what the server published and
returned. Verbs that need controllers and nodes are in test_up_kubectl.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.running import Api
from tests.apiserver.test_kubectl import Kubectl
from tests.kubernetes.binaries import OLDER_KUBECTL, cache
from tests.support import missing

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.verbs.example.com"},
    "spec": {
        "group": "verbs.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wdg"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["color"],
                                "properties": {
                                    "color": {"type": "string", "description": "What color the widget has."},
                                    "replicas": {"type": "integer", "default": 1},
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "note": {"type": "string", "nullable": True},
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
                                        },
                                    },
                                },
                            },
                            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                        },
                    }
                },
            }
        ],
    },
}


@dataclass(frozen=True)
class Sample:
    """A manifest, and a field of it that may change."""

    kind: str  # as kubectl prints it
    manifest: dict[str, Any]
    field: tuple[str, ...]
    values: tuple[Any, Any, Any]
    builtin: bool = False

    def text(self, value: Any) -> str:
        manifest: dict[str, Any] = json.loads(json.dumps(self.manifest))
        owner = manifest
        for name in self.field[:-1]:
            owner = owner[name]
        owner[self.field[-1]] = value
        return json.dumps(manifest)

    def patch(self, value: Any) -> str:
        for name in reversed(self.field):
            value = {name: value}
        return json.dumps(value)

    @property
    def path(self) -> str:
        return "{." + ".".join(self.field) + "}"


def labelled(api_version: str, kind: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "it", "labels": {"app": "it"}}, **content}


TEMPLATE = {
    "metadata": {"labels": {"app": "it"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "1"}},
            }
        ]
    },
}
SAMPLES = [
    Sample(
        "deployment.apps",
        labelled("apps/v1", "Deployment", spec={"selector": {"matchLabels": {"app": "it"}}, "template": TEMPLATE}),
        ("spec", "replicas"),
        (1, 2, 3),
        builtin=True,
    ),
    Sample("configmap", labelled("v1", "ConfigMap"), ("data",), ({"a": "1"}, {"a": "2"}, {"a": "3"}), builtin=True),
    Sample(
        "service",
        labelled("v1", "Service", spec={"selector": {"app": "it"}, "ports": [{"port": 80}]}),
        ("spec", "sessionAffinity"),
        ("None", "ClientIP", "None"),
        builtin=True,
    ),
    Sample(
        "widget.verbs.example.com",
        labelled(
            "verbs.example.com/v1",
            "Widget",
            spec={"port": "http", "extra": {"a": {"b": [1]}}, "parts": [{"name": "x", "size": 1}, {"name": "y"}]},
        ),
        ("spec", "color"),
        ("red", "green", "blue"),
    ),
    Sample(
        "reservation.scheduling.koordinator.sh",
        labelled(
            "scheduling.koordinator.sh/v1alpha1",
            "Reservation",
            spec={"owners": [{"object": {"name": "a", "namespace": "b"}}], "template": TEMPLATE},
        ),
        ("spec", "ttl"),
        ("1h0m0s", "2h0m0s", "3h0m0s"),
    ),
    Sample(
        "resourcepolicy.scheduling.sigs.x-k8s.io",
        labelled(
            "scheduling.sigs.x-k8s.io/v1alpha1",
            "ResourcePolicy",
            spec={
                "podSelector": {"matchLabels": {"app": "it"}},
                "units": [{"name": "one", "priority": 3, "nodeSelector": {"matchLabels": {"a": "b"}}}],
            },
        ),
        ("spec", "strategy"),
        ("required", "prefer", "required"),
    ),
    Sample(
        "placement.cluster.open-cluster-management.io",
        labelled("cluster.open-cluster-management.io/v1beta1", "Placement", spec={}),
        ("spec", "numberOfClusters"),
        (1, 2, 3),
    ),
    Sample(
        "placement.cluster.open-cluster-management.io",
        labelled(
            "cluster.open-cluster-management.io/v1alpha1",
            "Placement",
            spec={
                "prioritizerPolicy": {
                    "configurations": [
                        {"name": "Balance", "weight": 2},
                        {"scoreCoordinate": {"buildIn": "Steady"}},
                        {"name": "Steady", "scoreCoordinate": {"type": "BuildIn", "buildIn": "ResourceAllocatableCPU"}},
                    ]
                },
                "tolerations": [{"key": "a", "value": "b"}],
            },
        ),
        ("spec", "numberOfClusters"),
        (1, 2, 3),
    ),
]


@pytest.fixture(params=["kubectl", OLDER_KUBECTL])
def kubectl(request: pytest.FixtureRequest, api: Api, namespace: str, tmp_path: Path) -> Iterator[Kubectl]:
    """On the PATH, and an older one."""
    made = Kubectl(api, namespace, tmp_path)
    if request.param != "kubectl":
        program = cache() / request.param
        if not program.exists():
            missing(request.param, "python -m tests.kubernetes.binaries makes it")
        made = Kubectl(api, namespace, tmp_path, str(program))
    yield made
    api.ask("DELETE", "/apis/scheduling.koordinator.sh/v1alpha1/reservations/it")  # of no namespace


@pytest.fixture(scope="module", autouse=True)
def widgets(api: Api) -> Iterator[None]:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(path, WIDGETS)
    deadline = time.monotonic() + 30
    while api.ask("GET", "/apis/verbs.example.com/v1/widgets").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield
    api.ask("DELETE", f"{path}/widgets.verbs.example.com")


@pytest.fixture(params=SAMPLES, ids=lambda sample: f"{sample.kind}-{sample.manifest['apiVersion'].rpartition('/')[2]}")
def sample(request: pytest.FixtureRequest) -> Sample:
    found: Sample = request.param
    return found


def value(kubectl: Kubectl, sample: Sample) -> Any:
    found = kubectl.get(sample.kind, "it")
    for name in sample.field:
        found = found.get(name)
    return found


def test_client_side_apply_settles(kubectl: Kubectl, sample: Sample) -> None:
    first, second, third = sample.values
    it = f"{sample.kind}/it"
    assert kubectl("apply", "-f", "-", stdin=sample.text(first)) == f"{it} created\n"
    for _ in range(2):
        assert kubectl("apply", "-f", "-", stdin=sample.text(first)) == f"{it} unchanged\n"
        assert kubectl("diff", "-f", "-", stdin=sample.text(first)) == ""
    for new in (second, third):
        dry = kubectl("apply", "--dry-run=server", "-f", "-", stdin=sample.text(new))
        assert dry == f"{it} configured (server dry run)\n"
        differing = kubectl.try_("diff", "-f", "-", stdin=sample.text(new))
        assert differing.returncode == 1 and sample.field[-1] in differing.stdout, (differing.stdout, differing.stderr)
        assert kubectl("apply", "-f", "-", stdin=sample.text(new)) == f"{it} configured\n"
        assert value(kubectl, sample) == new
        assert kubectl("apply", "-f", "-", stdin=sample.text(new)) == f"{it} unchanged\n"
        assert kubectl("diff", "-f", "-", stdin=sample.text(new)) == ""


def test_server_side_apply_settles(kubectl: Kubectl, sample: Sample) -> None:
    for new in sample.values:
        versions = set()
        for _ in range(2):
            kubectl("apply", "--server-side", "-f", "-", stdin=sample.text(new))
            assert kubectl("diff", "--server-side", "-f", "-", stdin=sample.text(new)) == ""
            versions.add(kubectl.get(sample.kind, "it")["metadata"]["resourceVersion"])
        assert value(kubectl, sample) == new and len(versions) == 1


def test_create_replace_edit_and_patch(kubectl: Kubectl, sample: Sample, tmp_path: Path) -> None:
    first, second, third = sample.values
    it = f"{sample.kind}/it"
    assert kubectl("create", "-f", "-", stdin=sample.text(first)) == f"{it} created\n"
    again = kubectl.try_("create", "-f", "-", stdin=sample.text(first))
    assert again.returncode == 1 and "(AlreadyExists)" in again.stderr
    for new in (second, first):
        assert kubectl("replace", "-f", "-", stdin=sample.text(new)) == f"{it} replaced\n"
        assert value(kubectl, sample) == new
    editor = tmp_path / "editor"
    for word in ("one", "two"):
        editor.write_text(
            f"#!/bin/sh\nsed -i 's/^    app: it$/    app: it\\n    edited: {word}/; /edited: one$/d' \"$1\"\n"
        )
        if word == "one":
            editor.write_text("#!/bin/sh\nsed -i 's/^    app: it$/    app: it\\n    edited: one/' \"$1\"\n")
        editor.chmod(0o755)
        assert kubectl("edit", sample.kind, "it", EDITOR=str(editor)) == f"{it} edited\n"
        assert kubectl.get(sample.kind, "it")["metadata"]["labels"]["edited"] == word
    for type in ("merge", "json", *(("strategic",) if sample.builtin else ())):
        for new in (third, second):
            patch = sample.patch(new)
            if type == "json":
                patch = json.dumps([{"op": "replace", "path": "/" + "/".join(sample.field), "value": new}])
            kubectl("patch", sample.kind, "it", f"--type={type}", "-p", patch)
            assert value(kubectl, sample) == new
    if not sample.builtin:
        refused = kubectl.try_("patch", sample.kind, "it", "--type=strategic", "-p", sample.patch(first))
        assert (
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml" in refused.stderr
        )
    for _ in range(2):
        assert "replaced" in kubectl("replace", "--force", "-f", "-", stdin=sample.text(first))


def test_label_annotate_wait_get_describe_explain_delete(kubectl: Kubectl, sample: Sample) -> None:
    it = f"{sample.kind}/it"
    kubectl("create", "-f", "-", stdin=sample.text(sample.values[0]))
    for verb, said in (("label", "labeled"), ("annotate", "annotated")):
        assert kubectl(verb, sample.kind, "it", "k=1") == f"{it} {said}\n"
        kubectl(verb, sample.kind, "it", "k=2", "--overwrite")
        kubectl(verb, sample.kind, "it", "k-")
    for _ in range(2):
        for output in ("wide", "yaml", "json", "name", "custom-columns=N:.metadata.name", "go-template={{.kind}}"):
            assert kubectl("get", sample.kind, "it", "-o", output)
        assert kubectl("get", sample.kind, "it", "-o", f"jsonpath={sample.path}")
        assert "it" in kubectl("get", sample.kind, "-l", "app=it", "--show-labels", "--no-headers")
        described = kubectl("describe", sample.kind, "it")
        assert described.startswith("Name:") and "Labels:" in described and "app=it" in described
        explained = kubectl(
            "explain",
            ".".join((sample.kind.partition(".")[0], *sample.field)),
            "--api-version=" + sample.manifest["apiVersion"],
        )
        assert "DESCRIPTION:" in explained
        assert kubectl(
            "explain", sample.kind.partition(".")[0], "--recursive", "--api-version=" + sample.manifest["apiVersion"]
        )
        assert kubectl("wait", "--for=jsonpath={.metadata.name}=it", sample.kind, "it") == f"{it} condition met\n"
        assert kubectl("auth", "can-i", "update", sample.kind) == "yes\n"
    kubectl("delete", sample.kind, "it", "--dry-run=server")
    assert "deleted" in kubectl("delete", sample.kind, "it")
    assert kubectl("wait", "--for=delete", sample.kind, "it", "--timeout=20s") == ""
    assert kubectl("delete", sample.kind, "it", "--ignore-not-found") == ""


@pytest.mark.parametrize("kind", ["deployment.apps", "widget.verbs.example.com"])
def test_scale(kubectl: Kubectl, kind: str) -> None:
    sample = next(one for one in SAMPLES if one.kind == kind)
    kubectl("apply", "-f", "-", stdin=sample.text(sample.values[0]))
    for count in (4, 4, 2):
        assert kubectl("scale", kind, "it", f"--replicas={count}") == f"{kind}/it scaled\n"
        assert kubectl.get(kind, "it")["spec"]["replicas"] == count


def test_set_and_rollout(kubectl: Kubectl) -> None:
    sample = SAMPLES[0]
    kubectl("apply", "-f", "-", stdin=sample.text(1))
    for number in ("1", "2"):
        kubectl("set", "image", "deploy/it", f"main=nginx:{number}")
        kubectl("set", "env", "deploy/it", f"NUMBER={number}")
        kubectl("set", "resources", "deploy/it", f"--limits=cpu={number}")
        kubectl("rollout", "pause", "deploy/it")
        kubectl("rollout", "resume", "deploy/it")
    (container,) = kubectl.get("deploy", "it")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "nginx:2" and container["env"] == [{"name": "NUMBER", "value": "2"}]


def test_discovery_verbs(kubectl: Kubectl) -> None:
    for _ in range(2):
        listed = kubectl("api-resources", "--no-headers", "-o", "name").split()
        assert {"widgets.verbs.example.com", "pods", "apiservices.apiregistration.k8s.io"} <= set(listed)
        assert "verbs.example.com/v1" in kubectl("api-versions").split()
        assert "Kubernetes control plane" in kubectl("cluster-info")
        assert "serverVersion" in json.loads(kubectl("version", "-o", "json"))
        assert "system:masters" in kubectl("auth", "whoami")
        assert "widgets.verbs.example.com" in kubectl("get", "crd", "-o", "name")


def test_a_whole_folder_with_pruning(kubectl: Kubectl, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    chosen = [one for one in SAMPLES if "v1alpha1" not in one.manifest["apiVersion"] or "Placement" not in str(one)]
    for one in chosen:
        (folder / f"{one.kind}.json").write_text(one.text(one.values[0]))
    assert kubectl("apply", "-f", str(folder)).count(" created\n") == len(chosen)
    assert kubectl("apply", "-f", str(folder)).count(" unchanged\n") == len(chosen)
    assert kubectl("diff", "-f", str(folder)) == ""
    assert kubectl("delete", "-f", str(folder), "--wait=false").count("deleted") == len(chosen)
