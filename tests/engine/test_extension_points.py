"""Extension points besides filter and score, shown by a plugin that promises room on a node to a pod by name."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine, default_profile
from wharfinger.framework import (
    SUCCESS,
    Args,
    Ints,
    Overlay,
    Overlays,
    Plugin,
    PodOnNode,
    Prepared,
    Rows,
    Scope,
    Shape,
    Simulation,
    Status,
    unschedulable,
)


class PromiseArgs(Args, frozen=True):
    limit: int = 10


class Promises(Plugin):
    """A `Promise` keeps room on a node with a placeholder pod; only the pod that it names sees the room as free."""

    name = "Promises"
    points = frozenset({"preFilter", "filter", "score", "reserve", "preBind", "postFilter"})
    args_type = PromiseArgs
    kinds = ("Promise",)
    watches_pods = True
    weight = 100

    def __init__(self, tables: Any, args: PromiseArgs) -> None:
        super().__init__(tables, args)
        self.promises: dict[str, str] = {}  # promised pod to node
        self.reserved: list[str] = []
        self.seen: list[tuple[str, int]] = []

    def observe(self, kind: str, old: Any, new: Any) -> None:
        for document, sign in ((old, -1), (new, 1)):
            if document is None:
                continue
            name, where = document["spec"]["pod"], document["spec"]["node"]
            if sign > 0:
                self.promises[name] = where
            else:
                self.promises.pop(name, None)
            if where in self.tables.row_of:
                self.tables.changed(rows=(self.tables.row_of[where],))

    def pod_added(self, placed: PodOnNode) -> None:
        self.seen.append((placed.pod.metadata.name, 1))

    def pod_removed(self, placed: PodOnNode) -> None:
        self.seen.append((placed.pod.metadata.name, -1))

    def shape_key(self, waiting: Pod) -> Hashable:
        return waiting.metadata.name if waiting.metadata.name in self.promises else None

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return Promised(self, shape.pod.metadata.name) if shape.extra else None

    def may_evict(self, preemptor: Pod, victim: PodOnNode) -> bool:
        return not victim.pod.metadata.name.startswith("promise-")

    def reserve(self, waiting: Pod, row: int, prepared: Prepared | None) -> Status:
        if len(self.reserved) >= self.args.limit:
            return unschedulable("no more promises")
        if prepared is not None:
            self.reserved.append(waiting.metadata.name)
        return SUCCESS

    def unreserve(self, waiting: Pod, row: int) -> None:
        if waiting.metadata.name in self.reserved:
            self.reserved.remove(waiting.metadata.name)

    def pre_bind(self, waiting: Pod, node_name: str) -> Mapping[str, str]:
        return {"example.com/promise": node_name} if waiting.metadata.name in self.promises else {}


class Promised(Prepared, Overlays):
    scope = Scope.ROW
    filters = scores = True

    def __init__(self, plugin: Promises, name: str) -> None:
        super().__init__()
        self._plugin = plugin
        self._name = name

    @property
    def overlays(self) -> Overlays:
        return self

    @property
    def overlaid(self) -> Collection[int]:
        where = self._plugin.promises.get(self._name)
        row = self._plugin.tables.row_of.get(where or "")
        return () if row is None else (row,)

    def overlays_on(self, row: int, *, evicting: bool = False) -> Sequence[Overlay]:
        holder = self._plugin.tables.pods[("default", f"promise-{self._name}")]
        return (lambda simulation: simulation.remove(holder), lambda simulation: None)

    def filter(self, rows: Rows) -> Ints:
        return np.zeros(len(rows), dtype=np.int64)

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        return 0

    def score(self, rows: Rows) -> Ints:
        return np.where(np.isin(rows, list(self.overlaid)), 100, 0)


def world(**args: Any) -> tuple[Engine, Promises]:
    profile = default_profile(extra=[Promises], args={"Promises": args})
    engine = Engine([profile], plugins={"Promises": Promises})
    for name in ("a", "b"):
        engine.set_node(node(name, cpu="2"))
    plugin = engine.profiles["default-scheduler"].plugins["Promises"]
    assert isinstance(plugin, Promises)
    return engine, plugin


def promise(engine: Engine, name: str, where: str, *, deleted: bool = False) -> None:
    document = {"metadata": {"name": name}, "spec": {"pod": name, "node": where}}
    engine.apply("Promise", document, deleted=deleted)
    if deleted:
        engine.remove_pod("default", f"promise-{name}")
    else:
        engine.set_pod(pod(f"promise-{name}", where, cpu="2", priority=-5))


def test_promised_room_is_hidden_from_others_and_seen_by_its_pod() -> None:
    engine, _ = world()
    promise(engine, "vip", "a")
    engine.set_pod(pod("running", "b", cpu="2"))
    assert engine.schedule(pod("other", cpu="1")).node is None
    assert engine.schedule(pod("vip", cpu="2")).node == "a"
    assert engine.schedule(pod("vip", cpu="3")).node is None
    promise(engine, "vip", "a", deleted=True)
    assert engine.schedule(pod("other", cpu="1")).node == "a"


def test_the_score_outweighs_others_and_is_explained() -> None:
    engine, _ = world()
    promise(engine, "vip", "a")
    explained = engine.explain(pod("vip", cpu="1")).document()["nodes"]
    assert explained["a"]["scores"]["Promises"] == 10000
    assert explained["b"]["scores"]["Promises"] == 0
    assert engine.schedule(pod("vip", cpu="1")).node == "a"


def test_cached_verdicts_of_overlaid_rows_follow_their_pods() -> None:
    engine, _ = world()
    promise(engine, "vip", "a")
    engine.set_pod(pod("running", "b", cpu="2"))
    assert engine.schedule(pod("vip", cpu="2")).node == "a"
    engine.set_pod(pod("intruder", "a", cpu="1"))  # bound manually
    assert engine.schedule(pod("vip", cpu="2")).node is None
    engine.remove_pod("default", "intruder")
    assert engine.schedule(pod("vip", cpu="2")).node == "a"


def test_the_placeholder_of_a_promise_is_not_evicted() -> None:
    engine, _ = world()
    promise(engine, "vip", "a")
    promise(engine, "other-vip", "b")
    assert engine.preempt(pod("p", cpu="2", priority=10)).node is None


def test_preemption_inside_a_promise_evicts_the_intruder() -> None:
    engine, _ = world()
    promise(engine, "vip", "a")
    engine.set_pod(pod("running", "b", cpu="2", priority=50))
    engine.set_pod(pod("intruder", "a", cpu="1"))
    result = engine.preempt(pod("vip", cpu="2", priority=10))
    assert (result.node, [victim.metadata.name for victim in result.victims]) == ("a", ["intruder"])


def test_reserving_is_undone_when_a_bind_fails_and_may_refuse() -> None:
    engine, plugin = world(limit=1)
    promise(engine, "vip", "a")
    first = pod("vip", cpu="1")
    assert engine.assume(first, "a").ok
    assert plugin.reserved == ["vip"]
    assert engine.annotations(first, "a") == {"example.com/promise": "a"}
    refused = engine.assume(pod("another", cpu="1"), "b")
    assert (refused.plugin, refused.message) == ("Promises", "no more promises")
    assert engine.schedule(pod("third", cpu="2")).node == "b"  # the refused pod is not counted
    engine.forget(first)
    assert plugin.reserved == []


def test_plugins_are_told_of_pods_on_known_nodes_only() -> None:
    engine, plugin = world()
    engine.set_pod(pod("early", "late", cpu="1"))
    assert plugin.seen == []
    engine.set_node(node("late"))
    engine.set_pod(pod("early", "late", cpu="1", labels={"changed": "yes"}))
    engine.remove_node("late")
    assert plugin.seen == [("early", 1), ("early", -1), ("early", 1), ("early", -1)]
