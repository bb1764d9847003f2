"""The subresource `proxy` of nodes, pods and services: HTTP requests to a kubelet, or to what runs in a pod.

After pkg/registry/core (node/strategy.go, pod/strategy.go, service/storage) of Kubernetes. What is simulated runs nothing
that could answer.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from wharfinger.api.errors import BadRequest, ServiceUnavailable, not_found
from wharfinger.api.kinds.builtin import ENDPOINTS, NODES, PODS, SERVICES
from wharfinger.api.registry import Document, Resource
from wharfinger.apiserver.connection_reviews import review_connection
from wharfinger.apiserver.exchange import ApiExchange
from wharfinger.apiserver.kubelet_proxy import KubeletProxy, ProxyTarget
from wharfinger.apiserver.request_info import RequestInfo
from wharfinger.apiserver.service_endpoints import check_runs, ready_addresses, service_port
from wharfinger.node.annotations import node_is_simulated
from wharfinger.store.store import Store

_SAFE = "/:@!$&'()*+,;=-._~"


class _ProxyName(NamedTuple):
    """`name`, `name:port` or `scheme:name:port` of a request."""

    scheme: str
    name: str
    port: str

    @classmethod
    def parse(cls, text: str, what: str) -> _ProxyName:
        parts = text.split(":")
        scheme, name, port = {1: ("", *parts, ""), 2: ("", *parts), 3: tuple(parts)}.get(len(parts), ("-", "", ""))
        if not name or scheme not in ("", "http", "https"):
            raise BadRequest(f'invalid {what} request "{text}"')
        return cls(scheme, name, port)


@dataclass(frozen=True, slots=True)
class ProxySubresources:
    store: Store
    kubelets: KubeletProxy

    async def serve(self, exchange: ApiExchange, info: RequestInfo) -> None:
        await review_connection(self.store.chain, exchange, info)
        match info.plural:
            case "nodes":
                target = self._node(info)
            case "pods":
                target = self._pod(info)
            case _:
                target = self._service(info)
        _, _, rest = exchange.path.partition(f"/{info.name}/proxy")
        path = quote(rest, safe=_SAFE) or "/"
        await self.kubelets.relay(exchange, target, path, exchange.raw_query.decode("ascii"))

    def _node(self, info: RequestInfo) -> ProxyTarget:
        named = _ProxyName.parse(info.name, "node")
        node = self._document(NODES, named.name)
        if node_is_simulated(node):
            raise BadRequest(f"node {named.name} is simulated, so it has no kubelet")
        kubelet = self.kubelets.kubelet(node)
        _check_address(kubelet.host)
        if named.port in ("", str(kubelet.port)):
            return kubelet
        return _target(named.scheme, kubelet.host, named.port)

    def _pod(self, info: RequestInfo) -> ProxyTarget:
        named = _ProxyName.parse(info.name, "pod")
        pod = self._document(PODS, named.name, info.namespace)
        check_runs(self.store, pod)
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        ports = (port for container in spec.get("containers") or () for port in container.get("ports") or ())
        port = named.port or str(next((port["containerPort"] for port in ports), ""))
        addresses = status.get("podIPs") or [{"ip": status.get("podIP") or ""}]
        address = addresses[0].get("ip") or ""
        _check_address(address)
        return _target(named.scheme, address, port)

    def _service(self, info: RequestInfo) -> ProxyTarget:
        named = _ProxyName.parse(info.name, "service")
        port_name = named.port
        if named.port.isdecimal():
            service = self._document(SERVICES, named.name, info.namespace)
            port_name = service_port(service, int(named.port)).get("name") or ""
        endpoints = self._document(ENDPOINTS, named.name, info.namespace)
        for address, port in ready_addresses(endpoints, port_name):
            pod = self._pod_of(address, info.namespace)
            if pod is not None:
                check_runs(self.store, pod)
                _check_address(address["ip"])
                return _target(named.scheme, address["ip"], str(port))
        name = info.name if endpoints.get("subsets") else named.name
        raise ServiceUnavailable(f'no endpoints available for service "{name}"')

    def _pod_of(self, address: Document, namespace: str) -> Document | None:
        """The pod of an endpoint: requests are passed on to pods only."""
        reference = address.get("targetRef") or {}
        if reference.get("namespace") != namespace:
            return None
        found = self.store.peek(PODS, reference.get("name") or "", namespace)
        pod = None if found is None else found.document()
        addresses = ((pod or {}).get("status") or {}).get("podIPs") or ()
        return pod if any(one.get("ip") == address.get("ip") for one in addresses) else None

    def _document(self, resource: Resource, name: str, namespace: str = "") -> Document:
        found = self.store.peek(resource, name, namespace)
        if found is None:
            raise not_found("", resource.plural, name)
        return found.document()


def _target(scheme: str, host: str, port: str) -> ProxyTarget:
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise BadRequest(f'invalid port "{port}"')
    tls = None
    if scheme == "https":
        # As upstream: what runs in pods has certificates that no authority here knows.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return ProxyTarget(host, int(port) if port else 443 if tls else 80, tls)


def _check_address(text: str) -> None:
    """Requests must not reach services of this machine that trust local clients."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if text:
            return  # a host name
        raise BadRequest("address not allowed") from None
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        raise BadRequest("address not allowed")
