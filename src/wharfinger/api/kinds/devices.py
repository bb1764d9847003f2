"""Kinds of dynamic resource allocation."""

from __future__ import annotations

from wharfinger.api.columns import devices as columns
from wharfinger.api.defaults import devices as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation.common import checked
from wharfinger.api.validation.devices import claim_status, claims, classes, slices
from wharfinger.api.warnings import devices as warnings

_GROUP = "resource.k8s.io"
_VERSION = f"{_GROUP}/v1"

RESOURCE_SLICE = Kind(
    _GROUP, "ResourceSlice", "resourceslices", namespaced=False, default=typed(defaults.default_slice),
    prepare_create=defaults.prepare_slice, prepare_update=defaults.prepare_slice_update,
    validate=checked(_VERSION, "ResourceSlice", slices.slice_faults), warn=warnings.slice_warnings,
    columns=columns.RESOURCE_SLICE_COLUMNS, selectable=("spec.nodeName", "spec.driver", "spec.pool.name"),
    returns_deleted=True,
)  # fmt: skip
RESOURCE_CLAIM = Kind(
    _GROUP, "ResourceClaim", "resourceclaims", status=True, generation=False, default=typed(defaults.default_claim),
    prepare_create=defaults.prepare_claim, prepare_update=defaults.prepare_claim_update,
    prepare_status=defaults.prepare_claim_status,
    validate=checked(_VERSION, "ResourceClaim", claims.claim_faults),
    validate_subresource={"status": checked(_VERSION, "ResourceClaim", claim_status.claim_status_faults)},
    columns=columns.RESOURCE_CLAIM_COLUMNS, returns_deleted=True,
)  # fmt: skip
RESOURCE_CLAIM_TEMPLATE = Kind(
    _GROUP, "ResourceClaimTemplate", "resourceclaimtemplates", generation=False,
    default=typed(defaults.default_claim_template), prepare_create=defaults.prepare_claim_template,
    prepare_update=defaults.prepare_claim_template_update,
    validate=checked(_VERSION, "ResourceClaimTemplate", claims.claim_template_faults),
    columns=columns.RESOURCE_CLAIM_TEMPLATE_COLUMNS, returns_deleted=True,
)  # fmt: skip
DEVICE_CLASS = Kind(
    _GROUP, "DeviceClass", "deviceclasses", namespaced=False, default=typed(),
    validate=checked(_VERSION, "DeviceClass", classes.class_faults), columns=columns.DEVICE_CLASS_COLUMNS,
    returns_deleted=True,
)  # fmt: skip
DEVICE_TAINT_RULE = Kind(
    _GROUP, "DeviceTaintRule", "devicetaintrules", namespaced=False, status=True,
    default=typed(defaults.default_taint_rule),
    validate=checked(_VERSION, "DeviceTaintRule", classes.taint_rule_faults),
    validate_subresource={"status": checked(_VERSION, "DeviceTaintRule", classes.taint_rule_status_faults)},
    columns=columns.DEVICE_TAINT_RULE_COLUMNS, unconditional_update=False,
)  # fmt: skip

KINDS = (RESOURCE_SLICE, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, DEVICE_CLASS, DEVICE_TAINT_RULE)
