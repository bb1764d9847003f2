"""`wharf explain` and `wharf plan` about reservations, on files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from wharfinger.cli.main import wharf

OBJECTS = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}, capacity: {cpu: 4, memory: 8Gi, pods: 110}}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: held, uid: held-uid}
spec:
  allocateOnce: false
  template: {spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 3}}}]}}
  owners: [{labelSelector: {matchLabels: {app: web}}}]
status: {phase: Available, nodeName: n1, allocatable: {cpu: "3"}, currentOwners: [{namespace: default, name: user}]}
---
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: pending}
spec:
  template: {spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}}
  owners: [{labelSelector: {matchLabels: {app: db}}}]
---
apiVersion: v1
kind: Pod
metadata:
  name: user
  namespace: default
  uid: user-uid
  labels: {app: web}
  annotations: {scheduling.koordinator.sh/reservation-allocated: '{"name":"held","uid":"held-uid"}'}
spec: {nodeName: n1, containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: outsider, namespace: default}
spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 2}}}]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(OBJECTS)
    return str(path)


def output(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(wharf, arguments)
    assert done.exit_code == status, done.output
    return done.output


def test_a_reservation_tells_what_it_holds_and_who_uses_it(cluster: str) -> None:
    told = output("explain", "reservation", "held", "-f", cluster)
    assert "Reservation held: Available on node n1" in told
    assert "Holds: cpu 3 (2 left)" in told and "Used by: default/user" in told


def test_a_pending_reservation_tells_what_is_in_its_way(cluster: str) -> None:
    found = json.loads(
        CliRunner().invoke(wharf, ["explain", "reservation", "pending", "-f", cluster, "-o", "json"]).stdout
    )
    assert found["phase"] == "Pending" and found["nodes"]["n1"]["reasons"] == ["Insufficient cpu"]
    assert found["notes"] == ["The room on 1 node(s) is reserved by held"]
    assert "fits nowhere: 0/1 nodes are available" in output("explain", "reservation", "pending", "-f", cluster)


def test_a_reservation_that_is_not_there_is_an_error(cluster: str) -> None:
    assert "not found" in output("explain", "reservation", "ghost", "-f", cluster, status=2)


def test_pods_learn_which_reservation_they_would_use_or_lack(cluster: str) -> None:
    assert "it would use reservation held" in output("explain", "pod", "web", "-f", cluster)
    assert "is reserved by held" in output("explain", "pod", "outsider", "-f", cluster)


def test_reports_tell_why_a_reservation_is_pending_and_plans_what_a_drain_does_to_one(cluster: str) -> None:
    assert "reserved by held" in output("simulate", "-f", cluster)
    told = output("plan", "--drain", "n1", "--cluster", cluster, status=2)
    assert "its node is cordoned" in told
