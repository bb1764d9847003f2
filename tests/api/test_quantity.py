"""Quantities are exact, and round as upstream's Quantity does."""

import pytest

from wharfinger.api.quantity import BadQuantity, canonical, milli_value, parse_nano, value


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        ("0", 0, 0),
        ("100m", 1, 100),
        ("1", 1, 1000),
        ("1.5", 2, 1500),
        ("0.1", 1, 100),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("1Ki", 1024, 1024000),
        ("1.5Gi", 1610612736, 1610612736000),
        ("2e3", 2000, 2000000),
        ("12E2", 1200, 1200000),
        ("3E", 3 * 10**18, 3 * 10**21),
        ("1n", 1, 1),
        ("-500m", -1, -500),
        ("1u", 1, 1),
        (2, 2, 2000),
        (0.25, 1, 250),
    ],
)
def test_values_round_away_from_zero(text: str, whole: int, milli: int) -> None:
    assert (value(text), milli_value(text)) == (whole, milli)


@pytest.mark.parametrize("text", ["", "m", "1x", "1 Gi", "1e", "--1", "1.2.3", "0x10", "1KI", "Gi", "1ee3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity):
        parse_nano(text)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("100e1", "1e3"),
        ("0.00001", "10u"),
        ("-1000m", "-1"),
        ("0Gi", "0"),
    ],
)
def test_canonical_form_is_what_an_api_server_stores(text: str, stored: str) -> None:
    assert canonical(text) == stored
