"""What the rest of a device is worth: prices of shares, from how often shares of which size are asked for.

Packing shares onto as few devices as possible is the cutting-stock problem. Its linear relaxation says how many devices
are filled by which pattern of shares; the dual solution gives each size a price, in devices. Half a device costs a half
if two of them go together, a whole one if nothing else fits beside it, and nothing if it always finds a gap that would stay
empty otherwise. A rest is worth the dearest shares that fit into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from wharfinger.framework.columns import Floats
from wharfinger.plugins.device_packing.rooms import WHOLE

_CLOSE = 1e-9
_MOST_STEPS = 1000  # of the simplex method; a few dozen are usual


def share_prices(counts: Mapping[int, int]) -> dict[int, float]:
    """The price of each size of a share, in devices, given how many shares of it there are."""
    sizes = sorted(size for size, count in counts.items() if count > 0)
    if not sizes:
        return {}
    wanted = np.array([counts[size] for size in sizes], dtype=np.float64)
    patterns = np.diag([float(WHOLE // size) for size in sizes])  # [size, pattern]; at first one size each
    costs = np.ones(len(sizes))  # devices of each pattern; none for one that only takes a share away
    prices = np.zeros(len(sizes))
    for _ in range(_MOST_STEPS):
        inverse = np.linalg.inv(patterns)
        prices = costs @ inverse
        entering = np.zeros(len(sizes))
        cheapest = int(prices.argmin())
        if prices[cheapest] < -_CLOSE:
            entering[cheapest], cost = -1.0, 0.0
        else:
            worth, entering = _best_pattern(sizes, prices.tolist())
            cost = 1.0
            if worth <= 1 + _CLOSE:
                break
        change = inverse @ entering
        used = inverse @ wanted
        leaving = np.where(change > _CLOSE, used / np.maximum(change, _CLOSE), np.inf)
        place = int(leaving.argmin())
        patterns[:, place], costs[place] = entering, cost
    return dict(zip(sizes, np.maximum(prices, 0.0).tolist(), strict=True))


def values_of_rests(prices: Mapping[int, float]) -> Floats:
    """[thousandths left] what the rest of a device is worth, in devices. An unused device is worth one."""
    values, _, unit = _filled(list(prices), list(prices.values()))
    worth: Floats = np.minimum(np.array(values)[np.arange(WHOLE + 1) // unit], 1.0)
    worth[WHOLE] = 1.0
    return worth


def _best_pattern(sizes: Sequence[int], prices: Sequence[float]) -> tuple[float, Floats]:
    """The dearest shares that fit on one device: what they cost together, and how many of each size."""
    values, last, unit = _filled(sizes, prices)
    found = np.zeros(len(sizes))
    room = len(values) - 1
    while room > 0:
        index = last[room]
        if index < 0:
            room -= 1
        else:
            found[index] += 1
            room -= sizes[index] // unit
    return values[-1], found


def _filled(sizes: Sequence[int], prices: Sequence[float]) -> tuple[list[float], list[int], int]:
    """For every room up to a whole device, in units: the price of the dearest shares that fit, and one of them (-1: a unit
    stays empty)."""
    unit = gcd(WHOLE, *sizes)
    priced = [(size // unit, price, index) for index, (size, price) in enumerate(zip(sizes, prices, strict=True))]
    priced = [each for each in priced if each[1] > _CLOSE]
    values, last = [0.0], [-1]
    for room in range(1, WHOLE // unit + 1):
        best, chosen = values[room - 1], -1
        for size, price, index in priced:
            if size <= room and values[room - size] + price > best + _CLOSE:
                best, chosen = values[room - size] + price, index
        values.append(best)
        last.append(chosen)
    return values, last, unit
