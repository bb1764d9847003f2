"""The prioritizers: each scores the filtered clusters from -100 to 100; a cluster without data contributes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wharfinger.systems.placement.kinds.views import ClusterToleration
from wharfinger.systems.placement.rules import taints
from wharfinger.systems.placement.rules.fleet import Fleet, Ints, Mask
from wharfinger.systems.placement.rules.plan import BALANCE, PREFER_NO_SELECT, RESOURCES, STEADY, Prioritizer


@dataclass(frozen=True, slots=True)
class Part:
    """What one prioritizer says of the filtered clusters, which its arrays run along."""

    prioritizer: Prioritizer
    scores: Ints
    scored: Mask  # which clusters it has data for; the others score 0
    expired: tuple[int, ...] = ()  # rows whose score object is no longer valid
    next_expiry: float = np.inf


@dataclass(frozen=True, slots=True)
class PrioritizerContext:
    fleet: Fleet
    rows: Ints  # the filtered clusters
    own: Sequence[int]  # rows in this placement's decisions now
    tolerations: tuple[ClusterToleration, ...]
    now: float


def evaluate(prioritizer: Prioritizer, context: PrioritizerContext) -> Part:
    rows = context.rows
    every = np.ones(len(rows), bool)
    if prioritizer.resource_name or prioritizer.score_name:
        return _add_on(prioritizer, context)
    if prioritizer.name == BALANCE:
        return Part(prioritizer, _balance(context), every)
    if prioritizer.name == STEADY:
        decided = np.zeros(len(context.fleet), np.int64)
        decided[list(context.own)] = 100
        return Part(prioritizer, decided[rows], every)
    if prioritizer.name == PREFER_NO_SELECT:
        return Part(prioritizer, _prefer_no_select(context), every)
    return _resource(prioritizer, context)


def _balance(context: PrioritizerContext) -> Ints:
    """Fewer decisions elsewhere is better; the busiest of all clusters, a candidate or not, sets the scale."""
    counts = context.fleet.other_counts(context.own)
    most = int(counts.max(initial=0))
    if most == 0:
        return np.full(len(context.rows), 100, np.int64)
    return 2 * np.trunc(100 * (0.5 - counts[context.rows] / most)).astype(np.int64)


def _resource(prioritizer: Prioritizer, context: PrioritizerContext) -> Part:
    amounts, reported = context.fleet.allocatable(RESOURCES[prioritizer.name])
    here, scored = amounts[context.rows], reported[context.rows]
    scores = np.zeros(len(here), np.int64)
    if scored.any():
        low, high = here[scored].min(), here[scored].max()
        if high == low:
            scores[scored] = 100
        else:
            # The order of operations is upstream's, since truncation makes the last bit count.
            ratio = (here[scored] - low) / (high - low)
            scores[scored] = np.trunc((ratio - 0.5) * 2.0 * 100.0).astype(np.int64)
    return Part(prioritizer, scores, scored)


def _add_on(prioritizer: Prioritizer, context: PrioritizerContext) -> Part:
    values, until = context.fleet.score(prioritizer.resource_name, prioritizer.score_name)
    here, ends = values[context.rows], until[context.rows]
    expired = ends < context.now
    pending = ends[~expired]
    return Part(
        prioritizer,
        np.where(expired, 0, here),
        np.ones(len(here), bool),
        tuple(int(row) for row in context.rows[expired]),
        float(pending.min(initial=np.inf)),
    )


def _prefer_no_select(context: PrioritizerContext) -> Ints:
    return np.fromiter(
        (
            -100 if taints.avoided(context.fleet.cluster(int(row)).spec.taints, context.tolerations, context.now) else 0
            for row in context.rows
        ),
        np.int64,
        len(context.rows),
    )
