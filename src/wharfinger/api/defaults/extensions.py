"""Defaults of webhook configurations, admission policies, CustomResourceDefinitions and APIServices."""

from __future__ import annotations

from wharfinger.api.defaults.walk import child, children, fill, fill_text, made_child
from wharfinger.api.registry import Document


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


def default_api_service(document: Document) -> None:
    spec = child(document, "spec")
    if spec.get("service") is not None:
        fill(child(spec, "service"), port=443)
