"""Topology spread constraints, parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from wharfinger.api.selectors import exact_labels
from wharfinger.api.views.pods import TopologySpreadConstraint
from wharfinger.framework.pod_selectors import PodSelector, pod_selector

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


class Constraint(msgspec.Struct, frozen=True):
    """A constraint with its selector compiled and its defaults filled in."""

    max_skew: int
    topology_key: str
    selector: PodSelector
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


def constraints(
    stated: Sequence[TopologySpreadConstraint],
    labels: Mapping[str, str],
    action: str,
    selector: PodSelector | None = None,
) -> tuple[Constraint, ...]:
    """The constraints with that action, with their selectors compiled or replaced by the given one. Raises BadSelector."""
    found = []
    for each in stated:
        if each.when_unsatisfiable != action:
            continue
        own = pod_selector(each.label_selector)
        same = {key: labels[key] for key in each.match_label_keys if key in labels}
        if same and own.requirements is not None:
            own = PodSelector((*exact_labels(same), *own.requirements))
        found.append(
            Constraint(
                each.max_skew,
                each.topology_key,
                own if selector is None else selector,
                1 if each.min_domains is None else each.min_domains,
                each.node_affinity_policy in (None, "Honor"),
                each.node_taints_policy == "Honor",
            )
        )
    return tuple(found)
