"""What `wharf install` adds to a cluster for resource classes, and the RBAC rules of the embedded API server."""

from __future__ import annotations

from wharfinger.api.groups import SIGS
from wharfinger.api.rights import CRUD, READ
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, RoleRule

_COMPONENT = InstallComponent(
    "resource-class",
    kinds=((SIGS, "resourceclasses"), (SIGS, "nodecomputeresources")),
    controllers=("resourceclass", "resourceclass-devices"),
    processes=("controllers", "webhook"),
    needs=("scheduler",),
    scheduler_rules=(RoleRule(SIGS, "nodecomputeresources resourceclasses", READ),),
    controller_rules=(
        RoleRule("", "nodes pods", READ),
        RoleRule(SIGS, "nodecomputeresources resourceclasses", READ),
        RoleRule(SIGS, "resourceclasses/status nodecomputeresources/status", "patch update"),
        RoleRule(SIGS, "resourceclasses/finalizers", "update"),  # to own DeviceClasses
        RoleRule("resource.k8s.io", "deviceclasses", f"create delete patch {READ}"),
        RoleRule("resource.k8s.io", "resourceslices", READ),
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
