"""The rights that each of our processes needs on a real cluster, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document
from wharfinger.api.rights import EVENTS, RBAC, READ, REVIEWS
from wharfinger.contributions import InstallComponent, RoleRule
from wharfinger.install.components import system_processes

_SCHEDULER = (
    RoleRule(
        "", "namespaces nodes persistentvolumeclaims persistentvolumes pods replicationcontrollers services", READ
    ),
    RoleRule("", "pods", "delete patch"),
    RoleRule("", "persistentvolumeclaims persistentvolumes", "patch update"),
    RoleRule("", "pods/binding", "create"),
    RoleRule("", "pods/status", "patch update"),
    RoleRule("apps", "replicasets statefulsets", READ),
    RoleRule("policy", "poddisruptionbudgets", READ),
    RoleRule("storage.k8s.io", "csidrivers csinodes csistoragecapacities storageclasses volumeattachments", READ),
    RoleRule(
        "resource.k8s.io", "deviceclasses devicetaintrules resourceclaims resourceclaimtemplates resourceslices", READ
    ),
    RoleRule("resource.k8s.io", "resourceclaims", "create delete patch update"),
    RoleRule("resource.k8s.io", "resourceclaims/binding resourceclaims/status", "patch update"),
    *REVIEWS,  # who reads metrics
    *EVENTS,
)
_WEBHOOK = (
    RoleRule("", "namespaces", READ),
    RoleRule("", "pods", "get"),  # a pod that is bound by another scheduler
    RoleRule("scheduling.k8s.io", "priorityclasses", READ),
    RoleRule(RBAC, "clusterrolebindings clusterroles rolebindings roles", READ),
    *REVIEWS,  # what users may use, and who reads metrics
    *EVENTS,
)


def cluster_rules(process: str, components: Sequence[InstallComponent], configurations: str) -> list[Document]:
    """The rules of a process's ClusterRole. `configurations` is the name of the webhook configurations."""
    if process == "scheduler":
        return _documents(_SCHEDULER, *(component.scheduler_rules for component in components))
    if process == "controllers":
        return _documents(EVENTS, REVIEWS, *(component.controller_rules for component in components))
    if process == "webhook":
        return _documents(_webhook_rules(components, configurations))
    if process == "dashboard":
        return _documents(_dashboard_rules())
    return _documents(system_processes()[process].cluster_rules, REVIEWS)


def _webhook_rules(components: Sequence[InstallComponent], configurations: str) -> Iterable[RoleRule]:
    kinds = [kind for component in components for kind in component.kinds]
    admission = "mutatingwebhookconfigurations validatingwebhookconfigurations"
    yield from _WEBHOOK
    yield from (RoleRule(group, plural, READ) for group, plural in kinds)
    yield from (rule for component in components for rule in component.webhook_rules)
    yield RoleRule("admissionregistration.k8s.io", admission, "get update", (configurations,))
    if kinds:
        names = tuple(f"{plural}.{group}" for group, plural in kinds)
        yield RoleRule("apiextensions.k8s.io", "customresourcedefinitions", "get update", names)


def _dashboard_rules() -> Iterable[RoleRule]:
    """What the dashboard holds a copy of. It shows each caller only what that caller may list."""
    plurals: dict[str, set[str]] = {}
    for kind in registry():
        if kind.stored and kind.in_snapshots and "list" in kind.verbs:
            plurals.setdefault(kind.group, set()).add(kind.plural)
    plurals.setdefault("", set()).add("events")
    yield from (RoleRule(group, " ".join(sorted(names)), READ) for group, names in sorted(plurals.items()))


def _documents(*groups: Iterable[RoleRule]) -> list[Document]:
    """Each rule once, sorted: the order must not depend on which component asks for a rule first."""
    documents = [rule.document() for rule in dict.fromkeys(rule for group in groups for rule in group)]
    return sorted(documents, key=lambda each: [*each["apiGroups"], *each["resources"], *each["verbs"]])
