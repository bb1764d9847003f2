"""Warnings about the volumes of a pod: removed plugins, and files of a volume with the same path."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.api.token_volumes import is_token_volume
from wharfinger.api.warnings.common import fraction_warnings

DEPRECATED_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_SHOWN_AS = {"storageos": "storageOS"}

Source = tuple[str, str]  # a path in the volume, and the source of the file


def volume_warnings(volumes: list[Document], path: str) -> Iterator[str]:
    if all(map(is_token_volume, volumes)):
        return  # nothing to warn about, and true of most pods
    for index, volume in enumerate(volumes):
        for name, why in DEPRECATED_VOLUMES.items():
            if volume.get(name) is not None:
                yield f"{path}[{index}].{shown_name(name)}: {why}"
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
        resources = (template.get("spec") or {}).get("resources") or {}
        for kind in ("requests", "limits") if resources else ():
            place = f"{path}[{index}].ephemeral.volumeClaimTemplate.spec.resources.{kind}"
            yield from fraction_warnings(resources.get(kind), ("storage",), place)
    for volume in volumes:
        yield from _overlaps(volume)


def shown_name(volume: str) -> str:
    return _SHOWN_AS.get(volume, volume)


def _overlaps(volume: Document) -> Iterator[str]:
    name = volume.get("name", "")
    for field, shown in (("configMap", 'ConfigMap "{name}"'), ("secret", 'Secret "{secretName}"')):
        if (source := volume.get(field)) and source.get("items"):
            title = shown.format(name=source.get("name", ""), secretName=source.get("secretName", ""))
            yield from _colliding(name, title, _paths(source, ""))
    if (source := volume.get("downwardAPI")) and source.get("items"):
        yield from _colliding(name, "DownwardAPI", _paths(source, ""))
    if volume.get("projected") is not None:
        sources = volume["projected"].get("sources") or ()
        for source in sources:
            if not source:
                yield f'volume "{name}" (Projected) has no sources provided'
        yield from _colliding(name, "Projected", [one for source in sources for one in _projected(source)])


def _paths(source: Document, title: str) -> list[Source]:
    return [(str(item.get("path", "")), title) for item in source.get("items") or ()]


def _projected(source: Document) -> list[Source]:
    for field, title in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if (part := source.get(field)) and part.get("items"):
            return _paths(part, f'{title} "{part.get("name", "")}"')
    if (part := source.get("downwardAPI")) and part.get("items"):
        return _paths(part, "DownwardAPI")
    if part := source.get("serviceAccountToken"):
        return [(part.get("path", ""), "ServiceAccountToken")]
    if part := source.get("clusterTrustBundle"):
        return [(part.get("path", ""), f'ClusterTrustBundle "{part.get("name") or part.get("signerName") or ""}"')]
    if part := source.get("podCertificate"):
        titles: tuple[tuple[str, str], ...] = (
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        )
        return [(part[field], title) for field, title in titles if part.get(field)]
    return []


def _colliding(volume: str, title: str, sources: list[Source]) -> Iterator[str]:
    known: list[Source] = []
    for given, origin in sources:
        path = given.rstrip("/")
        for other in known if path else ():
            if other[0] and (f"{other[0]}/".startswith(f"{path}/") or f"{path}/".startswith(f"{other[0]}/")):
                yield f'volume "{volume}" ({title}): overlapping paths: {_said((path, origin))} with {_said(other)}'
        known.append((path, origin))


def _said(source: Source) -> str:
    path, origin = source
    return f'"{path}" ({origin})' if origin else f'"{path}"'
