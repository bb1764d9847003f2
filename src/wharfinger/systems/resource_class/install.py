"""What `wharf install` puts onto a real cluster for resource classes, and what the embedded API server allows."""

from __future__ import annotations

from wharfinger.api.groups import SIGS
from wharfinger.api.rights import CRUD, READ
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, RoleRule

_COMPONENT = InstallComponent(
    "resource-class",
    kinds=((SIGS, "resourceclasses"), (SIGS, "nodecomputeresources")),
    controllers=("resourceclass",),
    processes=("controllers", "webhook"),
    needs=("scheduler",),
    scheduler_rules=(RoleRule(SIGS, "nodecomputeresources resourceclasses", READ),),
    controller_rules=(
        RoleRule("", "nodes pods", READ),
        RoleRule(SIGS, "nodecomputeresources resourceclasses", READ),
        RoleRule(SIGS, "resourceclasses/status nodecomputeresources/status", "patch update"),
    ),
)
_EMBEDDED = EmbeddedAccess(
    scheduler=(RoleRule(SIGS, "*", f"patch update {READ}"),),
    nodes=(
        RoleRule(SIGS, "nodecomputeresources nodecomputeresources/status", CRUD),
        RoleRule(SIGS, "resourceclasses", READ),
    ),
)
INSTALLATION = Installation(_COMPONENT, _EMBEDDED)
