"""Replica division: divides a number of replicas over the selected clusters (our extension, by annotation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from wharfinger.api.wording import listed
from wharfinger.systems.placement.rules.extras import Replicas
from wharfinger.systems.placement.rules.fleet import Fleet
from wharfinger.systems.placement.rules.plan import RESOURCES

_NAMED = 10  # clusters in a message


def divide(setting: Replicas, weights: Sequence[tuple[str, Fraction]]) -> dict[str, int]:
    """Each cluster's share. `weights` maps the clusters, best first, to their weights.

    Weighted shares are proportional, rounded by largest remainder. Aggregated fills the best cluster up to
    `maxPerCluster` before the next, so that as few clusters as possible are used.
    """
    shares = dict.fromkeys((name for name, _ in weights), 0)
    left = setting.total
    limit = setting.total if setting.max_per_cluster is None else setting.max_per_cluster
    for name in shares:
        shares[name] = min(setting.min_per_cluster, limit, left)
        left -= shares[name]
    if setting.strategy == "Aggregated":
        for name in shares:
            more = min(limit - shares[name], left)
            shares[name] += more
            left -= more
        return shares
    # What exceeds a cluster's maximum is redistributed over the others, until nothing is left or all are full.
    open_weights = {name: weight for name, weight in weights if weight > 0}
    while left and open_weights:
        room = {name: limit - shares[name] for name in open_weights}
        for name, share in _proportional(left, open_weights).items():
            taken = min(share, room[name])
            shares[name] += taken
            left -= taken
        open_weights = {name: weight for name, weight in open_weights.items() if shares[name] < limit}
    return shares


def shortfall(setting: Replicas, shares: Mapping[str, int]) -> tuple[str, str]:
    """Why the shares are not what was asked for, as a reason and a message; empty strings if they are."""
    left = setting.total - sum(shares.values())
    few = [name for name, share in shares.items() if share < setting.min_per_cluster]
    if left:
        limit = setting.max_per_cluster
        what = f"{left} of {setting.total} replicas fit on no cluster"
        if not shares:
            return "NoClusterSelected", f"{what}: none is selected"
        if limit is not None and all(share >= limit for share in shares.values()):
            return "ClustersFull", f"{what}: all selected clusters have {limit}, the maximum"
        full = "" if limit is None else f", or the maximum of {limit}"
        return "NoWeight", f"{what}: all selected clusters have the weight 0{full}"
    if few:
        return (
            "BelowMinimum",
            f"{setting.total} replicas are not enough for {setting.min_per_cluster} on each cluster: "
            + listed([f"{name} has {shares[name]}" for name in few], _NAMED),
        )
    return "", ""


def _proportional(total: int, weights: Mapping[str, Fraction]) -> dict[str, int]:
    whole = sum(weights.values(), Fraction(0))
    exact = {name: total * weight / whole for name, weight in weights.items()}
    shares = {name: int(share) for name, share in exact.items()}
    rest = total - sum(shares.values())
    by_remainder = sorted(exact, key=lambda name: shares[name] - exact[name])  # stable: the better cluster first
    for name in by_remainder[:rest]:
        shares[name] += 1
    return shares


def weights_of(
    setting: Replicas, fleet: Fleet, selected: Sequence[int], totals: Mapping[int, int]
) -> list[tuple[str, Fraction]]:
    """The weight of each selected cluster, best first."""
    amounts: dict[int, Fraction] = dict.fromkeys(selected, Fraction(1))
    if setting.weight_by == "Score":
        # Scores can be negative: the worst selected cluster gets weight 1, the others their lead plus 1.
        lowest = min((totals[row] for row in selected), default=0)
        amounts = {row: Fraction(totals[row] - lowest + 1) for row in selected}
    elif setting.weight_by != "Equal":
        values, _ = fleet.allocatable(RESOURCES[f"Resource{setting.weight_by}"])
        amounts = {row: Fraction(float(values[row])) for row in selected}
    return [
        (fleet.names[row], Fraction(setting.weights.get(fleet.names[row], 0)) if setting.weights else amounts[row])
        for row in selected
    ]
