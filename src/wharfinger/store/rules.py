"""Differences between kinds, as in the registry strategies of Kubernetes (pkg/registry/*/strategy.go)."""

from __future__ import annotations

from wharfinger.api.registry import Document, Kind


def is_pod(kind: Kind) -> bool:
    return kind.plural == "pods" and not kind.group


def is_namespace(kind: Kind) -> bool:
    return kind.plural == "namespaces" and not kind.group


def separate(kind: Kind, subresource: str, new: Document, old: Document) -> None:
    """Restores, in place, the fields that a write to this subresource cannot change."""
    if subresource == "":
        if kind.status:
            _restore(new, old, "status")
        if kind.prepare_update is not None:
            kind.prepare_update(new, old)
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
    elif subresource == "approval":
        conditions = (new.get("status") or {}).get("conditions")
        for field in set(new) | set(old):
            if field != "metadata":
                _restore(new, old, field)
        new["status"] = {**(old.get("status") or {}), **({} if conditions is None else {"conditions": conditions})}


def _separate_status(kind: Kind, new: Document, old: Document) -> None:
    if not kind.builtin:
        _keep_only(new, old, ("status",))
        return
    for field in set(new) | set(old):
        if field not in ("metadata", "status"):
            _restore(new, old, field)
    if kind.prepare_status is not None:
        kind.prepare_status(new, old)


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
