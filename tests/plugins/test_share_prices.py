"""Prices of shares: the dual solution of packing them onto as few devices as possible."""

from __future__ import annotations

import numpy as np
import pytest

from wharfinger.plugins.device_packing.pricing import share_prices, values_of_rests


@pytest.mark.parametrize(
    ("counts", "prices"),
    [
        ({}, {}),
        ({500: 10}, {500: 0.5}),
        ({810: 100}, {810: 1.0}),
        ({340: 9}, {340: 0.5}),
        # Few small ones find gaps that are there anyway.
        ({810: 100, 190: 10}, {810: 1.0, 190: 0.0}),
        # Many do not: those that are left fill devices of their own.
        ({810: 10, 190: 1000}, {810: 0.8, 190: 0.2}),
        ({600: 10, 400: 20}, {600: 0.5, 400: 0.5}),
        ({600: 20, 400: 10}, {600: 1.0, 400: 0.0}),
    ],
)
def test_prices_follow_from_what_goes_together(counts: dict[int, int], prices: dict[int, float]) -> None:
    assert share_prices(counts) == pytest.approx(prices)


@pytest.mark.parametrize("seed", range(20))
def test_no_device_is_worth_more_than_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.choice(np.arange(1, 100), 12, replace=False) * 10
    counts = {int(size): int(count) for size, count in zip(sizes, random.integers(1, 500, 12), strict=True)}

    prices = share_prices(counts)
    worth = values_of_rests(prices)

    assert all(price >= 0 for price in prices.values())
    assert worth[0] == 0
    assert worth[1000] == 1
    assert (np.diff(worth) >= 0).all()
    # Weak duality: the prices of all shares are at most the devices that any packing takes, here first fit.
    bins: list[int] = []
    for size in sorted(counts, reverse=True):
        for _ in range(counts[size]):
            place = next((index for index, left in enumerate(bins) if left >= size), None)
            if place is None:
                bins.append(1000)
                place = len(bins) - 1
            bins[place] -= size
    total = sum(prices[size] * count for size, count in counts.items())
    assert total <= len(bins) + 1e-6
    assert total >= sum(size * count for size, count in counts.items()) / 1000 - 1e-6  # and more than what they take
