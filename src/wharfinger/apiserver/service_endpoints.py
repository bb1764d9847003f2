"""Where a Service is reached: the address and port of one of its ready endpoints. After ResolveEndpoint of k8s.io/apiserver.

The server calls endpoints directly, so that nothing has to implement the addresses of Services. Pods on simulated nodes run
nothing that could answer.
"""

from __future__ import annotations

import random

from wharfinger.api.errors import BadRequest, ServiceUnavailable
from wharfinger.api.kinds.builtin import ENDPOINTS, NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.node.annotations import node_is_simulated
from wharfinger.store.store import Store


def service_port(service: Document, number: int) -> Document:
    """The port of a Service with this number."""
    for port in (service.get("spec") or {}).get("ports") or ():
        if port.get("port") == number:
            found: Document = port
            return found
    raise ServiceUnavailable(f'no service port {number} found for service "{service["metadata"]["name"]}"')


def ready_addresses(endpoints: Document, port_name: str) -> list[tuple[Document, int]]:
    """The ready addresses that serve a named port, with its number, in random order."""
    found = [
        (address, int(port["port"]))
        for subset in endpoints.get("subsets") or ()
        for port in subset.get("ports") or ()
        if (port.get("name") or "") == port_name
        for address in subset.get("addresses") or ()
    ]
    random.shuffle(found)
    return found


def resolve(store: Store, service: Document, number: int) -> tuple[str, int]:
    """Address and port of an endpoint that serves this port of the Service."""
    name, namespace = str(service["metadata"]["name"]), str(service["metadata"]["namespace"])
    port = service_port(service, number)
    stored = store.peek(ENDPOINTS, name, namespace)
    for address, target in ready_addresses(stored.document() if stored else {}, port.get("name") or ""):
        reference = address.get("targetRef") or {}
        if reference.get("kind") == "Pod":
            pod = store.peek(PODS, str(reference.get("name") or ""), str(reference.get("namespace") or ""))
            if pod is not None:
                check_runs(store, pod.document())
        return str(address["ip"]), target
    raise ServiceUnavailable(f'no endpoints available for service "{name}"')


def check_runs(store: Store, pod: Document) -> None:
    """Raises BadRequest for a pod on a simulated node."""
    name = (pod.get("spec") or {}).get("nodeName") or ""
    node = store.peek(NODES, name) if name else None
    if node is not None and node_is_simulated(node.document()):
        raise BadRequest(f"node {name} is simulated, so no container of pod {pod['metadata']['name']} runs")
