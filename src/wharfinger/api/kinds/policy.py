"""Kinds that bound what may happen to pods: disruption budgets, priority classes, runtime classes."""

from __future__ import annotations

from wharfinger.api.registry import Kind

POD_DISRUPTION_BUDGETS = Kind(
    "policy", "PodDisruptionBudget", "poddisruptionbudgets", short_names=("pdb",), status=True
)
PRIORITY_CLASSES = Kind("scheduling.k8s.io", "PriorityClass", "priorityclasses", namespaced=False, short_names=("pc",))
RUNTIME_CLASSES = Kind("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, generation=False)

KINDS = (POD_DISRUPTION_BUDGETS, PRIORITY_CLASSES, RUNTIME_CLASSES)
