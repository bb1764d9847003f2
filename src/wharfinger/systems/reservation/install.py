"""What `wharf install` adds to a cluster for reservations, and the permissions the embedded API server grants."""

from __future__ import annotations

from wharfinger.api.rights import READ
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, RoleRule
from wharfinger.systems.reservation.kinds.names import KOORDINATOR, RESERVATION_SETS

_COMPONENT = InstallComponent(
    "reservation",
    kinds=(
        (KOORDINATOR, "reservations"),
        (KOORDINATOR, "podmigrationjobs"),
        (RESERVATION_SETS.group, "reservationsets"),
    ),
    controllers=("reservation", "reservationset", "podmigration", "reservedquota"),
    processes=("controllers", "webhook"),
    needs=("scheduler",),
    rivals=("koord-scheduler", "koord-manager", "koord-descheduler"),
    shared_groups=(KOORDINATOR,),
    scheduler_rules=(
        RoleRule(KOORDINATOR, "reservations", f"create delete patch {READ}"),
        RoleRule(KOORDINATOR, "reservations/status", "patch update"),
    ),
    controller_rules=(
        RoleRule("", "nodes pods", READ),
        RoleRule("", "resourcequotas", f"patch {READ}"),
        RoleRule("", "pods/eviction", "create"),
        RoleRule("policy", "poddisruptionbudgets", READ),
        RoleRule("resource.k8s.io", "deviceclasses resourceclaimtemplates", READ),
        RoleRule(KOORDINATOR, "reservations podmigrationjobs", f"create delete patch update {READ}"),
        RoleRule(KOORDINATOR, "reservations/status podmigrationjobs/status", "patch update"),
        RoleRule(RESERVATION_SETS.group, "reservationsets", f"delete patch update {READ}"),
        RoleRule(RESERVATION_SETS.group, "reservationsets/status", "patch update"),
    ),
    webhook_rules=(
        RoleRule("", "nodes pods resourcequotas", READ),
        RoleRule("resource.k8s.io", "deviceclasses resourceclaims resourceclaimtemplates", READ),
    ),
)
_EMBEDDED = EmbeddedAccess(scheduler=(RoleRule(KOORDINATOR, "*", f"create delete patch update {READ}"),))
INSTALLATION = Installation(_COMPONENT, _EMBEDDED)
