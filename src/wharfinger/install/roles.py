"""Who may do what: for each of our processes the rights it needs on a real cluster, and no more."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.groups import SIGS
from wharfinger.api.registry import Document
from wharfinger.install.components import WHARFINGER, Component
from wharfinger.systems.placement.kinds.names import OCM
from wharfinger.systems.reservation.kinds.names import KOORDINATOR
from wharfinger.systems.scheduling_policy.rules import shipped

RBAC = "rbac.authorization.k8s.io"
LEASES = "coordination.k8s.io"
READ = "get list watch"
EVENTS = (("", "events", "create patch update"), ("events.k8s.io", "events", "create patch update"))
_SCHEDULER = (
    ("", "namespaces nodes persistentvolumeclaims persistentvolumes pods replicationcontrollers services", READ),
    ("", "pods", "delete patch"),
    ("", "persistentvolumeclaims persistentvolumes", "patch update"),
    ("", "pods/binding", "create"),
    ("", "pods/status", "patch update"),
    ("apps", "replicasets statefulsets", READ),
    ("policy", "poddisruptionbudgets", READ),
    ("storage.k8s.io", "csidrivers csinodes csistoragecapacities storageclasses volumeattachments", READ),
    ("resource.k8s.io", "deviceclasses resourceclaims resourceslices", READ),
    *EVENTS,
)
# What each component adds to the scheduler's and the controllers' rights.
_SCHEDULER_OF = {
    "reservation": (
        (KOORDINATOR, "reservations", f"create delete patch {READ}"),
        (KOORDINATOR, "reservations/status", "patch update"),
    ),
    "resource-policy": ((SIGS, "resourcepolicies", READ),),
    "resource-class": ((SIGS, "nodecomputeresources resourceclasses", READ),),
}
_CONTROLLERS_OF = {
    "reservation": (
        ("", "nodes pods", READ),
        ("", "resourcequotas", f"patch {READ}"),
        ("", "pods/eviction", "create"),
        (KOORDINATOR, "reservations podmigrationjobs", f"create delete patch update {READ}"),
        (KOORDINATOR, "reservations/status podmigrationjobs/status", "patch update"),
        (WHARFINGER, "reservationsets", f"patch update {READ}"),
        (WHARFINGER, "reservationsets/status", "patch update"),
    ),
    "resource-policy": (
        ("", "nodes", READ),
        ("", "pods", f"patch {READ}"),
        ("apps", "replicasets", READ),
        (KOORDINATOR, "reservations", f"patch {READ}"),
        (SIGS, "resourcepolicies", READ),
        (SIGS, "resourcepolicies/status", "patch update"),
    ),
    "resource-class": (
        ("", "nodes pods", READ),
        (SIGS, "nodecomputeresources resourceclasses", READ),
        (SIGS, "resourceclasses/status nodecomputeresources/status", "patch update"),
    ),
    # It restores the shipped policies and their roles: what it grants, it must hold.
    "scheduling-policy": (
        ("", "namespaces", READ),
        (SIGS, "schedulingpolicies", f"create update use {READ}"),
        ("extensions", "schedulingpolicies", "use"),
        (SIGS, "schedulingpolicies/status", "patch update"),
        (RBAC, "clusterroles clusterrolebindings rolebindings", "create get"),
    ),
}
_PLACEMENT = (
    ("", "namespaces", f"create {READ}"),
    (LEASES, "leases", f"create {READ}"),
    (OCM, "addonplacementscores", READ),
    (OCM, "managedclusters managedclustersets managedclustersetbindings placements", f"patch update {READ}"),
    (OCM, "managedclustersets placementdecisions", f"create delete patch update {READ}"),
    (
        OCM,
        " ".join(
            f"{plural}/status"
            for plural in (
                "managedclusters",
                "managedclustersets",
                "managedclustersetbindings",
                "placementdecisions",
                "placements",
            )
        ),
        "patch update",
    ),
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
    *EVENTS,
)
_WEBHOOK_OF = {"reservation": (("", "pods resourcequotas", READ),)}
_WEBHOOK = (
    ("", "namespaces", READ),
    ("scheduling.k8s.io", "priorityclasses", READ),
    (RBAC, "clusterrolebindings clusterroles rolebindings roles", READ),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
    *EVENTS,
)


def rule(group: str, resources: str, verbs: str, names: Iterable[str] = ()) -> Document:
    made: Document = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**made, "resourceNames": sorted(names)} if names else made


def cluster_rules(process: str, components: Iterable[Component], configurations: str) -> list[Document]:
    """The rules of a process's ClusterRole. `configurations` is the name of the webhook configurations."""
    names = [component.name for component in components]
    if process == "scheduler":
        return _rules(_SCHEDULER, *(_SCHEDULER_OF.get(name, ()) for name in names))
    if process == "placement":
        return _rules(_PLACEMENT)
    if process == "controllers":
        rules = _rules(EVENTS, *(_CONTROLLERS_OF.get(name, ()) for name in names))
        if "scheduling-policy" in names:
            roles = [role["metadata"]["name"] for role in shipped.roles()]
            bindings = [binding["metadata"]["name"] for binding in shipped.bindings()]
            rules += [
                rule(RBAC, "clusterroles", "bind update", roles),
                rule(RBAC, "clusterrolebindings rolebindings", "delete update", bindings),
            ]
        return rules
    definitions = [f"{plural}.{group}" for component in components for group, plural in component.kinds]
    admission = "mutatingwebhookconfigurations validatingwebhookconfigurations"
    kinds = (((group, plural, READ),) for component in components for group, plural in component.kinds)
    rules = _rules(_WEBHOOK, *kinds, *(_WEBHOOK_OF.get(name, ()) for name in names))
    rules.append(rule("admissionregistration.k8s.io", admission, "get update", [configurations]))
    if definitions:
        rules.append(rule("apiextensions.k8s.io", "customresourcedefinitions", "get update", definitions))
    return rules


def _rules(*groups: Iterable[tuple[str, str, str]]) -> list[Document]:
    made: list[Document] = []
    for group in groups:
        for each in group:
            document = rule(*each)
            if document not in made:
                made.append(document)
    return made
