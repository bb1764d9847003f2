"""Jobs with limits for each index, success and failure policies, suspension and replacement: conditions, reasons and
counters as the job controller of Kubernetes writes them. Tests end pods by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.test_jobs import conditions, job
from tests.controllers.world import World

from wharfinger.api.kinds.builtin import EVENTS, JOBS, PODS
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.controllers.job.backoff import JobBackoff
from wharfinger.controllers.job.indexes import Indexes
from wharfinger.controllers.job.rules import FAILURES, FINALIZER, IGNORED_FAILURES, INDEX


def running(world: World) -> dict[int, Document]:
    """Running pods by index; without indexes, by position."""
    found = [pod for pod in world.pods(phase="Running") if not pod["metadata"].get("deletionTimestamp")]
    return {int(pod["metadata"].get("annotations", {}).get(INDEX, place)): pod for place, pod in enumerate(found)}


def end(world: World, index: int, code: int = 0, *, conditions: list[Document] | None = None) -> None:
    """Terminates the pod of an index with an exit code and runs the cluster until it is idle."""
    name = running(world)[index]["metadata"]["name"]
    ended = {"exitCode": code, "finishedAt": format_time(world.clock.now())}
    status: Document = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "main", "image": "app:1", "imageID": "", "ready": False, "restartCount": 0,
                               "state": {"terminated": ended}}],
        "conditions": conditions or [],
    }  # fmt: skip
    world.patch(PODS, name, {"status": status}, subresource="status")
    world.advance(60)


def indexed(completions: int, **spec: Any) -> Document:
    spec = {"parallelism": completions, "completions": completions, "completionMode": "Indexed", **spec}
    return job(run="never", **spec)


def began(world: World, document: Document) -> None:
    world.apply(JOBS, document)
    world.advance(5)


def status_of(world: World) -> Document:
    status: Document = world.get(JOBS, "work")["status"]
    return status


def reasons(world: World) -> dict[str, tuple[str, str]]:
    return {kind: (c["reason"], c["message"]) for kind, c in conditions(world.get(JOBS, "work")).items()}


def test_other_indexes_continue_after_one_failed() -> None:
    with World() as world:
        began(world, indexed(3, backoffLimitPerIndex=1))
        end(world, 1, 1)
        assert running(world)[1]["metadata"]["annotations"][FAILURES] == "1"
        assert running(world)[0]["metadata"]["annotations"][FAILURES] == "0"
        end(world, 1, 1)
        assert (status_of(world)["failedIndexes"], status_of(world)["failed"]) == ("1", 2)
        assert set(running(world)) == {0, 2}
        assert not conditions(world.get(JOBS, "work"))
        end(world, 0)
        end(world, 2)
        ended = status_of(world)
        assert (ended["completedIndexes"], ended["failedIndexes"]) == ("0,2", "1")
        assert (ended["succeeded"], ended["failed"]) == (2, 2)
        said = ("FailedIndexes", "Job has failed indexes")
        assert reasons(world) == {"FailureTarget": said, "Failed": said}
        assert not any(FINALIZER in pod["metadata"].get("finalizers", ()) for pod in world.pods())


def test_too_many_failed_indexes_fail_the_job() -> None:
    with World() as world:
        began(world, indexed(4, backoffLimitPerIndex=0, maxFailedIndexes=1))
        end(world, 3, 1)
        assert not conditions(world.get(JOBS, "work"))
        end(world, 0, 1)
        said = ("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
        assert reasons(world) == {"FailureTarget": said, "Failed": said}
        assert (status_of(world)["failedIndexes"], status_of(world)["failed"]) == ("0,3", 4)
        assert running(world) == {}


def test_back_off_is_per_index() -> None:
    with World() as world:
        began(world, indexed(2, backoffLimitPerIndex=5))
        for failures in (1, 2, 3):
            name = running(world)[0]["metadata"]["name"]
            world.patch(PODS, name, {"status": {"phase": "Failed"}}, subresource="status")
            pod = running(world)[0]  # settled: the wait of the index has passed
            assert pod["metadata"]["annotations"][FAILURES] == str(failures)
        assert 1 in running(world)
        assert status_of(world)["failed"] == 3


def test_the_failure_policy_fails_an_index_or_ignores_a_failure() -> None:
    policy = {
        "rules": [
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ]
    }
    with World() as world:
        began(world, indexed(2, backoffLimitPerIndex=1, podFailurePolicy=policy))
        end(world, 0, 42)
        assert status_of(world)["failedIndexes"] == "0"
        for times in (1, 2, 3):
            end(world, 1, 1, conditions=[{"type": "DisruptionTarget", "status": "True"}])
            annotations = running(world)[1]["metadata"]["annotations"]
            assert (annotations[FAILURES], annotations[IGNORED_FAILURES]) == ("0", str(times))
        assert status_of(world)["failed"] == 1


@pytest.mark.parametrize(
    ("rules", "ends", "message"),
    [
        ([{"succeededIndexes": "0,2"}], [2, 0], "Matched rules at index 0"),
        ([{"succeededIndexes": "0-2", "succeededCount": 1}], [2], "Matched rules at index 0"),
        ([{"succeededIndexes": "0"}, {"succeededCount": 2}], [1, 3], "Matched rules at index 1"),
    ],
)
def test_a_success_policy_completes_the_job_without_failures(
    rules: list[Document], ends: list[int], message: str
) -> None:
    with World() as world:
        began(world, indexed(4, successPolicy={"rules": rules}))
        for index in ends:
            assert not conditions(world.get(JOBS, "work"))
            end(world, index)
        said = ("SuccessPolicy", message)
        assert reasons(world) == {"SuccessCriteriaMet": said, "Complete": said}
        done = status_of(world)
        assert done["completionTime"]
        assert (done["succeeded"], done.get("failed", 0)) == (len(ends), 0)
        assert (done.get("active", 0), done["terminating"], done["ready"]) == (0, 0, 0)
        assert running(world) == {}


def test_a_failed_index_takes_precedence_over_a_success_policy() -> None:
    with World() as world:
        policy = {"rules": [{"succeededCount": 1}]}
        began(world, indexed(2, backoffLimitPerIndex=0, maxFailedIndexes=0, successPolicy=policy))
        names = {index: pod["metadata"]["name"] for index, pod in running(world).items()}
        for index, phase in ((0, "Failed"), (1, "Succeeded")):  # both before the controller looks
            change = {"status": {"phase": phase}}
            world.loop.complete(world.client.patch(PODS, names[index], change, "default", subresource="status"))
        world.advance(60)
        assert reasons(world)["Failed"][0] == "MaxFailedIndexesExceeded"


def test_the_final_condition_waits_for_the_last_pod() -> None:
    with World() as world:
        began(world, indexed(2, successPolicy={"rules": [{"succeededIndexes": "0"}]}))
        node = running(world)[1]["spec"]["nodeName"]
        assert node != running(world)[0]["spec"]["nodeName"]
        world.node(node, down=True)  # nobody stops its pod
        end(world, 0)
        assert set(conditions(world.get(JOBS, "work"))) == {"SuccessCriteriaMet"}
        assert (status_of(world)["terminating"], status_of(world).get("active", 0)) == (1, 0)
        world.node(node, down=False)
        world.advance(60)
        assert set(conditions(world.get(JOBS, "work"))) == {"SuccessCriteriaMet", "Complete"}
        assert status_of(world)["terminating"] == 0


def test_suspending_deletes_pods_without_counting_them_as_failed() -> None:
    with World() as world:
        began(world, job(run="never", parallelism=3, completions=3, backoffLimit=0))
        assert len(running(world)) == 3
        world.patch(JOBS, "work", {"spec": {"suspend": True}})
        world.advance(60)
        suspended = status_of(world)
        assert (suspended.get("active", 0), suspended.get("failed", 0), suspended["terminating"]) == (0, 0, 0)
        assert "startTime" not in suspended
        assert reasons(world) == {"Suspended": ("JobSuspended", "Job suspended")}
        assert world.pods() == []
        world.patch(JOBS, "work", {"spec": {"suspend": False}})
        resumed = {c["type"]: (c["status"], c["reason"]) for c in status_of(world)["conditions"]}
        assert resumed == {"Suspended": ("False", "JobResumed")}
        assert len(running(world)) == 3


def test_reducing_parallelism_counts_no_failures() -> None:
    with World() as world:
        began(world, job(run="never", parallelism=3, completions=5, backoffLimit=0))
        world.patch(JOBS, "work", {"spec": {"parallelism": 1}})
        world.advance(60)
        assert len(running(world)) == 1
        assert (status_of(world)["active"], status_of(world).get("failed", 0)) == (1, 0)


@pytest.mark.parametrize(("policy", "after"), [("TerminatingOrFailed", 2), ("Failed", 1)])
def test_terminating_pods_are_replaced_at_once_or_after_they_finished(policy: str, after: int) -> None:
    with World() as world:
        began(world, job(run="never", podReplacementPolicy=policy))
        pod = running(world)[0]
        world.node(pod["spec"]["nodeName"], down=True)  # nobody stops the pod
        world.loop.complete(world.client.delete(PODS, pod["metadata"]["name"], "default"))
        world.loop.run_to(world.loop.time() + 20)
        assert len(world.pods()) == after
        assert status_of(world)["terminating"] == 1


def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    with World() as world:
        began(world, job(managedBy="example.com/other"))
        assert world.pods() == []
        assert status_of(world) == {}


def test_growing_and_shrinking_an_indexed_job() -> None:
    with World() as world:
        began(world, indexed(2))
        end(world, 1)
        world.patch(JOBS, "work", {"spec": {"parallelism": 4, "completions": 4}})
        assert set(running(world)) == {0, 2, 3}
        world.patch(JOBS, "work", {"spec": {"parallelism": 1, "completions": 1}})
        world.advance(60)
        assert set(running(world)) == {0}
        assert (status_of(world).get("succeeded", 0), status_of(world).get("failed", 0)) == (0, 0)
        end(world, 0)
        assert reasons(world)["Complete"] == ("CompletionsReached", "Reached expected number of succeeded pods")


def test_counts_are_exact_despite_failing_writes() -> None:
    with World(failing=0.2) as world:
        world.create(JOBS, job(run="3s", completions=12, parallelism=4, backoffLimit=3))
        world.advance(600)
        done = status_of(world)
        assert "Complete" in conditions(world.get(JOBS, "work"))
        assert (done["succeeded"], done.get("failed", 0)) == (12, 0)
        assert len(world.pods(phase="Succeeded")) == 12


def test_completion_is_reported_once() -> None:
    with World() as world:
        began(world, indexed(1, successPolicy={"rules": [{"succeededCount": 1}]}))
        end(world, 0)
        told = [(e["reason"], e.get("count")) for e in world.list(EVENTS) if e["involvedObject"]["kind"] == "Job"]
        assert ("Completed", 1) in told


@pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "0,2-4,7", "1,3,5"])
def test_index_lists_round_trip(text: str) -> None:
    assert str(Indexes.parse(text, 100)) == text


@pytest.mark.parametrize(
    ("text", "completions", "read"),
    [("0-9", 5, "0-4"), ("3,7", 5, "3"), ("x,2,3-y,4", 9, "2,4"), ("0,1,2", 9, "0-2"), ("0-2147483646", 2**31 - 1, "0-2147483646")],
)  # fmt: skip
def test_index_lists_are_cut_at_completions_and_malformed_parts_ignored(text: str, completions: int, read: str) -> None:
    assert str(Indexes.parse(text, completions)) == read


def test_indexes_as_sets() -> None:
    some, others = Indexes.parse("0-4,9", 20), Indexes.of([3, 4, 5, 11])
    assert (len(some), 9 in some, 5 in some, some.overlap(others)) == (6, True, False, 2)
    assert list((some | others).missing(12)) == [6, 7, 8, 10]


def test_back_off_doubles_up_to_ten_minutes_and_is_reset_by_a_success() -> None:
    waits = [JobBackoff(failures, 100.0).remaining(100.0) for failures in range(9)]
    assert waits == [0, 10, 20, 40, 80, 160, 320, 600, 600]
    assert JobBackoff(3, 50.0).after([], []).failures == 3
