"""Evaluates rows for one pod beyond what is cached for its shape.

That is needed for rows with nominated pods or overlays, and to explain a decision in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.engine.outcome import NARROWED, Diagnosis, Explanation
from wharfinger.engine.preparation import Filters, PreparedShape
from wharfinger.framework.columns import Bools, Ints, Rows, distinct
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.stand_ins import priority_for_room
from wharfinger.framework.status import Code, Status, unresolvable
from wharfinger.framework.tables import PodOnNode, Tables


def active_filters(shape: PreparedShape) -> Filters:
    return [(name, prepared) for name, prepared in shape.filters if prepared.filtering()]


def simulating(filters: Filters) -> list[Prepared]:
    """The filters whose `pod_simulated` must be called."""
    return [prepared for _, prepared in filters if prepared.simulates]


def nominated_on(tables: Tables, pod: Pod, node_name: str) -> list[PodOnNode]:
    """The pods nominated for the node whose priority is at least that of this pod."""
    priority = priority_for_room(pod)
    return [
        each
        for each in tables.nominated.get(node_name, {}).values()
        if each.priority >= priority and each.pod.metadata.uid != pod.metadata.uid
    ]


def special_rows(tables: Tables, shape: PreparedShape, pod: Pod) -> Bools:
    """The rows that must be evaluated one by one: those with overlays or nominated pods."""
    rows = np.zeros(tables.capacity, dtype=np.bool_)
    for overlays in shape.overlays:
        rows |= overlays.overlaid_mask(tables.capacity)
    for name in tables.nominated:
        if name in tables.row_of and nominated_on(tables, pod, name):
            rows[tables.row_of[name]] = True
    return rows


def overlays_on(shape: PreparedShape, row: int, *, evicting: bool = False) -> Sequence[Overlay | None]:
    """The overlays of a row; None stands for the row as it is."""
    found = [
        overlay
        for each in shape.overlays
        if row in each.overlaid
        for overlay in each.overlays_on(row, evicting=evicting)
    ]
    return found or (None,)


def row_refusals(tables: Tables, shape: PreparedShape, filters: Filters, pod: Pod, row: int) -> list[Status]:
    """Why a row is not feasible under each of its overlays, both with and without its nominated pods; empty if it is
    feasible under one."""
    found = []
    for overlay in overlays_on(shape, row):
        simulation = Simulation(tables, row, simulating(filters))
        if overlay is not None:
            overlay(simulation)
        refusal = check(tables, filters, pod, simulation)
        if refusal is None:
            return []
        found.append(refusal)
    return found


def check(tables: Tables, filters: Filters, pod: Pod, simulation: Simulation) -> Status | None:
    """Like RunFilterPluginsWithNominatedPods: with the nominated pods, and if that passes without them."""
    nominated = nominated_on(tables, pod, tables.name(simulation.row)) if tables.nominated else []
    if nominated:
        ports = set(simulation.ports)
        for each in nominated:
            simulation.add(each)
        refusal = _first_refusal(filters, simulation)
        for each in nominated:
            simulation.remove(each)
        simulation.ports = ports
        if refusal is not None:
            return refusal
    return _first_refusal(filters, simulation)


def _first_refusal(filters: Filters, simulation: Simulation) -> Status | None:
    row = simulation.row
    for name, prepared in filters:
        code = prepared.filter_row(row, simulation)
        if code:
            return prepared.status(code).by(name)
    return None


class RowRefusals(NamedTuple):
    groups: list[tuple[Status, Rows]]  # the refused rows by the refusal that is told
    feasible: Rows
    plugins: frozenset[str]  # of all refusals: under another overlay, another plugin may refuse a row


def refusals(tables: Tables, shape: PreparedShape, pod: Pod, *, nodes_accepted: bool = False) -> RowRefusals:
    """The first refusal of each row, of rows with overlays that under the last one. Computed without caches, but with
    `nodes_accepted` filters of node scope are known to accept all rows."""
    filters = active_filters(shape)
    groups: list[tuple[Status, Rows]] = []
    left = tables.rows
    if shape.only is not None:
        inside = np.isin(left, [tables.row_of[name] for name in shape.only if name in tables.row_of])
        outside = unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(shape.narrowed_by))}]")
        groups.append((outside.by(NARROWED), left[~inside]))
        left = left[inside]
    apart: list[int] = []
    if tables.nominated or shape.overlays:
        special = special_rows(tables, shape, pod)[left]
        apart, left = left[special].tolist(), left[~special]
    for name, prepared in filters:
        if not len(left):
            break
        if nodes_accepted and prepared.scope is Scope.NODE:
            continue
        codes = prepared.filter(left)
        first = int(codes[0])
        if (codes == first).all():  # as usual
            if first:
                groups.append((prepared.status(first).by(name), left))
                left = left[:0]
            continue
        refused = codes != 0
        found = codes[refused]
        rows = left[refused]
        for code in distinct(found).tolist():
            groups.append((prepared.status(code).by(name), rows[found == code]))
        left = left[~refused]
    passed = []
    plugins: set[str] = set()
    for row in apart:
        refused_by = row_refusals(tables, shape, filters, pod, row)
        plugins.update(status.plugin for status in refused_by)
        if refused_by:
            groups.append((refused_by[-1], np.array([row])))
        else:
            passed.append(row)
    feasible = np.union1d(left, np.array(passed, dtype=np.int64)) if passed else left
    groups = [(status, rows) for status, rows in groups if len(rows)]
    plugins.update(status.plugin for status, _ in groups)
    return RowRefusals(groups, feasible, frozenset(plugins))


def diagnose(tables: Tables, shape: PreparedShape, pod: Pod, *, nodes_accepted: bool = False) -> Diagnosis:
    """Why the pod fits on no node; `nodes_accepted` as for `refusals`."""
    count = tables.node_count
    if shape.refusal is not None:
        status = shape.refusal
        return Diagnosis(count, absent=status, pre_filter=status.message, plugins=frozenset((status.plugin,)))
    found = refusals(tables, shape, pod, nodes_accepted=nodes_accepted)
    plugins = (found.plugins - {NARROWED}).union(shape.narrowed_by)
    return Diagnosis(count, found.groups, tables.name, plugins=plugins)


def filter_error(tables: Tables, shape: PreparedShape, pod: Pod) -> Status | None:
    """The first error of a filter, if there was one."""
    return next((status for status, _ in refusals(tables, shape, pod).groups if status.code is Code.ERROR), None)


def final_scores(shape: PreparedShape, feasible: Rows) -> Iterator[tuple[str, Ints]]:
    """Every scoring plugin with its normalized and weighted scores of the feasible rows."""
    for scorer in shape.scorers:
        prepared = scorer.prepared
        if prepared.scoring():
            scores = prepared.score(feasible)
            if prepared.normalizes:
                scores = prepared.normalize(scores, feasible)
            yield scorer.plugin, scores * scorer.weight


def explain(tables: Tables, shape: PreparedShape, pod: Pod) -> Explanation:
    if shape.refusal is not None:
        return Explanation({}, {}, shape.refusal)
    groups, feasible, _ = refusals(tables, shape, pod)
    names = [tables.name(row) for row in feasible.tolist()]
    scores: dict[str, dict[str, int]] = {name: {} for name in names}
    if names:
        for plugin, final in final_scores(shape, feasible):
            for name, score in zip(names, final.tolist(), strict=True):
                scores[name][plugin] = score
    return Explanation({tables.name(row): status for status, rows in groups for row in rows.tolist()}, scores)


def unschedulable_rows(tables: Tables, diagnosis: Diagnosis) -> Rows:
    """The rows on which evictions may help, in ascending order."""
    if diagnosis.absent.code is Code.UNSCHEDULABLE:
        return tables.rows
    found = [rows for status, rows in diagnosis.groups if status.code is Code.UNSCHEDULABLE]
    if len(found) == 1 and isinstance(found[0], np.ndarray):
        return found[0]  # the rows of a group are in order
    return np.sort(np.concatenate(found)) if found else tables.rows[:0]
