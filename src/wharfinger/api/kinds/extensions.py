"""Kinds that extend an API server: webhook configurations, admission policies and CustomResourceDefinitions."""

from __future__ import annotations

from wharfinger.api.columns import extensions as columns
from wharfinger.api.defaults import extensions as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import admission_policies as policies
from wharfinger.api.validation import definitions
from wharfinger.api.validation import webhooks as rules
from wharfinger.api.validation.common import checked

_ADMISSION = "admissionregistration.k8s.io"

MUTATING_WEBHOOK_CONFIGURATION = Kind(
    _ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False,
    categories=("api-extensions",), default=typed(defaults.default_mutating_webhooks),
    validate=checked("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", rules.mutating_webhooks_faults),
    columns=columns.WEBHOOK_COLUMNS, unconditional_update=False,
)  # fmt: skip
VALIDATING_WEBHOOK_CONFIGURATION = Kind(
    _ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False,
    categories=("api-extensions",), default=typed(defaults.default_validating_webhooks),
    validate=checked("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", rules.validating_webhooks_faults ),
    columns=columns.WEBHOOK_COLUMNS, unconditional_update=False,
)  # fmt: skip
VALIDATING_ADMISSION_POLICY = Kind(
    _ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False,
    categories=("api-extensions",), status=True, default=typed(defaults.default_admission_policy),
    validate=checked("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", policies.policy_faults),
    columns=columns.ADMISSION_POLICY_COLUMNS, unconditional_update=False,
)  # fmt: skip
VALIDATING_ADMISSION_POLICY_BINDING = Kind(
    _ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False,
    categories=("api-extensions",), default=typed(defaults.default_admission_policy_binding),
    validate=checked("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", policies.binding_faults),
    columns=columns.ADMISSION_POLICY_BINDING_COLUMNS, unconditional_update=False,
)  # fmt: skip
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False,
    short_names=("crd", "crds"), categories=("api-extensions",), status=True,
    default=typed(defaults.default_definition),
    validate=checked("apiextensions.k8s.io/v1", "CustomResourceDefinition", definitions.definition_faults),
    columns=columns.DEFINITION_COLUMNS,
)  # fmt: skip

KINDS = (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
)
