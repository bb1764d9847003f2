"""Kinds that configure the priority and fairness of requests to an API server."""

from __future__ import annotations

from wharfinger.api.columns import flow_control as columns
from wharfinger.api.defaults import flow_control as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.registry import Column, DefaultFn, Kind
from wharfinger.api.validation import flow_control as rules
from wharfinger.api.validation.common import Rules, checked

_VERSION = "flowcontrol.apiserver.k8s.io/v1"


def _flow_kind(kind: str, plural: str, default: DefaultFn, faults: Rules, columns: tuple[Column, ...]) -> Kind:
    return Kind(
        "flowcontrol.apiserver.k8s.io",
        kind,
        plural,
        namespaced=False,
        status=True,
        default=typed(default),
        validate=checked(_VERSION, kind, faults),
        validate_subresource={"status": checked(_VERSION, kind, rules.status_faults)},
        columns=columns,
        unconditional_update=False,
    )


FLOW_SCHEMA = _flow_kind(
    "FlowSchema", "flowschemas",
    defaults.default_flow_schema, rules.flow_schema_faults, columns.FLOW_SCHEMA_COLUMNS,
)  # fmt: skip
PRIORITY_LEVEL_CONFIGURATION = _flow_kind(
    "PriorityLevelConfiguration", "prioritylevelconfigurations",
    defaults.default_priority_level, rules.priority_level_faults, columns.PRIORITY_LEVEL_COLUMNS,
)  # fmt: skip

KINDS = (FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION)
