"""Environment, mounts, probes, hooks and rights of containers: what is refused, in the words of a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.validation import object_faults

PODS = registry().of_plural("", "pods")


def faults(container: dict[str, Any], **spec: Any) -> list[str]:
    assert PODS is not None and PODS.default is not None
    containers = [{"name": "c", "image": "nginx", **container}]
    document = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers, **spec}}
    PODS.default(document)
    return [str(fault).replace("spec.containers[0].", "") for fault in object_faults(PODS, document)]


def from_field(path: str) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}


FIELD = "env[0].valueFrom.fieldRef.fieldPath"


@pytest.mark.parametrize(
    ("container", "fault"),
    [
        ({"env": [{"name": "a=b"}]}, "env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='"),
        (from_field("spec.nope"), f'{FIELD}: Invalid value: "spec.nope": error converting fieldPath: field label not supported: spec.nope'),
        ({"env": [{"name": "A", "value": "x", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}, 'env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty'),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}, "env[0].valueFrom.secretKeyRef.key: Required value"),
        ({"volumeMounts": [{"name": "nope", "mountPath": "/x"}]}, 'volumeMounts[0].name: Not found: "nope"'),
        ({"livenessProbe": {"periodSeconds": 5}}, "livenessProbe: Required value: must specify a handler type"),
        ({"livenessProbe": {"exec": {"command": ["x"]}, "periodSeconds": -1}}, "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0"),
        ({"readinessProbe": {"exec": {"command": []}}}, "readinessProbe.exec.command: Required value"),
        ({"startupProbe": {"tcpSocket": {"port": 0}}}, "startupProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive"),
        ({"livenessProbe": {"tcpSocket": {"port": 1}, "grpc": {"port": 2}}}, "livenessProbe.grpc: Forbidden: may not specify more than 1 handler type"),
        ({"securityContext": {"runAsUser": -1}}, "securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"),
        ({"securityContext": {"seccompProfile": {"type": "X"}}}, 'securityContext.seccompProfile.type: Unsupported value: "X": supported values: "Localhost", "RuntimeDefault", "Unconfined"'),
        ({"lifecycle": {"preStop": {}}}, "lifecycle.preStop: Required value: must specify a handler type"),
    ],
)  # fmt: skip
def test_what_is_refused_of_a_container(container: dict[str, Any], fault: str) -> None:
    assert faults(container) == [fault]


def test_what_a_container_may_say() -> None:
    container = {
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"tcpSocket": {"port": "web"}},
        "startupProbe": {"exec": {"command": ["true"]}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},
        "securityContext": {"runAsUser": 5, "seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "env": [{"name": "A", "value": "x"}, *from_field("metadata.labels['app']")["env"]],
    }
    assert faults(container, volumes=[{"name": "v", "hostPath": {"path": "/v"}}], securityContext={"fsGroup": 5}) == []


def test_host_paths_stay_where_they_are() -> None:
    found = faults({}, volumes=[{"name": "v", "hostPath": {"path": "../x"}}])
    assert found == ["spec.volumes[0].hostPath.path: Invalid value: \"../x\": must not contain '..'"]
