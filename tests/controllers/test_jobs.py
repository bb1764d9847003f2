"""Jobs and CronJobs against a store, with simulated nodes, in virtual time; and the rules of both as tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.controllers.world import World, template

from wharfinger.api.cron import BadSchedule, latest_missed, parse_schedule
from wharfinger.api.kinds.builtin import CRON_JOBS, EVENTS, JOBS, PODS
from wharfinger.api.registry import Document
from wharfinger.controllers.job.rules import FINALIZER


def job(name: str = "work", *, run: str = "10s", code: str = "0", restart: str = "Never", **spec: Any) -> Document:
    annotations = {"wharfinger.dev/run-for": run, "wharfinger.dev/exit-code": code}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template({}, annotations=annotations, restartPolicy=restart), **spec},
    }


def conditions(document: Document) -> dict[str, Any]:
    return {c["type"]: c for c in document.get("status", {}).get("conditions", ()) if c["status"] == "True"}


def test_a_job_runs_its_completions_within_its_parallelism() -> None:
    with World() as world:
        world.create(JOBS, job(completions=5, parallelism=2))
        most = 0
        for _ in range(100):
            world.loop.run_to(world.loop.time() + 0.5)
            most = max(most, len(world.pods(phase="Running")))
        done = world.get(JOBS, "work")
        assert most == 2
        assert done["status"]["succeeded"] == 5
        assert set(conditions(done)) == {"SuccessCriteriaMet", "Complete"}
        assert done["status"]["completionTime"]
        assert not done["status"].get("active")
        assert all(FINALIZER not in pod["metadata"].get("finalizers", ()) for pod in world.pods())
        assert len(world.pods(phase="Succeeded")) == 5


def test_an_indexed_job_covers_every_index_once_even_across_crashes() -> None:
    with World() as world:
        world.create(JOBS, job(completions=4, parallelism=3, completionMode="Indexed"))
        for _ in range(12):
            world.loop.run_to(world.loop.time() + 3)
            world.restart()
        world.settle()
        done = world.get(JOBS, "work")
        assert "Complete" in conditions(done)
        assert (done["status"]["completedIndexes"], done["status"]["succeeded"]) == ("0-3", 4)
        indexes = sorted(p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for p in world.pods())
        assert indexes == ["0", "1", "2", "3"]


def test_failures_are_retried_with_back_off_until_the_limit() -> None:
    with World() as world:
        start = world.loop.time()
        world.apply(JOBS, job(run="1s", code="1", backoffLimit=2))
        failed = world.get(JOBS, "work")
        assert conditions(failed)["Failed"]["reason"] == "BackoffLimitExceeded"
        assert failed["status"]["failed"] == 3
        assert world.loop.time() - start > 30  # 10 and 20 seconds in between


def test_container_restarts_count_towards_the_limit() -> None:
    with World() as world:
        world.create(JOBS, job(run="1s", code="1,1,0", restart="OnFailure", backoffLimit=5))
        world.advance(120)
        done = world.get(JOBS, "work")
        assert "Complete" in conditions(done)
        assert world.pods()[0]["status"]["containerStatuses"][0]["restartCount"] == 2


def test_a_deadline_ends_a_job_and_a_ttl_removes_it() -> None:
    with World() as world:
        world.create(JOBS, job(run="never", activeDeadlineSeconds=60, ttlSecondsAfterFinished=100))
        world.advance(90)
        ended = world.get(JOBS, "work")
        assert conditions(ended)["Failed"]["reason"] == "DeadlineExceeded"
        assert world.pods(phase="Running") == []
        world.advance(120)
        assert (world.exists(JOBS, "work"), world.pods()) == (False, [])


def test_a_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    with World() as world:
        world.apply(JOBS, job(run="30s", suspend=True))
        assert world.pods() == []
        assert conditions(world.get(JOBS, "work"))["Suspended"]["reason"] == "JobSuspended"
        world.patch(JOBS, "work", {"spec": {"suspend": False}})
        assert "Complete" in conditions(world.get(JOBS, "work"))


def test_the_failure_policy_ignores_counts_and_fails() -> None:
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    with World() as world:
        world.apply(JOBS, job(run="1s", code="42", backoffLimit=6, podFailurePolicy={"rules": rules}))
        failed = conditions(world.get(JOBS, "work"))["Failed"]
        assert failed["reason"] == "PodFailurePolicy"
        assert "failed with exit code 42 matching FailJob rule at index 0" in failed["message"]


def test_a_deleted_pod_is_replaced_and_a_deleted_job_releases_its_pods() -> None:
    with World() as world:
        world.create(JOBS, job(run="1m", backoffLimit=3))
        world.loop.run_to(world.loop.time() + 5)
        name = world.pods()[0]["metadata"]["name"]
        world.loop.complete(world.client.delete(PODS, name, "default"))
        world.loop.run_to(world.loop.time() + 20)
        assert [pod["metadata"]["name"] != name for pod in world.pods(phase="Running")] == [True]
        world.delete(JOBS, "work", propagation="Background")
        assert world.pods() == []


def cron(schedule: str, **spec: Any) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": job(run="5s")["spec"]}, **spec},
    }


def test_a_cron_job_creates_jobs_on_schedule_and_limits_their_history() -> None:
    with World() as world:
        world.apply(CRON_JOBS, cron("*/10 * * * *", successfulJobsHistoryLimit=2))
        world.advance(3600)
        status = world.get(CRON_JOBS, "tick")["status"]
        assert status["lastScheduleTime"]
        assert status["lastSuccessfulTime"]
        jobs = world.list(JOBS)
        assert len(jobs) == 2
        assert all("Complete" in conditions(each) for each in jobs)


@pytest.mark.parametrize(("policy", "running"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
def test_concurrency_policies(policy: str, running: int) -> None:
    with World() as world:
        document = cron("* * * * *", concurrencyPolicy=policy)
        document["spec"]["jobTemplate"]["spec"] = job(run="never")["spec"]
        world.apply(CRON_JOBS, document)
        world.advance(200)
        active = [each for each in world.list(JOBS) if "Complete" not in conditions(each)]
        assert len(active) == running


def told(world: World, reason: str) -> list[str]:
    world.advance(1)
    return [event["message"] for event in world.list(EVENTS) if event["reason"] == reason]


def test_a_manually_created_job_is_reported_and_does_not_block() -> None:
    with World() as world:
        document = cron("* * * * *", concurrencyPolicy="Forbid")
        document["spec"]["jobTemplate"]["spec"] = job(run="never")["spec"]
        world.apply(CRON_JOBS, document)
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "controller": True}
        owner["uid"] = world.get(CRON_JOBS, "tick")["metadata"]["uid"]
        manual = {**job(run="never"), "metadata": {"name": "manual", "ownerReferences": [owner]}}
        world.apply(JOBS, manual)
        world.advance(70)
        status = world.get(CRON_JOBS, "tick")["status"]
        assert [each["name"] for each in status["active"]] != ["manual"]
        assert len(world.list(JOBS)) == 2
        assert told(world, "UnexpectedJob") == ["Saw a job that the controller did not create or forgot: manual"]
        (made,) = [each["metadata"]["name"] for each in world.list(JOBS) if each["metadata"]["name"] != "manual"]
        world.delete(JOBS, made, propagation="Background")
        assert told(world, "MissingJob") == [f"Active job went missing: {made}"]


def test_a_foreign_job_of_the_same_name_is_left_alone() -> None:
    with World() as world:
        world.apply(CRON_JOBS, cron("* * * * *", timeZone="Asia/Kolkata"))
        world.advance(61)
        first = world.list(JOBS)[0]
        assert first["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].endswith("+05:30")
        assert told(world, "SawCompletedJob") == [
            f"Saw completed job: {first['metadata']['name']}, condition: Complete"
        ]
        prefix, _, minute = first["metadata"]["name"].rpartition("-")
        following = f"{prefix}-{int(minute) + 1}"
        world.apply(JOBS, {**job(run="never"), "metadata": {"name": following}})
        world.advance(40)
        assert not world.get(CRON_JOBS, "tick")["status"].get("active")
        assert len(world.list(JOBS)) == 2


def test_events_have_the_component_name_of_kubernetes() -> None:
    with World() as world:
        world.apply(CRON_JOBS, cron("* * * * *"))
        world.advance(65)
        sources = {event["involvedObject"]["kind"]: event["source"]["component"] for event in world.list(EVENTS)}
        assert sources["CronJob"] == "cronjob-controller"
        assert sources["Job"] == "job-controller"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("0 0 * * *", None, "2026-01-01T12:00", "2026-01-02T00:00"),
        ("*/15 9-17 * * 1-5", None, "2026-01-02T17:50", "2026-01-05T09:00"),
        ("0 0 13 * 5", None, "2026-01-01T00:00", "2026-01-02T00:00"),  # a Friday before the 13th
        ("0 0 31 * *", None, "2026-01-31T00:00", "2026-03-31T00:00"),
        ("0 12 29 feb *", None, "2026-01-01T00:00", "2028-02-29T12:00"),
        ("@weekly", None, "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-07-01T00:00", "2026-07-01T07:00"),
        ("TZ=America/New_York 30 2 * * *", None, "2026-03-08T00:00", "2026-03-09T06:30"),  # 02:30 does not exist
        ("0 * * * *", "America/New_York", "2026-11-01T05:00", "2026-11-01T06:00"),  # 01:00 comes twice
        ("*/20 1 * * *", "America/New_York", "2026-11-01T05:40", "2026-11-01T06:00"),
        ("*/20 1 * * *", "America/New_York", "2026-11-01T06:40", "2026-11-02T06:00"),
        ("*/30 2,3 * * *", "America/New_York", "2026-03-08T06:59", "2026-03-08T07:00"),  # 03:00 follows 01:59
        ("15 0 * * *", "Asia/Beirut", "2026-03-28T12:00", "2026-03-29T21:15"),  # no midnight
        ("5/20 * * * *", None, "2026-01-01T00:00", "2026-01-01T00:05"),
    ],
)
def test_next_scheduled_time(schedule: str, zone: str | None, after: str, expected: str) -> None:
    assert parse_schedule(schedule, zone).next(at(after)) == at(expected)


@pytest.mark.parametrize(
    "schedule", ["", "* * * *", "60 * * * *", "* * 0 * *", "a * * * *", "* * * * 7", "*/0 * * * *"]
)
def test_invalid_schedules(schedule: str) -> None:
    with pytest.raises(BadSchedule):
        parse_schedule(schedule)


def test_only_the_latest_missed_time_counts() -> None:
    hourly = parse_schedule("0 * * * *")
    assert latest_missed(hourly, at("2026-01-01T00:30"), at("2026-01-01T03:30")) == (at("2026-01-01T03:00"), 3)
    assert latest_missed(hourly, at("2026-01-01T00:30"), at("2026-01-01T00:59")) == (None, 0)
    minutely = parse_schedule("* 9 * * *")
    latest, count = latest_missed(minutely, at("2026-01-01T08:59"), at("2026-03-01T08:00"))
    assert latest == at("2026-02-28T09:59")
    assert count > 100
