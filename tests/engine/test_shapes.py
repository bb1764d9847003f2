"""Pods that are taken for one of the same shape without asking for their keys have equal keys."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wharfinger.api.views import Pod, view
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.api.views.pods import PodSpec
from wharfinger.framework.shapes import have_one_shape, shape_key


def member(name: str, other: int) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": str(1 + other)}}}


def pod(other: int) -> Pod:
    """One of two pods that differ in everything that is read of a pod."""
    word = "ab"[other]
    spreading = {"maxSkew": 1 + other, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    term = {"labelSelector": {"matchLabels": {"app": word}}, "topologyKey": "zone"}
    spec: dict[str, Any] = {
        **dict.fromkeys(("nodeName", "schedulerName", "serviceAccountName", "priorityClassName", "hostname"), word),
        **dict.fromkeys(("subdomain", "runtimeClassName", "preemptionPolicy", "restartPolicy"), word),
        **dict.fromkeys(("priority", "terminationGracePeriodSeconds", "activeDeadlineSeconds"), other),
        "containers": [member("c", other)],
        "initContainers": [member("i", other)],
        "overhead": {"cpu": str(other)},
        "resources": {"requests": {"cpu": str(8 + other)}},
        "nodeSelector": {"pool": word},
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "tolerations": [{"key": word, "operator": "Exists"}],
        "topologySpreadConstraints": [spreading],
        "schedulingGates": [{"name": word}],
        "readinessGates": [{"conditionType": word}],
        "hostNetwork": bool(other),
        "hostUsers": bool(other),
        "schedulingGroup": {"podGroupName": word},
        "volumes": [{"name": "v", "csi": {"driver": word}}],
        "resourceClaims": [{"name": word, "resourceClaimName": word}] if other else [],
    }
    metadata: dict[str, Any] = {
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion"), word),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), f"2026-01-0{1 + other}T00:00:00Z"),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), other),
        "labels": {"app": word},
        "annotations": {"note": word},
        "ownerReferences": [{"apiVersion": "v1", "kind": "R", "name": word, "uid": word, "controller": True}],
        "finalizers": [word],
    }
    return view({"metadata": metadata, "spec": spec}, Pod)


FIELDS = [("spec", each) for each in PodSpec.__struct_fields__]
FIELDS += [("metadata", each) for each in ObjectMeta.__struct_fields__]


@pytest.mark.parametrize(("part", "name"), FIELDS)
def test_pods_of_one_shape_have_equal_keys(part: str, name: str) -> None:
    first, other = pod(0), pod(1)
    value = getattr(getattr(other, part), name)
    assert value != getattr(getattr(first, part), name), "the two pods must differ in every field"
    changed = msgspec.structs.replace(first, **{part: msgspec.structs.replace(getattr(first, part), **{name: value})})
    assert have_one_shape(first, first)
    if have_one_shape(first, changed):
        assert shape_key(first) == shape_key(changed)
