"""What keeps a pod off the nodes that come nearest to fitting: every filter's refusal, and what is lacking there.

Nodes that are refused for the same reasons form a group; only the nearest node of a group is looked at closely, so the
cost grows with the number of distinct reasons and not with the number of nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from wharfinger.api.registry import Document
from wharfinger.api.resources import quantity_of
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.engine.evaluation import active_filters, nominated_on, overlays_on, simulating, special_rows
from wharfinger.engine.preparation import Filters, PreparedShape
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.explaining import AskedAmount
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import Code, Status
from wharfinger.framework.tables import Tables

_EXAMINED = 32  # rows of a group whose amounts are compared; and, at most, rows that are simulated one by one ...
_SIMULATED = 256
_STEPS = 1000  # rows that miss different parts of what the pod needs, in thousandths, are in different groups
_IMPOSSIBLE = {"NodeName": 50.0}  # plugins whose refusal a change to the node or to requests cannot lift


class Obstacle(msgspec.Struct, frozen=True):
    """One plugin's refusal of one node."""

    plugin: str
    reasons: tuple[str, ...]
    detail: str = ""  # which taint, label or port it is

    def document(self) -> Document:
        found: Document = {"plugin": self.plugin, "reasons": list(self.reasons)}
        return {**found, "detail": self.detail} if self.detail else found


class NearNode(msgspec.Struct, frozen=True):
    """The node of its group that comes nearest to fitting."""

    name: str
    obstacles: tuple[Obstacle, ...]
    amounts: tuple[AskedAmount, ...]  # of everything that the pod asks for
    alike: int  # how many nodes have the same obstacles, this one included
    distance: float

    @property
    def lacking(self) -> list[AskedAmount]:
        return [each for each in self.amounts if each.lacking]

    def document(self) -> Document:
        return {
            "node": self.name,
            "alike": self.alike,
            "obstacles": [each.document() for each in self.obstacles],
            "resources": {each.resource: amount_document(each) for each in self.amounts},
        }


def amount_document(amount: AskedAmount) -> Document:
    name = amount.resource
    found = {"asked": quantity_of(name, amount.asked), "free": quantity_of(name, amount.free)}
    return {**found, "lacking": quantity_of(name, amount.lacking)} if amount.lacking else found


class RefusedGroup(msgspec.Struct, frozen=True):
    """Nodes that are refused for the same reason; `most_free` has, of each resource that they lack, the most that one of
    them has free, and its name."""

    plugin: str
    reasons: tuple[str, ...]
    detail: str
    nodes: tuple[str, ...]
    most_free: tuple[tuple[AskedAmount, str], ...] = ()

    def document(self) -> Document:
        found: Document = {"plugin": self.plugin, "reasons": list(self.reasons), "count": len(self.nodes)}
        if self.detail:
            found["detail"] = self.detail
        if self.most_free:
            found["mostFree"] = {
                each.resource: {**amount_document(each), "node": name} for each, name in self.most_free
            }
        return found


def refused_groups(engine: Engine, pod: Pod, refused: Mapping[str, Status]) -> list[RefusedGroup]:
    """The refused nodes by plugin, reason and detail, largest group first."""
    tables = engine.tables
    by_plugin = engine.profile(pod).answers_for(pod).prepared.by_plugin
    groups: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    free: dict[tuple[str, tuple[str, ...], str], dict[str, tuple[AskedAmount, str]]] = {}
    for name, status in refused.items():
        row, prepared = tables.row_of[name], by_plugin.get(status.plugin)
        key = (status.plugin, status.reasons, "" if prepared is None else prepared.detail(row))
        groups.setdefault(key, []).append(name)
        best = free.setdefault(key, {})
        for amount in () if prepared is None else prepared.amounts(row):
            if amount.lacking and (amount.resource not in best or best[amount.resource][0].free < amount.free):
                best[amount.resource] = (amount, name)
    found = [RefusedGroup(*key, tuple(sorted(names)), tuple(free[key].values())) for key, names in groups.items()]
    return sorted(found, key=lambda each: (-len(each.nodes), each.plugin, each.reasons, each.detail))


def nearest_nodes(engine: Engine, pod: Pod) -> list[NearNode]:
    """The nearest node of each group of refused nodes, nearest first; none if the pod is refused as a whole."""
    tables = engine.tables
    shape = engine.profile(pod).answers_for(pod).prepared
    if shape.refusal is not None:
        return []
    filters = active_filters(shape)
    rows = tables.rows
    if shape.only is not None:
        rows = rows[np.isin(rows, [tables.row_of[name] for name in shape.only if name in tables.row_of])]
    found: list[NearNode] = []
    if tables.nominated or shape.overlays:
        special = special_rows(tables, shape, pod)[rows]
        found += _simulated(tables, shape, filters, pod, rows[special])
        rows = rows[~special]
    found += _grouped(tables, filters, pod, rows)
    return sorted(found, key=lambda each: (each.distance, each.name))


def rows_besides(engine: Engine, pod: Pod, plugins: Collection[str]) -> Rows:
    """The rows that no other plugin than these refuses."""
    shape = engine.profile(pod).answers_for(pod).prepared
    rows = engine.tables.rows
    if shape.refusal is not None:
        return rows[:0]
    for name, prepared in active_filters(shape):
        if name not in plugins and len(rows):
            rows = rows[prepared.filter(rows) == 0]
    return rows


def _grouped(tables: Tables, filters: Filters, pod: Pod, rows: Rows) -> list[NearNode]:
    if not len(rows) or not filters:
        return []
    codes = [prepared.filter(rows) for _, prepared in filters]
    # Nodes with different taints need different tolerations.
    tainted = np.zeros(len(rows), dtype=np.int64)
    for (name, _), of_filter in zip(filters, codes, strict=True):
        if name == "TaintToleration":
            tainted = np.where(of_filter != 0, tables.taints.view[rows], 0)
    missing = _missing(filters, codes, rows)
    keys = np.stack([*codes, tainted, (missing * _STEPS).astype(np.int64)], axis=1)  # [row, filter]
    distinct, group_of = np.unique(keys, axis=0, return_inverse=True)
    group_of = group_of.reshape(-1)
    short = _shortages(tables, pod, rows)
    found = []
    for index, key in enumerate(distinct.tolist()):
        if not any(key[: len(filters)]):
            continue
        members = np.flatnonzero(group_of == index)
        order = np.argsort(short[members] + missing[members], kind="stable")[:_EXAMINED]
        near = (
            _near(tables, filters, key, int(rows[member]), len(members), missing[member])
            for member in members[order].tolist()
        )
        found.append(min(near, key=lambda each: (each.distance, each.name)))
    return found


def _missing(filters: Filters, codes: Sequence[Ints], rows: Rows) -> np.ndarray:
    """What refused rows lack of what is not an amount, such as devices. [row]"""
    total = np.zeros(len(rows))
    for (_, prepared), of_filter in zip(filters, codes, strict=True):
        refused = np.flatnonzero(of_filter)
        if len(refused) and (part := prepared.missing(rows[refused])) is not None:
            total[refused] += part
    return total


def _shortages(tables: Tables, pod: Pod, rows: Rows) -> np.ndarray:
    """How much each row lacks, as the sum of the lacking parts of the requests. [row]"""
    total = np.zeros(len(rows))
    for number, amount in tables.charge(tables.shapes.of(pod)):
        free = tables.allocatable[number].view[rows] - tables.requested[number].view[rows]
        total += np.clip(amount - free, 0, None) / amount
    return total


def _near(tables: Tables, filters: Filters, codes: list[int], row: int, alike: int, missing: float) -> NearNode:
    refused = [
        (name, prepared, prepared.status(code)) for (name, prepared), code in zip(filters, codes, strict=False) if code
    ]
    obstacles = tuple(Obstacle(name, status.reasons, prepared.detail(row)) for name, prepared, status in refused)
    amounts = tuple(amount for _, prepared in filters for amount in prepared.amounts(row))
    distance = _distance([(n, s) for n, _, s in refused], amounts) + missing
    return NearNode(tables.name(row), obstacles, amounts, alike, distance)


def _distance(refused: list[tuple[str, Status]], amounts: tuple[AskedAmount, ...]) -> float:
    """Roughly the number of things to change; what evictions cannot help against counts more."""
    total = sum(each.lacking / each.asked for each in amounts)
    for plugin, status in refused:
        total += _IMPOSSIBLE.get(plugin, 1.0) + (0.5 if status.code is Code.UNRESOLVABLE else 0.0)
    return total


def _simulated(tables: Tables, shape: PreparedShape, filters: Filters, pod: Pod, rows: Rows) -> list[NearNode]:
    """Rows with overlays or nominated pods, one by one: the overlay with the fewest refusals counts."""
    groups: dict[tuple[Obstacle, ...], list[NearNode]] = {}
    for row in rows.tolist()[:_SIMULATED]:
        seen = [
            _under(tables, filters, pod, row, simulation) for simulation in _simulations(tables, shape, filters, row)
        ]
        nearest = min(seen, key=lambda each: each.distance)
        if nearest.obstacles:
            groups.setdefault(nearest.obstacles, []).append(nearest)
    found = []
    for members in groups.values():
        best = min(members, key=lambda each: (each.distance, each.name))
        found.append(NearNode(best.name, best.obstacles, best.amounts, len(members), best.distance))
    return found


def _simulations(tables: Tables, shape: PreparedShape, filters: Filters, row: int) -> list[Simulation]:
    found = []
    for overlay in overlays_on(shape, row):
        simulation = Simulation(tables, row, simulating(filters))
        if overlay is not None:
            overlay(simulation)
        found.append(simulation)
    return found


def _under(tables: Tables, filters: Filters, pod: Pod, row: int, simulation: Simulation) -> NearNode:
    for each in nominated_on(tables, pod, tables.name(row)):
        simulation.add(each)
    refused = []
    for name, prepared in filters:
        if code := prepared.filter_row(row, simulation):
            refused.append((name, prepared, prepared.status(code)))
    obstacles = tuple(Obstacle(name, status.reasons, prepared.detail(row)) for name, prepared, status in refused)
    amounts = tuple(amount for _, prepared in filters for amount in prepared.amounts(row, simulation))
    return NearNode(tables.name(row), obstacles, amounts, 1, _distance([(n, s) for n, _, s in refused], amounts))
