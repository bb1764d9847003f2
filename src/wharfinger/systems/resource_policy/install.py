"""What `wharf install` adds to a cluster for resource policies, and the permissions the embedded API server grants."""

from __future__ import annotations

from wharfinger.api.groups import SIGS
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.rights import READ
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, InstallTrace, RoleRule


def _without_cost(pod: Document) -> Document | None:
    """Without a controller, the cost would go on deciding which pods of a ReplicaSet are deleted first."""
    from wharfinger.systems.resource_policy.rules.costs import change
    from wharfinger.systems.resource_policy.rules.policy import NEXT_UNITS

    annotations = pod["metadata"].get("annotations") or {}
    removed = {**change(annotations, None).annotations, **{key: None for key in (NEXT_UNITS,) if key in annotations}}
    return {"metadata": {"annotations": removed}} if removed else None


_COMPONENT = InstallComponent(
    "resource-policy",
    kinds=((SIGS, "resourcepolicies"),),
    controllers=("resourcepolicy",),
    processes=("controllers", "webhook"),
    needs=("scheduler",),
    scheduler_rules=(RoleRule(SIGS, "resourcepolicies", READ),),
    controller_rules=(
        RoleRule("", "nodes", READ),
        RoleRule("", "pods", f"patch {READ}"),
        RoleRule("apps", "replicasets", READ),
        # Reservations count towards a unit and carry the next-units annotation.
        RoleRule("scheduling.koordinator.sh", "reservations", f"patch {READ}"),
        RoleRule(SIGS, "resourcepolicies", READ),
        RoleRule(SIGS, "resourcepolicies/status", "patch update"),
    ),
    traces=(InstallTrace(PODS, _without_cost, "has no annotations of a resource policy any more"),),
)
_EMBEDDED = EmbeddedAccess(
    view=(RoleRule(SIGS, "resourcepolicies resourcepolicies/status", READ),),
    scheduler=(RoleRule(SIGS, "*", f"patch update {READ}"),),
)
INSTALLATION = Installation(_COMPONENT, _EMBEDDED)
