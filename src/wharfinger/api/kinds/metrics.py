"""Resource metrics. They are computed when somebody asks, and not stored."""

from __future__ import annotations

from wharfinger.api.columns.metrics import NODE_METRICS_COLUMNS, POD_METRICS_COLUMNS
from wharfinger.api.registry import Document, Kind

_GROUP, _VERSION = "metrics.k8s.io", "v1beta1"
_QUANTITIES: Document = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "Amounts by resource.",
}


def _schema(kind: str, description: str, **properties: Document) -> Document:
    return {
        "type": "object",
        "description": description,
        "required": ["timestamp", "window", *properties],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "timestamp": {"type": "string", "format": "date-time", "description": "The end of the interval."},
            "window": {"type": "string", "description": "The length of the interval."},
            **properties,
        },
        "x-kubernetes-group-version-kind": [{"group": _GROUP, "version": _VERSION, "kind": kind}],
    }


_CONTAINERS: Document = {
    "type": "array",
    "description": "Usage of each container.",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "usage": _QUANTITIES}},
}

NODE_METRICS = Kind(
    _GROUP, "NodeMetrics", "nodes", versions=(_VERSION,), namespaced=False, verbs=("get", "list"), computed=True,
    schema=lambda version: _schema("NodeMetrics", "NodeMetrics sets resource usage metrics of a node.", usage=_QUANTITIES),
    columns=NODE_METRICS_COLUMNS,
)  # fmt: skip
POD_METRICS = Kind(
    _GROUP, "PodMetrics", "pods", versions=(_VERSION,), verbs=("get", "list"), computed=True,
    schema=lambda version: _schema("PodMetrics", "PodMetrics sets resource usage metrics of a pod.", containers=_CONTAINERS),
    columns=POD_METRICS_COLUMNS,
)  # fmt: skip

KINDS = (NODE_METRICS, POD_METRICS)
