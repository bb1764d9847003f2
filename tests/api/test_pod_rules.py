"""Defaults and validation of pods, in the words of Kubernetes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from wharfinger.api.kinds.core import POD
from wharfinger.api.validation.pods import pod_validator
from wharfinger.api.validation.resources import refuse_unqualified


def pod(annotations: dict[str, str] | None = None, containers: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "n", "labels": {"app": "a"}, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "c", "image": "i"}] if containers is None else containers, **spec},
    }


def defaulted(document: dict[str, Any]) -> dict[str, Any]:
    assert POD.default is not None
    POD.default(document)
    return document


def faults(document: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    assert POD.validate is not None
    return [str(error) for error in POD.validate(defaulted(document), old)]


def test_what_an_api_server_fills_in() -> None:
    container = {
        "name": "c",
        "image": "i:1",
        "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}},
    }
    document = defaulted(pod(containers=[container], volumes=[{"name": "v"}, {"name": "s", "secret": {}}]))
    assert document["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {},
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                },
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"defaultMode": 420}}],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [("a", "Always"), ("a:latest", "Always"), ("a:1", "IfNotPresent"), ("r:5000/a", "Always"), ("a@sha256:0", "IfNotPresent")],
)  # fmt: skip
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    document = defaulted(pod(containers=[{"name": "c", "image": image}]))
    assert document["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_requests_come_from_limits_and_quantities_are_canonical() -> None:
    resources = {"limits": {"cpu": "1000m", "memory": "1024Mi", "x.io/d": 2}, "requests": {"cpu": "0.25"}}
    document = defaulted(pod(containers=[{"name": "c", "image": "i", "resources": resources}]))
    assert document["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi", "x.io/d": "2"},
        "requests": {"cpu": "250m", "memory": "1Gi", "x.io/d": "2"},
    }


def test_pod_level_requests_come_from_containers_then_from_limits() -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    document = defaulted(pod(containers=[container], resources={"limits": {"cpu": "1", "memory": "1Gi"}}))
    assert document["spec"]["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}


def test_a_new_pod_is_pending_with_its_quality_of_service() -> None:
    assert POD.prepare_create is not None
    both = {"cpu": "1", "memory": "1Gi"}
    document = defaulted(pod(containers=[{"name": "c", "image": "i", "resources": {"limits": both}}]))
    POD.prepare_create(document)
    assert document["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


def test_a_gated_pod_says_so() -> None:
    assert POD.prepare_create is not None
    document = pod(schedulingGates=[{"name": "example.com/hold"}])
    POD.prepare_create(document)
    assert document["status"]["conditions"][0]["reason"] == "SchedulingGated"


def test_match_label_keys_become_expressions() -> None:
    assert POD.prepare_create is not None
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, "matchLabelKeys": ["app", "none"]}  # fmt: skip
    document = pod(topologySpreadConstraints=[constraint])
    POD.prepare_create(document)
    merged = document["spec"]["topologySpreadConstraints"][0]["labelSelector"]
    assert merged == {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}
    assert faults(document) == []


def with_resources(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return pod(containers=[{"name": "c", "image": "i", "resources": resources}])


PATH = "spec.containers[0].resources"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (pod(), []),
        (pod(containers=[]), ["spec.containers: Required value"]),
        (pod(containers=[{"image": "i"}]), ["spec.containers[0].name: Required value"]),
        (pod(containers=[{"name": "c"}]), ["spec.containers[0].image: Required value"]),
        (pod(containers=[{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]), ['spec.containers[1].name: Duplicate value: "c"']),
        (pod(restartPolicy="Sometimes"), ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"']),
        (with_resources({"cpu": "2"}, {"cpu": "1"}), [f'{PATH}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1']),
        (with_resources({"cpu": "-1"}), [f'{PATH}.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0']),
        (with_resources(None, {"x.io/d": "1500m"}), [f'{PATH}.{part}[x.io/d]: Invalid value: "1500m": must be an integer' for part in ("limits", "requests")]),
        (with_resources({"x.io/d": "1"}), [f"{PATH}.limits: Required value: Limit must be set for non overcommitable resources"]),
        (with_resources({"x.io/d": "1"}, {"x.io/d": "2"}), [f'{PATH}.requests: Invalid value: "1": must be equal to x.io/d limit of 2']),
        (with_resources(None, {"nvidia.high.mem": 2}), []),
        (with_resources({"nvidia.high.mem": "500m"}, {"nvidia.high.mem": "500m"}), [f'{PATH}.{part}[nvidia.high.mem]: Invalid value: "500m": must be an integer' for part in ("limits", "requests")]),
        (pod({"controller.kubernetes.io/pod-deletion-cost": "+1"}), ['metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer']),
        (pod({"controller.kubernetes.io/pod-deletion-cost": "007"}), ['metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "007": must be a 32bit integer']),
        (pod({"controller.kubernetes.io/pod-deletion-cost": "2147483648"}), ['metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "2147483648": must be a 32bit integer']),
        (pod({"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}), []),
        (pod(tolerations=[{"operator": "Equal"}]), ['spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys"']),
        (pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]), ["spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"]),
        (pod(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]), ["spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"]),
        (pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}), ["spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term"]),
        (pod(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": {"topologyKey": "z"}}]}}), ["spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100"]),
        (pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]), ["spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero"]),
        (pod(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}]), ["spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"]),
        (pod(schedulingGates=[{"name": "a"}, {"name": "a"}]), ['spec.schedulingGates[1]: Duplicate value: "a"']),
        (pod(nodeName="n", schedulingGates=[{"name": "a"}]), ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]),
        (pod(nodeSelector={"a b": "c"}), None),
        (pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]), ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"]),
    ],
)  # fmt: skip
def test_faults_of_a_new_pod(document: dict[str, Any], expected: list[str] | None) -> None:
    found = faults(document)
    if expected is None:
        assert found
    else:
        assert found == expected


def test_a_real_api_server_refuses_unqualified_resource_names() -> None:
    document = defaulted(with_resources(None, {"nvidia.high.mem": 2}))
    found = [str(error) for error in pod_validator(refuse_unqualified)(document, None)]
    assert f'{PATH}.limits[nvidia.high.mem]: Invalid value: "nvidia.high.mem": must be a standard resource type or fully qualified' in found  # fmt: skip


def changed(before: dict[str, Any], **spec: Any) -> dict[str, Any]:
    after = copy.deepcopy(before)
    after["spec"].update(spec)
    return after


GATED = pod(schedulingGates=[{"name": "g"}, {"name": "h"}], nodeSelector={"a": "b"})
PLAIN = pod(tolerations=[{"key": "k", "operator": "Exists"}], activeDeadlineSeconds=100)
TERMS = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}  # fmt: skip
NARROWED = copy.deepcopy(TERMS)
NARROWED["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"].append({"key": "b", "operator": "Exists"})  # fmt: skip


@pytest.mark.parametrize(
    ("before", "change", "path"),
    [
        (PLAIN, {"containers": [{"name": "c", "image": "other"}]}, None),
        (PLAIN, {"containers": [{"name": "c", "image": "i", "command": ["x"]}]}, "spec"),
        (PLAIN, {"containers": []}, "spec.containers"),
        (PLAIN, {"nodeName": "n1"}, "spec"),
        (PLAIN, {"activeDeadlineSeconds": 50}, None),
        (PLAIN, {"activeDeadlineSeconds": 200}, "spec.activeDeadlineSeconds"),
        (PLAIN, {"activeDeadlineSeconds": None}, "spec.activeDeadlineSeconds"),
        (PLAIN, {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}]}, None),
        (PLAIN, {"tolerations": []}, "spec.tolerations"),
        (PLAIN, {"schedulingGates": [{"name": "new"}]}, "spec.schedulingGates[0].name"),
        (PLAIN, {"nodeSelector": {"a": "b"}}, "spec"),
        (GATED, {"schedulingGates": [{"name": "h"}]}, None),
        (GATED, {"nodeSelector": {"a": "b", "c": "d"}}, None),
        (GATED, {"nodeSelector": {"c": "d"}}, "spec.nodeSelector"),
        (GATED, {"affinity": TERMS}, None),
        (changed(GATED, affinity=TERMS), {"affinity": NARROWED}, None),
        (changed(GATED, affinity=NARROWED), {"affinity": TERMS}, "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"),
        (GATED, {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}}, "spec"),
    ],
)  # fmt: skip
def test_what_an_update_may_change(before: dict[str, Any], change: dict[str, Any], path: str | None) -> None:
    old = defaulted(copy.deepcopy(before))
    after = defaulted(changed(old, **copy.deepcopy(change)))
    assert POD.validate is not None
    found = [error.path for error in POD.validate(after, old)]
    assert (path in found) if path else found == []
