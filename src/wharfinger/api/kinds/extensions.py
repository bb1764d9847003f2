"""Kinds that extend an API server: webhook configurations, admission policies, CustomResourceDefinitions, APIServices."""

from __future__ import annotations

from wharfinger.api.columns import extensions as columns
from wharfinger.api.defaults import extensions as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.names import path_segment
from wharfinger.api.registry import Column, DefaultFn, Kind
from wharfinger.api.validation import admission_policies as policies
from wharfinger.api.validation import api_services, definitions
from wharfinger.api.validation import webhooks as rules
from wharfinger.api.validation.common import Rules, checked


def _admission_kind(
    kind: str, plural: str, default: DefaultFn, faults: Rules, columns: tuple[Column, ...], *, status: bool = False
) -> Kind:
    return Kind(
        "admissionregistration.k8s.io",
        kind,
        plural,
        namespaced=False,
        categories=("api-extensions",),
        status=status,
        default=typed(default),
        validate=checked("admissionregistration.k8s.io/v1", kind, faults),
        columns=columns,
        unconditional_update=False,
    )


MUTATING_WEBHOOK_CONFIGURATION = _admission_kind(
    "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
    defaults.default_mutating_webhooks, rules.mutating_webhooks_faults, columns.WEBHOOK_COLUMNS,
)  # fmt: skip
VALIDATING_WEBHOOK_CONFIGURATION = _admission_kind(
    "ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
    defaults.default_validating_webhooks, rules.validating_webhooks_faults, columns.WEBHOOK_COLUMNS,
)  # fmt: skip
VALIDATING_ADMISSION_POLICY = _admission_kind(
    "ValidatingAdmissionPolicy", "validatingadmissionpolicies",
    defaults.default_admission_policy, policies.policy_faults, columns.ADMISSION_POLICY_COLUMNS, status=True,
)  # fmt: skip
VALIDATING_ADMISSION_POLICY_BINDING = _admission_kind(
    "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
    defaults.default_admission_policy_binding, policies.binding_faults, columns.ADMISSION_POLICY_BINDING_COLUMNS,
)  # fmt: skip
MUTATING_ADMISSION_POLICY = _admission_kind(
    "MutatingAdmissionPolicy", "mutatingadmissionpolicies",
    defaults.default_admission_policy, policies.mutating_policy_faults, columns.MUTATING_POLICY_COLUMNS,
)  # fmt: skip
MUTATING_ADMISSION_POLICY_BINDING = _admission_kind(
    "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings",
    defaults.default_admission_policy_binding, policies.mutating_binding_faults,
    columns.ADMISSION_POLICY_BINDING_COLUMNS,
)  # fmt: skip
API_SERVICE = Kind(
    "apiregistration.k8s.io", "APIService", "apiservices", namespaced=False, categories=("api-extensions",),
    status=True, generation=False, unconditional_update=False, name_faults=path_segment,
    default=typed(defaults.default_api_service),
    validate=checked("apiregistration.k8s.io/v1", "APIService", api_services.api_service_faults),
    validate_subresource={
        "status": checked("apiregistration.k8s.io/v1", "APIService", api_services.api_service_status_faults)
    },
    columns=columns.API_SERVICE_COLUMNS,
    in_snapshots=False,
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
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    CUSTOM_RESOURCE_DEFINITION,
    API_SERVICE,
)
