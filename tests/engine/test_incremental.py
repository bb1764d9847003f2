"""After any sequence of events, the cached answers equal those computed from scratch."""

from __future__ import annotations

from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from tests.engine.builders import node, pod

from wharfinger.api.quantity import milli_value, value
from wharfinger.api.resources import requests
from wharfinger.api.views import Node, Pod
from wharfinger.engine import Engine, values
from wharfinger.engine.rows import REFUSED, SHIFT

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def term(app: str, key: str, **rest: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **rest}


def required(side: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def preferred(side: str, *terms: dict[str, Any]) -> dict[str, Any]:
    weighted = [{"weight": 5 + index, "podAffinityTerm": each} for index, each in enumerate(terms)]
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def spread(key: str, action: str, **rest: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector, **rest}


SPECS: list[dict[str, Any]] = [
    {},
    {"cpu": "1500m", "tolerations": [{"key": "dedicated", "operator": "Exists"}]},
    {"nodeSelector": {"disk": "ssd"}},
    {"labels": {"app": "web"}, "affinity": required("podAntiAffinity", term("web", HOST))},
    {"labels": {"app": "web"}, "affinity": required("podAffinity", term("web", ZONE))},
    {"labels": {"app": "db"}, "affinity": preferred("podAffinity", term("web", ZONE), term("db", HOST))},
    {
        "labels": {"app": "db"},
        "affinity": preferred("podAntiAffinity", term("db", HOST, namespaceSelector={"matchLabels": {"team": "a"}})),
    },
    {"labels": {"app": "web"}, "topologySpreadConstraints": [spread(ZONE, "DoNotSchedule", minDomains=2)]},
    {
        "labels": {"app": "web"},
        "topologySpreadConstraints": [
            spread(HOST, "DoNotSchedule", nodeTaintsPolicy="Honor"),
            spread(ZONE, "ScheduleAnyway"),
            spread(HOST, "ScheduleAnyway"),
        ],
    },
    {"labels": {"app": "web"}, "topologySpreadConstraints": [spread(ZONE, "ScheduleAnyway")]},
    {"labels": {"app": "db"}, "affinity": preferred("podAffinity", term("web", ZONE), term("db", ZONE))},
    {"labels": {"app": "api"}},  # selected by the service, if it exists
    {
        "containers": [
            {"name": "c", "image": "app:v1", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "10m"}}}
        ]
    },
    {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                    ]
                }
            }
        }
    },
]
NODES = [f"n{index}" for index in range(5)]
NAMES = [f"p{index}" for index in range(12)]


class World:
    """The cluster as plain objects, and an engine that receives every change."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.assumed: set[str] = set()
        self.forced: set[str] = set()  # nodes that others overcommitted
        self.others: dict[tuple[str, str], Any] = {}
        self.engine = Engine()

    def fresh(self) -> Engine:
        engine = Engine()
        for each in self.nodes.values():
            engine.set_node(each)
        for bound in self.pods.values():
            engine.set_pod(bound)
        for (kind, _), document in self.others.items():
            engine.apply(kind, document)
        return engine

    # -- events

    def set_node(self, name: str, zone: int, disk: str, taint: int, cpu: int, cordoned: bool) -> None:
        labels = {ZONE: f"z{zone}"} if zone else {}
        if disk:
            labels["disk"] = disk
        effects = ["NoSchedule", "PreferNoSchedule"]
        taints = [{"key": "dedicated", "value": "x", "effect": effects[taint - 1]}] if taint else []
        images = [{"names": ["app:v1"], "sizeBytes": 300_000_000}] if disk else []
        made = node(name, cpu=str(cpu), labels=labels, taints=taints, unschedulable=cordoned, images=images, pods=6)
        self.nodes[name] = made
        if self._overfull(name):
            self.forced.add(name)  # its pods already request more than it has
        self.engine.set_node(made)

    def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.engine.remove_node(name)

    def bind(self, name: str, kind: int, where: str, namespace: str, deleted: bool) -> None:
        bound = pod(name, where, namespace=namespace, deleted=deleted, **SPECS[kind])
        self._gone(name)
        self.pods[name] = bound
        self.forced.add(where)
        self.engine.set_pod(bound)

    def end(self, name: str) -> None:
        self._gone(name)

    def _gone(self, name: str) -> None:
        old = self.pods.pop(name, None)
        if old is not None:
            self.assumed.discard(name)
            self.engine.remove_pod(old.metadata.namespace, name)

    def schedule(self, name: str, kind: int, confirm: int) -> None:
        """Places a pod; then the bind is confirmed (1), fails (2), or stays in flight (0)."""
        if name in self.pods:
            return
        waiting = pod(name, **SPECS[kind])
        decision = self.engine.schedule(waiting)
        if decision.node is None:
            return
        assert self.engine.assume(waiting, decision.node).ok
        if confirm == 2:
            self.engine.forget(waiting)
            return
        bound = pod(name, decision.node, **SPECS[kind])
        self.pods[name] = bound
        if confirm == 1:
            self.engine.set_pod(bound)

    def label_namespace(self, team: str) -> None:
        self._other("Namespace", {"metadata": {"name": "default", "labels": {"team": team}}})

    def select(self, app: str) -> None:
        self._other("Service", {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": app}}})

    def _other(self, kind: str, document: dict[str, Any]) -> None:
        self.others[kind, document["metadata"]["name"]] = document
        self.engine.apply(kind, document)

    # -- invariants

    def check(self) -> None:
        fresh = self.fresh()
        for kind, spec in enumerate(SPECS):
            waiting = pod("waiting", **spec)
            told, anew = self.engine.explain(waiting), fresh.explain(waiting)
            assert told.document() == anew.document(), f"explanation of kind {kind}"
            self._check_cached(waiting, {name: anew.total(name) for name in anew.scores}, kind)
        for name in self.nodes.keys() - self.forced:
            assert not self._overfull(name), name

    def _check_cached(self, waiting: Pod, totals: dict[str, int], kind: int) -> None:
        decision = self.engine.schedule(waiting)
        if not totals:
            assert decision.node is None
            return
        assert decision.node is not None and totals[decision.node] == max(totals.values()), f"choice for kind {kind}"
        profile = self.engine.profile(waiting)
        answers = profile.answers(profile.shape(waiting))
        if answers.prepared.only is not None:
            return
        tables = self.engine.tables
        cached = {
            name: (answers.values.value_of(row) + tables.tie_breaks.cells[row]) >> SHIFT
            for name, row in tables.row_of.items()
            if answers.values.value_of(row) != REFUSED
        }
        assert cached == totals, f"cached totals of kind {kind}"

    def _overfull(self, name: str) -> bool:
        there = [each for each in self.pods.values() if each.spec.node_name == name]
        room = self.nodes[name].status.allocatable
        return (
            len(there) > value(room["pods"])
            or sum(requests(each).get("cpu", 0) for each in there) > milli_value(room["cpu"])
            or sum(requests(each).get("memory", 0) for each in there) > value(room["memory"])
        )


nodes = st.sampled_from(NODES)
names = st.sampled_from(NAMES)
kinds = st.integers(0, len(SPECS) - 1)
set_nodes = st.tuples(
    st.just("set_node"),
    nodes,
    st.integers(0, 2),
    st.sampled_from(["", "ssd"]),
    st.integers(0, 2),
    st.integers(1, 4),
    st.booleans(),
)
events = st.one_of(
    set_nodes,
    st.tuples(st.just("remove_node"), nodes),
    st.tuples(st.just("bind"), names, kinds, nodes, st.sampled_from(["default", "other"]), st.booleans()),
    st.tuples(st.just("end"), names),
    st.tuples(st.just("schedule"), names, kinds, st.integers(0, 2)),
    st.tuples(st.just("schedule"), names, kinds, st.integers(0, 2)),
    st.tuples(st.just("label_namespace"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("select"), st.sampled_from(["api", "web"])),
)


@pytest.mark.parametrize("calm", [values.CALM, 1])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(first=st.lists(set_nodes, min_size=2, max_size=4), then=st.lists(events, min_size=1, max_size=14))
def test_cached_answers_equal_fresh_ones_after_every_event(calm: int, first: list[Any], then: list[Any]) -> None:
    """Also if the best rows are kept in heaps all the time (`calm` 1)."""
    with mock.patch.object(values, "CALM", calm):
        world = World()
        for name, *arguments in first:
            getattr(world, name)(*arguments)
        world.check()
        for name, *arguments in then:
            getattr(world, name)(*arguments)
            world.check()


def test_a_zone_is_free_again_after_relabelling_takes_its_only_pod_away() -> None:
    """The relabelling that takes the pod out of the zone also makes the zone key unique for each node."""
    world = World()
    world.set_node("n4", 1, "", 2, 4, False)
    world.set_node("n0", 1, "", 0, 4, False)
    world.set_node("n2", 2, "", 0, 4, False)
    world.bind("p7", 7, "n0", "default", False)
    world.check()
    world.set_node("n0", 0, "", 2, 1, True)
    world.check()


def test_verdicts_of_special_rows_do_not_outlive_filters_that_look_beyond_the_row() -> None:
    """A row with nominated pods is refused because of a pod elsewhere in its zone; that pod leaves."""
    made = Engine()
    for name in ("a", "b"):
        made.set_node(node(name, labels={"zone": "z"}))
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
    repelling = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    made.set_pod(pod("repelling", "b", affinity=repelling))
    made.set_nominated(pod("nominated", priority=10), "a")
    waiting = pod("waiting", labels={"app": "web"})
    assert made.schedule(waiting).node is None
    made.remove_pod("default", "repelling")
    made.set_pod(pod("large", "b", cpu="4"))
    assert made.schedule(waiting).node == "a"
