"""Validation of webhook configurations, and of the rules and conditions that admission policies share with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wharfinger.api.fields import (
    FieldError,
    duplicate,
    invalid,
    required,
    too_many,
)
from wharfinger.api.names import dns_subdomain, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults, one_of, unique_name_faults
from wharfinger.api.validation.selectors import each, label_selector_faults


def mutating_webhooks_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _webhooks_faults(document)
    for index, webhook in each(document, "webhooks"):
        policy = webhook.get("reinvocationPolicy")
        yield from one_of(policy, ("IfNeeded", "Never"), f"webhooks[{index}].reinvocationPolicy", empty=True)


def validating_webhooks_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _webhooks_faults(document)


_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def _webhooks_faults(document: Document) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, webhook in each(document, "webhooks"):
        path = f"webhooks[{index}]"
        name = webhook.get("name") or ""
        if not name:
            yield required(f"{path}.name")
        elif len(name.split(".")) < 3:
            detail = "should be a domain with at least three segments separated by dots"
            yield invalid(f"{path}.name", name, detail)
        else:
            yield from name_faults(dns_subdomain, name, f"{path}.name")
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        versions = webhook.get("admissionReviewVersions") or []
        if not versions:
            yield required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1")
        elif not {"v1", "v1beta1"} & set(versions):
            detail = "must include at least one of v1, v1beta1"
            yield invalid(f"{path}.admissionReviewVersions", versions, detail)
        for position, rule in each(webhook, "rules"):
            yield from rule_faults(rule, f"{path}.rules[{position}]")
        yield from one_of(webhook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy", empty=True)
        yield from one_of(webhook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", empty=True)
        effects = webhook.get("sideEffects")
        if not effects:
            yield required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
        else:
            yield from one_of(effects, ("None", "NoneOnDryRun"), f"{path}.sideEffects")
        timeout = webhook.get("timeoutSeconds")
        if timeout is not None and not 1 <= timeout <= 30:
            yield invalid(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
        for selector in ("namespaceSelector", "objectSelector"):
            yield from label_selector_faults(webhook.get(selector), f"{path}.{selector}")
        yield from match_conditions_faults(webhook, path)
        yield from client_config_faults(webhook.get("clientConfig") or {}, f"{path}.clientConfig")


def match_conditions_faults(owner: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Match conditions of a webhook or a policy, except whether their expressions compile."""
    conditions = owner.get("matchConditions") or []
    names: set[str] = set()
    if len(conditions) > 64:
        yield too_many(f"{path}.matchConditions", len(conditions), 64)
    for index, condition in enumerate(conditions):
        here = f"{path}.matchConditions[{index}]"
        if not (condition.get("expression") or "").strip():
            yield required(f"{here}.expression")
        yield from unique_name_faults(qualified_name, condition.get("name") or "", f"{here}.name", names)


_NOUNS = {"apiGroups": "API groups", "apiVersions": "API versions"}


def rule_faults(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """A rule of a webhook or a policy: the operations and resources that it matches."""
    for name in ("apiGroups", "apiVersions", "resources"):
        values = rule.get(name) or []
        if not values:
            yield required(f"{path}.{name}")
        elif len(values) > 1 and "*" in values:
            yield invalid(
                f"{path}.{name}", values, f"if '*' is present, must not specify other {_NOUNS.get(name, name)}"
            )
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{path}.operations")
    for index, operation in enumerate(operations):
        yield from one_of(operation, _OPERATIONS, f"{path}.operations[{index}]")
    if len(operations) > 1 and "*" in operations:
        yield invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    yield from one_of(rule.get("scope"), ("*", "Cluster", "Namespaced"), f"{path}.scope", empty=True)


def client_config_faults(config: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """How a webhook is reached."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        if not url.startswith("https://"):
            yield invalid(
                f"{path}.url", url, "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            )
    else:
        for name in ("name", "namespace"):
            if not (service or {}).get(name):
                yield required(f"{path}.service.{name}")
