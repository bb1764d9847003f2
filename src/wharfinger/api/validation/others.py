"""Validation of access control, storage classes, leases, webhooks, definitions of custom resources, networking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import (
    FieldError,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_many,
)
from wharfinger.api.names import dns_label, dns_subdomain, path_segment, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.schema.structural import schema_faults
from wharfinger.api.validation.common import name_faults, one_of, unique_name_faults
from wharfinger.api.validation.selectors import each, label_selector_faults

RBAC = "rbac.authorization.k8s.io"


def role_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _rules_faults(document, namespaced=True)


def cluster_role_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _rules_faults(document, namespaced=False)
    aggregation = document.get("aggregationRule")
    if aggregation is not None:
        path = "aggregationRule.clusterRoleSelectors"
        if not aggregation.get("clusterRoleSelectors"):
            yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
        for index, selector in each(aggregation, "clusterRoleSelectors"):
            yield from label_selector_faults(selector, f"{path}[{index}]")


def _rules_faults(document: Document, *, namespaced: bool) -> Iterator[FieldError]:
    for index, rule in each(document, "rules"):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            continue
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")


def role_binding_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _binding_faults(document, old, ("Role", "ClusterRole"), namespaced=True)


def cluster_role_binding_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _binding_faults(document, old, ("ClusterRole",), namespaced=False)


def _binding_faults(
    document: Document, old: Document | None, kinds: Sequence[str], *, namespaced: bool
) -> Iterator[FieldError]:
    reference = document.get("roleRef") or {}
    if reference.get("apiGroup") != RBAC:
        yield not_supported("roleRef.apiGroup", reference.get("apiGroup") or "", (RBAC,))
    if reference.get("kind") not in kinds:
        yield not_supported("roleRef.kind", reference.get("kind") or "", kinds)
    if not reference.get("name"):
        yield required("roleRef.name")
    else:
        yield from name_faults(path_segment, reference["name"], "roleRef.name")
    for index, subject in each(document, "subjects"):
        yield from _subject_faults(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and reference != (old.get("roleRef") or {}):
        yield invalid("roleRef", reference, "cannot change roleRef")


def _subject_faults(subject: Mapping[str, Any], path: str, *, namespaced: bool) -> Iterator[FieldError]:
    name, group = subject.get("name") or "", subject.get("apiGroup") or ""
    if not name:
        yield required(f"{path}.name")
    kind = subject.get("kind") or ""
    if kind == "ServiceAccount":
        if name:
            yield from name_faults(dns_subdomain, name, f"{path}.name")
        if group:
            yield not_supported(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        if group != RBAC:
            yield not_supported(f"{path}.apiGroup", group, (RBAC,))
    else:
        yield not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))


def storage_class_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    provisioner = document.get("provisioner") or ""
    if not provisioner:
        yield required("provisioner")
    else:
        yield from name_faults(qualified_name, provisioner.lower(), "provisioner")
    yield from one_of(document.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy", empty=True)
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from one_of(document.get("volumeBindingMode"), modes, "volumeBindingMode")
    for index, term in each(document, "allowedTopologies"):
        for position, expression in each(term, "matchLabelExpressions"):
            path = f"allowedTopologies[{index}].matchLabelExpressions[{position}]"
            if not expression.get("values"):
                yield required(f"{path}.values")
            yield from name_faults(qualified_name, expression.get("key") or "", f"{path}.key")
    if old is not None:
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            if (document.get(name) or None) != (old.get(name) or None):
                yield immutable(name, document.get(name))


def csi_node_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, driver in each(document.get("spec") or {}, "drivers"):
        path = f"spec.drivers[{index}]"
        name = driver.get("name") or ""
        if not name:
            yield required(f"{path}.name")
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if not driver.get("nodeID"):
            yield required(f"{path}.nodeID")
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            yield invalid(f"{path}.allocatable.count", count, "must be greater than or equal to 0")


def storage_capacity_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    name = document.get("storageClassName") or ""
    yield from name_faults(dns_subdomain, name, "storageClassName")
    yield from label_selector_faults(document.get("nodeTopology"), "nodeTopology")
    if old is not None:
        for field in ("nodeTopology", "storageClassName"):
            if document.get(field) != old.get(field):
                yield immutable(field, document.get(field))


def volume_attachment_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    for name in ("attacher", "nodeName"):
        if not spec.get(name):
            yield required(f"spec.{name}")
    if old is not None and spec != (old.get("spec") or {}):
        yield invalid("spec", spec, "field is immutable")


def lease_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
    if spec.get("preferredHolder") and not spec.get("strategy"):
        yield forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined")


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
        yield from _client_config_faults(webhook.get("clientConfig") or {}, f"{path}.clientConfig")


def match_conditions_faults(owner: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Conditions of a webhook or a policy, all but whether their expressions compile."""
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
    """A rule of a webhook or a policy: which operations on which resources it is about."""
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


def _client_config_faults(config: Mapping[str, Any], path: str) -> Iterator[FieldError]:
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
                yield required(f"{path}.service.{name}", f"service {name} is required")


def definition_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    """A CustomResourceDefinition."""
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


def _definition_update_faults(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    for path in ("group", "scope"):
        if spec.get(path) != before.get(path):
            yield immutable(f"spec.{path}", spec.get(path))
    for name in ("plural", "kind"):
        now, past = (spec.get("names") or {}).get(name), (before.get("names") or {}).get(name)
        if now != past:
            yield immutable(f"spec.names.{name}", now)


def network_policy_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    yield from label_selector_faults(spec.get("podSelector"), "spec.podSelector")
    for index, kind in each(spec, "policyTypes"):
        yield from one_of(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]")


def ingress_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")


def endpoint_slice_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    kind = document.get("addressType")
    yield from one_of(kind, ("FQDN", "IPv4", "IPv6"), "addressType")
    if old is not None and kind != old.get("addressType"):
        yield immutable("addressType", kind)
