"""Who owns a pod's deletion cost: what to write on a pod so that it has the cost its unit gives, and nothing else. Pure.

A marker beside the cost holds the value we wrote last. A cost without a marker, or one that differs from it, is the
user's: it stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wharfinger.api.groups import SIGS
from wharfinger.controllers.scale_in import DELETION_COST

MARKER = f"{SIGS}/managed-deletion-cost"
POLICY = f"{SIGS}/resource-policy"


@dataclass(frozen=True, slots=True)
class CostChange:
    annotations: Mapping[str, str | None]  # what to write; None removes
    kept: bool = False  # whether a cost of the user's own stands against ours


def marked(annotations: Mapping[str, str]) -> bool:
    """Whether we ever wrote on the pod."""
    return MARKER in annotations or POLICY in annotations


def change(annotations: Mapping[str, str], wanted: int | None, policy: str = "") -> CostChange:
    """From a pod's annotations to those it should have; `wanted` is None where no cost of ours should be."""
    cost, marker = annotations.get(DELETION_COST), annotations.get(MARKER)
    if cost is not None and cost != marker:
        return _only(annotations, {}, kept=wanted is not None)
    if wanted is None:
        return _only(annotations, {DELETION_COST: None} if cost is not None else {})
    ours = {DELETION_COST: str(wanted), MARKER: str(wanted), POLICY: policy}
    return CostChange({key: value for key, value in ours.items() if annotations.get(key) != value})


def _only(annotations: Mapping[str, str], further: Mapping[str, str | None], *, kept: bool = False) -> CostChange:
    """Without our marks."""
    return CostChange({**further, **{key: None for key in (MARKER, POLICY) if key in annotations}}, kept)
