"""What `wharf install` adds to a hub for placement: the controllers, their user and RBAC rules."""

from __future__ import annotations

from wharfinger.api.rights import CRUD, EVENTS, LEASES, READ, REVIEWS, WRITE
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, RoleRule, SystemProcess
from wharfinger.systems.placement.kinds.names import OCM
from wharfinger.systems.placement.scores.access import shared_roles

_WITH_STATUS = (
    "managedclusters",
    "managedclustersets",
    "managedclustersetbindings",
    "placementdecisions",
    "placements",
)

PROCESS = SystemProcess(
    "placement",
    user="system:wharfinger:placement",
    controllers=("managedcluster", "managedclusterset", "managedclustersetbinding", "placement", "capacity"),
    lease="wharf-placement",
    embedded_rules=(
        RoleRule(LEASES, "leases", "create delete get list patch update watch"),
        *EVENTS,
        RoleRule("", "namespaces", f"create {READ}"),
        RoleRule("", "podtemplates", READ),
        *REVIEWS,
        RoleRule(OCM, "*", CRUD),
    ),
    cluster_rules=(
        RoleRule("", "namespaces", f"create {READ}"),
        RoleRule("", "podtemplates", READ),
        RoleRule(LEASES, "leases", f"create {READ}"),
        RoleRule(OCM, "addonplacementscores", f"create delete patch {READ}"),
        RoleRule(
            OCM, "managedclusters managedclustersets managedclustersetbindings placements", f"patch update {READ}"
        ),
        RoleRule(OCM, "managedclustersets placementdecisions", f"create delete patch update {READ}"),
        RoleRule(OCM, " ".join(f"{plural}/status" for plural in _WITH_STATUS), "patch update"),
        *REVIEWS,
        *EVENTS,
    ),
)
_COMPONENT = InstallComponent(
    "placement",
    kinds=(
        (OCM, "managedclusters"),
        (OCM, "managedclustersets"),
        (OCM, "managedclustersetbindings"),
        (OCM, "placements"),
        (OCM, "placementdecisions"),
        (OCM, "addonplacementscores"),
    ),
    processes=(PROCESS.name, "webhook"),
    rivals=(
        "cluster-manager-placement-controller",
        "cluster-manager-registration-controller",
        "placement-controller",
        "registration-controller",
    ),
    shared_groups=(OCM,),
    objects=shared_roles(),
)
_EMBEDDED = EmbeddedAccess(
    view=(
        RoleRule(
            OCM, "placements placements/status placementdecisions placementdecisions/status addonplacementscores", READ
        ),
    ),
    edit=(RoleRule(OCM, "placements", WRITE),),
)
INSTALLATION = Installation(_COMPONENT, _EMBEDDED, (PROCESS,))
