"""Columns of `kubectl get`: the words and cells users know."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.kinds import known_kinds, registry
from wharfinger.api.registry import Kind
from wharfinger.apiserver.tables import cell, columns_of

NOW = 1_000_000_000.0  # 2001-09-09T01:46:40Z
META = {"name": "x", "namespace": "n", "creationTimestamp": "2001-09-09T01:41:40Z"}


def shown(plural: str, document: dict[str, Any], *, wide: bool = False) -> dict[str, Any]:
    kind = registry().find(plural)
    assert kind is not None
    columns = [column for column in columns_of(kind) if wide or not column.priority]
    return {column.name: cell(column, {"metadata": META, **document}, NOW) for column in columns}


def container(name: str, *, ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


SPEC = {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}


@pytest.mark.parametrize(
    ("pod", "ready", "status"),
    [
        ({"spec": SPEC, "status": {"phase": "Pending"}}, "0/2", "Pending"),
        ({"spec": SPEC, "status": {"phase": "Running", "containerStatuses": [container("a", ready=True, running={}), container("b", running={})]}}, "1/2", "Running"),
        ({"spec": SPEC, "status": {"phase": "Running", "containerStatuses": [container("a", waiting={"reason": "CrashLoopBackOff"})]}}, "0/2", "CrashLoopBackOff"),
        ({"spec": SPEC, "status": {"phase": "Succeeded", "containerStatuses": [container("a", terminated={"exitCode": 0, "reason": "Completed"})]}}, "0/2", "Completed"),
        ({"spec": SPEC, "status": {"phase": "Failed", "containerStatuses": [container("a", terminated={"exitCode": 3})]}}, "0/2", "ExitCode:3"),
        ({"spec": {**SPEC, "initContainers": [{"name": "i"}]}, "status": {"phase": "Pending", "initContainerStatuses": [container("i", running={})]}}, "0/2", "Init:0/1"),
        ({"spec": {**SPEC, "initContainers": [{"name": "s", "restartPolicy": "Always"}]}, "status": {"phase": "Running", "initContainerStatuses": [{**container("s", ready=True, running={}), "started": True}]}}, "1/3", "Running"),
        ({"spec": SPEC, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}}, "0/2", "SchedulingGated"),
        ({"metadata": {**META, "deletionTimestamp": "2001-09-09T01:46:00Z"}, "spec": SPEC, "status": {"phase": "Running"}}, "0/2", "Terminating"),
    ],
)  # fmt: skip
def test_the_status_of_a_pod(pod: dict[str, Any], ready: str, status: str) -> None:
    assert shown("pods", pod) == {"Name": "x", "Ready": ready, "Status": status, "Restarts": "0", "Age": "5m"}


def test_restarts_say_how_long_ago() -> None:
    one = {
        **container("a", restarts=2, running={}),
        "lastState": {"terminated": {"finishedAt": "2001-09-09T01:46:00Z"}},
    }
    assert shown("pods", {"spec": SPEC, "status": {"containerStatuses": [one]}})["Restarts"] == "2 (40s ago)"


@pytest.mark.parametrize(
    ("plural", "document", "cells"),
    [
        ("nodes", {"metadata": {**META, "labels": {"node-role.kubernetes.io/worker": ""}}, "spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.4"}}}, {"Status": "Ready,SchedulingDisabled", "Roles": "worker", "Version": "v1.36.4"}),
        ("deployments", {"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}, "status": {"readyReplicas": 2, "updatedReplicas": 3}}, {"Ready": "2/3", "Up-to-date": 3, "Available": 0}),
        ("services", {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}]}}, {"Type": "NodePort", "Cluster-IP": "<none>", "External-IP": "<none>", "Port(s)": "80:30000/TCP"}),
        ("jobs", {"spec": {"completions": 3}, "status": {"succeeded": 1, "startTime": "2001-09-09T01:46:00Z"}}, {"Status": "Running", "Completions": "1/3", "Duration": "40s"}),
        ("poddisruptionbudgets", {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}, {"Min Available": "50%", "Max Unavailable": "N/A", "Allowed Disruptions": 1}),
        ("resourcequotas", {"status": {"hard": {"pods": "5", "limits.cpu": "4"}, "used": {"pods": "1"}}}, {"Request": "pods: 1/5", "Limit": "limits.cpu: 0/4"}),
        ("events", {"type": "Normal", "reason": "R", "message": "m ", "involvedObject": {"kind": "Pod", "name": "p"}, "lastTimestamp": "2001-09-09T01:46:00Z"}, {"Last Seen": "40s", "Object": "pod/p", "Message": "m"}),
        ("storageclasses", {"metadata": {**META, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"}, {"Name": "x (default)", "Provisioner": "p"}),
        ("persistentvolumeclaims", {"spec": {"volumeName": "v"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}, {"Status": "Bound", "Capacity": "1Gi", "Access Modes": "RWO"}),
        ("rolebindings", {"roleRef": {"kind": "Role", "name": "r"}}, {"Role": "Role/r"}),
        ("clusterroles", {}, {"Created At": "2001-09-09T01:41:40Z"}),
        pytest.param("resourcepolicies", {"spec": {"strategy": "prefer"}, "status": {"summary": "a 1/2, b 0"}}, {"Strategy": "prefer", "Units": "a 1/2, b 0"}, marks=pytest.mark.needs_system("resource_policy")),
    ],
)  # fmt: skip
def test_cells(plural: str, document: dict[str, Any], cells: dict[str, Any]) -> None:
    found = shown(plural, document)
    assert {name: found.get(name) for name in cells} == cells


def test_wide_columns_of_a_workload() -> None:
    template = {"spec": SPEC}
    found = shown("deployments", {"spec": {"template": template, "selector": {"matchLabels": {"b": "2", "a": "1"}}}}, wide=True)  # fmt: skip
    assert (found["Containers"], found["Images"], found["Selector"]) == ("a,b", "i,j", "a=1,b=2")


@pytest.mark.parametrize("kind", known_kinds(), ids=lambda kind: kind.kind)
def test_an_almost_empty_object_can_be_shown(kind: Kind) -> None:
    for column in columns_of(kind):
        cell(column, {"metadata": META}, NOW)
