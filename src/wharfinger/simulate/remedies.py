"""The smallest changes that would let waiting pods in. Each was tried in the engine before it is returned.

    found = remedies(engine, [pod])
    for remedy in found:
        print(remedy.text, remedy.node)

The number of trials is limited, and equal nodes are looked at once, so that this takes a second or so on a cluster of
thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.api.wording import counted
from wharfinger.engine import Engine
from wharfinger.simulate.obstacles import NearNode, nearest_nodes
from wharfinger.simulate.proposals import proposals
from wharfinger.simulate.trials import ProposedChange, RemedyProposal, TrialOutcome, Trials

TRIALS = 60
MOST_PODS = 200  # that one trial places
SHOWN = 6


class PodRemedy(msgspec.Struct, frozen=True):
    """Changes that let pods in, verified."""

    changes: tuple[ProposedChange, ...]
    node: str  # where the pod then goes
    lets_in: int  # how many of the waiting pods
    waiting: int

    @property
    def kind(self) -> str:
        """The kinds of its changes: `requests`, `toleration+selector`."""
        return "+".join(dict.fromkeys(each.kind for each in self.changes))

    @property
    def text(self) -> str:
        *first, last = (each.text for each in self.changes)
        return f"{', '.join(first)} and also {last}" if first else last

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(each.kind for each in self.changes)

    def document(self) -> Document:
        found: Document = {"kind": self.kind, "change": self.text, "node": self.node}
        if self.waiting > 1:
            found |= {"letsIn": self.lets_in, "waiting": self.waiting}
        for each in self.changes:
            found |= each.details
        return found


def remedies(
    engine: Engine, pods: Sequence[Pod], near: Sequence[NearNode] | None = None, *, trials: int = TRIALS
) -> list[PodRemedy]:
    """The smallest changes first, of each kind the smallest. `pods` have equal needs and fit nowhere, or not all of them."""
    if not pods:
        return []
    bench = Trials(engine, pods[:MOST_PODS], trials)
    near = nearest_nodes(engine, pods[0]) if near is None else near
    alone = bench.run(RemedyProposal((), 0.0))
    without = 0 if alone is None else alone.let_in
    found: list[tuple[float, PodRemedy]] = []
    for proposal in _ordered(list(proposals(engine, pods[0], near, len(pods)))):
        if bench.over:
            break
        outcome = bench.run(proposal)
        if outcome is not None and (outcome.let_in > without or proposal.preempts):
            remedy = _remedy(proposal, outcome, len(pods))
            found += [] if remedy is None else [(_rank(proposal, outcome), remedy)]
    return _smallest(found)


def _ordered(found: list[RemedyProposal]) -> list[RemedyProposal]:
    """Without repetitions, smallest first, but the best of each kind before further ones: the trials are limited."""
    seen: set[tuple[str, ...]] = set()
    kinds: dict[tuple[str, ...], int] = {}
    ranked: list[tuple[int, int, RemedyProposal]] = []
    for proposal in sorted(found, key=lambda each: (len(each.changes), each.rank)):
        texts = tuple(sorted(each.text for each in proposal.changes))
        if texts not in seen:
            seen.add(texts)
            kind = tuple(each.kind for each in proposal.changes)
            kinds[kind] = kinds.get(kind, 0) + 1
            ranked.append((kinds[kind], len(ranked), proposal))
    return [proposal for _, _, proposal in sorted(ranked, key=lambda each: each[:2])]


def _rank(proposal: RemedyProposal, outcome: TrialOutcome) -> float:
    return proposal.rank + 2.0 * (len(proposal.changes) - 1) + outcome.added / 10


def _remedy(proposal: RemedyProposal, outcome: TrialOutcome, waiting: int) -> PodRemedy | None:
    changes = proposal.changes
    if proposal.template is not None:
        nodes = "one node" if outcome.added == 1 else counted(outcome.added, "node")
        changes = tuple(
            ProposedChange(each.kind, each.text.format(nodes=nodes), {**each.details, "nodes": outcome.added})
            for each in changes
        )
    if proposal.preempts and outcome.victims != tuple(changes[0].details["victims"]):
        return None  # it would hit others
    return PodRemedy(changes, outcome.node, outcome.let_in, waiting)


def _smallest(found: list[tuple[float, PodRemedy]]) -> list[PodRemedy]:
    """The best of each kind: those that let more pods in first, then the smaller ones. A combination of which a part helps
    by itself is left out."""
    ordered = [remedy for _, remedy in sorted(found, key=lambda each: (-each[1].lets_in, each[0]))]
    chosen: list[PodRemedy] = []
    for remedy in ordered:
        if any(remedy.kind == each.kind for each in chosen):
            continue
        if any(each.kinds < remedy.kinds for each in chosen if each.lets_in >= remedy.lets_in):
            continue
        chosen.append(remedy)
    return chosen[:SHOWN]
