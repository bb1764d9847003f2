"""Validation of Endpoints and EndpointSlices."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from wharfinger.api.fields import FieldError, duplicate, immutable, invalid, not_supported, required, too_many
from wharfinger.api.names import dns_label, dns_subdomain, label_value, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import one_of, port_faults, unreachable_faults
from wharfinger.api.validation.selectors import each

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MAX_ENDPOINTS, _MAX_ADDRESSES, _MAX_PORTS, _MAX_HINTS = 1000, 100, 20000, 8
_NOT_AN_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def endpoints_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    if old is not None and document.get("subsets") == old.get("subsets"):
        return
    for index, subset in each(document, "subsets"):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(path, "must specify `addresses` or `notReadyAddresses`")
        for group in ("addresses", "notReadyAddresses"):
            for position, address in each(subset, group):
                yield from _address_faults(address, f"{path}.{group}[{position}]")
        several = len(subset.get("ports") or ()) > 1
        for position, port in each(subset, "ports"):
            here, name = f"{path}.ports[{position}]", port.get("name") or ""
            if several and not name:
                yield required(f"{here}.name")
            elif name:
                yield from (invalid(f"{here}.name", name, fault) for fault in dns_label(name))
            yield from port_faults(port.get("port") or 0, f"{here}.port")
            yield from _protocol_faults(port, here)


def _address_faults(address: Document, path: str) -> Iterator[FieldError]:
    text = address.get("ip") or ""
    if _parsed(text) is None:
        yield invalid(f"{path}.ip", text, _NOT_AN_IP)
    if hostname := address.get("hostname"):
        yield from (invalid(f"{path}.hostname", hostname, fault) for fault in dns_label(hostname))
    yield from _node_faults(address.get("nodeName"), f"{path}.nodeName")
    yield from endpoint_ip_faults(text, f"{path}.ip")


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def endpoint_ip_faults(text: str, path: str) -> Iterator[FieldError]:
    """Addresses that lead nowhere from another machine."""
    address = _parsed(text)
    if address is None:
        yield invalid(path, text, "must be a valid IP address")
        return
    yield from unreachable_faults(address, text, path)


def _node_faults(name: str | None, path: str) -> Iterator[FieldError]:
    if name is not None:
        yield from (invalid(path, name, fault) for fault in dns_subdomain(name))


def _protocol_faults(port: Document, path: str) -> Iterator[FieldError]:
    protocol = port.get("protocol") or ""
    if not protocol:
        yield required(f"{path}.protocol")
    elif protocol not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
    if (app := port.get("appProtocol")) is not None:
        yield from (invalid(f"{path}.appProtocol", app, fault) for fault in qualified_name(app))


def endpoint_slice_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    kind = document.get("addressType")
    yield from one_of(kind, ("FQDN", "IPv4", "IPv6"), "addressType")
    yield from _slice_port_faults(document.get("ports") or ())
    if old is None or document.get("endpoints") != old.get("endpoints"):
        yield from _slice_endpoint_faults(document.get("endpoints") or (), kind or "")
    if old is not None and kind != old.get("addressType"):
        yield immutable("addressType", kind)


def _slice_port_faults(ports: Sequence[Document]) -> Iterator[FieldError]:
    if len(ports) > _MAX_PORTS:
        yield too_many("ports", len(ports), _MAX_PORTS)
        return
    names = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port.get("name") or ""
        if name:
            yield from (invalid(f"{path}.name", name, fault) for fault in dns_label(name))
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        yield from _protocol_faults(port, path)


def _slice_endpoint_faults(endpoints: Sequence[Document], kind: str) -> Iterator[FieldError]:
    if len(endpoints) > _MAX_ENDPOINTS:
        yield too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)
        return
    for index, endpoint in enumerate(endpoints):
        path, addresses = f"endpoints[{index}]", endpoint.get("addresses") or ()
        if not addresses:
            yield required(f"{path}.addresses", "must contain at least 1 address")
        elif len(addresses) > _MAX_ADDRESSES:
            yield too_many(f"{path}.addresses", len(addresses), _MAX_ADDRESSES)
        if kind in ("IPv4", "IPv6"):
            for position, address in enumerate(addresses):
                yield from _slice_address_faults(address, kind, f"{path}.addresses", position)
        yield from _node_faults(endpoint.get("nodeName"), f"{path}.nodeName")
        if (hostname := endpoint.get("hostname")) is not None:
            yield from (invalid(f"{path}.hostname", hostname, fault) for fault in dns_label(hostname))
        yield from _hint_faults(endpoint.get("hints") or {}, f"{path}.hints")


def _slice_address_faults(address: str, kind: str, path: str, position: int) -> Iterator[FieldError]:
    parsed = _parsed(address)
    if parsed is None:
        yield invalid(f"{path}[{position}]", address, _NOT_AN_IP)
        return
    if f"IPv{parsed.version}" != kind:
        yield invalid(path, address, f"must be an {kind} address")
    yield from endpoint_ip_faults(address, f"{path}[{position}]")


def _hint_faults(hints: Document, path: str) -> Iterator[FieldError]:
    for field, faults_of in (("forZones", label_value), ("forNodes", dns_subdomain)):
        found = hints.get(field) or ()
        if len(found) > _MAX_HINTS:
            yield too_many(f"{path}.{field}", len(found), _MAX_HINTS)
            return
        names = set()
        for index, hint in enumerate(found):
            name, here = hint.get("name") or "", f"{path}.{field}[{index}].name"
            if name in names:
                yield duplicate(here, name)
            names.add(name)
            yield from (invalid(here, name, fault) for fault in faults_of(name))
