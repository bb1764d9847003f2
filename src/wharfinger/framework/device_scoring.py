"""Device scores: which devices of a node a pod gets. Upstream has no such extension point: there, the first that fit."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.devices.allocator import DeviceRanking
from wharfinger.devices.claims import DeviceRequest
from wharfinger.devices.pools import CandidateDevice


class DeviceScorer:
    """How good devices are for the pods of one shape."""

    def scores(self, row: int, request: DeviceRequest, devices: Sequence[CandidateDevice]) -> Sequence[int]:
        """A number for each of the devices of a row, of which more is better. Devices that cannot serve the request may
        get any."""
        raise NotImplementedError


WeightedScorers = Sequence[tuple[DeviceScorer, int]]


def ranking(scorers: WeightedScorers, row: int) -> DeviceRanking:
    """Puts the devices of a row in the order in which a request should try them; equal ones stay in their order."""

    def ranked(request: DeviceRequest, devices: Sequence[CandidateDevice]) -> Sequence[CandidateDevice]:
        totals = [0] * len(devices)
        for scorer, weight in scorers:
            for index, score in enumerate(scorer.scores(row, request, devices)):
                totals[index] += weight * score
        return [devices[index] for index in sorted(range(len(devices)), key=totals.__getitem__, reverse=True)]

    return ranked
