"""What selectors cost at most: the numbers of cel-go in the environment of Kubernetes 1.37.1 (`selector-costs-1.37.1.json`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wharfinger.devices.expression_cost import worst_cost
from wharfinger.devices.selectors import _checking, device_selector

COSTS: dict[str, int] = json.loads((Path(__file__).parent / "selector-costs-1.37.1.json").read_text())
_UNBOUNDED = 1 << 58  # cel-go multiplies the largest number by factors below one


@pytest.mark.parametrize("text", COSTS)
def test_costs_are_those_of_cel_go(text: str) -> None:
    cost = worst_cost(_checking().compile(text).checked)
    assert cost == COSTS[text] or (COSTS[text] >= _UNBOUNDED and cost >= _UNBOUNDED)
    assert device_selector(text).is_too_complex() is (COSTS[text] > 1_000_000)


def test_a_deeply_nested_expression_is_estimated() -> None:
    text = "(" * 20 + "device.driver == 'a'" + " && true)" * 20
    assert worst_cost(_checking().compile(text).checked) == 3
