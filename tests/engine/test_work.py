"""The engine stays incremental. Measured in rows evaluated for each decision, not in seconds."""

from __future__ import annotations

import pytest

from wharfinger.api.views import Node, Pod, view
from wharfinger.bench.measure import measure
from wharfinger.bench.workloads import SHAPES, WORKLOADS
from wharfinger.engine import Engine
from wharfinger.engine.answers import Answers
from wharfinger.engine.cohort import Cohort
from wharfinger.engine.profile import Profile

NODES, WARM, PODS = 300, 40, 60


def work_per_decision(name: str, warm: int = WARM, pods: int = PODS) -> tuple[float, float, float]:
    """(rows filtered or scored, shapes built, totals combined) for each decision, once the shapes are known."""
    workload, engine = WORKLOADS[name], Engine()
    for document in workload.node_documents(NODES):
        engine.set_node(view(document, Node))
    for document in workload.init_documents(0.01):
        place(engine, view(document, Pod))
    measured = [view(document, Pod) for document in workload.measured_documents(warm + pods)]
    for pod in measured[:warm]:
        place(engine, pod)
    work = engine.tables.work
    rows, rebuilt, totals = work.rows, work.rebuilt, work.totals
    for pod in measured[warm:]:
        place(engine, pod)
    return (work.rows - rows) / pods, (work.rebuilt - rebuilt) / pods, (work.totals - totals) / pods


def place(engine: Engine, pod: Pod) -> None:
    decision = engine.schedule(pod)
    assert decision.node is not None
    assert engine.assume(pod, decision.node).ok


@pytest.mark.parametrize(
    ("workload", "most_rows", "most_totals"),
    [
        ("SchedulingBasic", 1, 0),
        ("SchedulingNodeAffinity", 1, 0),
        ("MixedSchedulingBasePod", 1, 0),
        ("SchedulingPodAntiAffinity", 1, 0),  # no two nodes share a host name
        ("SchedulingPodAffinity", 1 + 2 * NODES, 0),  # the scores of the nodes in the zone, which are equal
        ("SchedulingPreferredPodAffinity", 1 + NODES, 1),
        ("SchedulingPreferredPodAntiAffinity", 1 + NODES, 1),
        ("TopologySpreading", 1 + NODES, 0),  # zones become full and free again, scores do not change
        ("PreferredTopologySpreading", 1 + 2 * NODES, 1),
        ("SchedulingDaemonset", 0, 0),
    ],
)
def test_a_decision_evaluates_only_rows_that_changed(workload: str, most_rows: float, most_totals: float) -> None:
    rows, rebuilt, totals = work_per_decision(workload)
    assert rebuilt == 0
    assert rows <= most_rows
    assert totals <= most_totals


def test_each_row_that_changed_is_evaluated_once_for_each_of_many_shapes() -> None:
    rows, rebuilt, totals = work_per_decision("ManyShapes", 2 * SHAPES, SHAPES)
    assert rebuilt == 0
    assert totals == 0
    assert rows <= SHAPES + Cohort.BLOCK


def test_the_engine_starts_in_a_cluster_with_running_pods() -> None:
    """`wharf bench engine --running`: all nodes and pods come through the scheduler's feed, page by page."""
    found = measure(WORKLOADS["SchedulingBasic"], 20, 30, 0, running=600)
    assert (found["nodes"], found["running"], found["unplaced"]) == (20, 600, 0)


def test_answers_for_plain_shapes_take_nine_bytes_for_each_row() -> None:
    """The values and the verdicts of node scope. Everything else is only kept where it differs between rows or is needed
    again."""
    engine = Engine()
    for document in WORKLOADS["SchedulingBasic"].node_documents(NODES):
        engine.set_node(view(document, Node))
    pod = view(next(WORKLOADS["SchedulingBasic"].measured_documents(1)), Pod)
    place(engine, pod)
    answers = engine.profile(pod).answers_for(pod)
    assert answers.size() == Answers.BASE + 9 * engine.tables.capacity


def test_answers_may_take_more_memory_in_larger_clusters() -> None:
    engine = Engine()
    profile = engine.profiles["default-scheduler"]
    assert profile.memory == Profile.MEMORY
    engine.tables.row_of.update({f"n{number}": number for number in range(100_000)})
    assert profile.memory == 100_000 * Profile.MEMORY_PER_NODE > Profile.MEMORY
    profile.memory_limit = 1 << 20
    assert profile.memory == 1 << 20


def test_some_answers_are_kept_where_pods_of_too_many_shapes_come_in_turn() -> None:
    engine = Engine()
    for document in WORKLOADS["ManyShapes"].node_documents(NODES):
        engine.set_node(view(document, Node))
    pods = [view(document, Pod) for document in WORKLOADS["ManyShapes"].measured_documents(60)]
    engine.profile(pods[0]).memory_limit = 40 * (Answers.BASE + 9 * engine.tables.capacity)
    for pod in pods * 3:
        engine.schedule(pod)
    rebuilt = engine.tables.work.rebuilt
    for pod in pods:
        engine.schedule(pod)
    assert engine.tables.work.rebuilt - rebuilt < 30


def test_the_answers_used_longest_ago_are_dropped_when_all_take_too_much() -> None:
    engine = Engine()
    for document in WORKLOADS["ManyShapes"].node_documents(NODES):
        engine.set_node(view(document, Node))
    pods = [view(document, Pod) for document in WORKLOADS["ManyShapes"].measured_documents(60)]
    profile = engine.profile(pods[0])
    profile.memory_limit = 20 * (Answers.BASE + 9 * engine.tables.capacity)
    for number, pod in enumerate(pods):
        engine.schedule(pod)
        engine.schedule(pods[0])
        assert profile.answers_for(pods[0]) is profile.answers(profile.shape(pods[0]))
        assert len(profile._answers) == min(number + 1, 21)  # the last is counted when the next one comes
    rebuilt = engine.tables.work.rebuilt
    engine.schedule(pods[0])
    engine.schedule(pods[-1])
    assert engine.tables.work.rebuilt == rebuilt
    engine.schedule(pods[1])
    assert engine.tables.work.rebuilt == rebuilt + 1
