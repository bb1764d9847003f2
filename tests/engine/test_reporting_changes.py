"""`Tables.changed`: cached answers are recomputed after a report, and only those that it names."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from tests.engine.builders import node, pod

from wharfinger.api.views import Pod
from wharfinger.engine import Engine, default_profile
from wharfinger.framework import Ints, Plugin, PodOnNode, Prepared, Rows, Scope, Shape, Status, unschedulable
from wharfinger.framework.tables import EVERY_NAMESPACE


class Closed(Plugin):
    """Refuses nodes that a test has closed by name."""

    name = "Closed"
    points = frozenset({"filter"})
    watches_pods = True

    def __init__(self, tables: Any, args: Any) -> None:
        super().__init__(tables, args)
        self.scope = Scope.ROW
        self.names: set[str] = set()
        self.key: Hashable = None
        self.concerns = False
        self.version = 0
        self.prepared = 0
        self.told: list[str] = []

    def concerned(self, shape: Shape) -> bool:
        return self.concerns

    def pod_added(self, placed: PodOnNode) -> None:
        self.told.append(placed.pod.metadata.name)

    def shape_key(self, waiting: Pod) -> Hashable:
        return self.key

    def key_is_shared(self, shape: Shape) -> bool:
        return True

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        self.prepared += 1
        return ClosedRows(self)


class ClosedRows(Prepared):
    filters = True

    def __init__(self, plugin: Closed) -> None:
        super().__init__()
        self.scope = plugin.scope
        self._plugin = plugin
        self._code = self.refuse(unschedulable("node(s) were closed"))

    @property
    def version(self) -> int:
        return self._plugin.version

    def filter(self, rows: Rows) -> Ints:
        closed = [self._plugin.tables.name(row) in self._plugin.names for row in rows.tolist()]
        return np.where(closed, self._code, 0)


@pytest.fixture
def engine() -> Engine:
    made = Engine([default_profile(extra=[Closed])], plugins={"Closed": Closed})
    made.set_node(node("a"))
    made.set_node(node("b"))
    return made


def plugin(engine: Engine, scope: Scope = Scope.ROW) -> Closed:
    found = engine.profiles["default-scheduler"].plugins["Closed"]
    assert isinstance(found, Closed)
    found.scope = scope
    return found


def close(engine: Engine, closed: Closed, name: str) -> str:
    """Closes the node that the pod would go to; returns the other one."""
    closed.names = {name}
    return {"a": "b", "b": "a"}[name]


@pytest.mark.parametrize(("scope", "report"), [(Scope.ROW, "rows"), (Scope.ROW, "nodes"), (Scope.NODE, "nodes")])
def test_reported_rows_are_evaluated_again(engine: Engine, scope: Scope, report: str) -> None:
    closed = plugin(engine, scope)
    chosen = engine.schedule(pod("p")).node
    assert chosen is not None
    other = close(engine, closed, chosen)
    assert engine.schedule(pod("p")).node == chosen, "cached"
    engine.tables.changed(**{report: (engine.tables.row_of[chosen],)})
    assert engine.schedule(pod("p")).node == other
    assert closed.prepared == 1


def test_versions_are_compared_after_a_report(engine: Engine) -> None:
    closed = plugin(engine, Scope.CLUSTER)
    chosen = engine.schedule(pod("p")).node
    assert chosen is not None
    other = close(engine, closed, chosen)
    closed.version += 1
    assert engine.schedule(pod("p")).node == chosen, "cached"
    engine.tables.changed(versions=True)
    assert engine.schedule(pod("p")).node == other


def test_shape_keys_are_computed_again(engine: Engine) -> None:
    closed = plugin(engine)
    engine.schedule(pod("p"))
    closed.key = "another"
    engine.schedule(pod("p"))
    assert closed.prepared == 1
    engine.tables.changed(keys=True)
    engine.schedule(pod("p"))
    assert closed.prepared == 2


@pytest.mark.parametrize(("namespace", "prepared"), [("default", 2), ("other", 1), (EVERY_NAMESPACE, 2)])
def test_shapes_of_a_namespace_are_prepared_again(engine: Engine, namespace: str, prepared: int) -> None:
    closed = plugin(engine)
    engine.schedule(pod("p"))
    engine.tables.changed(namespace=namespace)
    engine.schedule(pod("p"))
    assert closed.prepared == prepared


def test_listeners_are_asked_again_which_pods_concern_them(engine: Engine) -> None:
    closed = plugin(engine)
    engine.set_pod(pod("first", "a"))
    closed.concerns = True
    engine.set_pod(pod("second", "a"))
    assert closed.told == []
    engine.tables.changed(listeners=True)
    engine.set_pod(pod("third", "a"))
    assert closed.told == ["third"]
