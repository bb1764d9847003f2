"""Pods of a workload share the parts of their views that are equal, and each view is what decoding alone gives."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.views import Pod
from wharfinger.api.views.base import decode
from wharfinger.api.views.shared_pods import decode_pod

Document = dict[str, Any]


def document(number: int, **spec: Any) -> Document:
    token = f"kube-api-access-{number:05}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{number}",
            "namespace": "shop",
            "uid": f"u{number}",
            "resourceVersion": str(number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"team": "one"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o"}],
        },
        "spec": {
            "nodeName": f"n{number}",
            "containers": [{"name": "main", "volumeMounts": [{"name": token, "mountPath": "/token"}]}],
            "volumes": [{"name": token, "projected": {"sources": []}}],
            **spec,
        },
        "status": {"phase": "Running", "podIP": f"10.0.0.{number}", "podIPs": [{"ip": f"10.0.0.{number}"}]},
    }


def read(document: Document) -> Pod:
    """The shared view, which must be equal to one that is decoded alone."""
    data = msgspec.json.encode(document)
    found = decode_pod(data)
    assert found == decode(data, Pod)
    return found


def test_pods_of_a_workload_share_all_that_they_have_in_common() -> None:
    one, other = read(document(1)), read(document(2))
    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.annotations is other.metadata.annotations
    assert one.metadata.owner_references is other.metadata.owner_references
    assert (other.spec.node_name, other.status.pod_ip) == ("n2", "10.0.0.2")


def test_a_field_with_the_name_of_the_token_volume_is_that_of_each_pod() -> None:
    for number in (1, 2):
        claim = {"claimName": f"kube-api-access-{number:05}"}
        read(document(number, volumes=[{"name": "data", "persistentVolumeClaim": claim}]))
        read(document(number, nodeSelector={"own": f"kube-api-access-{number:05}"}))
        read(document(number, nodeSelector={f"kube-api-access-{number:05}": "yes"}))


def test_a_label_like_the_name_of_the_node_is_that_of_each_pod() -> None:
    for number in (1, 2):
        read(document(number, nodeSelector={"nodeName": f"n{number}"}))
        made = document(number, nodeSelector={"nodeName": f"n{number}"})
        del made["spec"]["nodeName"]
        read(made)


def test_null_members_count_as_absent() -> None:
    for field in ("labels", "annotations", "ownerReferences", "finalizers", "creationTimestamp"):
        made = document(1)
        made["metadata"][field] = None
        read(made)
    assert read({"metadata": {"name": "a"}}).metadata.labels == {}
