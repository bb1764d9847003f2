"""Compares our CustomResourceDefinitions with those of Open Cluster Management, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.ocm.hubs import GROUP

from wharfinger.api.kinds import registry
from wharfinger.api.schema.crds import crd

ATOMIC = ("x-kubernetes-list-type", "atomic")  # what lists are if nothing is said
MEMBERS_ONLY = "ClusterClaim"  # a kind of member clusters, not of hubs


def schema_differences(files: list[Path]) -> Iterator[tuple[str, str]]:
    """Where they differ, and how: (`Placement v1beta1 spec.numberOfClusters minimum`, `only ours: 0`)."""
    theirs = {
        made["spec"]["names"]["kind"]: made["spec"] for made in (yaml.safe_load(path.read_text()) for path in files)
    }
    ours = {kind.kind: crd(kind)["spec"] for kind in registry() if kind.group == GROUP}
    for kind in sorted({*theirs, *ours} - {MEMBERS_ONLY}):
        if kind not in theirs or kind not in ours:
            yield kind, "only ours" if kind in ours else "only theirs"
            continue
        for path, how in _kind(theirs[kind], ours[kind]):
            yield f"{kind} {path}", how


def _kind(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _parts("names", theirs["names"], ours["names"])
    yield from _parts("scope", theirs["scope"], ours["scope"])
    mine = {version["name"]: version for version in ours["versions"]}
    for version in theirs["versions"]:
        name = version["name"]
        if name not in mine:
            yield name, "only theirs"
            continue
        columns = [_columns(each) for each in (version, mine[name])]
        yield from _parts(f"{name} columns", *columns)
        yield from _parts(f"{name} subresources", version.get("subresources"), mine[name].get("subresources"))
        schemas = [each["schema"]["openAPIV3Schema"] for each in (version, mine[name])]
        yield from _schema(f"{name} ", *schemas)


def _columns(version: dict[str, Any]) -> dict[str, Any]:
    columns = version.get("additionalPrinterColumns") or []
    return {each["name"]: {key: value for key, value in each.items() if key != "description"} for each in columns}


def _parts(path: str, theirs: Any, ours: Any) -> Iterator[tuple[str, str]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            if key not in ours or key not in theirs:
                yield f"{path} {key}", f"only ours: {ours[key]}" if key in ours else f"only theirs: {theirs[key]}"
            else:
                yield from _parts(f"{path} {key}", theirs[key], ours[key])
    elif _sorted(theirs) != _sorted(ours):
        yield path, f"theirs: {theirs}, ours: {ours}"


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) and all(isinstance(item, str) for item in value) else value


def _schema(path: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """`path` ends with the name of a field, or with the version."""
    nested = ("properties", "items", "additionalProperties", "description")
    rest = [
        {key: value for key, value in each.items() if key not in nested and (key, value) != ATOMIC}
        for each in (theirs, ours)
    ]
    yield from _parts(path.rstrip("."), *rest)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        inner = [each.get(key) for each in (theirs, ours)]
        if all(isinstance(each, dict) for each in inner):
            yield from _schema(f"{path.rstrip('.')}{mark}.", *inner)
        elif inner[0] != inner[1]:
            yield f"{path}{mark}", f"theirs: {inner[0]}, ours: {inner[1]}"
    fields = [each.get("properties") or {} for each in (theirs, ours)]
    for name in sorted({*fields[0], *fields[1]}):
        if not all(name in each for each in fields):
            yield f"{path}{name}", "only ours" if name in fields[1] else "only theirs"
        else:
            yield from _schema(f"{path}{name}.", fields[0][name], fields[1][name])
