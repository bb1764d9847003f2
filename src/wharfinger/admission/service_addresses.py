"""Cluster IPs and node ports of Services: allocation, preservation on update, and IP families.

As in upstream's service registry (pkg/registry/core/service/storage) on an IPv4-only cluster. Allocation happens in the
same step as the write, so that no address is allocated twice. The lowest free one is taken; upstream takes a random one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, ip_address
from itertools import chain
from typing import Any

from wharfinger.admission.reads import ObjectVersion, Reads
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import invalid_object
from wharfinger.api.fields import FieldError, duplicate, invalid, not_supported, required
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import SERVICES
from wharfinger.api.registry import Document

CLUSTER_RANGE = IPv4Network("10.96.0.0/12")
NODE_PORTS = range(30_000, 32_768)
_STATIC_ADDRESSES = 256  # at the start of the range: allocated last, so that users can choose them
_STATIC_PORTS = 86  # likewise, at the start of the node port range
_HEADLESS = "None"
_WITH_ADDRESS = ("ClusterIP", "NodePort", "LoadBalancer")
_FAMILIES = ("IPv4", "IPv6")
_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")

Port = tuple[str, int]  # protocol and number


class ServiceAddressReviewer:
    """Runs last for services. With `any_address` addresses and ports outside the ranges are accepted, as in snapshots."""

    def __init__(self, reads: Reads, *, any_address: bool = False) -> None:
        self._reads = reads
        self._any_address = any_address
        self._known: dict[ObjectKey, tuple[ObjectVersion, frozenset[str], frozenset[Port]]] = {}

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == SERVICES.plural and not group and not subresource

    def review(self, request: Request) -> Review:
        if not self.concerns(request.resource.group, request.resource.plural, request.subresource):
            return PASS
        if request.object is None or request.operation not in ("CREATE", "UPDATE"):
            return PASS
        spec = request.object["spec"]
        old = request.old["spec"] if request.old is not None else None
        if old is not None:
            _preserve(spec, old)
        _normalize(spec, old)
        faults = list(_set_families(spec, old))
        if not faults:
            faults = list(self._allocate(request, spec))
        return Review(invalid_object("", "Service", request.name, faults)) if faults else PASS

    def _allocate(self, request: Request, spec: Document) -> Iterator[FieldError]:
        if _needs_address(spec) and spec.get("clusterIP") != _HEADLESS:
            yield from self._allocate_address(request, spec)
        if _needs_node_ports(spec):
            yield from self._allocate_ports(request, spec)
        if _needs_health_port(spec) and not spec.get("healthCheckNodePort"):
            free = _free_port("TCP", self._ports_of_others(request) | _ports(spec))
            if free is not None:
                spec["healthCheckNodePort"] = free

    def _allocate_address(self, request: Request, spec: Document) -> Iterator[FieldError]:
        given = spec.get("clusterIPs") or []
        taken = frozenset[str]().union(*(addresses for addresses, _ in self._others(request)))
        if not given:
            found = _free_address(taken)
            if found is None:
                yield invalid("spec.clusterIPs", given, "failed to allocate a serviceIP: range is full")
            else:
                spec["clusterIP"], spec["clusterIPs"] = found, [found]
            return
        before = (request.old or {}).get("spec", {}).get("clusterIPs") or []
        for address in given:
            if address in before:
                continue
            if not self._any_address and ip_address(address) not in CLUSTER_RANGE:
                why = (
                    f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {CLUSTER_RANGE}"
                )
                yield invalid("spec.clusterIPs", given, f"failed to allocate IP {address}: {why}")
            elif address in taken:
                yield invalid(
                    "spec.clusterIPs", given, f"failed to allocate IP {address}: provided IP is already allocated"
                )

    def _allocate_ports(self, request: Request, spec: Document) -> Iterator[FieldError]:
        others = self._ports_of_others(request)
        mine: set[tuple[str, Any]] = set()
        before = _ports((request.old or {}).get("spec", {}))
        for index, port in enumerate(spec.get("ports") or ()):
            given = port.get("nodePort")
            used = (port.get("protocol", "TCP"), given)
            if not given:
                continue
            if used in mine:
                yield invalid(f"spec.ports[{index}].nodePort", given, "provided port is already allocated")
            mine.add(used)
            if used in before:
                continue
            if given not in NODE_PORTS and not self._any_address:
                why = f"The range of valid ports is {NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
                yield invalid(f"spec.ports[{index}].nodePort", given, f"provided port is not in the valid range. {why}")
            elif used in others:
                yield invalid(f"spec.ports[{index}].nodePort", given, "provided port is already allocated")
        for index, port in enumerate(spec.get("ports") or ()):
            if port.get("nodePort"):
                continue
            found = _port_of_twin(port, spec, others)
            if found is None:
                found = _free_port(port.get("protocol", "TCP"), others | _ports(spec))
            if found is None:
                yield invalid(f"spec.ports[{index}].nodePort", 0, "failed to allocate a nodePort: range is full")
            else:
                port["nodePort"] = found

    def _ports_of_others(self, request: Request) -> frozenset[Port]:
        return frozenset[Port]().union(*(ports for _, ports in self._others(request)))

    def _others(self, request: Request) -> Iterable[tuple[frozenset[str], frozenset[Port]]]:
        """Addresses and node ports of all other services. Only changed services are decoded again."""
        mine = (request.namespace, request.name)
        known, self._known = self._known, {}
        for stored in self._reads.scan(SERVICES):
            key = (stored.namespace, stored.name)
            held = known.get(key)
            if held is None or held[0] is not stored:
                spec = stored.document().get("spec") or {}
                addresses = frozenset(ip for ip in spec.get("clusterIPs") or () if ip != _HEADLESS)
                held = (stored, addresses, _ports(spec))
            self._known[key] = held
        return [(addresses, ports) for key, (_, addresses, ports) in self._known.items() if key != mine]


def _needs_address(spec: Document) -> bool:
    return spec.get("type") in _WITH_ADDRESS


def _needs_node_ports(spec: Document) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _needs_health_port(spec: Document) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _ports(spec: Document) -> frozenset[Port]:
    found = {
        (port.get("protocol", "TCP"), port["nodePort"]) for port in spec.get("ports") or () if port.get("nodePort")
    }
    if spec.get("healthCheckNodePort"):
        found.add(("TCP", spec["healthCheckNodePort"]))
    return frozenset(found)


def _free_address(taken: frozenset[str]) -> str | None:
    first, last = (
        int(CLUSTER_RANGE.network_address),
        CLUSTER_RANGE.num_addresses - 1,
    )  # the last is the broadcast address
    for offset in chain(range(_STATIC_ADDRESSES, last), range(1, _STATIC_ADDRESSES)):
        address = str(IPv4Address(first + offset))
        if address not in taken:
            return address
    return None


def _free_port(protocol: str, taken: frozenset[Port]) -> int | None:
    dynamic = NODE_PORTS.start + _STATIC_PORTS
    order = (*range(dynamic, NODE_PORTS.stop), *range(NODE_PORTS.start, dynamic))
    return next((number for number in order if (protocol, number) not in taken), None)


def _port_of_twin(port: Document, spec: Document, others: frozenset[Port]) -> int | None:
    """The node port of the same port with another protocol, if it is free for this protocol too."""
    for twin in spec.get("ports") or ():
        number = twin.get("nodePort")
        if number and twin.get("port") == port.get("port") and twin.get("protocol") != port.get("protocol"):
            if (port.get("protocol", "TCP"), number) not in others | _ports(spec):
                return int(number)
    return None


def _preserve(spec: Document, old: Document) -> None:
    """Preserves allocated values that the update omits, and clears those that the new type does not use."""
    if _needs_address(old) and _needs_address(spec):
        if not spec.get("clusterIP") and old.get("clusterIP"):
            spec["clusterIP"] = old["clusterIP"]
        if not spec.get("clusterIPs") and spec.get("clusterIP") == old.get("clusterIP") and old.get("clusterIPs"):
            spec["clusterIPs"] = list(old["clusterIPs"])
    if _needs_node_ports(old) and _needs_node_ports(spec):
        used = {number for _, number in _ports(old) & _ports(spec)}
        by_name = {port.get("name", ""): port.get("nodePort") for port in old.get("ports") or ()}
        for port in spec.get("ports") or ():
            before = by_name.get(port.get("name", ""))
            if not port.get("nodePort") and before and before not in used:
                port["nodePort"] = before
                used.add(before)
    if _needs_health_port(old) and _needs_health_port(spec) and not spec.get("healthCheckNodePort"):
        _take_over(spec, old, "healthCheckNodePort")
    if _needs_address(old) and not _needs_address(spec):
        for field in ("clusterIPs", "clusterIP", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(field) == old.get(field):
                spec.pop(field, None)
    if _needs_node_ports(old) and not _needs_node_ports(spec) and _same_node_ports(spec, old):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if _needs_health_port(old) and not _needs_health_port(spec):
        _drop_if_same(spec, old, "healthCheckNodePort")
    if old.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        _drop_if_same(spec, old, "allocateLoadBalancerNodePorts")
        _drop_if_same(spec, old, "loadBalancerClass")
    with_policy = ("NodePort", "LoadBalancer")
    if old.get("type") in with_policy and spec.get("type") not in with_policy and not spec.get("externalIPs"):
        _drop_if_same(spec, old, "externalTrafficPolicy")


def _take_over(spec: Document, old: Document, field: str) -> None:
    if field in old:
        spec[field] = old[field]


def _drop_if_same(spec: Document, old: Document, field: str) -> None:
    if spec.get(field) == old.get(field):
        spec.pop(field, None)


def _same_node_ports(spec: Document, old: Document) -> bool:
    def numbers(of: Document) -> set[Any]:
        return {port.get("nodePort") or 0 for port in of.get("ports") or ()}

    return numbers(spec) <= numbers(old) | {0}


def _normalize(spec: Document, old: Document | None) -> None:
    """`clusterIP` and `clusterIPs[0]` are the same; a change of only one of them applies to both."""
    if not _needs_address(spec):
        return
    if old is None:
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        return
    if (spec.get("clusterIP") or "") != (old.get("clusterIP") or "") and (
        (spec.get("clusterIPs") or []) == (old.get("clusterIPs") or [])
    ):
        spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []


def _set_families(spec: Document, old: Document | None) -> Iterator[FieldError]:
    if not _needs_address(spec):
        return
    headless, selects = spec.get("clusterIP") == _HEADLESS, bool(spec.get("selector"))
    if not spec.get("ipFamilyPolicy"):
        inherited = (old or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = inherited or ("RequireDualStack" if headless and not selects else "SingleStack")
    faults = list(_family_faults(spec))
    if old is not None and not faults:
        faults = list(_change_faults(spec, old))
    if faults:
        yield from faults
        return
    families = list(spec.get("ipFamilies") or ())
    addresses = [] if headless else spec.get("clusterIPs") or []
    policy = spec["ipFamilyPolicy"]
    if policy == "SingleStack":
        several = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
        if len(addresses) == 2:
            yield invalid("spec.ipFamilyPolicy", policy, several.format("cluster IPs"))
        if len(families) == 2:
            yield invalid("spec.ipFamilyPolicy", policy, several.format("IP families"))
        if len(addresses) == 2 or len(families) == 2:
            return
    for index, address in enumerate(addresses[len(families) :], len(families)):
        family = f"IPv{ip_address(address).version}"
        if family != "IPv4":
            yield invalid(f"spec.clusterIPs[{index}]", addresses, f"{family} is not configured on this cluster")
            return
        families.append(family)
    if headless and not selects:
        families = families or ["IPv4"]
        if len(families) == 1 and policy != "SingleStack":
            families.append(_FAMILIES[1 - _FAMILIES.index(families[0])])
        spec["ipFamilies"] = families
        return
    refused = False
    if policy == "RequireDualStack":
        refused = True
        yield invalid("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services")
    for index, family in enumerate(families):
        if family != "IPv4":
            refused = True
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
    if not refused:
        spec["ipFamilies"] = families or ["IPv4"]


def _family_faults(spec: Document) -> Iterator[FieldError]:
    address, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if address and not addresses:
        yield required("spec.clusterIPs")
    elif address and addresses[0] != address:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif addresses and not address:
        yield invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified")
    families = spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            yield not_supported(f"spec.ipFamilies[{index}]", family, _FAMILIES)
        if family in families[:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    if spec["ipFamilyPolicy"] not in _POLICIES:
        yield not_supported("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], _POLICIES)
    readable = True
    for index, one in enumerate(addresses):
        if index == 0 and one == _HEADLESS:
            if len(addresses) > 1:
                readable = False
                yield invalid("spec.clusterIPs", addresses, "'None' must be the first and only value")
        elif not _is_address(one):
            readable = False
            yield invalid(
                f"spec.clusterIPs[{index}]", one, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            )
    if len(addresses) > 2:
        yield invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")
    if not readable or address == _HEADLESS:
        return
    if len(addresses) > 1 and len({ip_address(one).version for one in addresses}) < len(addresses):
        yield invalid("spec.clusterIPs", addresses, "may specify no more than one IP for each IP family")
    for index, (one, family) in enumerate(zip(addresses, families, strict=False)):
        if family in _FAMILIES and f"IPv{ip_address(one).version}" != family:
            why = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield invalid(f"spec.clusterIPs[{index}]", one, why)


def _change_faults(spec: Document, old: Document) -> Iterator[FieldError]:
    """The primary address cannot change while the service needs one."""
    if not _needs_address(old) or (spec.get("clusterIP") == old.get("clusterIP") == _HEADLESS):
        return
    mine, before = spec.get("clusterIPs") or [], old.get("clusterIPs") or []
    if before and not mine:
        yield invalid("spec.clusterIPs[0]", mine, "primary clusterIP can not be unset")
    elif before and mine[0] != before[0]:
        yield invalid("spec.clusterIPs[0]", mine, "may not change once set")


def _is_address(text: Any) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False
