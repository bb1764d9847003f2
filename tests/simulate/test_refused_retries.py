"""A simulation waits for the retry of a refused write only if something has changed that may let it in."""

from __future__ import annotations

from pathlib import Path

from wharfinger.cli.scenario_runs import run_file

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
QUOTA = """
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: default}
spec: {hard: {pods: COUNT}}
"""
CRON_JOB = """
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- at: 150s
  expect: [{kind: Pod, count: 0}, {kind: Job, count: 2}]
- expect: [{kind: Pod, count: 0}, {kind: Job, count: 2}]
"""
JOB = """
---
apiVersion: batch/v1
kind: Job
metadata: {name: NAME}
spec:
  template:
    metadata: {annotations: {wharfinger.dev/run-for: 20s}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"""
BOTH_END = """
---
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- apply: []
  expect: [{kind: Job, count: 2, fields: {status.succeeded: 1}}]
"""


def problems(tmp_path: Path, text: str) -> tuple[str, ...]:
    (tmp_path / "scenario.yaml").write_text(text)
    (verdict,) = run_file(tmp_path / "scenario.yaml", 0)
    return verdict.problems


def test_jobs_whose_pods_are_refused_every_minute_do_not_keep_a_scenario_from_ending(tmp_path: Path) -> None:
    assert problems(tmp_path, NODE + QUOTA.replace("COUNT", "0") + CRON_JOB) == ()


def test_a_pod_that_leaves_lets_in_one_that_was_refused(tmp_path: Path) -> None:
    jobs = JOB.replace("NAME", "first") + JOB.replace("NAME", "second")
    assert problems(tmp_path, NODE + QUOTA.replace("COUNT", "1") + jobs + BOTH_END) == ()
