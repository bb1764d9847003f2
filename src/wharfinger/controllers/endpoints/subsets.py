"""The subsets of an Endpoints object. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.controllers.endpoints import pods as published

MAX_ADDRESSES = 1000
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"

_Port = tuple[tuple[str, str | int], ...]
_Address = tuple[str, str]  # IP and uid of the target


def subsets(service: Document, pods: Iterable[Pod]) -> list[Document]:
    """What the pods of a Service publish in its Endpoints."""
    spec = service["spec"]
    unready_too = bool(spec.get("publishNotReadyAddresses"))
    family = published.address_types(service)[0]
    loose: list[Document] = []
    for pod in pods:
        if not published.is_published(pod, terminating=unready_too):
            continue
        found = published.addresses(pod, family)
        if not found:
            continue
        address: Document = {
            "ip": found[0],
            "nodeName": pod.spec.node_name,
            "targetRef": published.reference(pod),
        }
        if name := published.hostname(service, pod):
            address["hostname"] = name
        group = "addresses" if unready_too or pod.ready else "notReadyAddresses"
        if not spec.get("ports"):
            if not published.has_cluster_ip(service):
                loose.append({group: [address]})
            continue
        for port in published.ports(service, pod):
            named = {field: value for field, value in port.items() if value != ""}
            loose.append({group: [address], "ports": [named]})
    return packed(loose)


def packed(loose: Iterable[Document]) -> list[Document]:
    """The canonical form: each set of addresses once, with all of its ports, in a fixed order."""
    all_addresses: dict[_Address, Document] = {}
    by_port: dict[_Port, dict[_Address, bool]] = {}  # whether the address is ready
    for subset in loose:
        ports: list[Document] = subset.get("ports") or [{}]
        for port in ports:
            ready_by_address = by_port.setdefault(tuple(sorted(port.items())), {})
            for field, ready in (("addresses", True), ("notReadyAddresses", False)):
                for address in subset.get(field) or ():
                    key = (address["ip"], (address.get("targetRef") or {}).get("uid") or "")
                    all_addresses.setdefault(key, address)
                    ready_by_address[key] = ready_by_address.get(key, True) and ready
    by_addresses: dict[tuple[tuple[_Address, bool], ...], list[_Port]] = {}
    for offered, members in by_port.items():
        by_addresses.setdefault(tuple(sorted(members.items())), []).append(offered)
    made = []
    for group, group_ports in sorted(by_addresses.items(), key=lambda each: (_order(each[1]), each[0])):
        subset = {
            "addresses": [all_addresses[key] for key, ready in group if ready],
            "notReadyAddresses": [all_addresses[key] for key, ready in group if not ready],
            "ports": [dict(port) for port in sorted(group_ports, key=repr) if port],
        }
        made.append({key: value for key, value in subset.items() if value})
    return made


def _order(ports: list[_Port]) -> list[str]:
    return sorted(map(repr, ports))


def truncated(found: list[Document]) -> tuple[list[Document], bool]:
    """At most 1000 addresses, ready ones first, in proportion to the sizes of the subsets."""
    ready = sum(len(each.get("addresses") or ()) for each in found)
    unready = sum(len(each.get("notReadyAddresses") or ()) for each in found)
    if ready + unready <= MAX_ADDRESSES:
        return found, False
    cut_ready = ready > MAX_ADDRESSES
    group = "addresses" if cut_ready else "notReadyAddresses"
    room = MAX_ADDRESSES if cut_ready else MAX_ADDRESSES - ready
    total, left = (ready if cut_ready else unready), room
    made = []
    for each in found:
        members = each.get(group) or []
        kept = members[: min(left, math.ceil(len(members) / total * room))]
        left -= len(kept)
        subset = {**each, group: kept}
        if cut_ready:
            subset.pop("notReadyAddresses", None)
        made.append({key: value for key, value in subset.items() if value})
    return made, True


def comparable(found: Iterable[Document]) -> list[Document]:
    """The subsets without what does not count as a change."""

    def address(each: Document) -> Document:
        target = {key: value for key, value in (each.get("targetRef") or {}).items() if key != "resourceVersion"}
        return {**each, "targetRef": target}

    return [
        {
            **each,
            **{
                group: [address(member) for member in each[group]]
                for group in ("addresses", "notReadyAddresses")
                if each.get(group)
            },
        }
        for each in found
    ]
