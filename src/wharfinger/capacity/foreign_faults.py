"""What is wrong with NodePools and with objects of Cluster API, in the fields that are read here. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from wharfinger.api.fields import FieldError, invalid, not_supported, required
from wharfinger.api.numbers import parse_uint64
from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.registry import Document

CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-"
_LISTS, _BOUNDS = ("In", "NotIn"), ("Gt", "Lt", "Gte", "Lte")
_OPERATORS = (*_LISTS, "Exists", "DoesNotExist", *_BOUNDS)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_AMOUNTS = ("cpu", "memory", "ephemeral-disk", "maxPods", "gpu-count")


def foreign_faults(document: Document) -> list[FieldError]:
    return list(_node_pool(document) if document.get("kind") == "NodePool" else _machines(document))


def _node_pool(document: Document) -> Iterator[FieldError]:
    spec = yield from _map(document, "spec", "spec")
    limits = yield from _map(spec, "limits", "spec.limits")
    for name, text in limits.items():
        yield from _quantity(text, f"spec.limits.{name}")
    yield from _whole(spec, "weight", "spec.weight")
    yield from _whole(spec, "replicas", "spec.replicas")
    template = yield from _map(spec, "template", "spec.template")
    metadata = yield from _map(template, "metadata", "spec.template.metadata")
    labels = yield from _map(metadata, "labels", "spec.template.metadata.labels")
    for name, text in labels.items():
        if not isinstance(text, str):
            yield invalid(f"spec.template.metadata.labels.{name}", text, "must be a string")
    inner = yield from _map(template, "spec", "spec.template.spec")
    for path, each in (yield from _maps(inner, "requirements", "spec.template.spec.requirements")):
        yield from _requirement(each, path)
    for path, each in (yield from _maps(inner, "taints", "spec.template.spec.taints")):
        if not isinstance(each.get("key"), str) or not each["key"]:
            yield required(f"{path}.key")
        if each.get("effect") not in _EFFECTS:
            yield not_supported(f"{path}.effect", each.get("effect"), _EFFECTS)


def _requirement(each: Document, path: str) -> Iterator[FieldError]:
    operator, values = each.get("operator"), each.get("values")
    if not isinstance(each.get("key"), str) or not each["key"]:
        yield required(f"{path}.key")
    if operator not in _OPERATORS:
        yield not_supported(f"{path}.operator", operator, _OPERATORS)
    if values is not None and not (isinstance(values, list) and all(isinstance(text, str) for text in values)):
        yield invalid(f"{path}.values", values, "must be a list of strings")
    elif operator in _LISTS and not values:
        yield required(f"{path}.values", f"operator {operator} needs values")
    elif operator in _BOUNDS and (len(values or ()) != 1 or parse_uint64((values or [""])[0]) is None):
        yield invalid(f"{path}.values", values, f"operator {operator} needs one whole number")


def _machines(document: Document) -> Iterator[FieldError]:
    spec = yield from _map(document, "spec", "spec")
    yield from _whole(spec, "replicas", "spec.replicas")
    metadata = yield from _map(document, "metadata", "metadata")
    annotations = yield from _map(metadata, "annotations", "metadata.annotations")
    for name, text in annotations.items():
        path = f"metadata.annotations.{name}"
        if name == f"{SIZE}max-size" and parse_uint64(str(text)) is None:
            yield invalid(path, text, "must be a whole number")
        elif name.startswith(CAPACITY) and name.removeprefix(CAPACITY) in _AMOUNTS:
            yield from _quantity(text, path)
        elif name == f"{CAPACITY}taints":
            for taint in filter(None, (part.strip() for part in str(text).split(","))):
                if taint.rpartition(":")[2] not in _EFFECTS:
                    yield invalid(path, taint, "must have the form key=value:Effect")


def _map(parent: Document, name: str, path: str) -> Generator[FieldError, None, Document]:
    """The object in a field, empty if it is absent or something else."""
    value = parent.get(name)
    if value is not None and not isinstance(value, dict):
        yield invalid(path, value, "must be an object")
    return value if isinstance(value, dict) else {}


def _maps(parent: Document, name: str, path: str) -> Generator[FieldError, None, list[tuple[str, Document]]]:
    """The objects in a list, with their paths."""
    value = parent.get(name)
    if value is not None and not isinstance(value, list):
        yield invalid(path, value, "must be a list")
    found = []
    for index, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(each, dict):
            found.append((f"{path}[{index}]", each))
        else:
            yield invalid(f"{path}[{index}]", each, "must be an object")
    return found


def _whole(parent: Document, name: str, path: str) -> Iterator[FieldError]:
    value = parent.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        yield invalid(path, value, "must be a whole number that is not negative")


def _quantity(text: Any, path: str) -> Iterator[FieldError]:
    try:
        fine = isinstance(text, str | int | float) and parse_nano(text) >= 0
    except BadQuantity:
        fine = False
    if not fine:
        yield invalid(path, text, "must be a quantity such as 4 or 16Gi")
