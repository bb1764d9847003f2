"""OpportunityCost: our own packing policy. A pod gets the node and the device that others will miss the least.

FGD looks one pod ahead: how much of what is idle could the next pod not use? Two things escape it. Which shares go together
on a device: a small share fits into the gap beside a large one, but the gap may be worth more to another. And who has no
choice: a pod that may use any model should leave the scarce ones to pods that may not.

Both are priced here, in devices. The rest of a device is worth the dearest shares that fit into it, at the prices of
`pricing`. A model is scarce if pods that are restricted to it, or to few, ask for much of it. Where prices make no
difference, FGD decides. As FGD, it learns the workload where it is not told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from wharfinger.framework.columns import Floats, Ints
from wharfinger.plugins.device_packing.fragmentation import WorkloadShape
from wharfinger.plugins.device_packing.policies import FGD, MAX_SCORE
from wharfinger.plugins.device_packing.pricing import share_prices, values_of_rests
from wharfinger.plugins.device_packing.rooms import WHOLE, ModelNumbers, NodeRooms, PodDemand

UNUSED = 0.1  # of a device: what it costs to begin one, beyond its value
SCARCE = 0.2  # of a device: what it costs to take one of a model for which restricted pods ask as much as there is
MOST_SCARCE = 1.5
STEP = 0.03  # of a device: smaller differences in cost are left to FGD
COSTLIEST = 128  # steps
POINTS = MAX_SCORE / 4  # of the score of FGD that a device makes, around the middle


class OpportunityCost(FGD):
    """FGD with prices for gaps and for scarce models."""

    name = "OpportunityCost"

    def __init__(self, workload: Sequence[WorkloadShape], models: ModelNumbers, seed: int = 0) -> None:
        self._supply: Mapping[str, int] = {}
        super().__init__(workload, models, seed)

    # -- learning

    def supplied(self, devices: Mapping[str, int]) -> None:
        self._supply = {model: count for model, count in devices.items() if count}
        self._plan()

    def _plan(self) -> None:
        super()._plan()
        pods = Counter(dict(self._told)) if self._told else self._pods
        shares: Counter[int] = Counter()
        for demand, count in pods.items():
            if demand.shared:
                shares[demand.milli] += count
        self._worth: Floats = values_of_rests(share_prices(shares))  # [thousandths left] in devices
        self._scarcity = self._scarcities(pods)

    def _scarcities(self, pods: Counter[PodDemand]) -> Floats:
        """[model] what restricted pods ask for, of what there is, if all pods together ask for as much as there is."""
        asked: dict[str, float] = dict.fromkeys(self._supply, 0.0)
        total = 0
        for demand, count in pods.items():
            amount = demand.total * count
            total += amount
            allowed = [model for model in demand.models if model in self._supply]
            if not allowed or len(allowed) == len(self._supply):
                continue
            supply = sum(self._supply[model] for model in allowed)
            for model in allowed:
                asked[model] += amount * self._supply[model] / supply
        for model in self._supply:
            self.models[model]
        found = np.zeros(len(self.models) + 1)
        if total:
            scale = sum(self._supply.values()) / total
            for model, restricted in asked.items():
                found[self.models[model]] = min(restricted * scale / self._supply[model], MOST_SCARCE)
        return found

    # -- scoring

    def nodes(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        if demand.shared:
            best: Ints = np.where(rooms.free >= demand.milli, self.devices(rooms, demand), 0).max(axis=1)
            return best
        scores = super().nodes(rooms, demand)
        if not demand.devices:
            return scores
        points = np.rint(self._scarce(rooms) * POINTS).astype(np.int64)
        return scores + MAX_SCORE - points

    def devices(self, rooms: NodeRooms, demand: PodDemand) -> Ints:
        rest = np.maximum(rooms.free - demand.milli, 0)
        cost = self._worth.take(rooms.free) - self._worth.take(rest) + UNUSED * (rooms.free == WHOLE)
        steps = np.rint((cost + self._scarce(rooms)[:, None]) / STEP).astype(np.int64)
        scores: Ints = (COSTLIEST - steps) * (MAX_SCORE + 1) + super().devices(rooms, demand)
        return scores

    def _scarce(self, rooms: NodeRooms) -> Floats:
        """[node] in devices"""
        # Models that were not known when prices were computed are as scarce as none.
        known = len(self._scarcity) - 1
        return SCARCE * self._scarcity.take(np.minimum(rooms.model, known))
