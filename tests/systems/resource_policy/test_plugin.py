"""The plugin resourcepolicy: which nodes a governed pod may go to, in which order, and what wakes it."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Node, Pod
from wharfinger.engine import Engine, default_profile
from wharfinger.framework.events import NODE, POD, Action, ClusterEvent
from wharfinger.framework.status import Code

NAME = "resourcepolicy"


def unit(name: str, priority: int = 0, limit: int | None = None, pool: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "priority": priority}
    if limit is not None:
        found["maxCount"] = limit
    if pool != "":
        found["nodeSelector"] = {"matchLabels": {"pool": pool or name}}
    return found


def policy(*units: dict[str, Any], name: str = "p", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourcePolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"units": list(units), **spec},
    }


def created(pod: Pod, second: int) -> Pod:
    when = f"2026-01-01T00:00:{second:02}Z"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, creation_timestamp=when))


class Cluster:
    def __init__(self, *policies: dict[str, Any], nodes: str = "a1 a2 b1 b2 x1") -> None:
        """Nodes are called by their pool and a number; x is a pool of no unit."""
        self.engine = Engine()
        for name in nodes.split():
            self.engine.set_node(node(name, cpu="100", labels={"pool": name.rstrip("0123456789")}))
        for each in policies:
            self.apply(each)

    def apply(self, document: dict[str, Any], *, deleted: bool = False) -> None:
        self.engine.apply("ResourcePolicy", document, deleted=deleted)

    def place(self, *names: str, **of: Any) -> list[str]:
        """Schedules pods one after the other; the pools they go to, or - for nowhere."""
        pools = []
        for name in names:
            each = pod(name, **of)
            decision = self.engine.schedule(each)
            if decision.node:
                self.engine.assume(each, decision.node)
            pools.append(decision.node.rstrip("0123456789") if decision.node else "-")
        return pools

    def scores(self, **of: Any) -> dict[str, int]:
        explained = self.engine.explain(pod("new", **of))
        return {name: scores[NAME] for name, scores in explained.scores.items()}

    def message(self, **of: Any) -> str:
        return self.engine.schedule(pod("new", **of)).message


A, B = unit("a", 5, 2), unit("b", 4)


def test_units_are_filled_in_order_up_to_their_limits() -> None:
    assert Cluster(policy(A, B)).place("1", "2", "3") == ["a", "a", "b"]


def test_a_full_unit_is_named() -> None:
    cluster = Cluster(policy(A), nodes="a1 a2 x1")
    assert cluster.place("1", "2", "3") == ["a", "a", "-"]
    assert cluster.message() == (
        '0/3 nodes are available: 1 node(s) were in no unit of resource policy "p", '
        '2 node(s) were in unit "a" of resource policy "p", which is full (2 of 2 pods).'
    )
    refused = cluster.engine.explain(pod("new")).refused
    assert refused["a1"].code is Code.UNSCHEDULABLE
    assert refused["x1"].code is Code.UNRESOLVABLE


def test_prefer_goes_outside_last() -> None:
    cluster = Cluster(policy(unit("a", 0, 1), strategy="prefer"), nodes="a1 x1")
    assert cluster.place("1", "2") == ["a", "x"]


def test_two_policies_for_one_pod_refuse_it_by_name() -> None:
    cluster = Cluster(policy(A, name="p2"), policy(A, name="p1"))
    assert cluster.message() == (
        '0/5 nodes are available: pod is matched by more than one resource policy: "p1", "p2".'
    )
    cluster.apply(policy(A, name="p2"), deleted=True)
    assert cluster.place("1") == ["a"]


@pytest.mark.parametrize(
    ("selector", "labels", "namespace", "governed"),
    [
        (None, {}, "default", True),
        ({}, {}, "default", True),
        (None, {}, "other", False),
        ({"matchLabels": {"app": "web"}}, {"app": "web"}, "default", True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, "default", False),
        (
            {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"app": "web"},
            "default",
            False,
        ),
    ],
)
def test_who_is_governed(selector: Any, labels: dict[str, str], namespace: str, governed: bool) -> None:
    spec = {} if selector is None else {"podSelector": selector}
    cluster = Cluster(policy(A, **spec), nodes="a1 x1")
    refused = cluster.engine.explain(pod("new", labels=labels, namespace=namespace)).refused
    assert ("x1" in refused) == governed


def test_every_revision_has_a_limit_of_its_own() -> None:
    cluster = Cluster(policy(A, B, matchLabelKeys=["pod-template-hash"]))
    assert cluster.place("1", "2", "3", labels={"pod-template-hash": "one"}) == ["a", "a", "b"]
    assert cluster.place("4", "5", "6", labels={"pod-template-hash": "two"}) == ["a", "a", "b"]


def test_values_of_several_keys_are_never_run_together() -> None:
    cluster = Cluster(policy(unit("a", 5, 1), B, matchLabelKeys=["k", "l"]))
    assert cluster.place("1", "2", labels={"k": "a", "l": "bc"}) == ["a", "b"]
    assert cluster.place("3", "4", labels={"k": "ab", "l": "c"}) == ["a", "b"]


def test_a_key_that_the_pod_lacks_is_ignored() -> None:
    cluster = Cluster(policy(A, B, matchLabelKeys=["k"]))
    assert cluster.place("1", "2", labels={"k": "one"}) == ["a", "a"]
    assert cluster.place("3") == ["b"], "without the key it sees the pods of all values"
    assert cluster.place("4", labels={"k": "two"}) == ["a"], "which do not see each other, nor it"


@pytest.mark.parametrize(
    ("there", "ignore", "pool"),
    [
        (pod("old", "a1"), False, "b"),
        (pod("old", "a1", status={"phase": "Succeeded"}), False, "a"),
        (pod("old", "a1", status={"phase": "Failed"}), False, "a"),
        (pod("old", "a1", deleted=True), False, "b"),
        (pod("old", "a1", deleted=True), True, "a"),
        (pod("old", "a1", schedulerName="someone-else"), False, "b"),
        (pod("old", "a1", namespace="other"), False, "a"),
        (pod("old", "b1"), False, "a"),
        (pod("old", "gone"), False, "a"),
    ],
)
@pytest.mark.parametrize("older", [True, False], ids=["pod first", "policy first"])
def test_which_pods_take_a_place(there: Pod, ignore: bool, pool: str, older: bool) -> None:
    rules = policy(unit("a", 5, 1), B, matchPolicy={"ignoreTerminatingPod": ignore})
    cluster = Cluster()
    if older:
        cluster.engine.set_pod(there)
    cluster.apply(rules)
    if not older:
        cluster.engine.set_pod(there)
    assert cluster.place("new") == [pool]


def test_a_place_is_free_again_when_binding_failed() -> None:
    cluster = Cluster(policy(unit("a", 5, 1)), nodes="a1 a2")
    first = pod("1")
    decision = cluster.engine.schedule(first)
    assert decision.node
    assert cluster.engine.assume(first, decision.node).ok
    assert cluster.place("2") == ["-"]
    cluster.engine.forget(first)
    assert cluster.place("2") == ["a"]


def test_the_same_nodes_may_come_back_as_a_later_unit() -> None:
    units = (unit("a", 10, 2), unit("b", 5, 3), unit("again", 1, pool="a"))
    cluster = Cluster(policy(*units))
    assert cluster.place(*"1234567") == ["a", "a", "b", "b", "b", "a", "a"]
    cluster = Cluster(policy(*units[:2], unit("again", 1, 1, pool="a")))
    assert cluster.place(*"1234567")[5:] == ["a", "-"]
    assert 'units "a", "again" of resource policy "p", which are full' in cluster.message()


@pytest.mark.parametrize(
    ("units", "scores"),
    [
        ([unit("a", 1), unit("b", 2), unit("c", 1000)], {"a1": 0, "b1": 50, "c1": 100}),
        ([unit("a", 5), unit("b", 5), unit("c", 4)], {"a1": 100, "b1": 100, "c1": 50, "x1": 0}),
        ([unit("a", 3), unit("b", 3), unit("c", 3)], {"a1": 100, "b1": 100, "c1": 100}),
        ([unit("a", 0)], {"a1": 100, "b1": 0, "c1": 0, "x1": 0}),
        ([unit("a", 2**31 - 1), unit("b", 7), unit("c", 0, 0)], {"a1": 100, "b1": 50, "x1": 0}),
        ([unit("a", 9), unit("b", 8), unit("c", 7)], {"a1": 100, "b1": 66, "c1": 33, "x1": 0}),
    ],
)
def test_scores_are_dense_ranks(units: list[dict[str, Any]], scores: dict[str, int]) -> None:
    strategy = "prefer" if "x1" in scores else "required"
    cluster = Cluster(policy(*units, strategy=strategy), nodes="a1 b1 c1 x1")
    assert cluster.scores() == {name: score * 100 for name, score in scores.items()}


def test_all_nodes_are_looked_at() -> None:
    names = [f"b{number}" for number in range(298)]
    assert Cluster(policy(A, B), nodes=" ".join([*names, "a1", "a2"])).place("1") == ["a"]


def test_a_lowered_limit_moves_nobody_and_blocks_the_next() -> None:
    cluster = Cluster(policy(unit("a", 5, 5), B))
    assert cluster.place(*"12345") == ["a"] * 5
    cluster.apply(policy(unit("a", 5, 2), B))
    assert cluster.place("6") == ["b"]
    for name in "1234":
        cluster.engine.remove_pod("default", name)
    assert cluster.place("7", "8") == ["a", "b"]


def test_pods_follow_a_relabelled_node() -> None:
    cluster = Cluster(policy(unit("a", 5, 1), unit("b", 4, 1)), nodes="a1 b1")
    assert cluster.place("1") == ["a"]
    cluster.engine.set_node(node("a1", cpu="100", labels={"pool": "b"}))
    assert cluster.message().count("which is full") == 1
    cluster.engine.set_node(node("a2", cpu="100", labels={"pool": "a"}))
    assert cluster.place("2", "3") == ["a", "-"]


def test_a_node_that_comes_after_its_pods_counts_them() -> None:
    cluster = Cluster(policy(unit("a", 5, 1), B), nodes="a1 b1")
    cluster.engine.set_pod(pod("1", "a2"))
    assert cluster.place("2") == ["a"]
    cluster.engine.remove_pod("default", "2")
    cluster.engine.set_node(node("a2", cpu="100", labels={"pool": "a"}))
    assert cluster.place("3") == ["b"]


def test_preemption_helps_in_a_full_unit_only() -> None:
    cluster = Cluster(policy(unit("a", 5, 1)), nodes="a1 a2 x1")
    cluster.place("low")
    high = pod("high", priority=10)
    result = cluster.engine.preempt(high, cluster.engine.schedule(high).diagnosis)
    assert [victim.metadata.name for victim in result.victims] == ["low"]
    assert cluster.message() == cluster.message(), "imagining changes nothing"
    outside = Cluster(policy(unit("c", 5)), nodes="x1")
    outside.engine.set_pod(pod("low", "x1"))
    diagnosis = outside.engine.schedule(high).diagnosis
    assert outside.engine.preempt(high, diagnosis).node is None


def test_as_few_victims_as_the_limit_asks_for() -> None:
    cluster = Cluster(policy(unit("a", 5, 3)), nodes="a1")
    cluster.place("1", "2", "3")
    high = pod("high", priority=10)
    result = cluster.engine.preempt(high, cluster.engine.schedule(high).diagnosis)
    assert len(result.victims) == 1


def test_a_nominated_pod_keeps_its_place() -> None:
    cluster = Cluster(policy(unit("a", 5, 1)), nodes="a1")
    cluster.engine.set_nominated(pod("high", priority=10), "a1")
    assert cluster.place("low") == ["-"]
    cluster.engine.set_nominated(pod("high", priority=10), None)
    assert cluster.place("low") == ["a"]


def test_an_invalid_policy_is_ignored() -> None:
    assert Cluster(policy(unit("a", -1)), nodes="x1").place("1") == ["x"]
    assert Cluster({"metadata": {"name": "p", "namespace": "default"}, "spec": None}, nodes="x1").place("1") == ["x"]


def test_status_updates_leave_answers_as_they_are() -> None:
    cluster = Cluster(policy(A, B))
    changes = cluster.engine.tables.versions.namespaces
    cluster.apply(policy(A, B) | {"status": {"units": [{"name": "a", "count": 1}]}})
    assert cluster.engine.tables.versions.namespaces == changes


def test_profiles_share_the_places() -> None:
    engine = Engine([default_profile("one"), default_profile("two")])
    engine.set_node(node("a1", labels={"pool": "a"}))
    engine.apply("ResourcePolicy", policy(unit("a", 5, 1)))
    first, second = pod("1", schedulerName="one"), pod("2", schedulerName="two")
    assert engine.schedule(second).node == "a1"
    engine.assume(first, "a1")
    assert engine.schedule(second).node is None
    engine.apply("ResourcePolicy", policy(unit("a", 5, 2)))
    assert engine.schedule(second).node == "a1"
    engine.apply("ResourcePolicy", policy(unit("b", 5)), deleted=False)
    assert engine.schedule(second).node is None
    engine.apply("ResourcePolicy", policy(unit("b", 5)), deleted=True)
    assert engine.schedule(second).node == "a1"


def test_a_policy_leaves_what_is_prepared_for_other_namespaces() -> None:
    cluster = Cluster()
    cluster.place("1", namespace="other")
    rebuilt = cluster.engine.tables.work.rebuilt
    cluster.apply(policy(A, B))
    cluster.place("2", namespace="other")
    assert cluster.engine.tables.work.rebuilt == rebuilt
    assert cluster.place("3") == ["a"]


def annotated(pod: Pod, steps: str) -> Pod:
    annotations = {"scheduling.sigs.x-k8s.io/next-units": steps}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


@pytest.mark.parametrize(
    ("waiting", "steps", "full", "tried"),
    [
        ({}, "", [], "a1 b1 c1 x1"),
        ({"policy": "ExceedMax"}, "", [], "a1"),
        ({"policy": "ExceedMax"}, "2", [], "a1"),
        ({"policy": "ExceedMax"}, "", ["a1"], "b1"),
        ({"policy": "ExceedMax"}, "", ["a1", "b1"], "c1"),
        ({"policy": "ExceedMax"}, "", ["b1"], "a1"),
        ({"policy": "ExceedMax"}, "", ["a1", "b1", "c1"], "x1"),
        ({"policy": "TimeoutOrExceedMax", "timeout": "1m"}, "", [], "a1"),
        ({"policy": "TimeoutOrExceedMax", "timeout": "1m"}, "1", [], "a1 b1"),
        ({"policy": "TimeoutOrExceedMax", "timeout": "1m"}, "1", ["a1"], "b1 c1"),
        ({"policy": "TimeoutOrExceedMax", "timeout": "1m"}, "3", [], "a1 b1 c1 x1"),
        ({"policy": "TimeoutOrExceedMax", "timeout": "1m"}, "99", [], "a1 b1 c1 x1"),
        ({"policy": "TimeoutOrExceedMax", "timeout": "1m"}, "-1", [], "a1"),
    ],
)
def test_units_that_may_be_tried(waiting: dict[str, str], steps: str, full: list[str], tried: str) -> None:
    units = (unit("a", 9, 1), unit("b", 5, 1), unit("c", 1, 1))
    cluster = Cluster(policy(*units, strategy="prefer", whenTryNextUnits=waiting), nodes="a1 b1 c1 x1")
    for name in full:
        cluster.engine.set_pod(pod(f"on-{name}", name))
    new = pod("new")
    explained = cluster.engine.explain(annotated(new, steps) if steps else new)
    assert " ".join(sorted(explained.scores)) == tried
    for name, status in explained.refused.items():
        assert "full" in status.message
        assert status.code is (Code.UNSCHEDULABLE if name in full else Code.UNRESOLVABLE)


def test_what_is_waited_for_is_named() -> None:
    units = (unit("a", 9), unit("b", 9), unit("c", 1))
    cluster = Cluster(policy(*units, strategy="prefer", whenTryNextUnits={"policy": "ExceedMax"}), nodes="c1 x1")
    assert cluster.message() == (
        '0/2 nodes are available: 1 node(s) were in no unit of resource policy "p", and are not tried before '
        'units "a", "b" are full, 1 node(s) were in unit "c" of resource policy "p", which is not tried before '
        'units "a", "b" are full.'
    )


def test_preemption_by_resources_takes_what_is_enough() -> None:
    rules = policy({**unit("a"), "maxResources": {"cpu": "4"}})
    cluster = Cluster(rules, nodes="a1")
    assert cluster.place("one", cpu="1") + cluster.place("three", cpu="3") == ["a", "a"]
    assert cluster.place("none", cpu="") == ["a"]
    assert cluster.place("more", cpu="1") == ["-"]
    high = pod("high", cpu="2", priority=10)
    result = cluster.engine.preempt(high, cluster.engine.schedule(high).diagnosis)
    assert [victim.metadata.name for victim in result.victims] == ["three"]


WAITING = pod("waiting", labels={"app": "web"})
RULES = policy(unit("a", 5, 1), podSelector={"matchLabels": {"app": "web"}}, matchPolicy={"ignoreTerminatingPod": True})


def web(on: str = "a1", **of: Any) -> Pod:
    return pod("other", on, labels={"app": "web"}, **of)


@pytest.mark.parametrize(
    ("event", "wakes"),
    [
        (ClusterEvent(POD, Action.DELETE, web(), None), True),
        (ClusterEvent(POD, Action.DELETE, pod("other", "a1"), None), False),
        (ClusterEvent(POD, Action.DELETE, web(namespace="elsewhere"), None), False),
        (ClusterEvent(POD, Action.UPDATE_POD_LABEL, web(), pod("other", "a1")), True),
        (ClusterEvent(POD, Action.UPDATE_POD_TERMINATING, web(), web(deleted=True)), True),
        (ClusterEvent(POD, Action.UPDATE_OTHER, web(), web()), False),
        (ClusterEvent(NODE, Action.ADD, None, node("a9", labels={"pool": "a"})), True),
        (ClusterEvent(NODE, Action.ADD, None, node("x9", labels={"pool": "x"})), False),
        (ClusterEvent(NODE, Action.UPDATE_NODE_LABEL, node("x9"), node("x9", labels={"pool": "a"})), True),
        (ClusterEvent(NODE, Action.UPDATE_NODE_LABEL, node("x9"), node("x9", labels={"color": "red"})), False),
        (ClusterEvent("ResourcePolicy", Action.DELETE, RULES, None), True),
        (ClusterEvent("ResourcePolicy", Action.ADD, None, policy(A, namespace="elsewhere")), False),
        (ClusterEvent("ResourcePolicy", Action.UPDATE_OTHER, RULES, RULES | {"status": {}}), False),
        (ClusterEvent("ResourcePolicy", Action.UPDATE_OTHER, RULES, policy(A)), True),
    ],
)
def test_what_wakes_a_refused_pod(event: ClusterEvent, wakes: bool) -> None:
    engine = Cluster(RULES).engine
    assert engine.wakes(WAITING, [NAME], event) == wakes


# -- against the rules in plain words


def verdicts(rules: dict[str, Any], nodes: dict[str, Node], pods: list[Pod], new: Pod) -> dict[str, str | int]:
    """For every node: the priority of the unit that has room, or why not."""
    spec = rules["spec"]
    units = sorted(enumerate(spec["units"]), key=lambda each: -each[1]["priority"])
    keys = [key for key in spec["matchLabelKeys"] if key in new.metadata.labels]

    def units_of(name: str) -> list[int]:
        labels = nodes[name].metadata.labels
        return [
            index
            for index, each in units
            if all(labels.get(key) == value for key, value in each["nodeSelector"]["matchLabels"].items())
        ]

    counted = [
        each
        for each in pods
        if each.spec.node_name in nodes
        and not each.terminal
        and all(each.metadata.labels.get(key) == new.metadata.labels[key] for key in keys)
        and not (each.terminating and spec["matchPolicy"]["ignoreTerminatingPod"])
    ]
    counts: Counter[int] = Counter()

    def room(index: int) -> bool:
        return counts[index] < spec["units"][index].get("maxCount", 10**9)

    for each in sorted(counted, key=lambda each: (each.metadata.creation_timestamp, each.metadata.uid)):
        of = units_of(each.spec.node_name)
        if of:
            counts[next((index for index in of if room(index)), of[0])] += 1
    found: dict[str, str | int] = {}
    for name in nodes:
        of = units_of(name)
        free = [index for index in of if room(index)]
        if free:
            found[name] = int(spec["units"][free[0]]["priority"])
        elif of:
            found[name] = "full"
        else:
            found[name] = -1 if spec["strategy"] == "prefer" else "outside"
    return found


@pytest.mark.parametrize("seed", range(40))
def test_any_history_gives_what_the_rules_say(seed: int) -> None:
    source = random.Random(seed)

    def some_rules() -> dict[str, Any]:
        units = []
        for index in range(source.randint(1, 4)):
            each = {"name": f"u{index}", "priority": source.randint(0, 3), "nodeSelector": {"matchLabels": {}}}
            for key in source.sample(["k", "l"], source.randint(0, 2)):
                each["nodeSelector"]["matchLabels"][key] = source.choice("ab")
            if source.random() < 0.7:
                each["maxCount"] = source.randint(0, 4)
            units.append(each)
        return policy(
            *units,
            strategy=source.choice(["prefer", "required"]),
            matchLabelKeys=source.sample(["m", "n"], source.randint(0, 2)),
            matchPolicy={"ignoreTerminatingPod": source.random() < 0.5},
        )

    def some_labels(keys: str) -> dict[str, str]:
        return {key: source.choice("ab") for key in keys if source.random() < 0.7}

    engine, rules = Engine(), some_rules()
    nodes: dict[str, Node] = {}
    pods: dict[str, Pod] = {}
    engine.apply("ResourcePolicy", rules)
    for step in range(80):
        match source.choice(["node", "node", "pod", "pod", "pod", "gone", "no node", "ends", "policy"]):
            case "node":
                name = f"n{source.randint(0, 6)}"
                nodes[name] = node(name, labels=some_labels("kl"))
                engine.set_node(nodes[name])
            case "no node":
                name = f"n{source.randint(0, 6)}"
                nodes.pop(name, None)
                engine.remove_node(name)
            case "pod":
                name = f"p{source.randint(0, 20)}"
                each = pod(name, f"n{source.randint(0, 6)}", labels=some_labels("mn"), deleted=source.random() < 0.2)
                pods[name] = created(each, source.randint(0, 5))
                engine.remove_pod("default", name)
                engine.set_pod(pods[name])
            case "gone" if pods:
                name = source.choice(sorted(pods))
                del pods[name]
                engine.remove_pod("default", name)
            case "ends" if pods:
                name = source.choice(sorted(pods))
                pods[name] = msgspec.structs.replace(
                    pods[name], status=msgspec.structs.replace(pods[name].status, phase="Succeeded")
                )
                engine.set_pod(pods[name])
            case "policy" if step % 4 == 0:
                rules = some_rules()
                engine.apply("ResourcePolicy", rules)
        if not nodes:
            continue
        for _ in range(2):
            new = pod("new", labels=some_labels("mn"))
            wanted = verdicts(rules, nodes, list(pods.values()), new)
            accepted = sorted({value for value in wanted.values() if isinstance(value, int)})
            explained = engine.explain(new)
            steps = max(len(accepted) - 1, 1)
            assert {name: scores[NAME] // 100 for name, scores in explained.scores.items()} == {
                name: 100 if len(accepted) == 1 else 100 * accepted.index(value) // steps
                for name, value in wanted.items()
                if isinstance(value, int)
            }
            assert {name: "full" in status.message for name, status in explained.refused.items()} == {
                name: value == "full" for name, value in wanted.items() if isinstance(value, str)
            }
            chosen = engine.schedule(new).node
            assert (chosen is None) == (not accepted)
            assert chosen is None or wanted[chosen] == accepted[-1]


def test_a_nominated_pod_keeps_its_place_on_every_node_of_the_unit() -> None:
    cluster = Cluster(policy(unit("a", 5, 1)))
    preemptor = pod("high", priority=10)
    cluster.engine.set_nominated(preemptor, "a1")
    assert cluster.place("low") == ["-"], "the place belongs to the preemptor, though it will go to another node"
    assert 'unit "a"' in cluster.message()
    assert cluster.place("equal", priority=10) == ["-"]
    assert cluster.engine.schedule(preemptor).node is not None, "its own nomination is no obstacle"
    assert cluster.engine.schedule(pod("higher", priority=20)).node is not None
    cluster.engine.set_nominated(preemptor, None)
    assert cluster.place("low") == ["a"]


def test_nominated_pods_keep_resources_of_the_unit_and_count_in_their_group_only() -> None:
    limited = {"name": "a", "maxResources": {"cpu": "2"}, "nodeSelector": {"matchLabels": {"pool": "a"}}}
    cluster = Cluster(policy(limited, matchLabelKeys=["team"]))
    cluster.engine.set_nominated(pod("high", priority=10, cpu="1500m", labels={"team": "x"}), "a1")
    assert cluster.place("1", cpu="600m", labels={"team": "x"}) == ["-"]
    assert cluster.place("2", cpu="500m", labels={"team": "x"}) == ["a"]
    assert cluster.place("3", cpu="2", labels={"team": "y"}) == ["a"]


def test_two_preemptors_do_not_evict_for_one_place() -> None:
    cluster = Cluster(policy(unit("a", 5, 2)), nodes="a1 a2")
    engine = cluster.engine
    for name, where in (("low-1", "a1"), ("low-2", "a2")):
        engine.set_pod(pod(name, where))
    first, second = pod("first", priority=10), pod("second", priority=10)
    result = engine.preempt(first)
    assert result.node is not None and len(result.victims) == 1
    engine.set_nominated(first, result.node)
    assert engine.preempt(second).node is None, "as long as the victim is there, no other eviction makes room"
    engine.remove_pod("default", result.victims[0].metadata.name)
    assert engine.schedule(second).node is None
    assert engine.assume(first, result.node).ok
    (last,) = engine.preempt(second).victims
    assert last.metadata.name not in (result.victims[0].metadata.name, "first")


def test_among_equal_victims_preemption_prefers_the_better_unit() -> None:
    cluster = Cluster(policy(unit("b", 1, 1), unit("a", 5, 1)), nodes="b1 a1")
    for name, where, started in (("1", "b1", "2026-01-02T00:00:00Z"), ("2", "a1", "2026-01-01T00:00:00Z")):
        cluster.engine.set_pod(pod(name, where, status={"startTime": started}))
    assert cluster.engine.preempt(pod("high", priority=10)).node == "a1", "though its victim runs for longer"


def test_a_hundred_units_are_filled_in_strict_order() -> None:
    names = [f"{first}{second}" for first in "abcdefghij" for second in "abcdefghij"]
    cluster = Cluster(
        policy(*(unit(name, priority) for priority, name in enumerate(names)), strategy="prefer"),
        nodes=" ".join(f"{name}1" for name in names),
    )
    scores = cluster.scores()
    weakest_step = min(scores[f"{b}1"] - scores[f"{a}1"] for a, b in pairwise(names))
    assert weakest_step > 1500, "more than all stock plugins together"
    # The best unit is the fullest: every stock plugin prefers the others.
    for index in range(90):
        cluster.engine.set_pod(pod(f"filler-{index}", f"{names[-1]}1", cpu="1", memory="", namespace="other"))
    assert cluster.place("new") == [names[-1]]


@pytest.mark.parametrize(
    ("limits", "waiting", "event", "wakes"),
    [
        ({"maxResources": {"cpu": "1"}}, {}, (Action.UPDATE_POD_SCALE_DOWN, web(cpu="2"), web(cpu="1")), True),
        ({"maxCount": 1}, {}, (Action.UPDATE_POD_SCALE_DOWN, web(cpu="2"), web(cpu="1")), False),
        ({"maxCount": 1}, {}, (Action.UPDATE_POD_LABEL, pod("other", "a1"), web()), False),
        ({"maxCount": 1}, {"policy": "ExceedMax"}, (Action.UPDATE_POD_LABEL, pod("other", "a1"), web()), True),
        ({"maxPercent": 50}, {}, (Action.UPDATE_POD_LABEL, pod("other", "a1"), web()), True),
        (
            {"maxResources": {"cpu": "1"}},
            {"policy": "ExceedMax"},
            (Action.UPDATE_POD_SCALE_UP, web(cpu="1"), web(cpu="2")),
            True,
        ),
    ],
)
def test_resized_and_relabelled_pods_wake_those_they_make_room_for(
    limits: dict[str, Any], waiting: dict[str, Any], event: tuple[Action, Pod, Pod], wakes: bool
) -> None:
    rules = policy(unit("a") | limits, podSelector={"matchLabels": {"app": "web"}})
    if waiting:
        rules["spec"]["whenTryNextUnits"] = waiting
    action, old, new = event
    engine = Cluster(rules).engine
    assert engine.wakes(WAITING, [NAME], ClusterEvent(POD, action, old, new)) == wakes


def test_pods_on_nodes_that_are_not_ours_count_in_their_unit() -> None:
    cluster = Cluster(policy(A, B), nodes="a1 b1")
    engine = cluster.engine
    engine.set_pod(pod("early", "a2"))
    assert cluster.engine.explain(pod("new")).scores.keys() == {"a1", "b1"}, "its node is not known yet"
    engine.set_foreign_node("a2", {"pool": "a"})
    engine.set_pod(pod("late", "a2"))
    assert cluster.place("1") == ["b"], "unit a has two pods on a node of another scheduler"
    engine.set_pod(pod("late", "a2", status={"phase": "Succeeded"}))
    assert cluster.place("2") == ["a"]
    engine.set_foreign_node("a2", {"pool": "b"})
    assert cluster.place("3") == ["a"], "its pod counts in unit b now"
    engine.set_node(node("a2", labels={"pool": "a"}))
    assert cluster.place("4") == ["b"], "the node is ours, and its pod is counted once"
    engine.remove_node("a2")
    engine.set_foreign_node("a2", {"pool": "a"})
    assert cluster.place("5") == ["b"]
    engine.set_foreign_node("a2", None)
    engine.remove_pod("default", "2")
    assert cluster.place("6") == ["a"]


def test_a_policy_counts_pods_that_were_on_nodes_of_others_before_it() -> None:
    cluster = Cluster(nodes="a1 b1")
    cluster.engine.set_foreign_node("a2", {"pool": "a"})
    for name in ("x", "y"):
        cluster.engine.set_pod(pod(name, "a2"))
    cluster.apply(policy(A, B))
    assert cluster.place("1") == ["b"]


@pytest.mark.parametrize(
    ("limits", "keys", "fault"),
    [
        ({"maxCount": 1}, [], "which is full (1 of 1 pods)"),
        ({"maxCount": 1}, ["team"], "which is full (1 of 1 pods in group team=x)"),
        ({"maxPercent": 50}, [], "which is full (1 of 1 pods, 50% of 2)"),
        ({"maxResources": {"cpu": "2"}}, [], "which has no room for the pod (cpu: 1.5 of 2 used, 1 requested)"),
        (
            {"maxResources": {"memory": "3Gi"}},
            [],
            "which has no room for the pod (memory: 2Gi of 3Gi used, 2Gi requested)",
        ),
    ],
)
def test_a_refusal_says_which_limit_is_reached_and_in_which_group(
    limits: dict[str, Any], keys: list[str], fault: str
) -> None:
    cluster = Cluster(policy(unit("a") | limits, matchLabelKeys=keys), nodes="a1")
    labels = {"team": "x"}
    cluster.engine.set_pod(pod("other", "a1", cpu="1500m", memory="2Gi", labels=labels))
    assert fault in cluster.message(cpu="1", memory="2Gi", labels=labels)


def test_a_place_that_is_kept_for_a_nominated_pod_counts_in_the_refusal() -> None:
    cluster = Cluster(policy(unit("a", 5, 1)), nodes="a1 a2")
    cluster.engine.set_nominated(pod("high", priority=10), "a1")
    assert "which is full (1 of 1 pods)" in cluster.message()
