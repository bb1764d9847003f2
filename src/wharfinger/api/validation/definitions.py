"""Validation of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wharfinger.api.fields import (
    FieldError,
    forbidden,
    immutable,
    invalid,
    required,
)
from wharfinger.api.names import dns_1035_label, dns_label, dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.schema.structural import schema_faults
from wharfinger.api.validation.common import name_faults, one_of
from wharfinger.api.validation.selectors import each
from wharfinger.api.validation.webhooks import client_config_faults


def definition_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    """Faults of a CustomResourceDefinition."""
    spec = document.get("spec") or {}
    names = spec.get("names") or {}
    group, plural = spec.get("group") or "", names.get("plural") or ""
    name = (document.get("metadata") or {}).get("name") or ""
    if name != f"{plural}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield required("spec.group")
    else:
        yield from name_faults(dns_subdomain, group, "spec.group")
        if "." not in group:
            yield invalid("spec.group", group, "should be a domain with at least one dot")
    yield from one_of(spec.get("scope"), ("Cluster", "Namespaced"), "spec.scope")
    for field in ("plural", "singular", "kind", "listKind"):
        text = names.get(field) or ""
        if not text:
            yield required(f"spec.names.{field}")
        else:
            yield from name_faults(dns_label, text.lower(), f"spec.names.{field}")
    for field in ("shortNames", "categories"):
        for index, text in each(names, field):
            yield from name_faults(dns_label, text, f"spec.names.{field}[{index}]")
    yield from _versions_faults(spec)
    yield from _conversion_faults(spec.get("conversion") or {})
    if old is not None:
        yield from _definition_update_faults(spec, old.get("spec") or {})


def _versions_faults(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    versions = spec.get("versions") or []
    storing = [version for version in versions if version.get("storage")]
    if len(storing) != 1:
        yield invalid("spec.versions", [v.get("name") for v in versions], "must have exactly one version marked as storage version")  # fmt: skip
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        yield from name_faults(dns_label, name, f"{path}.name")
        if name in seen:
            yield invalid("spec.versions", name, "must contain unique version names")
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
            continue
        if schema.get("type") not in (None, "object") or schema.get("type") is None:
            yield invalid(f"{path}.schema.openAPIV3Schema.type", schema.get("type") or "", "must be object at the root")
        yield from schema_faults(schema, f"{path}.schema.openAPIV3Schema")


def _conversion_faults(conversion: Mapping[str, Any]) -> Iterator[FieldError]:
    """The paths are those of upstream's internal version."""
    path = "spec.conversion"
    strategy, webhook = conversion.get("strategy"), conversion.get("webhook") or {}
    yield from one_of(strategy, ("None", "Webhook"), f"{path}.strategy")
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if strategy != "Webhook":
        for field, value in (("webhookClientConfig", client), ("conversionReviewVersions", versions)):
            if value:
                yield forbidden(f"{path}.{field}", "should not be set when strategy is not set to Webhook")
        return
    if client is None:
        yield required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
    else:
        yield from client_config_faults(client, f"{path}.webhookClientConfig")
    if not versions:
        yield required(f"{path}.conversionReviewVersions")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}.conversionReviewVersions[{index}]", version, "duplicate version")
        else:
            yield from name_faults(dns_1035_label, version, f"{path}.conversionReviewVersions[{index}]")
    if not {"v1", "v1beta1"} & set(versions):
        yield invalid(f"{path}.conversionReviewVersions", versions, "must include at least one of v1, v1beta1")


def _definition_update_faults(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    for path in ("group", "scope"):
        if spec.get(path) != before.get(path):
            yield immutable(f"spec.{path}", spec.get(path))
    for name in ("plural", "kind"):
        now, past = (spec.get("names") or {}).get(name), (before.get("names") or {}).get(name)
        if now != past:
            yield immutable(f"spec.names.{name}", now)
