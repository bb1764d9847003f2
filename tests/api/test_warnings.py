"""What is allowed and yet warned of, in the words of a real API server (recorded from kube-apiserver 1.36)."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document


def pod(metadata: Document | None = None, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def container(**fields: Any) -> Document:
    return pod(containers=[{"name": "c", "image": "i", **fields}])


def found(document: Document, old: Document | None = None) -> list[str]:
    kind = registry().of_object(document["apiVersion"], document["kind"])
    assert kind is not None
    assert kind.warn is not None
    return list(kind.warn(document, old))


SELECTS_NOTHING = "a null labelSelector results in matching no pod"
HIDES = 'hides previous definition of "A", which may be dropped when using apply'


@pytest.mark.parametrize(
    ("document", "warnings"),
    [
        (pod(), []),
        (
            container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
            [f"spec.containers[0].env[1]: {HIDES}"],
        ),
        (container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]), []),
        (
            container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)"}]),
            [f"spec.containers[0].env[1]: {HIDES}"],
        ),
        (
            container(ports=[{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}]),
            ["spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"],
        ),
        (container(ports=[{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]), []),
        (
            container(ports=[{"containerPort": 80, "hostPort": 80}, {"containerPort": 80}]),
            ["spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"],
        ),
        (
            container(ports=[{"containerPort": 80, "protocol": "TCP", "hostIP": "1.2.3.4"}]),
            [
                "spec.containers[0].ports[0]: hostIP set without hostPort: "
                "{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}"
            ],
        ),
        (
            pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
            ['spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'],
        ),
        (
            pod({"annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}}),
            [
                "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; "
                'use the "priorityClassName" field instead'
            ],
        ),
        (
            container(resources={"requests": {"memory": "100m"}}),
            [
                'spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, '
                "must be an integer"
            ],
        ),
        (
            pod(topologySpreadConstraints=[{"topologyKey": "zone"}]),
            [f"spec.topologySpreadConstraints[0].labelSelector: {SELECTS_NOTHING}"],
        ),
        (
            pod(
                affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
            ),
            [
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: "
                f"{SELECTS_NOTHING}"
            ],
        ),
        (
            pod(imagePullSecrets=[{"name": "a"}, {"name": "a"}]),
            ['spec.imagePullSecrets[1].name: duplicate name "a"'],
        ),
        (
            pod(volumes=[{"name": "v", "gitRepo": {"repository": "r"}}]),
            ["spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"],
        ),
        (
            pod(
                volumes=[
                    {
                        "name": "v",
                        "configMap": {"name": "m", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]},
                    }
                ]
            ),
            ['volume "v" (ConfigMap "m"): overlapping paths: "x/y" with "x"'],
        ),
        (
            pod(terminationGracePeriodSeconds=-1),
            ["spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"],
        ),
        (
            pod(hostAliases=[{"ip": "fd00:0::1"}]),
            ['spec.hostAliases[0].ip: IPv6 address "fd00:0::1" should be in RFC 5952 canonical format ("fd00::1")'],
        ),
    ],
)
def test_pods_are_warned_of(document: Document, warnings: list[str]) -> None:
    assert found(document) == warnings
    template = {"metadata": document["metadata"], "spec": document["spec"]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {}}
    deployment["spec"] = {"template": template}
    inside = [text if text.startswith("volume ") else f"spec.template.{text}" for text in warnings]
    inside = [text.replace("with spec.containers", "with spec.template.spec.containers") for text in inside]
    assert found(deployment) == inside


def test_warnings_come_again_only_with_a_change_of_what_is_wanted() -> None:
    def deployment(generation: int) -> Document:
        spec = {"template": pod(nodeSelector={"beta.kubernetes.io/os": "linux"})}
        metadata = {"name": "d", "generation": generation}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}

    assert found(deployment(1), deployment(1)) == []
    assert len(found(deployment(2), deployment(1))) == 1
    warned = container(ports=[{"containerPort": 80}, {"containerPort": 80}])
    assert found(warned, warned) == []


@pytest.mark.parametrize(
    ("kind", "fields", "warning"),
    [
        (
            "v1 Service",
            {"spec": {"type": "ClusterIP", "externalName": "a"}},
            'spec.externalName is ignored when spec.type is not "ExternalName"',
        ),
        (
            "v1 Service",
            {"spec": {"type": "ClusterIP", "trafficDistribution": "PreferClose"}},
            'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"',
        ),
        (
            "v1 PersistentVolume",
            {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}},
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning.",
        ),
        (
            "v1 ResourceQuota",
            {"spec": {"hard": {"requests.cpu": "2", "limits.cpu": "1"}}},
            "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)",
        ),
        (
            "v1 Secret",
            {"type": "kubernetes.io/tls", "data": {"tls.crt": "eA==", "tls.key": "eA=="}},
            "tls: failed to find any PEM data in certificate input",
        ),
    ],
)
def test_other_kinds_are_warned_of(kind: str, fields: Document, warning: str) -> None:
    version, name = kind.split()
    assert found({"apiVersion": version, "kind": name, "metadata": {"name": "x"}, **fields}) == [warning]
