"""CustomResourceDefinition manifests of our kinds."""

from __future__ import annotations

from wharfinger.api.registry import Column, Document, Kind, Registry


def crd(kind: Kind) -> Document:
    """The CustomResourceDefinition manifest of a kind."""
    storage = kind.storage_version or kind.versions[0]
    names: Document = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.singular or kind.kind.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind, version, storage=version == storage) for version in kind.versions],
        },
    }


def _version(kind: Kind, version: str, *, storage: bool) -> Document:
    made: Document = {"name": version, "served": True, "storage": storage}
    if kind.schema is not None:
        made["schema"] = {"openAPIV3Schema": kind.schema(version)}
    columns = [_column(column) for column in kind.columns if column.path]
    if columns:
        made["additionalPrinterColumns"] = columns
    subresources: Document = {}
    if kind.status:
        subresources["status"] = {}
    if kind.scale is not None:
        scale = {"specReplicasPath": f".{kind.scale.spec_path}", "statusReplicasPath": f".{kind.scale.status_path}"}
        if kind.scale.selector_path:
            scale["labelSelectorPath"] = f".{kind.scale.selector_path}"
        subresources["scale"] = scale
    if subresources:
        made["subresources"] = subresources
    if kind.selectable:
        made["selectableFields"] = [{"jsonPath": f".{path}"} for path in kind.selectable]
    return made


def _column(column: Column) -> Document:
    made: Document = {"name": column.name, "type": column.type, "jsonPath": f".{column.path}"}
    if column.description:
        made["description"] = column.description
    if column.priority:
        made["priority"] = column.priority
    return made


def crds(registry: Registry) -> list[Document]:
    """The manifests of all our kinds, by name."""
    return sorted((crd(kind) for kind in registry if kind.ours), key=lambda made: str(made["metadata"]["name"]))
