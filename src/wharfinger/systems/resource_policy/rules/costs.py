"""Ownership of the pod deletion cost annotation: what to write so that a pod has the cost of its unit. Pure.

A marker annotation records the value we wrote last. A cost without a marker, or one that differs from it, was set by
the user and is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.api.groups import SIGS
from wharfinger.controllers.scale_in import DELETION_COST

MARKER = f"{SIGS}/managed-deletion-cost"
POLICY = f"{SIGS}/resource-policy"


class CostChange(msgspec.Struct, frozen=True):
    annotations: Mapping[str, str | None]  # None removes the annotation
    kept: bool = False  # a cost set by the user is kept


def marked(annotations: Mapping[str, str]) -> bool:
    """Whether the pod has an annotation of ours."""
    return MARKER in annotations or POLICY in annotations


def change(annotations: Mapping[str, str], wanted: int | None, policy: str = "") -> CostChange:
    """The change to a pod's annotations. `wanted` is the cost, or None if the pod should have no cost of ours."""
    cost, marker = annotations.get(DELETION_COST), annotations.get(MARKER)
    if cost is not None and cost != marker:
        return _without_marks(annotations, {}, kept=wanted is not None)
    if wanted is None:
        return _without_marks(annotations, {DELETION_COST: None} if cost is not None else {})
    ours = {DELETION_COST: str(wanted), MARKER: str(wanted), POLICY: policy}
    return CostChange({key: value for key, value in ours.items() if annotations.get(key) != value})


def _without_marks(
    annotations: Mapping[str, str], further: Mapping[str, str | None], *, kept: bool = False
) -> CostChange:
    """The change that removes our own annotations, in addition to `further`."""
    return CostChange({**further, **{key: None for key in (MARKER, POLICY) if key in annotations}}, kept)
