"""What `wharf install` adds to a cluster for resource policies, and the permissions the embedded API server grants."""

from __future__ import annotations

from wharfinger.api.groups import SIGS
from wharfinger.api.rights import READ
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, RoleRule

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
)
_EMBEDDED = EmbeddedAccess(
    view=(RoleRule(SIGS, "resourcepolicies resourcepolicies/status", READ),),
    scheduler=(RoleRule(SIGS, "*", f"patch update {READ}"),),
)
INSTALLATION = Installation(_COMPONENT, _EMBEDDED)
