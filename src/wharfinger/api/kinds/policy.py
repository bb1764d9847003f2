"""Disruption budgets, priority classes and runtime classes."""

from __future__ import annotations

from wharfinger.api.columns import workloads as columns
from wharfinger.api.defaults import policy as defaults
from wharfinger.api.defaults.walk import typed, with_status
from wharfinger.api.registry import Kind
from wharfinger.api.validation import workloads as rules
from wharfinger.api.validation.common import checked
from wharfinger.api.warnings import policy as warnings

POD_DISRUPTION_BUDGET = Kind(
    "policy", "PodDisruptionBudget", "poddisruptionbudgets", short_names=("pdb",), status=True, default=typed(),
    validate=checked("policy/v1", "PodDisruptionBudget", rules.budget_faults), columns=columns.BUDGET_COLUMNS,
    prepare_create=with_status(disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0),
    unconditional_update=False,
)  # fmt: skip
PRIORITY_CLASS = Kind(
    "scheduling.k8s.io", "PriorityClass", "priorityclasses", namespaced=False, short_names=("pc",),
    default=typed(defaults.default_priority_class),
    validate=checked("scheduling.k8s.io/v1", "PriorityClass", rules.priority_class_faults),
    columns=columns.PRIORITY_CLASS_COLUMNS,
)  # fmt: skip
RUNTIME_CLASS = Kind(
    "node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, generation=False, default=typed(),
    validate=checked("node.k8s.io/v1", "RuntimeClass", rules.runtime_class_faults),
    columns=columns.RUNTIME_CLASS_COLUMNS, create_on_update=True, unconditional_update=False,
    warn=warnings.runtime_class_warnings,
)  # fmt: skip

KINDS = (POD_DISRUPTION_BUDGET, PRIORITY_CLASS, RUNTIME_CLASS)
