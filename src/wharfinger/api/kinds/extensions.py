"""Kinds that extend an API server: webhook configurations and CustomResourceDefinitions."""

from __future__ import annotations

from wharfinger.api.registry import Kind

_ADMISSION = "admissionregistration.k8s.io"

MUTATING_WEBHOOKS = Kind(
    _ADMISSION,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
    categories=("api-extensions",),
)
VALIDATING_WEBHOOKS = Kind(
    _ADMISSION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
    categories=("api-extensions",),
)
CUSTOM_RESOURCE_DEFINITIONS = Kind(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status=True,
)

KINDS = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, CUSTOM_RESOURCE_DEFINITIONS)
