"""Checks that many kinds share, and `checked`, which runs the rules of a kind after its type checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, invalid, not_supported, required
from wharfinger.api.numbers import parse_uint64
from wharfinger.api.quantity import canonical, milli_value, parse_nano
from wharfinger.api.registry import Document, ValidateFn
from wharfinger.api.schema.tree import builtin_schema
from wharfinger.api.schema.type_errors import type_errors

MAX_INT32 = 2147483647
NOT_NEGATIVE = "must be greater than or equal to 0"

Rules = Callable[[Document, Document | None], Iterable[FieldError]]


def checked(
    api_version: str, kind: str, rules: Rules | None = None, known: Callable[[Document], bool] | None = None
) -> ValidateFn:
    """Validation of a built-in kind: the types of its fields, then, if these are right, its rules.

    `known` tells whether the spec of a new document was validated before.
    """
    group, _, version = api_version.rpartition("/")

    def faults(document: Document, old: Document | None) -> list[FieldError]:
        schema = builtin_schema(group, version, kind)
        assert schema is not None, f"{api_version} {kind} has no schema"
        changed = document
        if old is not None:
            # The unchanged part was checked before.
            changed = {key: item for key, item in document.items() if key not in old or old[key] != item}
        elif known is not None and known(document):
            changed = {key: item for key, item in document.items() if key != "spec"}
        errors = type_errors(schema, changed)
        if not errors and rules is not None:
            errors = list(rules(document, old))
        return errors

    return faults


def one_of(value: str | None, choices: Sequence[str], path: str, *, empty: bool = False) -> Iterator[FieldError]:
    """The value must be one of `choices`, or absent if `empty` allows that."""
    if not value:
        if not empty:
            yield required(path)
    elif value not in choices:
        yield not_supported(path, value, choices)


def not_negative(value: int | None, path: str) -> Iterator[FieldError]:
    if value is not None and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)


def positive(value: int | None, path: str) -> Iterator[FieldError]:
    if value is None or value <= 0:
        yield invalid(path, value or 0, "must be greater than zero")


def quantity_faults(value: str | int | float, path: str, *, whole: bool = False) -> Iterator[FieldError]:
    if parse_nano(value) < 0:
        yield invalid(path, canonical(value), NOT_NEGATIVE)
    if whole and milli_value(value) % 1000:
        yield invalid(path, value, "must be an integer")


def int_or_percent_faults(value: int | str | None, path: str) -> Iterator[FieldError]:
    """A count or a percentage, not negative."""
    if isinstance(value, str):
        if not (value.endswith("%") and value[:-1].isascii() and value[:-1].isdigit()):
            yield invalid(path, value, "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")  # fmt: skip
    elif value is not None and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)


def percent_of(value: int | str | None) -> int | None:
    """The number of a percentage; None for anything else."""
    if isinstance(value, str) and value.endswith("%"):
        return parse_uint64(value[:-1])
    return None


def port_faults(port: int, path: str) -> Iterator[FieldError]:
    if not 1 <= port <= 65535:
        yield invalid(path, port, "must be between 1 and 65535, inclusive")


def name_faults(check_name: Callable[[str], list[str]], value: Any, path: str) -> Iterator[FieldError]:
    for fault in check_name(value):
        yield invalid(path, value, fault)


def unique_name_faults(
    check_name: Callable[[str], list[str]], name: str, path: str, seen: set[str]
) -> Iterator[FieldError]:
    """Faults of the name of a list item; `seen` has the names of the items before it."""
    if not name:
        yield required(path)
        return
    yield from name_faults(check_name, name, path)
    if name in seen:
        yield duplicate(path, name)
    seen.add(name)


def port_name_faults(name: str) -> list[str]:
    faults = []
    if len(name) > 15:
        faults.append("must be no more than 15 characters")
    if not re.fullmatch(r"[-a-z0-9]+", name):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", name):
        faults.append("must contain at least one letter (a-z)")
    if "--" in name:
        faults.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return faults


_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))


def unreachable_faults(address: IPv4Address | IPv6Address, text: str, path: str) -> Iterator[FieldError]:
    """Addresses that lead nowhere from another machine; `text` is the address as it was given."""
    if address.is_unspecified:
        yield invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        yield invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        yield invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(address in network for network in _LINK_LOCAL_MULTICAST if network.version == address.version):
        yield invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
