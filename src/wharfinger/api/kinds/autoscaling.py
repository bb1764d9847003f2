"""The horizontal pod autoscaler. It is kept and shown; nothing in this product scales by metrics."""

from __future__ import annotations

from wharfinger.api.registry import Kind

HORIZONTAL_POD_AUTOSCALERS = Kind(
    "autoscaling",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    versions=("v2",),
    short_names=("hpa",),
    categories=("all",),
    status=True,
    generation=False,
)

KINDS = (HORIZONTAL_POD_AUTOSCALERS,)
