"""The prioritizers: each scores the filtered clusters from -100 to 100; a cluster without data contributes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from wharfinger.systems.placement.kinds.views import ClusterToleration
from wharfinger.systems.placement.rules import taints
from wharfinger.systems.placement.rules.fleet import Fleet, Ints, Mask
from wharfinger.systems.placement.rules.plan import BALANCE, PREFER_NO_SELECT, RESOURCES, STEADY, Prioritizer


class Part(msgspec.Struct, frozen=True):
    """The scores of one prioritizer; its arrays are parallel to the filtered clusters."""

    prioritizer: Prioritizer
    scores: Ints
    scored: Mask  # clusters that it has data for; the others score 0
    expired: tuple[int, ...] = ()  # rows whose score object has expired
    next_expiry: float = np.inf


class PrioritizerContext(msgspec.Struct, frozen=True):
    fleet: Fleet
    rows: Ints  # the filtered clusters
    own: Sequence[int]  # rows in this placement's current decisions
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
        return _prefer_no_select(prioritizer, context)
    return _resource(prioritizer, context)


def _balance(context: PrioritizerContext) -> Ints:
    """Fewer decisions by other placements score higher, scaled by the maximum over all clusters, candidates or not."""
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
            # Same order of operations as upstream: scores are truncated, so the last bit matters.
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


def _prefer_no_select(prioritizer: Prioritizer, context: PrioritizerContext) -> Part:
    until = np.fromiter(
        (
            taints.preferred_until(context.fleet.cluster(int(row)).spec.taints, context.tolerations)
            for row in context.rows
        ),
        np.float64,
        len(context.rows),
    )
    tolerated = context.now < until
    scores = np.where(tolerated, 0, -100)
    return Part(
        prioritizer, scores, np.ones(len(scores), bool), next_expiry=float(until[tolerated].min(initial=np.inf))
    )
