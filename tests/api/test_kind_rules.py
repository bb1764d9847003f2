"""Validation of the other kinds, a table of faults by path; and what updates may not change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.validation import object_faults

KINDS = registry()
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
JOB = {"metadata": {"labels": {"a": "b"}}, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
SELECTOR = {"matchLabels": {"a": "b"}}
REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
HOOK = {"name": "a.b.c", "clientConfig": {"url": "https://x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}


def crd(**more: Any) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "things", "kind": "Thing"}
    return {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version], **more}


GOOD: dict[str, dict[str, Any]] = {
    "deployments": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "replicasets": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "daemonsets": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "statefulsets": {"spec": {"selector": SELECTOR, "template": TEMPLATE, "serviceName": "s"}},
    "replicationcontrollers": {"spec": {"template": TEMPLATE}},
    "jobs": {"spec": {"template": JOB}},
    "cronjobs": {"spec": {"schedule": "*/5 1-3 * * MON", "jobTemplate": {"spec": {"template": JOB}}}},
    "poddisruptionbudgets": {"spec": {"minAvailable": "50%", "selector": SELECTOR}},
    "priorityclasses": {"value": 1000},
    "nodes": {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "4"}}},
    "namespaces": {},
    "services": {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}},
    "resourcequotas": {"spec": {"hard": {"pods": "2", "requests.cpu": "1", "nvidia.high.mem": 1}}},
    "limitranges": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}]}},
    "persistentvolumeclaims": {"spec": CLAIM},
    "persistentvolumes": {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}}},
    "storageclasses": {"provisioner": "x.io/p"},
    "leases": {"spec": {"leaseDurationSeconds": 15}},
    "roles": {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    "rolebindings": {"roleRef": REF, "subjects": [{"kind": "User", "name": "u"}]},
    "clusterroles": {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
    "clusterrolebindings": {"roleRef": REF, "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}]},
    "mutatingwebhookconfigurations": {"webhooks": [HOOK]},
    "validatingwebhookconfigurations": {"webhooks": [HOOK]},
    "customresourcedefinitions": {"metadata": {"name": "things.example.com"}, "spec": crd()},
    "events": {"involvedObject": {"namespace": "n", "name": "x"}, "reason": "R"},
    "horizontalpodautoscalers": {"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}},
    "configmaps": {"data": {"a": "b"}},
    "secrets": {"data": {"a": "Yg=="}},
}  # fmt: skip


def made(plural: str, **more: Any) -> tuple[Any, dict[str, Any]]:
    kind = KINDS.find(plural)
    assert kind is not None
    document = copy.deepcopy({"metadata": {"name": "x"}, **GOOD[plural], **more})
    if kind.namespaced:
        document["metadata"].setdefault("namespace", "n")
    document["metadata"].setdefault("uid", "u-1")
    if kind.prepare_create is not None:
        kind.prepare_create(document)
    if kind.default is not None:
        kind.default(document)
    return kind, document


def faults(plural: str, **more: Any) -> list[str]:
    kind, document = made(plural, **more)
    return [str(error) for error in object_faults(kind, document)]


@pytest.mark.parametrize("plural", sorted(GOOD))
def test_good_objects_pass(plural: str) -> None:
    assert faults(plural) == []


@pytest.mark.parametrize(
    ("plural", "change", "fault"),
    [
        ("deployments", {"spec": {"template": TEMPLATE}}, "spec.selector: Required value"),
        ("deployments", {"spec": {"selector": {}, "template": TEMPLATE}}, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
        ("deployments", {"spec": {"selector": {"matchLabels": {"x": "y"}}, "template": TEMPLATE}}, 'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`'),
        ("deployments", {"spec": {"selector": SELECTOR, "template": TEMPLATE, "replicas": -1}}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ("deployments", {"spec": {"selector": SELECTOR, "template": JOB}}, 'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'),
        ("deployments", {"spec": {"selector": SELECTOR, "template": TEMPLATE, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}}, 'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0'),
        ("deployments", {"spec": {"selector": SELECTOR, "template": TEMPLATE, "strategy": {"type": "Recreate", "rollingUpdate": {}}}}, "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"),
        ("daemonsets", {"spec": {"selector": SELECTOR, "template": TEMPLATE, "updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}}, "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"),
        ("jobs", {"spec": {"template": TEMPLATE}}, 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'),
        ("jobs", {"spec": {"template": JOB, "completionMode": "Indexed", "parallelism": 2}}, "spec.completions: Required value: when completion mode is Indexed"),
        ("cronjobs", {"spec": {**GOOD["cronjobs"]["spec"], "schedule": "often"}}, "spec.schedule: Invalid value: \"often\": expected exactly 5 fields, found 1: [often]"),
        ("poddisruptionbudgets", {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, 'spec: Invalid value: {"minAvailable":1,"maxUnavailable":1}: minAvailable and maxUnavailable cannot be both set'),
        ("poddisruptionbudgets", {"spec": {"minAvailable": "120%"}}, 'spec.minAvailable: Invalid value: "120%": must not be greater than 100%'),
        ("poddisruptionbudgets", {"spec": {"minAvailable": -1}}, "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
        ("priorityclasses", {"value": 2000000000}, "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"),
        ("priorityclasses", {"metadata": {"name": "system-mine"}}, "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class"),
        ("nodes", {"spec": {"taints": [{"key": "k"}]}}, "metadata.taints[0].effect: Required value"),
        ("nodes", {"status": {"capacity": {"x.io/d": "500m"}}}, 'status.capacity.x.io/d: Invalid value: "500m": must be an integer'),
        ("namespaces", {"metadata": {"name": "A.b"}}, "metadata.name"),
        ("services", {"spec": {}}, "spec.ports: Required value"),
        ("services", {"spec": {"ports": [{"port": 0}]}}, "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ("resourcequotas", {"spec": {"hard": {"pods": "1500m"}}}, 'spec.hard[pods]: Invalid value: "1500m": must be an integer'),
        ("resourcequotas", {"spec": {"scopes": ["BestEffort", "NotBestEffort"]}}, 'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes'),
        ("limitranges", {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}}, 'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'),
        ("persistentvolumeclaims", {"spec": {"resources": {"requests": {"storage": "1"}}}}, "spec.accessModes: Required value: at least 1 access mode is required"),
        ("persistentvolumeclaims", {"spec": {"accessModes": ["ReadWriteOnce"]}}, "spec.resources[storage]: Required value"),
        ("persistentvolumes", {"spec": {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"]}}, "spec: Required value: must specify a volume type"),
        ("storageclasses", {"provisioner": ""}, "provisioner: Required value"),
        ("leases", {"spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
        ("roles", {"rules": [{"verbs": [], "apiGroups": [""], "resources": ["pods"]}]}, "rules[0].verbs: Required value: verbs must contain at least one value"),
        ("rolebindings", {"roleRef": {"kind": "Pod", "name": "r"}}, 'roleRef.kind: Unsupported value: "Pod": supported values: "Role", "ClusterRole"'),
        ("clusterrolebindings", {"subjects": [{"kind": "ServiceAccount", "name": "s"}]}, "subjects[0].namespace: Required value"),
        ("mutatingwebhookconfigurations", {"webhooks": [{**HOOK, "timeoutSeconds": 60}]}, "webhooks[0].timeoutSeconds: Invalid value: 60: the timeout value must be between 1 and 30 seconds"),
        ("validatingwebhookconfigurations", {"webhooks": [{**HOOK, "name": "short"}]}, 'webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots'),
        ("customresourcedefinitions", {"metadata": {"name": "other"}}, 'metadata.name: Invalid value: "other": must be spec.names.plural+"."+spec.group'),
        ("customresourcedefinitions", {"spec": crd(scope="Both")}, 'spec.scope: Unsupported value: "Both": supported values: "Cluster", "Namespaced"'),
        ("events", {"involvedObject": {"namespace": "other"}}, 'involvedObject.namespace: Invalid value: "other": does not match event.namespace'),
        ("configmaps", {"data": {"a b": "c"}}, "data[a b]"),
    ],
)  # fmt: skip
def test_faults_by_path(plural: str, change: dict[str, Any], fault: str) -> None:
    found = faults(plural, **change)
    assert found
    assert any(text.startswith(fault) for text in found), found


@pytest.mark.parametrize(
    ("plural", "change", "path"),
    [
        ("deployments", {"selector": {"matchLabels": {"a": "b", "c": "d"}}}, "spec.selector"),
        ("statefulsets", {"serviceName": "other"}, "spec"),
        ("jobs", {"completions": 5}, "spec.completions"),
        ("jobs", {"template": {**JOB, "spec": {**JOB["spec"], "hostNetwork": True}}}, "spec.template"),
        ("persistentvolumeclaims", {"accessModes": ["ReadWriteMany"]}, "spec"),
    ],
)
def test_updates_may_not_change_everything(plural: str, change: dict[str, Any], path: str) -> None:
    kind, old = made(plural)
    new = copy.deepcopy(old)
    new["spec"].update(copy.deepcopy(change))
    assert path in [error.path for error in object_faults(kind, new, old)]


@pytest.mark.parametrize(
    ("plural", "field", "value", "path"),
    [
        ("priorityclasses", "value", 5, "value"),
        ("rolebindings", "roleRef", {**REF, "name": "other"}, "roleRef"),
        ("storageclasses", "provisioner", "other", "provisioner"),
        ("secrets", "type", "other", "type"),
    ],
)
def test_fixed_fields_at_the_top(plural: str, field: str, value: Any, path: str) -> None:
    kind, old = made(plural)
    new = {**copy.deepcopy(old), field: value}
    assert [error.path for error in object_faults(kind, new, old)] == [path]


def test_a_job_selects_its_pods_by_its_own_uid() -> None:
    _, job = made("jobs")
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}
    assert job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "x"


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"labels": {"a": "b c"}}, 'metadata.labels: Invalid value: "b c": a valid label must be an empty string'),
        ({"labels": {"a/b/c": "x"}}, 'metadata.labels: Invalid value: "a/b/c": a qualified name must consist of'),
        ({"annotations": {"a": "x" * 300_000}}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}, 'metadata.ownerReferences.uid: Invalid value: "": must not be empty'),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, "metadata.finalizers: Invalid value:"),
        ({"labels": ["a"]}, 'metadata.labels: Invalid value: ["a"]: must be of type object'),
        ({"namespace": "x"}, "metadata.namespace: Forbidden: not allowed on this type"),
    ],
)  # fmt: skip
def test_metadata_is_checked_the_same_for_all_kinds(metadata: dict[str, Any], fault: str) -> None:
    found = faults("priorityclasses", metadata={"name": "x", **metadata})
    assert len(found) == 1 or fault.startswith("metadata.labels")
    assert found[0].startswith(fault), found


def test_plain_secrets_are_encoded_into_data() -> None:
    _, secret = made("secrets", stringData={"b": "c"})
    assert secret["data"] == {"a": "Yg==", "b": "Yw=="}
    assert "stringData" not in secret
