"""What `wharf install` puts onto a real cluster for scheduling policies, and what the embedded API server allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.api.groups import SIGS
from wharfinger.api.rights import RBAC, READ
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, RoleRule
from wharfinger.systems.scheduling_policy.kinds.scheduling_policy import DOCUMENT_GROUP
from wharfinger.systems.scheduling_policy.rules import shipped

_EMBEDDED = EmbeddedAccess(scheduler=(RoleRule(SIGS, "*", f"patch update {READ}"),))


def installation() -> Installation:
    roles, bindings = shipped.roles(), shipped.bindings()
    component = InstallComponent(
        "scheduling-policy",
        kinds=((SIGS, "schedulingpolicies"),),
        controllers=("schedulingpolicy",),
        processes=("controllers", "webhook"),
        # The controller restores the shipped policies and their roles: it must hold what it grants.
        controller_rules=(
            RoleRule("", "namespaces", READ),
            RoleRule(SIGS, "schedulingpolicies", f"create update use {READ}"),
            RoleRule(DOCUMENT_GROUP, "schedulingpolicies", "use"),
            RoleRule(SIGS, "schedulingpolicies/status", "patch update"),
            RoleRule(RBAC, "clusterroles clusterrolebindings rolebindings", "create get"),
            RoleRule(RBAC, "clusterroles", "bind update", _names(roles)),
            RoleRule(RBAC, "clusterrolebindings rolebindings", "delete update", _names(bindings)),
        ),
        webhook_rules=(RoleRule(SIGS, "schedulingpolicies/status", "patch update"),),
        objects=(*roles, *bindings),
        is_shipped=shipped.is_shipped,
    )
    return Installation(component, _EMBEDDED)


def _names(documents: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(document["metadata"]["name"] for document in documents)


def cluster_settings(block: Mapping[str, Any], *, enforce: bool, scheduler: str) -> dict[str, Any]:
    """On a real cluster policies only warn until the administrator decides otherwise."""
    made = {"mode": "warn", **block}
    if enforce:
        made["mode"] = "enforce"
    if scheduler:  # enforced policies would refuse the bindings of a scheduler that they do not know
        made["schedulerIdentities"] = sorted({*made.get("schedulerIdentities", ()), scheduler})
    return made
