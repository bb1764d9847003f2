"""Columns of ingresses, network policies and endpoint slices."""

from __future__ import annotations

from wharfinger.api.columns.cells import AGE, NONE, UNSET, computed, selector_text, spec, status
from wharfinger.api.registry import Column, Document


def _hosts(ingress: Document) -> str:
    hosts = [rule["host"] for rule in spec(ingress).get("rules") or () if rule.get("host")]
    if not hosts:
        return "*"
    return ",".join(hosts[:3]) + (f" + {len(hosts) - 3} more..." if len(hosts) > 3 else "")


def _address(ingress: Document) -> str:
    found = (status(ingress).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(one.get("ip") or one.get("hostname") or "" for one in found)


INGRESS_COLUMNS = (
    computed("Class", lambda ingress: spec(ingress).get("ingressClassName") or NONE),
    computed("Hosts", _hosts),
    computed("Address", _address),
    computed("Ports", lambda ingress: "80, 443" if spec(ingress).get("tls") else "80"),
    AGE,
)


def _parameters(document: Document) -> str:
    parameters = spec(document).get("parameters")
    if not parameters:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


INGRESS_CLASS_COLUMNS = (Column("Controller", "spec.controller"), computed("Parameters", _parameters), AGE)

NETWORK_POLICY_COLUMNS = (computed("Pod-Selector", lambda policy: selector_text(spec(policy).get("podSelector"))), AGE)


def _few(texts: list[str]) -> str:
    return ",".join(texts[:3]) + (f" + {len(texts) - 3} more..." if len(texts) > 3 else "") if texts else UNSET


ENDPOINT_SLICE_COLUMNS = (
    Column("AddressType", "addressType"),
    computed("Ports", lambda slices: _few([str(p.get("port", "*")) for p in slices.get("ports") or ()])),
    computed(
        "Endpoints",
        lambda slices: _few([a for one in slices.get("endpoints") or () for a in one.get("addresses") or ()]),
    ),
    AGE,
)
