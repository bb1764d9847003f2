"""Validation of Services, except for cluster IPs and IP families, which are validated when they are allocated
(admission/service_addresses)."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from wharfinger.api.names import dns_label, dns_subdomain, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults, one_of, port_faults, port_name_faults, unreachable_faults
from wharfinger.api.validation.selectors import labels_faults

_LONGEST_AFFINITY = 86400  # seconds
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_NOT_EXTERNAL = ("clusterIPs", "ipFamilies", "ipFamilyPolicy")


def service_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    kind, ports = spec.get("type"), spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    if not ports and kind != "ExternalName" and not headless:
        yield required("spec.ports")
    if kind in ("LoadBalancer", "NodePort") and headless:
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name_faults(spec, (old or {}).get("spec") or {})
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port_faults(port, f"spec.ports[{index}]", names, named=len(ports) > 1)
    yield from labels_faults(spec.get("selector") or {}, "spec.selector")
    yield from one_of(spec.get("sessionAffinity"), ("ClientIP", "None"), "spec.sessionAffinity")
    if spec.get("sessionAffinity") == "ClientIP":
        seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
        if seconds is not None and not 0 < seconds <= _LONGEST_AFFINITY:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            yield invalid(path, seconds, f"must be greater than 0 and less than {_LONGEST_AFFINITY}")
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from external_address_faults(address, f"spec.externalIPs[{index}]")
    yield from one_of(kind, ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"), "spec.type")
    yield from _several_ports_faults(spec, kind, ports, old)
    yield from _balancer_faults(spec, kind, old)
    yield from _traffic_faults(spec, kind, old)


def _external_name_faults(spec: Document, before: Document) -> Iterator[FieldError]:
    for field in _NOT_EXTERNAL:
        given = spec.get(field) or (field == "clusterIPs" and spec.get("clusterIP"))
        # Fields of the previous type are dropped on a change of type, unless they changed too.
        if given and (not before or before.get("type") == "ExternalName" or spec.get(field) != before.get(field)):
            yield forbidden(f"spec.{field}", "may not be set for ExternalName services")
    if name := (spec.get("externalName") or "").removesuffix("."):
        yield from name_faults(dns_subdomain, name, "spec.externalName")
    else:
        yield required("spec.externalName")


def _port_faults(port: Document, path: str, names: set[str], *, named: bool) -> Iterator[FieldError]:
    name = port.get("name") or ""
    if not name and named:
        yield required(f"{path}.name")
    elif name:
        yield from name_faults(dns_label, name, f"{path}.name")
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
    yield from port_faults(port.get("port") or 0, f"{path}.port")
    yield from one_of(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{path}.protocol")
    target = port.get("targetPort")
    if isinstance(target, int):
        yield from port_faults(target, f"{path}.targetPort")
    elif isinstance(target, str) and target:
        yield from name_faults(port_name_faults, target, f"{path}.targetPort")
    if port.get("appProtocol") is not None:
        yield from name_faults(qualified_name, port["appProtocol"], f"{path}.appProtocol")


def _several_ports_faults(
    spec: Document, kind: Any, ports: list[Document], old: Document | None
) -> Iterator[FieldError]:
    before = (old or {}).get("spec") or {}
    kept = {port.get("nodePort") for port in before.get("ports") or ()} if before.get("type") != "ClusterIP" else set()
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort") and port["nodePort"] not in kept:
                yield forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    taken: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol"), port.get("port"))
        if key in taken:
            empty = {"AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0}
            yield duplicate(f"spec.ports[{index}]", {"Name": "", "Protocol": key[0], **empty})
        taken.add(key)


def _balancer_faults(spec: Document, kind: Any, old: Document | None) -> Iterator[FieldError]:
    before = (old or {}).get("spec") or {}
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and kind != "LoadBalancer":
        yield forbidden("spec.LoadBalancerSourceRanges", _ONLY_BALANCED)
    for index, given in enumerate(ranges):
        if not _is_range(given.strip()):
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield invalid(f"spec.LoadBalancerSourceRanges[{index}]", given.strip(), why)
    for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        given = spec.get(field)
        dropped = before.get("type") == "LoadBalancer" and given == before.get(field)
        if given is not None and kind != "LoadBalancer" and not dropped:
            yield forbidden(f"spec.{field}", _ONLY_BALANCED)
    if kind == "LoadBalancer" and spec.get("loadBalancerClass") is not None:
        yield from name_faults(qualified_name, spec["loadBalancerClass"], "spec.loadBalancerClass")


def _traffic_faults(spec: Document, kind: Any, old: Document | None) -> Iterator[FieldError]:
    before = (old or {}).get("spec") or {}
    policy, path = spec.get("externalTrafficPolicy"), "spec.externalTrafficPolicy"
    reachable = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if reachable:
        if policy or kind != "ClusterIP":
            yield from one_of(policy, ("Cluster", "Local"), path)
    elif policy and policy != before.get("externalTrafficPolicy"):
        yield invalid(path, policy, "may only be set for externally-accessible services")
    port = spec.get("healthCheckNodePort")
    checks = kind == "LoadBalancer" and policy == "Local"
    if port and not checks and port != before.get("healthCheckNodePort"):
        only = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", port, only)
    if port and checks:
        yield from port_faults(port, "spec.healthCheckNodePort")
        earlier = before.get("healthCheckNodePort")
        if earlier and earlier != port and before.get("externalTrafficPolicy") == "Local":
            yield forbidden("spec.healthCheckNodePort", "field is immutable")
    if spec.get("internalTrafficPolicy") is not None:
        yield from one_of(spec["internalTrafficPolicy"], ("Cluster", "Local"), "spec.internalTrafficPolicy")
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        yield not_supported("spec.trafficDistribution", distribution, _DISTRIBUTIONS)


def external_address_faults(given: Any, path: str) -> Iterator[FieldError]:
    """The address must be reachable from other hosts."""
    try:
        address = ip_address(given)
    except ValueError:
        yield invalid(path, given, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
        return
    yield from unreachable_faults(address, given, path)


def _is_range(text: str) -> bool:
    try:
        return "/" in text and bool(ip_network(text, strict=False))
    except ValueError:
        return False
