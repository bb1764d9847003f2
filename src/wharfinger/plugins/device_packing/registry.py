"""All packing policies, by the names that configurations and `wharf replay` use."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.plugins.device_packing.opportunity_cost import OpportunityCost
from wharfinger.plugins.device_packing.policies import (
    FGD,
    BestFit,
    DotProd,
    GpuClustering,
    GpuPacking,
    PackingPolicy,
    RandomChoice,
)

POLICIES: Mapping[str, type[PackingPolicy]] = {
    each.name: each for each in (RandomChoice, DotProd, GpuClustering, GpuPacking, BestFit, FGD, OpportunityCost)
}
