"""The horizontal pod autoscaler. It is stored and printed only; Wharfinger does not scale by metrics."""

from __future__ import annotations

from wharfinger.api.columns import workloads as columns
from wharfinger.api.defaults import workloads as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Kind
from wharfinger.api.validation import workloads as rules
from wharfinger.api.validation.common import checked

HORIZONTAL_POD_AUTOSCALER = Kind(
    "autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", versions=("v2",), short_names=("hpa",),
    categories=("all",), status=True, generation=False, default=typed(defaults.default_autoscaler),
    validate=checked("autoscaling/v2", "HorizontalPodAutoscaler", rules.autoscaler_faults),
    columns=columns.AUTOSCALER_COLUMNS,
)  # fmt: skip

KINDS = (HORIZONTAL_POD_AUTOSCALER,)
