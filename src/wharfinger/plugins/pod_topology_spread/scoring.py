"""Scoring by soft topology spread constraints."""

from __future__ import annotations

from collections.abc import Hashable
from math import log
from typing import ClassVar

import msgspec
import numpy as np

from wharfinger.framework.columns import Bools, Floats, Ints, Rows
from wharfinger.framework.domains import DomainScores
from wharfinger.framework.plugin import MAX_SCORE
from wharfinger.plugins.pod_topology_spread.constraints import HOSTNAME
from wharfinger.plugins.pod_topology_spread.counting import FEW
from wharfinger.plugins.pod_topology_spread.filtering import SpreadFilter
from wharfinger.plugins.pod_topology_spread.row_classes import RowClasses, rounded


class _Feasible(msgspec.Struct):
    """What depends on which rows are feasible, cached for a state of the nodes."""

    rows: Rows
    position: int  # of the node log
    scored: Bools  # [row]
    all_scored: bool
    codes: list[Ints]  # [constraint][row]; not kept if there are classes
    numbers: list[int]  # [constraint] number of domains
    domains: DomainScores | None = None  # for a single constraint that scores all rows and has few domains
    raw: dict[int, int] = {}  # the same: raw scores by number of pods
    classes: RowClasses | None = None  # of all rows, if there may be few

    MOST: ClassVar[int] = 1 << 12  # of these


def _rounded(values: Floats) -> Floats:
    """To whole numbers, halves up. The values must not be negative."""
    whole = np.floor(values)
    whole += values - whole >= 0.5
    return whole


class Spread(SpreadFilter):
    """The answers of PodTopologySpread for one shape."""

    scores = bounded = normalizes = True

    _known: _Feasible | None = None

    def _read_constraints(self) -> None:
        super()._read_constraints()
        self._known = None

    @property
    def score_version(self) -> Hashable:
        if self._read_version != self._source_version():
            self._read_constraints()
        moved = sum([domains.counter.version for domains in self._soft])
        return self._tables.node_log.position, self._read_version, moved

    def scoring(self) -> bool:
        self._refresh()
        return bool(self._soft)

    def score(self, rows: Rows) -> Ints:
        self._refresh()
        if not self._soft:
            return np.zeros(len(rows), dtype=np.int64)
        where = self._feasible(rows)
        if len(self._soft) == 1 and self._soft[0].constraint.topology_key != HOSTNAME:
            # Compute and round one score for each domain, then look up those of the rows.
            domains = self._soft[0]
            by_domain = domains.sums * np.float64(log(where.numbers[0] + 2)) + (domains.constraint.max_skew - 1)
            by_domain[-1] = 0.0
            return _rounded(by_domain).astype(np.int64).take(where.codes[0], mode="wrap")
        total: Floats | None = None
        codes_of = where.codes or [domains.column.codes.take(rows) for domains in self._soft]
        for domains, codes, number in zip(self._soft, codes_of, where.numbers, strict=True):
            weight, shift = np.float64(log(number + 2)), np.float64(domains.constraint.max_skew - 1)
            if domains.constraint.topology_key == HOSTNAME:
                part: Floats = domains.counter.counts.take(rows) * weight + shift
                part[codes < 0] = 0.0
            else:
                by_domain = domains.sums * weight + shift
                by_domain[-1] = 0.0  # read by code -1
                part = by_domain.take(codes, mode="wrap")
            total = part if total is None else total + part
        assert total is not None
        scores = _rounded(total).astype(np.int64)
        if not where.all_scored:
            scores[~where.scored] = 0
        return scores

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        where = self._feasible(rows)
        counted = scores if where.all_scored else scores[where.scored]
        if not len(counted):
            return np.zeros_like(scores)
        largest, smallest = max(int(counted.max()), 0), int(counted.min())
        if largest == 0:
            final = np.full_like(scores, MAX_SCORE)
        else:
            final = largest + smallest - scores
            final *= MAX_SCORE
            final //= largest
        if not where.all_scored:
            final[~where.scored] = 0
        return final

    def final(self, rows: Rows) -> Ints:
        found = self.by_domain(rows)
        if found is not None:
            return found[0].by_row(found[1])
        classes = self._feasible(rows).classes if self._soft else None
        final = None if classes is None else classes.final()
        return super().final(rows) if final is None else final

    def by_domain(self, rows: Rows) -> tuple[DomainScores, list[int]] | None:
        self._refresh()
        where = self._feasible(rows) if self._soft else None
        if where is None or where.domains is None:
            return None
        domains, sums, raw = where.domains, self._soft[0].sums.tolist(), []
        for code in domains.codes:
            number = sums[code] if code >= 0 else -1
            score = where.raw.get(number)
            raw.append(self._raw(where, number) if score is None else score)
        largest, smallest = max(raw), min(raw)
        scores = [(largest + smallest - each) * MAX_SCORE // largest if largest else MAX_SCORE for each in raw]
        return domains, scores

    def _raw(self, where: _Feasible, number: int) -> int:
        """The raw score of a domain with so many pods; -1: of the nodes without the key."""
        assert where.domains is not None
        if len(where.raw) >= where.MOST:
            where.raw.clear()
        score = 0
        if number >= 0:
            shift = self._soft[0].constraint.max_skew - 1
            score = rounded(number * log(len(where.domains.codes) + 2) + shift)
        where.raw[number] = score
        return score

    def _feasible(self, rows: Rows) -> _Feasible:
        """Cached, since the feasible rows change less often than the counts."""
        known = self._known
        if known is None or known.rows is not rows or known.position != self._tables.node_log.position:
            scored = self._with_keys(self._soft, rows) if self._require_all else np.ones(len(rows), dtype=np.bool_)
            codes, numbers = [], []
            for domains in self._soft:
                of_rows = domains.column.codes.take(rows)
                codes.append(of_rows)
                if domains.constraint.topology_key == HOSTNAME:
                    numbers.append(int(np.count_nonzero(scored)))
                else:
                    # Nodes without the key, code -1, count as a domain if they are scored.
                    numbers.append(int(np.count_nonzero(np.bincount(of_rows[scored] + 1))))
            known = self._known = _Feasible(
                rows, self._tables.node_log.position, scored, bool(scored.all()), codes, numbers
            )
            if len(self._soft) == 1 and known.all_scored and numbers[0] <= FEW:
                if self._soft[0].constraint.topology_key != HOSTNAME and len(rows):
                    known.domains = DomainScores(codes[0])
            if known.all_scored:
                known.classes = RowClasses.of(rows, self._soft, codes, numbers)
                if known.classes is not None:
                    known.codes = []
        return known
