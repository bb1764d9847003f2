"""`wharf ask`: now, waiting for something with a known end, or never; and nothing is created."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support import wharf_here as wharf

from wharfinger.api.kinds import registry
from wharfinger.api.times import parse_time
from wharfinger.simulate.asking import starts_of_waiting
from wharfinger.simulate.inputs import read_inputs

SINCE = "2026-01-01T00:00:00Z"
STORED = f'creationTimestamp: "{SINCE}"'
SIZE = '{cpu: "4", memory: 8Gi, pods: "110"}'
NODE = f"""
apiVersion: v1
kind: Node
metadata: {{name: n1, uid: n1, {STORED}}}
status: {{allocatable: {SIZE}, capacity: {SIZE}, conditions: [{{type: Ready, status: "True"}}]}}
"""


def running(name: str, cpu: str, spec: str = "", metadata: str = "") -> str:
    state = f'{{name: c, containerID: "containerd://1", ready: true, state: {{running: {{startedAt: "{SINCE}"}}}}}}'
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, uid: {name}, {STORED}, {metadata}}}
spec: {{nodeName: n1, restartPolicy: Never, {spec} containers: [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}}}}}}}]}}
status: {{phase: Running, startTime: "{SINCE}", containerStatuses: [{state}]}}
"""


def waiting(name: str, cpu: str) -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: shop, uid: {name}, {STORED}}}
spec: {{containers: [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}}}}}}}]}}
status: {{phase: Pending}}
"""


JOB = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: old, namespace: shop, uid: old, {STORED}}}
spec:
  activeDeadlineSeconds: 7200
  manualSelector: true
  selector: {{matchLabels: {{job: old}}}}
  template:
    metadata: {{labels: {{job: old}}}}
    spec: {{restartPolicy: Never, containers: [{{name: c, image: x, resources: {{requests: {{cpu: 3}}}}}}]}}
status: {{startTime: "{SINCE}", active: 1, uncountedTerminatedPods: {{}}, ready: 1}}
"""
OF_JOB = (
    "labels: {job: old}, finalizers: [batch.kubernetes.io/job-tracking], "
    "ownerReferences: [{apiVersion: batch/v1, kind: Job, name: old, uid: old, controller: true}]"
)
RESERVATION = f"""
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {{name: held, uid: r1, {STORED}}}
spec:
  owners: [{{labelSelector: {{matchLabels: {{app: db}}}}}}]
  ttl: 30m
  template: {{metadata: {{namespace: shop}}, spec: {{containers: [{{name: c, image: x, resources: {{requests: {{cpu: 3}}}}}}]}}}}
status: {{phase: Available, nodeName: n1, allocatable: {{cpu: "3"}}}}
"""


def asked(cpu: str, kind: str = "Pod") -> str:
    spec = f"{{restartPolicy: Never, containers: [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}}}}}}}]}}"
    if kind == "Pod":
        return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: w, namespace: shop}}\nspec: {spec}\n"
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: w, namespace: shop}}\n"
        f"spec: {{parallelism: 2, completions: 2, template: {{spec: {spec}}}}}\n"
    )


def answer(tmp_path: Path, question: str, *cluster: str) -> Any:
    (tmp_path / "cluster.yaml").write_text("---".join(cluster))
    (tmp_path / "asked.yaml").write_text(question)
    where = ("-f", str(tmp_path / "asked.yaml"), "--cluster", str(tmp_path / "cluster.yaml"))
    done = wharf("ask", *where, "-o", "json")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["verdict"] == "now" else 1)
    text = wharf("ask", *where).stdout
    assert text.startswith(f"{found['verdict']}: {found['because']}")
    assert all(each["change"] in text for each in found["wouldHelp"])
    return found


def test_pods_that_fit_start_now(tmp_path: Path) -> None:
    found = answer(tmp_path, asked("2", "Job"), NODE)
    assert (found["verdict"], found["because"], found["wouldHelp"]) == ("now", "2 pods fit on n1", [])
    assert [(each["verdict"], each["node"]) for each in found["pods"]] == [("now", "n1")] * 2


@pytest.mark.parametrize(
    ("cluster", "what", "when"),
    [
        ([running("busy", "3", "activeDeadlineSeconds: 3600,")], "pod shop/busy", "2026-01-01T01:00:00Z"),
        ([JOB, running("old-x", "3", metadata=OF_JOB)], "pod shop/old-x", "2026-01-01T02:00:00Z"),
        ([RESERVATION], "Reservation held (expiry)", "2026-01-01T00:30:"),
    ],
    ids=["deadline of a pod", "deadline of a Job", "expiry of a reservation"],
)
def test_what_waits_for_a_known_end_is_told_when_it_starts(
    tmp_path: Path, cluster: list[str], what: str, when: str
) -> None:
    found = answer(tmp_path, asked("2"), NODE, *cluster)
    assert (found["verdict"], found["because"].startswith(f"starts when {what} has left")) == ("waiting", True)
    assert found["startsAt"].startswith(when)
    (pod,) = found["pods"]
    assert (pod["node"], pod["waitsFor"]) == ("n1", [what])
    assert "request 1 cpu instead of 2" in [each["change"] for each in found["wouldHelp"]]


def test_pods_that_wait_already_are_told_when_they_start() -> None:
    cluster = "---".join(
        [NODE, running("old", "3", "activeDeadlineSeconds: 3600,"), waiting("next", "2"), waiting("huge", "9")]
    )
    found = starts_of_waiting(read_inputs([("cluster.yaml", cluster)], registry()), start=parse_time(SINCE) + 60)
    assert [(each.name, str(each.verdict), each.node) for each in found] == [
        ("huge", "never", ""),
        ("next", "waiting", "n1"),
    ]
    start = found[1].starts
    assert start is not None and 3600 <= start - parse_time(SINCE) < 3700
    assert found[1].waits_for == ("pod shop/old",)


def test_a_pod_that_fits_but_was_not_tried_yet_starts_now() -> None:
    cluster = "---".join([NODE, waiting("next", "2")])
    found = starts_of_waiting(read_inputs([("cluster.yaml", cluster)], registry()), start=parse_time(SINCE) + 60)
    assert [(str(each.verdict), each.node) for each in found] == [("now", "n1")]


def test_what_never_starts_gets_the_smallest_change(tmp_path: Path) -> None:
    found = answer(tmp_path, asked("3"), NODE, running("busy", "2"))  # nobody knows when that ends
    assert (found["verdict"], found["because"].partition(".")[0]) == (
        "never",
        "0/1 nodes are available: 1 Insufficient cpu",
    )
    assert found["wouldHelp"][0] == {
        "kind": "requests",
        "change": "request 2 cpu instead of 3",
        "node": "n1",
        "requests": {"cpu": "2"},
        "for": ["shop/w"],
    }


def test_what_the_api_refuses_never_starts(tmp_path: Path) -> None:
    quota = f"""
apiVersion: v1
kind: ResourceQuota
metadata: {{name: q, namespace: shop, uid: q, {STORED}}}
spec: {{hard: {{requests.cpu: "1"}}}}
status: {{hard: {{requests.cpu: "1"}}, used: {{requests.cpu: "0"}}}}
"""
    refused = answer(tmp_path, asked("2"), NODE, quota)
    assert (refused["verdict"], "exceeded quota: q" in refused["because"]) == ("never", True)
    workload = answer(tmp_path, asked("2", "Job"), NODE, quota)
    assert (workload["verdict"], "exceeded quota: q" in workload["because"]) == ("never", True)


def test_bad_questions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "asked.yaml").write_text(asked("2").replace("containers", "containerz"))
    (tmp_path / "cluster.yaml").write_text(NODE)
    done = wharf("ask", "-f", str(tmp_path / "asked.yaml"), "--cluster", str(tmp_path / "cluster.yaml"))
    assert (done.returncode, "containerz" in done.stderr) == (2, True)
