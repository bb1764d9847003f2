"""Compiled selectors of pods: label selectors, and the terms of pod affinity and anti-affinity.

A malformed selector raises BadSelector, which the caller reports.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.api.selectors import LabelSelector, Requirements, matches
from wharfinger.api.views.pods import PodAffinityTerm


class PodSelector(msgspec.Struct, frozen=True):
    """A label selector over pods; `requirements` is None for an absent selector, which matches nothing."""

    requirements: Requirements | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.requirements is not None and matches(self.requirements, labels)

    @property
    def empty(self) -> bool:
        """Whether the selector matches everything."""
        return self.requirements is not None and not self.requirements


NOTHING = PodSelector(None)


def pod_selector(selector: LabelSelector | None) -> PodSelector:
    """Raises BadSelector."""
    return NOTHING if selector is None else PodSelector(selector.compile())


class AffinityTerm(msgspec.Struct, frozen=True):
    """A term of pod affinity: which pods, in which namespaces, in which topology."""

    topology_key: str
    selector: PodSelector
    namespaces: frozenset[str]
    namespace_selector: PodSelector

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        if namespace in self.namespaces or self.namespace_selector.matches(namespace_labels):
            return self.selector.matches(labels)
        return False


def affinity_term(term: PodAffinityTerm, namespace: str) -> AffinityTerm:
    """Raises BadSelector. `matchLabelKeys` and `mismatchLabelKeys` were merged into the selector on creation of the pod."""
    own = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        term.topology_key,
        pod_selector(term.label_selector),
        frozenset((namespace,)) if own else frozenset(term.namespaces),
        pod_selector(term.namespace_selector),
    )
