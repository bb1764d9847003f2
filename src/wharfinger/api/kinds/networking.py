"""Kinds of networking and discovery. They are stored and printed only; Wharfinger routes no traffic."""

from __future__ import annotations

from wharfinger.api.columns import networking as columns
from wharfinger.api.defaults import networking as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import networking as rules
from wharfinger.api.validation.common import checked
from wharfinger.api.warnings import networking as warnings

_GROUP = "networking.k8s.io"

INGRESS = Kind(
    _GROUP, "Ingress", "ingresses", short_names=("ing",), status=True, default=typed(),
    validate=checked("networking.k8s.io/v1", "Ingress", rules.ingress_faults), columns=columns.INGRESS_COLUMNS,
    warn=warnings.ingress_warnings,
    in_snapshots=False,
)  # fmt: skip
INGRESS_CLASS = Kind(
    _GROUP, "IngressClass", "ingressclasses", namespaced=False, default=typed(defaults.default_ingress_class),
    validate=checked("networking.k8s.io/v1", "IngressClass"), columns=columns.INGRESS_CLASS_COLUMNS,
    in_snapshots=False,
)  # fmt: skip
NETWORK_POLICY = Kind(
    _GROUP, "NetworkPolicy", "networkpolicies", short_names=("netpol",),
    default=typed(defaults.default_network_policy),
    validate=checked("networking.k8s.io/v1", "NetworkPolicy", rules.network_policy_faults),
    columns=columns.NETWORK_POLICY_COLUMNS,
    in_snapshots=False,
)  # fmt: skip
ENDPOINT_SLICE = Kind(
    "discovery.k8s.io", "EndpointSlice", "endpointslices", default=typed(defaults.default_endpoint_slice),
    validate=checked("discovery.k8s.io/v1", "EndpointSlice", rules.endpoint_slice_faults),
    columns=columns.ENDPOINT_SLICE_COLUMNS,
    in_snapshots=False,
)  # fmt: skip

KINDS = (INGRESS, INGRESS_CLASS, NETWORK_POLICY, ENDPOINT_SLICE)
