"""Defaults of network policies, ingress classes and endpoint slices."""

from __future__ import annotations

from wharfinger.api.defaults.walk import child, children, fill, made_child
from wharfinger.api.registry import Document


def default_network_policy(document: Document) -> None:
    spec = made_child(document, "spec")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*children(spec, "ingress"), *children(spec, "egress")):
        for port in children(rule, "ports"):
            fill(port, protocol="TCP")


def default_ingress_class(document: Document) -> None:
    parameters = child(child(document, "spec"), "parameters")
    if parameters:
        fill(parameters, scope="Cluster")


def default_endpoint_slice(document: Document) -> None:
    for field in ("endpoints", "ports"):
        if not document.get(field) and isinstance(document.get(field, []), list):
            document[field] = None  # how kube-apiserver shows empty lists of this kind
    for port in children(document, "ports"):
        fill(port, name="", protocol="TCP")
