"""What `wharf install` adds to a cluster for reservations, and the permissions the embedded API server grants."""

from __future__ import annotations

from wharfinger.api.kinds.builtin import NODES, RESOURCE_QUOTAS
from wharfinger.api.registry import Document
from wharfinger.api.rights import READ
from wharfinger.contributions import EmbeddedAccess, Installation, InstallComponent, InstallTrace, RoleRule
from wharfinger.systems.reservation.kinds.names import CAPACITY_BUFFERS, KOORDINATOR, REPACK_POLICIES, RESERVATION_SETS

_PLANNING = (  # what an engine reads that finds moves for RepackPolicies
    RoleRule("", "namespaces persistentvolumeclaims persistentvolumes replicationcontrollers services", READ),
    RoleRule("apps", "replicasets statefulsets", READ),
    RoleRule("resource.k8s.io", "deviceclasses devicetaintrules resourceclaims resourceslices", READ),
    RoleRule("storage.k8s.io", "csidrivers csinodes csistoragecapacities storageclasses volumeattachments", READ),
)


def _uncordoned(node: Document) -> Document | None:
    """Nodes that a RepackPolicy or `wharf repack` cordoned."""
    from wharfinger.repack.applying import CORDONED, UNCORDONED

    return UNCORDONED if CORDONED in (node["metadata"].get("annotations") or {}) else None


def _without_amounts(quota: Document) -> Document | None:
    from wharfinger.systems.reservation.controllers.quotas import RESERVED

    there = RESERVED in (quota["metadata"].get("annotations") or {})
    return {"metadata": {"annotations": {RESERVED: None}}} if there else None


_COMPONENT = InstallComponent(
    "reservation",
    kinds=(
        (KOORDINATOR, "reservations"),
        (KOORDINATOR, "podmigrationjobs"),
        (RESERVATION_SETS.group, "reservationsets"),
        (REPACK_POLICIES.group, "repackpolicies"),
        (CAPACITY_BUFFERS.group, "capacitybuffers"),
    ),
    controllers=("reservation", "reservationset", "podmigration", "reservedquota", "repackpolicy", "capacitybuffer"),
    processes=("controllers", "webhook"),
    needs=("scheduler",),
    rivals=("koord-scheduler", "koord-manager", "koord-descheduler"),
    shared_groups=(KOORDINATOR, CAPACITY_BUFFERS.group),
    scheduler_rules=(
        RoleRule(KOORDINATOR, "reservations", f"create delete patch {READ}"),
        RoleRule(KOORDINATOR, "reservations/status", "patch update"),
    ),
    controller_rules=(
        RoleRule("", "nodes", f"patch {READ}"),
        RoleRule("", "pods", READ),
        RoleRule("", "resourcequotas", f"patch {READ}"),
        RoleRule("", "pods/eviction", "create"),
        RoleRule("policy", "poddisruptionbudgets", READ),
        RoleRule("resource.k8s.io", "deviceclasses resourceclaimtemplates", READ),
        RoleRule(KOORDINATOR, "reservations podmigrationjobs", f"create delete patch update {READ}"),
        RoleRule(KOORDINATOR, "reservations/status podmigrationjobs/status", "patch update"),
        RoleRule(RESERVATION_SETS.group, "reservationsets", f"create delete patch update {READ}"),
        RoleRule(RESERVATION_SETS.group, "reservationsets/status repackpolicies/status", "patch update"),
        RoleRule(REPACK_POLICIES.group, "repackpolicies", READ),
        RoleRule(CAPACITY_BUFFERS.group, "capacitybuffers", READ),
        RoleRule(CAPACITY_BUFFERS.group, "capacitybuffers/status", "patch"),
        RoleRule("", "podtemplates", f"create update {READ}"),
        RoleRule("apps", "deployments", READ),
        RoleRule("batch", "jobs", READ),
        *_PLANNING,
    ),
    webhook_rules=(
        RoleRule("", "nodes pods resourcequotas", READ),
        RoleRule("resource.k8s.io", "deviceclasses resourceclaims resourceclaimtemplates", READ),
    ),
    traces=(
        InstallTrace(NODES, _uncordoned, "takes pods again"),
        InstallTrace(RESOURCE_QUOTAS, _without_amounts, "does not show reserved amounts any more"),
    ),
)
_EMBEDDED = EmbeddedAccess(scheduler=(RoleRule(KOORDINATOR, "*", f"create delete patch update {READ}"),))
INSTALLATION = Installation(_COMPONENT, _EMBEDDED)
