"""Defaults of storage, access control, admission, networking and definitions of custom resources."""

from __future__ import annotations

from wharfinger.api.defaults.walk import child, children, fill, fill_text, made_child
from wharfinger.api.quantity import BadQuantity, canonical
from wharfinger.api.registry import Document

RBAC = "rbac.authorization.k8s.io"


def default_storage_class(document: Document) -> None:
    fill(document, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def default_csi_driver(document: Document) -> None:
    spec = made_child(document, "spec")
    fill(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
    )
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def default_storage_capacity(document: Document) -> None:
    for name in ("capacity", "maximumVolumeSize"):
        quantity = document.get(name)
        if isinstance(quantity, (str, int, float)) and not isinstance(quantity, bool):
            try:
                document[name] = canonical(quantity)
            except (BadQuantity, ValueError, OverflowError):
                continue  # validation refuses it by path


def default_binding(document: Document) -> None:
    """Role bindings of both scopes."""
    reference = child(document, "roleRef")
    if reference:
        fill_text(reference, apiGroup=RBAC)
    for subject in children(document, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            fill_text(subject, apiGroup=RBAC)


def default_priority_class(document: Document) -> None:
    fill(document, preemptionPolicy="PreemptLowerPriority")


def default_mutating_webhooks(document: Document) -> None:
    for webhook in children(document, "webhooks"):
        _webhook(webhook)
        fill(webhook, reinvocationPolicy="Never")


def default_validating_webhooks(document: Document) -> None:
    for webhook in children(document, "webhooks"):
        _webhook(webhook)


def _webhook(webhook: Document) -> None:
    fill(
        webhook,
        failurePolicy="Fail",
        matchPolicy="Equivalent",
        namespaceSelector={},
        objectSelector={},
        timeoutSeconds=10,
    )
    for rule in children(webhook, "rules"):
        fill(rule, scope="*")
    service = child(child(webhook, "clientConfig"), "service")
    if service:
        fill(service, port=443)


def default_admission_policy(document: Document) -> None:
    spec = made_child(document, "spec")
    fill(spec, failurePolicy="Fail")
    _match_resources(child(spec, "matchConstraints"))


def default_admission_policy_binding(document: Document) -> None:
    _match_resources(child(child(document, "spec"), "matchResources"))


def _match_resources(criteria: Document) -> None:
    if not criteria:
        return
    fill(criteria, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for rules in ("resourceRules", "excludeResourceRules"):
        for rule in children(criteria, rules):
            fill(rule, scope="*")


def default_definition(document: Document) -> None:
    """A CustomResourceDefinition."""
    spec = made_child(document, "spec")
    names = made_child(spec, "names")
    kind = names.get("kind")
    if isinstance(kind, str) and kind:
        fill_text(names, singular=kind.lower(), listKind=f"{kind}List")
    fill(spec, conversion={"strategy": "None"})
    service = child(child(child(child(spec, "conversion"), "webhook"), "clientConfig"), "service")
    if service:
        fill(service, port=443)
    status = made_child(document, "status")
    if not status.get("storedVersions"):
        stored = [v["name"] for v in children(spec, "versions") if v.get("storage") is True and "name" in v]
        if stored:
            status["storedVersions"] = stored[:1]


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
    for port in children(document, "ports"):
        fill(port, name="", protocol="TCP")
