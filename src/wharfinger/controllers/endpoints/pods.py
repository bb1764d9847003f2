"""What Services publish of their pods: addresses, ports and conditions. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from wharfinger.api.registry import Document
from wharfinger.api.views import Node, Pod

ZONE = "topology.kubernetes.io/zone"
HEADLESS = "service.kubernetes.io/headless"


def has_cluster_ip(service: Document) -> bool:
    return (service["spec"].get("clusterIP") or "") not in ("", "None")


def selector(service: Document) -> dict[str, str] | None:
    """The selector of a Service that gets its endpoints from pods; None for all others."""
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return None
    found: dict[str, str] | None = spec.get("selector")
    return found


def selects(wanted: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def is_published(pod: Pod, *, terminating: bool) -> bool:
    """Whether a pod has endpoints. `terminating`: also while it is being deleted."""
    if pod.terminal or not (pod.status.pod_ip or pod.status.pod_ips):
        return False
    return terminating or not pod.terminating


def addresses(pod: Pod, address_type: str) -> list[str]:
    """The addresses of a pod in one family, in canonical form."""
    found = []
    for text in [each.ip for each in pod.status.pod_ips] or [pod.status.pod_ip]:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if f"IPv{address.version}" == address_type and not address.is_loopback:  # which no endpoint may have
            found.append(str(address))
    return found


def target_port(pod: Pod, port: Document) -> int | None:
    """The port of the pod that a port of a Service leads to; None if no container has a port of that name."""
    wanted = port.get("targetPort", port.get("port"))
    if isinstance(wanted, int):
        return wanted
    protocol = port.get("protocol") or "TCP"
    sidecars = (container for container in pod.spec.init_containers if container.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        for offered in container.ports:
            if offered.name == wanted and offered.protocol == protocol:
                return offered.container_port
    return None


def ports(service: Document, pod: Pod) -> list[Document]:
    """The ports of an EndpointSlice with this pod."""
    made = []
    for port in service["spec"].get("ports") or ():
        number = target_port(pod, port)
        if number is not None:
            made.append(endpoint_port(port, number))
    return made


def endpoint_port(port: Document, number: int) -> Document:
    made: Document = {"name": port.get("name") or "", "port": number, "protocol": port.get("protocol") or "TCP"}
    if port.get("appProtocol"):
        made["appProtocol"] = port["appProtocol"]
    return made


def hostname(service: Document, pod: Pod) -> str:
    """The name of a pod below the domain of a headless Service; empty if it has none there."""
    return pod.spec.hostname if pod.spec.hostname and pod.spec.subdomain == service["metadata"]["name"] else ""


def reference(pod: Pod) -> Document:
    return {
        "kind": "Pod",
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
    }


def endpoint(service: Document, pod: Pod, node: Node | None, address_type: str) -> Document:
    """The endpoint of a pod in an EndpointSlice."""
    serving, terminating = pod.ready, pod.terminating
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    made: Document = {
        "addresses": addresses(pod, address_type),
        "conditions": {
            "ready": published or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": reference(pod),
    }
    if pod.spec.node_name:
        made["nodeName"] = pod.spec.node_name
    if node is not None and node.metadata.labels.get(ZONE):
        made["zone"] = node.metadata.labels[ZONE]
    if name := hostname(service, pod):
        made["hostname"] = name
    return made


def address_types(service: Document) -> list[str]:
    families: Iterable[str] = service["spec"].get("ipFamilies") or ()
    found = [family for family in families if family in ("IPv4", "IPv6")]
    if found:
        return found
    if has_cluster_ip(service):
        return ["IPv6" if ":" in service["spec"]["clusterIP"] else "IPv4"]
    return ["IPv4", "IPv6"]
