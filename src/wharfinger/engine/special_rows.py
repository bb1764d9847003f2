"""The feasible rows where some have overlays or nominated pods, and so cannot be told from what is cached for all rows."""

from __future__ import annotations

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.engine.answers import Answers
from wharfinger.engine.evaluation import active_filters, row_refusals, special_rows
from wharfinger.framework.columns import Bools
from wharfinger.framework.plugin import Scope
from wharfinger.framework.tables import Tables


def feasible_rows(tables: Tables, answers: Answers, pod: Pod) -> Bools | None:
    """The feasible rows, special rows included; None if those of `RowValues.accepted` are right."""
    shape = answers.prepared
    if not tables.nominated and not shape.overlays:
        return None
    special = special_rows(tables, shape, pod)
    accepted = answers.values.accepted()
    if not tables.nominated and all(each.widens for each in shape.overlays):
        special = special & ~accepted  # overlays cannot make the others infeasible
        if not special.any():
            return None
    filters = active_filters(shape)
    verdicts = answers.verdicts
    verdicts.catch_up(tables)
    verdicts.depend(beyond_rows=any(prepared.scope is Scope.CLUSTER for _, prepared in filters))
    by_row = verdicts.by_row
    unknown = special & (by_row < 0)
    # Filters of node scope do not depend on what is simulated.
    narrow = [(name, prepared) for name, prepared in filters if prepared.scope is not Scope.NODE]
    for row in np.flatnonzero(unknown).tolist():
        by_row[row] = answers.values.node_accepts(row) and not row_refusals(tables, shape, narrow, pod, row)
    before = accepted.copy()
    np.copyto(accepted, by_row > 0, where=special)
    return None if np.array_equal(before, accepted) else accepted
