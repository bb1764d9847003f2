"""Spread constraints: picks clusters one at a time, so that they are spread evenly over topology domains.

A domain is a value of the topology key among the filtered clusters. As in Kubernetes, the skew of a domain is its count
including the pick, minus the count of the emptiest domain before the pick.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wharfinger.systems.placement.kinds.views import SpreadConstraint
from wharfinger.systems.placement.rules.fleet import Fleet, Ints


def pick(fleet: Fleet, order: Ints, constraints: Sequence[SpreadConstraint], number: int | None) -> list[int]:
    """Rows in pick order; `order` lists the filtered rows, best first."""
    rows = [int(row) for row in order]
    terms = [_Term(fleet, rows, constraint) for constraint in constraints]
    left = np.ones(len(rows), bool)
    for term in terms:
        left &= term.allowed
    picked: list[int] = []
    while (number is None or len(picked) < number) and left.any():
        possible = left.copy()
        for term in terms:
            if term.hard:
                possible &= term.skews() <= term.limit
        if not possible.any():
            break
        # Lowest skew of the soft constraints in list order; ties go to the best cluster, the first in `order`.
        candidates = np.flatnonzero(possible)
        for term in terms:
            if not term.hard:
                skews = term.skews()[candidates]
                candidates = candidates[skews == skews.min()]
        chosen = int(candidates[0])
        left[chosen] = False
        for term in terms:
            term.counts[term.domains[chosen]] += 1
        picked.append(rows[chosen])
    return picked


class _Term:
    """One constraint: the domain of each filtered cluster, and the current count of each domain."""

    def __init__(self, fleet: Fleet, rows: list[int], constraint: SpreadConstraint) -> None:
        self.hard = constraint.when_unsatisfiable == "DoNotSchedule"
        self.limit = max(1, constraint.max_skew)
        values = [_value(fleet, row, constraint) for row in rows]
        # A cluster without the key is excluded by DoNotSchedule, otherwise it is a domain of its own.
        self.allowed = np.array([value is not None or not self.hard for value in values], bool)
        known: dict[object, int] = {}
        self.domains = np.array(
            [
                known.setdefault(("", row) if value is None else value, len(known))
                if value is not None or not self.hard
                else 0
                for row, value in zip(rows, values, strict=True)
            ],
            np.int64,
        )
        self.counts = np.zeros(max(1, len(known)), np.int64)

    def skews(self) -> Ints:
        """The skew of each cluster's domain if that cluster were picked. [filtered cluster]"""
        skews: Ints = self.counts[self.domains] + 1 - self.counts.min()
        return skews


def _value(fleet: Fleet, row: int, constraint: SpreadConstraint) -> str | None:
    cluster = fleet.cluster(row)
    values = cluster.claims if constraint.topology_key_type == "Claim" else cluster.metadata.labels
    return values.get(constraint.topology_key)
