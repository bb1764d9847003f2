"""The cheapest set of nodes, what can be removed, what fits, and when pods start."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from tests.repack.worlds import inputs, node, pod, replica_set
from tests.support import require_module

from wharfinger.api.node_groups import read_group
from wharfinger.api.times import format_time
from wharfinger.capacity.planning import CapacityOptions, plan_capacity
from wharfinger.capacity.prices import PriceTable, read_prices
from wharfinger.capacity.report import CapacityReport
from wharfinger.simulate.inputs import Inputs

Document = dict[str, Any]
TYPE, GROUP = "node.kubernetes.io/instance-type", "eks.amazonaws.com/nodegroup"
START = 1_800_000_000.0


def labels(instance_type: str = "small", group: str = "workers") -> dict[str, str]:
    return {GROUP: group, TYPE: instance_type}


def table(*rows: tuple[str, float, str, int, int]) -> PriceTable:
    """Rows of type, price, start-up time, milli cpu and MiB."""
    lines = [
        f"- {{type: {name}, group: workers, price: {price}, startup: {startup}, cpu: {cpu}m, memory: {memory}Mi}}"
        for name, price, startup, cpu, memory in rows
    ]
    return read_prices("p.yaml", "\n".join(lines))


PRICES = table(("small", 1, "60s", 2000, 4000), ("large", 1.8, "120s", 4000, 8000))


def asked(objects: list[Document], **options: Any) -> CapacityReport:
    settings = CapacityOptions(start=START, **{"prices": PRICES, "timeline": False, **options})
    return plan_capacity(inputs(objects), Inputs(), settings)


def bought(report: CapacityReport) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in report.best.nodes:
        found[each.model.instance_type] = found.get(each.model.instance_type, 0) + 1
    return found


def full() -> list[Document]:
    """A small node without room."""
    made = node("n", 2000, 4000)
    made["metadata"]["labels"] = labels()
    return [made, pod("runs", "n", 2000, 100)]


def test_the_cheapest_set_is_found_and_proven() -> None:
    report = asked([*full(), *(pod(f"p{number}", "", 1500, 100) for number in range(4))])
    assert bought(report) == {"large": 2} and report.best.cost == pytest.approx(3.6)
    assert report.choices[0].cost == 4 and report.optimal


def test_one_pod_more_takes_a_small_node() -> None:
    report = asked([*full(), *(pod(f"p{number}", "", 1500, 100) for number in range(5))])
    assert bought(report) == {"large": 2, "small": 1} and report.optimal


def test_daemon_sets_take_their_part_of_new_nodes() -> None:
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": pod("x", "", 600, 10)["spec"]}
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template},
    }
    report = asked([*full(), daemon, *(pod(f"p{number}", "", 1500, 100) for number in range(2))])
    assert bought(report) == {"large": 1}
    report = asked([*full(), daemon, *(pod(f"p{number}", "", 1900, 100) for number in range(2))])
    assert bought(report) == {"large": 2}, "with the daemon, a small node takes none and a large one only one"


def test_limits_leave_pods_without_a_node() -> None:
    group = {
        "apiVersion": "wharfinger.dev/v1alpha1",
        "kind": "NodeGroup",
        "metadata": {"name": "workers"},
        "spec": {"maxSize": 1, "template": {}, "instanceTypes": ["small", "large"]},
    }
    report = asked([pod(f"p{number}", "", 1500, 100) for number in range(3)], groups=[read_group(group)])
    assert bought(report) == {"large": 1}, "one node may be added: the one that takes more pods"
    assert len(report.best.unserved) == 1 and len(report.choices[0].unserved) == 2


@pytest.mark.parametrize("seed", range(12))
def test_no_set_that_the_numbers_allow_is_cheaper(seed: int) -> None:
    """Against all sets of up to five nodes: the bound holds, and what is called optimal is."""
    source = random.Random(seed)
    sizes = {"small": (2000, 4000, 1.0), "large": (4000, 8000, source.choice((1.7, 2.1))), "fat": (4000, 24000, 2.5)}
    rows = [(name, price, "60s", cpu, memory) for name, (cpu, memory, price) in sizes.items()]
    pods = [(source.choice((400, 900, 1500)), source.choice((200, 3000, 6000))) for _ in range(source.randint(3, 6))]
    objects = [*full(), *(pod(f"p{index}", "", cpu, memory) for index, (cpu, memory) in enumerate(pods))]
    report = asked(objects, prices=table(*rows))
    best = min(
        sum(sizes[name][2] for name in chosen)
        for number in range(1, 6)
        for chosen in itertools.combinations_with_replacement(sizes, number)
        if holds([sizes[name][:2] for name in chosen], pods)
    )
    assert not report.best.unserved
    assert report.bound <= best + 1e-9 and best <= report.best.cost + 1e-9
    assert report.best.cost <= best * 1.25 + 1e-9
    if report.optimal:
        assert report.best.cost == pytest.approx(best)


def holds(nodes: list[tuple[int, int]], pods: list[tuple[int, int]]) -> bool:
    """Whether some placement of the pods fits, by trying all."""
    if not pods:
        return True
    (cpu, memory), *rest = sorted(pods, reverse=True)
    for index, (free_cpu, free_memory) in enumerate(nodes):
        if cpu <= free_cpu and memory <= free_memory:
            left = [*nodes[:index], (free_cpu - cpu, free_memory - memory), *nodes[index + 1 :]]
            if holds(left, rest):
                return True
    return False


def test_what_fits_needs_no_node_and_what_is_held_back_does_not_count() -> None:
    gated = pod("gated", "", 100, 100, schedulingGates=[{"name": "x"}])
    first = node("n1", 2000, 4000)
    first["metadata"]["labels"] = labels()
    report = asked([first, pod("a", "", 1200, 10), pod("b", "", 1200, 10), gated])
    assert report.fitting == {"default/a": "n1"} and list(report.held) == ["default/gated"]
    assert bought(report) == {"small": 1}


def test_nodes_that_can_be_emptied_save_their_price() -> None:
    nodes = [node(f"n{number}", 4000, 8000) for number in range(3)]
    for each in nodes:
        each["metadata"]["labels"] = labels("large")
    objects = [*nodes]
    for number in range(3):
        name = f"w{number}"
        objects += [replica_set(name, 1, 1000, 100), pod(f"{name}-0", f"n{number}", 1000, 100, owner=name)]
    report = asked(objects)
    assert len(report.removal.nodes) == 2 and report.removal.saved == pytest.approx(3.6)
    assert report.removal.saved == pytest.approx(report.removal.most)
    assert (report.cost_now, report.cost_after) == (pytest.approx(5.4), pytest.approx(1.8))
    assert all(each.at is None and len(each.moves) == 1 for each in report.removal.nodes)


def ending(name: str, where: str, cpu: int, seconds: int) -> Document:
    made = pod(name, where, cpu, 100, activeDeadlineSeconds=seconds, restartPolicy="Never")
    made["status"]["startTime"] = format_time(START)
    made["status"]["containerStatuses"] = [
        {
            "name": "c",
            "image": "x",
            "imageID": "x",
            "ready": True,
            "restartCount": 0,
            "containerID": "containerd://x",
            "state": {"running": {"startedAt": format_time(START)}},
        }
    ]
    made["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    return made


def test_a_node_empties_when_its_last_pod_ends() -> None:
    first = node("n1", 4000, 8000)
    first["metadata"]["labels"] = labels("large")
    report = asked([first, ending("a", "n1", 1000, 600), ending("b", "n1", 1000, 900)])
    (removable,) = report.removal.nodes
    assert (removable.node, removable.at) == ("n1", START + 900)


def test_when_pods_start_under_each_choice() -> None:
    first = node("n1", 2000, 4000)
    first["metadata"]["labels"] = labels()
    objects = [first, ending("old", "n1", 2000, 300), pod("new", "", 1500, 100), pod("more", "", 1500, 100)]
    report = asked(objects, timeline=True)
    assert not report.surprise
    times = {
        title: {each.pod: round(each.after) for each in found.starts.values()} for title, found in report.times.items()
    }
    assert times["first fit"] == {"default/more": 60, "default/new": 60}
    assert times["cheapest"] == {"default/more": 120, "default/new": 120}, "one large node costs less than two small"
    (waits,) = times["none"].values()
    assert 300 <= waits <= 331 and len(report.times["none"].never) == 1


def test_how_many_more_fit_by_group_and_in_total() -> None:
    nodes = [node("n1", 4000, 8000), node("n2", 2000, 4000), node("alone", 1000, 4000)]
    for each, instance_type in zip(nodes, ("large", "small"), strict=False):
        each["metadata"]["labels"] = labels(instance_type)
    report = asked([*nodes, replica_set("web", 1, 600, 100), pod("web-0", "n1", 600, 100, owner="web")], more="rs/web")
    assert report.more_of == "ReplicaSet default/web"
    by_group = {each.group: (each.now, each.per_node, each.after_scale_up) for each in report.more}
    assert by_group == {"workers": (8, 6, None), "": (9, 6, None)}


def test_reservations_count_as_taken_and_wait_like_pods() -> None:
    first = node("n1", 2000, 4000)
    first["metadata"]["labels"] = labels()
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "train", "uid": "uid-train", "creationTimestamp": format_time(START)},
        "spec": {
            "template": {"spec": pod("x", "", 2000, 100)["spec"]},
            "owners": [{"labelSelector": {"matchLabels": {"app": "train"}}}],
        },
    }
    report = asked([first, reservation, pod("a", "", 1000, 100)])
    assert bought(report) == {"small": 1} and report.best.nodes[0].pods == ["default/a"]
    other = {**reservation, "metadata": {"name": "zzz"}}
    report = asked([first, reservation, other])
    assert report.best.nodes[0].pods == ["Reservation zzz"]


def test_the_pods_to_come_of_a_stateful_set_count_at_once() -> None:
    workload = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "serviceName": "db",
            "replicas": 3,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod("x", "", 1800, 100)["spec"]},
        },
    }
    settings = CapacityOptions(start=START, prices=PRICES, timeline=True)
    report = plan_capacity(inputs(full()), inputs([workload]), settings)
    assert bought(report) == {"large": 1, "small": 1} and not report.surprise
    assert set(report.times["cheapest"].starts) == {"default/db-0", "default/db-1", "default/db-2"}


@pytest.mark.parametrize("seed", range(4))
def test_a_solver_costs_no_more_and_its_bound_holds(seed: int) -> None:
    require_module("ortools")
    source = random.Random(seed)
    pods = [(source.choice((400, 900, 1500)), source.choice((200, 3000))) for _ in range(9)]
    objects = [*full(), *(pod(f"p{index}", "", cpu, memory) for index, (cpu, memory) in enumerate(pods))]
    own, solved = asked(objects, questions=10), asked(objects, questions=10, solver_seconds=10.0)
    assert solved.best.cost <= own.best.cost + 1e-9
    assert own.bound - 1e-9 <= solved.bound <= solved.best.cost + 1e-9
    assert solved.optimal
