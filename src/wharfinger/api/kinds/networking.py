"""Kinds of networking and discovery. They are kept and shown; nothing in this product routes traffic."""

from __future__ import annotations

from wharfinger.api.registry import Kind

_GROUP = "networking.k8s.io"

INGRESSES = Kind(_GROUP, "Ingress", "ingresses", short_names=("ing",), status=True)
INGRESS_CLASSES = Kind(_GROUP, "IngressClass", "ingressclasses", namespaced=False)
NETWORK_POLICIES = Kind(_GROUP, "NetworkPolicy", "networkpolicies", short_names=("netpol",))
ENDPOINT_SLICES = Kind("discovery.k8s.io", "EndpointSlice", "endpointslices")

KINDS = (INGRESSES, INGRESS_CLASSES, NETWORK_POLICIES, ENDPOINT_SLICES)
