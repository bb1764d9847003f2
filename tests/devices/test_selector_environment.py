"""Which expressions compile as selectors of devices: those that do in Kubernetes 1.37."""

from __future__ import annotations

import pytest
from tests.devices.selector_expressions import ACCEPTED, ACCEPTED_ELSEWHERE, REFUSED

from wharfinger.devices.selectors import BadSelectorExpression, device_selector
from wharfinger.devices.slices import DeviceContent


@pytest.mark.parametrize("text", ACCEPTED)
def test_it_compiles(text: str) -> None:
    assert not device_selector(text).is_too_complex()


@pytest.mark.parametrize("text", [*REFUSED, *ACCEPTED_ELSEWHERE])
def test_it_does_not_compile(text: str) -> None:
    with pytest.raises(BadSelectorExpression):
        device_selector(text)


def test_the_maps_of_a_device_are_always_there() -> None:
    bare = DeviceContent("d.io", False, {}, {})
    assert device_selector("has(device.attributes) && has(device.capacity)").matches(bare)
    assert not device_selector("!has(device.attributes)").matches(bare)


def test_numbers_of_different_types_are_compared_by_value() -> None:
    device = DeviceContent("d.io", False, {"a": {"int": 3}}, {"memory": {"value": "1500m"}})
    assert device_selector('device.capacity["d.io"].memory.asApproximateFloat() < 2').matches(device)
    assert device_selector('device.attributes["d.io"].a > 2.5 && 3.5 > 3').matches(device)
