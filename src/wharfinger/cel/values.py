"""The types that Kubernetes adds to CEL (quantity, semver, ip, cidr, url, format), represented as maps.

Python objects cannot be CEL values, so each value is a map with its type as the only key. Equal values have equal maps, which
makes `==` work. Functions raise ValueError, which becomes an evaluation error.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from wharfinger.api import names
from wharfinger.api.quantity import NANO, BadQuantity, parse_nano
from wharfinger.api.times import BadTime, parse_time

Tagged = dict[str, Any]

_QUANTITY, _SEMVER, _IP, _CIDR, _URL, _FORMAT = "quantity", "semver", "ip", "cidr", "url", "format"


def _unwrap(value: Tagged, tag: str) -> Any:
    if len(value) != 1 or tag not in value:
        raise ValueError(f"no such overload: want a {tag}")
    return value[tag]


def _succeeds(make: Callable[..., Any]) -> Callable[..., bool]:
    def check(*arguments: Any) -> bool:
        try:
            make(*arguments)
        except ValueError:
            return False
        return True

    return check


# Quantities


def quantity(text: str) -> Tagged:
    try:
        return {_QUANTITY: str(parse_nano(text))}
    except BadQuantity as error:
        raise ValueError(str(error)) from None


is_quantity = _succeeds(quantity)


def _nano(value: Tagged) -> int:
    return int(_unwrap(value, _QUANTITY))


def sign(value: Tagged) -> int:
    nano = _nano(value)
    return (nano > 0) - (nano < 0)


def is_integer(value: Tagged) -> bool:
    nano = _nano(value)
    return nano % NANO == 0 and -(1 << 63) <= nano // NANO < 1 << 63


def as_integer(value: Tagged) -> int:
    if not is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nano(value) // NANO


def as_approximate_float(value: Tagged) -> float:
    return _nano(value) / NANO


def add(value: Tagged, other: Tagged) -> Tagged:
    return {_QUANTITY: str(_nano(value) + _nano(other))}


def add_int(value: Tagged, other: int) -> Tagged:
    return {_QUANTITY: str(_nano(value) + other * NANO)}


def sub(value: Tagged, other: Tagged) -> Tagged:
    return {_QUANTITY: str(_nano(value) - _nano(other))}


def sub_int(value: Tagged, other: int) -> Tagged:
    return {_QUANTITY: str(_nano(value) - other * NANO)}


# Semantic versions

_SEMVER_SYNTAX = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?"
)


def semver(text: str) -> Tagged:
    if _SEMVER_SYNTAX.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return {_SEMVER: text}


def semver_normalized(text: str, normalize: bool) -> Tagged:
    """With `normalize`, removes a leading `v` and leading zeros, and adds missing minor and patch versions."""
    if not normalize:
        return semver(text)
    body = text.strip().removeprefix("v")
    core, mark, rest = body, "", ""
    for position, letter in enumerate(body):
        if letter in "-+":
            core, mark, rest = body[:position], letter, body[position + 1 :]
            break
    parts = core.split(".")
    if len(parts) > 3 or not all(re.fullmatch(r"[0-9]+", part) for part in parts):
        raise ValueError(f"{text!r} is not a semantic version")
    numbers = [str(int(part)) for part in parts] + ["0"] * (3 - len(parts))
    return semver(".".join(numbers) + mark + rest)


is_semver = _succeeds(semver)
is_semver_normalized = _succeeds(semver_normalized)


def _version(value: Tagged) -> tuple[Any, ...]:
    """Sort key by precedence: pre-releases before the release, numeric identifiers before others; the build is ignored."""
    match = _SEMVER_SYNTAX.fullmatch(_unwrap(value, _SEMVER))
    assert match is not None
    numbers = (int(match[1]), int(match[2]), int(match[3]))
    if match[4] is None:
        return (*numbers, 1, ())
    marks = tuple(
        (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part) for part in match[4].split(".")
    )
    return (*numbers, 0, marks)


def major(value: Tagged) -> int:
    return int(_version(value)[0])


def minor(value: Tagged) -> int:
    return int(_version(value)[1])


def patch(value: Tagged) -> int:
    return int(_version(value)[2])


def compare(value: Tagged, other: Tagged) -> int:
    """`compareTo` of two quantities or of two versions."""
    if _SEMVER in value:
        left, right = _version(value), _version(other)
        return (left > right) - (left < right)
    difference = _nano(value) - _nano(other)
    return (difference > 0) - (difference < 0)


def is_greater(value: Tagged, other: Tagged) -> bool:
    return compare(value, other) > 0


def is_less(value: Tagged, other: Tagged) -> bool:
    return compare(value, other) < 0


# IP addresses and networks


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if "%" in text:
        raise ValueError(f"IP Address with zone value {text!r} is not allowed")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


def ip(text: str) -> Tagged:
    return {_IP: str(_address(text))}


is_ip = _succeeds(ip)


def ip_is_canonical(text: str) -> bool:
    return str(_address(text)) == text


def _ip(value: Tagged) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(_unwrap(value, _IP))


def family(value: Tagged) -> int:
    return _ip(value).version


def is_unspecified(value: Tagged) -> bool:
    return _ip(value).is_unspecified


def is_loopback(value: Tagged) -> bool:
    return _ip(value).is_loopback


_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def is_link_local_multicast(value: Tagged) -> bool:
    address = _ip(value)
    if isinstance(address, ipaddress.IPv6Address):
        return int(address) >> 112 & 0xFF0F == 0xFF02
    return address in _LINK_LOCAL_MULTICAST[0]


def is_link_local_unicast(value: Tagged) -> bool:
    address = _ip(value)
    return address.is_link_local and not address.is_multicast


def is_global_unicast(value: Tagged) -> bool:
    """Like Go's netip: all but the special addresses; private addresses are global."""
    address = _ip(value)
    if isinstance(address, ipaddress.IPv4Address) and address == ipaddress.IPv4Address("255.255.255.255"):
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or is_link_local_unicast(value))


def cidr(text: str) -> Tagged:
    host, slash, length = text.partition("/")
    address = _address(host)
    if not slash or not re.fullmatch(r"0|[1-9][0-9]*", length) or int(length) > address.max_prefixlen:
        raise ValueError(f"{text!r} is not a network address")
    return {_CIDR: f"{address}/{length}"}


is_cidr = _succeeds(cidr)


def _interface(value: Tagged) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    return ipaddress.ip_interface(_unwrap(value, _CIDR))


def contains_ip(value: Tagged, address: Tagged) -> bool:
    return _ip(address) in _interface(value).network


def contains_ip_text(value: Tagged, address: str) -> bool:
    return _address(address) in _interface(value).network


def contains_cidr(value: Tagged, other: Tagged) -> bool:
    outer, inner = _interface(value).network, _interface(other).network
    if isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(outer, ipaddress.IPv6Network) and isinstance(inner, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def contains_cidr_text(value: Tagged, other: str) -> bool:
    return contains_cidr(value, cidr(other))


def cidr_ip(value: Tagged) -> Tagged:
    return {_IP: str(_interface(value).ip)}


def masked(value: Tagged) -> Tagged:
    return {_CIDR: str(_interface(value).network)}


def prefix_length(value: Tagged) -> int:
    return _interface(value).network.prefixlen


# URLs


def url(text: str) -> Tagged:
    parts = urlsplit(text)
    if not (text.startswith("/") or (parts.scheme and (parts.netloc or parts.path))) or " " in text.split("?")[0]:
        raise ValueError(f"URL parse error: {text!r} is neither absolute nor a path")
    _ = parts.port  # raises on a port that is not a number
    return {_URL: text}


is_url = _succeeds(url)


def _url(value: Tagged) -> Any:
    return urlsplit(_unwrap(value, _URL))


def get_scheme(value: Tagged) -> str:
    return str(_url(value).scheme)


def get_host(value: Tagged) -> str:
    return str(_url(value).netloc).rpartition("@")[2]


def get_hostname(value: Tagged) -> str:
    host = get_host(value)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def get_port(value: Tagged) -> str:
    port = _url(value).port
    return "" if port is None else str(port)


def get_escaped_path(value: Tagged) -> str:
    return str(_url(value).path)


def get_query(value: Tagged) -> dict[str, list[str]]:
    return parse_qs(str(_url(value).query), keep_blank_values=True)


# Named formats

_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BYTES = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _pattern(pattern: re.Pattern[str], what: str) -> Callable[[str], list[str]]:
    return lambda text: [] if pattern.fullmatch(text) else [f"does not match the {what} format"]


def _date_time(text: str) -> list[str]:
    try:
        parse_time(text)
    except BadTime as error:
        return [str(error)]
    return []


def _uri(text: str) -> list[str]:
    return [] if is_url(text) else ["invalid URI format"]


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A check of generateName prefixes, which may end with a dash."""
    return lambda text: check(text[:-1] + "a" if text.endswith("-") else text)


def _dns1035(text: str) -> list[str]:
    faults = names.dns_label(text)
    return faults if faults or text[:1].isalpha() else ["must start with a letter"]


FORMATS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": names.dns_label,
    "dns1123Subdomain": names.dns_subdomain,
    "dns1035Label": _dns1035,
    "dns1123LabelPrefix": _prefix(names.dns_label),
    "dns1123SubdomainPrefix": _prefix(names.dns_subdomain),
    "dns1035LabelPrefix": _prefix(_dns1035),
    "qualifiedName": names.qualified_name,
    "labelValue": names.label_value,
    "uri": _uri,
    "uuid": _pattern(_UUID, "UUID"),
    "byte": _pattern(_BYTES, "base64"),
    "date": _pattern(_DATE, "date"),
    "datetime": _date_time,
}


def named_format(name: str) -> Tagged:
    return {_FORMAT: name}


def validate(value: Tagged, text: str) -> Tagged:
    """An optional list of errors; `hasValue()` is true if there are any."""
    return {"faults": FORMATS[_unwrap(value, _FORMAT)](text)}


def has_value(value: Tagged) -> bool:
    return bool(_unwrap(value, "faults"))


def optional_value(value: Tagged) -> list[str]:
    faults = _unwrap(value, "faults")
    if not faults:
        raise ValueError("optional.none() dereference")
    return list(faults)


def escape_key(key: str) -> str:
    """A key as it is written in the path of a JSON patch."""
    return key.replace("~", "~0").replace("/", "~1")
