"""Warnings that several kinds share: deprecated node labels, addresses, fractions of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any

from wharfinger.api.names import label_value
from wharfinger.api.quantity import canonical, milli_value
from wharfinger.api.registry import Document

_OCTET = re.compile(r"[0-9]{1,4}")


_DEPRECATED_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}


def deprecated_label(key: Any) -> str | None:
    return _DEPRECATED_LABELS.get(key)


def node_term_warnings(term: Document, path: str, *, values: bool) -> Iterator[str]:
    """Warnings about a node selector term; `values`: also about values that are not valid label values."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        at, key = f"{path}.matchExpressions[{index}]", expression.get("key", "")
        if why := deprecated_label(key):
            yield f"{at}.key: {key} is {why}"
        for number, value in enumerate(expression.get("values") or ()) if values else ():
            for why in label_value(value):
                yield f"{at}.values[{number}]: {value} is invalid, {why}"


def fraction_warnings(quantities: Document | None, names: tuple[str, ...], path: str) -> Iterator[str]:
    for name in names:
        quantity = (quantities or {}).get(name)
        if quantity is not None and milli_value(quantity) % 1000:
            shown = canonical(quantity)
            yield f'{path}[{name}]: fractional byte value "{shown}" is invalid, must be an integer'


def address_warnings(value: Any, path: str) -> Iterator[str]:
    """Warnings about an address that only older releases accept."""
    if not isinstance(value, str):
        return
    if ":" not in value:
        parts = value.split(".")
        if len(parts) == 4 and all(_OCTET.fullmatch(part) and int(part) < 256 for part in parts):
            plain = ".".join(str(int(part)) for part in parts)
            if plain != value:
                yield f'{path}: non-standard IP address "{value}" is invalid: use "{plain}"'
        return
    try:
        address = IPv6Address(value)
    except AddressValueError:
        return
    if address.ipv4_mapped is not None:
        plain = str(IPv4Address(address.ipv4_mapped))
        yield f'{path}: non-standard IP address "{value}" is invalid: use "{plain}"'
    elif str(address) != value:
        yield f'{path}: IPv6 address "{value}" should be in RFC 5952 canonical format ("{address}")'


def annotations_of(document: Document) -> Document:
    found: Document = document["metadata"].get("annotations") or {}
    return found
