"""The horizontal pod autoscaler."""

from __future__ import annotations

from wharfinger.api.autoscaler_versions import convert_autoscaler
from wharfinger.api.columns import workloads as columns
from wharfinger.api.defaults import workloads as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import autoscaling as rules
from wharfinger.api.validation.common import checked

_VERSION, _KIND = "autoscaling/v2", "HorizontalPodAutoscaler"

HORIZONTAL_POD_AUTOSCALER = Kind(
    "autoscaling", _KIND, "horizontalpodautoscalers", versions=("v2", "v1"), short_names=("hpa",),
    categories=("all",), status=True, generation=False, default=typed(defaults.default_autoscaler),
    prepare_create=defaults.prepare_autoscaler,
    convert=convert_autoscaler, validate=checked(_VERSION, _KIND, rules.autoscaler_faults),
    validate_subresource={"status": checked(_VERSION, _KIND, rules.autoscaler_status_faults)},
    columns=columns.AUTOSCALER_COLUMNS,
)  # fmt: skip

KINDS = (HORIZONTAL_POD_AUTOSCALER,)
