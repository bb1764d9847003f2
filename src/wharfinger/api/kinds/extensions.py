"""Kinds that extend an API server: webhook configurations, admission policies and CustomResourceDefinitions."""

from __future__ import annotations

from wharfinger.api.columns import others as columns
from wharfinger.api.defaults import others as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import admission_policies as policies
from wharfinger.api.validation import others as rules
from wharfinger.api.validation.common import checked

_ADMISSION = "admissionregistration.k8s.io"

MUTATING_WEBHOOKS = Kind(
    _ADMISSION,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
    categories=("api-extensions",),
    default=typed(defaults.default_mutating_webhooks),
    validate=checked("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", rules.mutating_webhooks_faults),
    columns=columns.WEBHOOK_COLUMNS,
)
VALIDATING_WEBHOOKS = Kind(
    _ADMISSION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
    categories=("api-extensions",),
    default=typed(defaults.default_validating_webhooks),
    validate=checked(
        "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", rules.validating_webhooks_faults
    ),
    columns=columns.WEBHOOK_COLUMNS,
)
ADMISSION_POLICIES = Kind(
    _ADMISSION,
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
    categories=("api-extensions",),
    status=True,
    default=typed(defaults.default_admission_policy),
    validate=checked("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", policies.policy_faults),
    columns=columns.ADMISSION_POLICY_COLUMNS,
)
ADMISSION_POLICY_BINDINGS = Kind(
    _ADMISSION,
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
    categories=("api-extensions",),
    default=typed(defaults.default_admission_policy_binding),
    validate=checked("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", policies.binding_faults),
    columns=columns.ADMISSION_POLICY_BINDING_COLUMNS,
)
CUSTOM_RESOURCE_DEFINITIONS = Kind(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status=True,
    default=typed(defaults.default_definition),
    validate=checked("apiextensions.k8s.io/v1", "CustomResourceDefinition", rules.definition_faults),
    columns=columns.DEFINITION_COLUMNS,
)

KINDS = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CUSTOM_RESOURCE_DEFINITIONS,
)
