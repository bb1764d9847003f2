"""Differences between kinds, as in the registry strategies of Kubernetes (pkg/registry/*/strategy.go)."""

from __future__ import annotations

from wharfinger.api.registry import Document, Kind

_BUILT_IN_GROUPS = frozenset(
    {"", "apps", "autoscaling", "batch", "extensions", "policy"}
    | {
        f"{name}.k8s.io"
        for name in (
            "admissionregistration",
            "apiextensions",
            "apiregistration",
            "authentication",
            "authorization",
            "certificates",
            "coordination",
            "discovery",
            "events",
            "flowcontrol.apiserver",
            "networking",
            "node",
            "rbac.authorization",
            "resource",
            "scheduling",
            "storage",
        )
    }
)
_CREATE_ON_UPDATE = frozenset(
    {
        ("", "endpoints"),
        ("", "events"),
        ("", "limitranges"),
        ("", "services"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "roles"),
    }
)
_VERSION_NEEDED = frozenset(
    {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("policy", "poddisruptionbudgets"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("storage.k8s.io", "volumeattachments"),
    }
)


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def is_pod(kind: Kind) -> bool:
    return kind.plural == "pods" and not kind.group


def is_namespace(kind: Kind) -> bool:
    return kind.plural == "namespaces" and not kind.group


def built_in(kind: Kind) -> bool:
    """Whether this is a kind of Kubernetes itself; others behave like custom resources."""
    return kind.group in _BUILT_IN_GROUPS


def counts_annotations(kind: Kind) -> bool:
    """Whether a change of annotations increments metadata.generation: deployments copy them to their replica sets."""
    return kind.plural == "deployments" and kind.group == "apps"


def creates_on_update(kind: Kind) -> bool:
    return (kind.group, kind.plural) in _CREATE_ON_UPDATE


def needs_version(kind: Kind) -> bool:
    """Whether an update must set metadata.resourceVersion."""
    return not built_in(kind) or (kind.group, kind.plural) in _VERSION_NEEDED


def separate(kind: Kind, subresource: str, new: Document, old: Document) -> None:
    """Restores, in place, the fields that a write to this subresource cannot change."""
    if subresource == "":
        if kind.status:
            _restore(new, old, "status")
        if is_namespace(kind):
            _restore_within(new, old, "spec", "finalizers")
        elif kind.plural == "daemonsets" and kind.group == "apps":
            count_templates(new, old)
    elif subresource == "status":
        _separate_status(kind, new, old)
    elif subresource == "finalize":
        finalizers = (new.get("spec") or {}).get("finalizers")
        _keep_only(new, old, ())
        new["spec"] = {**(old.get("spec") or {}), "finalizers": finalizers or []}
    elif subresource == "ephemeralcontainers":
        containers = (new.get("spec") or {}).get("ephemeralContainers")
        _keep_only(new, old, ())
        new["spec"] = dict(old.get("spec") or {})
        if containers is not None:
            new["spec"]["ephemeralContainers"] = containers
    elif subresource == "resize":
        _separate_resize(new, old)


def count_templates(new: Document, old: Document | None) -> None:
    """Counts the changes of a daemon set's template in an annotation, which replaces a removed field."""
    annotations = new["metadata"].get("annotations")
    before = 0
    if old is not None:
        given = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION)
        before = int(given) if isinstance(given, str) and given.isdecimal() else 1
        if (new.get("spec") or {}).get("template") == (old.get("spec") or {}).get("template"):
            before -= 1
    if annotations is None or isinstance(annotations, dict):  # validation rejects any other type
        new["metadata"]["annotations"] = {**(annotations or {}), TEMPLATE_GENERATION: str(before + 1)}


def _separate_status(kind: Kind, new: Document, old: Document) -> None:
    if not built_in(kind):
        _keep_only(new, old, ("status",))
        return
    for field in set(new) | set(old):
        if field not in ("metadata", "status"):
            _restore(new, old, field)
    if is_pod(kind):
        _restore_within(new, old, "metadata", "ownerReferences")
        status, before = new.get("status") or {}, old.get("status") or {}
        if not status.get("qosClass") and before.get("qosClass"):
            new["status"] = {**status, "qosClass": before["qosClass"]}
        if not status.get("observedGeneration") and before.get("observedGeneration"):
            new["status"] = {**new["status"], "observedGeneration": before["observedGeneration"]}
    elif kind.plural == "deployments":
        _restore_within(new, old, "metadata", "labels")


def _separate_resize(new: Document, old: Document) -> None:
    """Takes over only resources and resize policies of existing containers, and pod-level resources."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    _keep_only(new, old, ())
    taken = dict(before)
    for group in ("containers", "initContainers"):
        wanted = {container.get("name"): container for container in spec.get(group) or ()}
        if before.get(group):
            taken[group] = [_resized(container, wanted.get(container.get("name"))) for container in before[group]]
    if "resources" in spec:
        taken["resources"] = spec["resources"]
    new["spec"] = taken


def _resized(container: Document, wanted: Document | None) -> Document:
    if wanted is None:
        return container
    changed: Document = {field: wanted[field] for field in ("resources", "resizePolicy") if field in wanted}
    return {**container, **changed}


def _keep_only(new: Document, old: Document, fields: tuple[str, ...]) -> None:
    """Restores everything except the given fields and the resource version of the request."""
    kept = {field: new[field] for field in fields if field in new}
    version = new["metadata"].get("resourceVersion")
    new.clear()
    new.update(old)
    for field in fields:
        new.pop(field, None)
    new.update(kept)
    new["metadata"] = dict(old["metadata"])
    if version is not None:
        new["metadata"]["resourceVersion"] = version


def _restore(new: Document, old: Document, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _restore_within(new: Document, old: Document, part: str, field: str) -> None:
    before = old.get(part) or {}
    if field in before:
        new[part] = {**(new.get(part) or {}), field: before[field]}
    elif new.get(part):
        new[part].pop(field, None)
