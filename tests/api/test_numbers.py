"""Numbers in text: ASCII digits and a sane length, wherever a user writes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wharfinger.api.cron import BadSchedule, parse_schedule
from wharfinger.api.numbers import parse_int64, parse_uint64
from wharfinger.api.quantity import BadQuantity, canonical, parse_nano
from wharfinger.api.times import BadTime, parse_duration, parse_time
from wharfinger.api.validation.common import percent_of
from wharfinger.apiserver.options import list_options
from wharfinger.apiserver.request_info import QueryParameters
from wharfinger.cel import values as cel_values
from wharfinger.controllers.int_or_percent import scaled
from wharfinger.controllers.job.indexes import Indexes
from wharfinger.store.lists import parse_version

OTHER_DIGITS = ("१", "٣", "１", "²", "𝟙")  # Devanagari, Arabic, full-width, superscript, mathematical


def _refused(read: Callable[[str], Any]) -> Callable[[str], bool]:
    """Whether the text is refused with an error that callers handle."""

    def check(text: str) -> bool:
        try:
            return read(text) is None
        except (BadQuantity, BadTime, BadSchedule):
            return True
        except ValueError as error:
            return type(error) is ValueError and "int string conversion" not in str(error)
        except Exception as error:
            return getattr(error, "code", 0) in (400, 422)

    return check


READERS: dict[str, Callable[[str], Any]] = {
    "int64": parse_int64,
    "uint64": parse_uint64,
    "quantity": parse_nano,
    "exponent": lambda text: parse_nano(f"1e{text}"),
    "fraction": lambda text: parse_nano(f"1.{text}"),
    "duration": lambda text: parse_duration(f"{text}s"),
    "time": lambda text: parse_time(f"202{text}-01-01T00:00:00Z"),
    "schedule": lambda text: parse_schedule(f"{text} * * * *"),
    "percentage": lambda text: percent_of(f"{text}%"),
    "part of a count": lambda text: scaled(f"{text}%", 10, round_up=True),
    "resource version": parse_version,
    "limit": lambda text: _query("limit", text),
    "timeout": lambda text: _query("timeoutSeconds", text),
    "version of a list": lambda text: _list_version(text),
    "semantic version": lambda text: cel_values.semver(f"1.{text}.0"),
    "normalized version": lambda text: cel_values.semver_normalized(text, True),
    "prefix length": lambda text: cel_values.cidr(f"10.0.0.0/{text}"),
}


def _query(name: str, text: str) -> Any:
    from urllib.parse import quote

    return QueryParameters(f"{name}={quote(text)}".encode()).number(name)


def _list_version(text: str) -> Any:
    from urllib.parse import quote

    return list_options(QueryParameters(f"resourceVersion={quote(text)}".encode()), watch=False)


@pytest.mark.parametrize("digit", OTHER_DIGITS)
@pytest.mark.parametrize("reader", READERS)
def test_digits_of_other_scripts_are_refused(reader: str, digit: str) -> None:
    assert _refused(READERS[reader])(digit)
    assert _refused(READERS[reader])(f"1{digit}")


@pytest.mark.parametrize("reader", ["int64", "uint64", "schedule", "percentage", "resource version", "limit"])
def test_numbers_that_no_type_holds_are_refused(reader: str) -> None:
    assert _refused(READERS[reader])("9" * 25)
    assert _refused(READERS[reader])("9" * 100_000)


def test_malformed_indexes_are_ignored() -> None:
    assert Indexes.parse("0,²,१-३,2-3", 10).intervals == ((0, 0), (2, 3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9" * 100_000, "9223372036854775807"),
        ("-" + "9" * 100_000, "-9223372036854775807"),
        ("0" * 100_000 + "5", "5"),
        ("0." + "0" * 100_000 + "1", "1n"),
        ("1." + "0" * 100_000, "1"),
        ("1." + "0" * 100_000 + "1", "1000000001n"),
        ("1" * 200 + "e-195", "11111111111112e-9"),
    ],
)
def test_long_quantities_are_capped_and_rounded_away_from_zero(text: str, expected: str) -> None:
    assert canonical(text) == expected
