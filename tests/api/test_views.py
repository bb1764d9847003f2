"""Views read the fields Kubernetes has: every wire name exists, and defaults stand for what is absent."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from wharfinger.api import views
from wharfinger.api.conditions import condition_document
from wharfinger.api.kinds import known_kinds
from wharfinger.api.schema.tree import Schema, builtin_schema
from wharfinger.api.views import Condition, Deployment, Pod, view
from wharfinger.api.views.base import decode

EMBEDDED_ONLY = {"Node.status.computeResources", "Pod.status.resize"}  # not (or no longer) in Kubernetes' own schema
VIEWS = {
    kind.kind: (kind, getattr(views, kind.kind))
    for kind in known_kinds()
    if not kind.ours and hasattr(views, kind.kind)
}


def structs_in(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [found for part in get_args(annotation) for found in structs_in(part)]


def unknown_wire_names(struct: type[msgspec.Struct], schema: Schema | None, path: str) -> list[str]:
    while schema is not None and schema.type in ("list", "map"):
        schema = schema.item
    if schema is None or schema.type == "any":
        return []
    unknown = []
    for info in msgspec.structs.fields(struct):
        here = f"{path}.{info.encode_name}"
        known = schema.fields.get(info.encode_name)
        if known is None:
            unknown.append(here)
            continue
        for inner in (found for found in structs_in(info.type) if found is not Condition):  # one view for all kinds
            unknown += unknown_wire_names(inner, known, here)
    return [name for name in unknown if name not in EMBEDDED_ONLY]


# The view of pods has the fields that resource classes add to containers.
PODS_WITH_DEVICES = pytest.param("Pod", marks=pytest.mark.needs_system("resource_class"))


@pytest.mark.parametrize("name", [PODS_WITH_DEVICES, *sorted(VIEWS.keys() - {"Pod"})])
def test_every_field_of_a_view_is_a_field_of_the_kind(name: str) -> None:
    kind, struct = VIEWS[name]
    schema = builtin_schema(kind.group, kind.versions[0], kind.kind)
    assert schema is not None
    assert unknown_wire_names(struct, schema, name) == []


def test_what_is_absent_has_the_default_of_kubernetes() -> None:
    deployment = view({"spec": {"strategy": {}}}, Deployment)
    assert (deployment.spec.replicas, deployment.spec.strategy.type) == (1, "RollingUpdate")


def test_null_is_absent() -> None:
    pod = view({"metadata": {"creationTimestamp": None, "labels": None}, "spec": {"nodeName": None}}, Pod)
    assert (pod.metadata.creation_timestamp, pod.metadata.labels, pod.spec.node_name) == ("", {}, "")


def test_null_in_json_is_absent() -> None:
    pod = decode(
        b'{"metadata":{"creationTimestamp":null,"labels":{"a":"\\"x\\":null"}},"spec":{"nodeName": null},'
        b'"status":{"conditions":[{"type":"PodScheduled","status":"True","lastProbeTime":null}]}}',
        Pod,
    )
    assert (pod.metadata.creation_timestamp, pod.metadata.labels) == ("", {"a": '"x":null'})
    assert pod.spec.node_name == ""
    condition = pod.status.condition("PodScheduled")
    assert condition is not None and condition_document(condition) == {"type": "PodScheduled", "status": "True"}


def test_pods_keep_only_volumes_that_concern_a_decision() -> None:
    token = {"name": "kube-api-access-x", "projected": {"sources": []}}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    both = view({"spec": {"volumes": [token, claim, {"name": "tmp", "emptyDir": {}}]}}, Pod).spec.volumes
    assert [volume.name for volume in both] == ["data"]
    assert view({"spec": {"volumes": [token]}}, Pod).spec.volumes == ()
