"""Warnings about core kinds other than pods."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from wharfinger.api.quantity import canonical, parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.warnings.common import (
    address_warnings,
    annotations_of,
)

_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"

_TOPOLOGY_HINTS, _TOPOLOGY_MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"


def node_warnings(new: Document, old: Document | None) -> Iterator[str]:
    spec = new.get("spec") or {}
    if spec.get("configSource") is not None:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


def quota_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if old is not None:
        return
    hard = (new.get("spec") or {}).get("hard") or {}
    for resource in ("cpu", "memory", "ephemeral-storage"):
        asked, limit = f"requests.{resource}", f"limits.{resource}"
        if asked not in hard and resource in ("cpu", "memory"):
            asked = resource
        if hard.get(asked) is None or hard.get(limit) is None:
            continue
        if parse_nano(hard[asked]) > parse_nano(hard[limit]):
            most = f"{limit} ({canonical(hard[limit])})"
            yield f"ResourceQuota {asked} ({canonical(hard[asked])}) should be less than {most}"


def secret_warnings(new: Document, old: Document | None) -> Iterator[str]:
    """Warnings about a TLS secret; of upstream's checks only that both parts contain PEM data."""
    if new.get("type") != "kubernetes.io/tls":
        return
    data = new.get("data") or {}
    for key, what in (("tls.crt", "certificate"), ("tls.key", "key")):
        try:
            plain = base64.b64decode(data.get(key) or "")
        except (binascii.Error, ValueError):
            return
        if b"-----BEGIN" not in plain:
            yield f"tls: failed to find any PEM data in {what} input"
            return


def service_account_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if _MOUNTABLE in annotations_of(new) and (old is None or _MOUNTABLE not in annotations_of(old)):
        prefer = "prefer separate namespaces to isolate access to mounted secrets"
        yield f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; {prefer}"


def service_warnings(new: Document, old: Document | None) -> Iterator[str]:
    spec = new.get("spec") or {}
    kind, external = spec.get("type"), spec.get("externalIPs") or ()
    if _TOPOLOGY_HINTS in annotations_of(new):
        yield f"annotation {_TOPOLOGY_HINTS} is deprecated, please use {_TOPOLOGY_MODE} instead"
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if spec.get("clusterIP") not in ("", None, "None"):
        for index, address in enumerate(spec.get("clusterIPs") or ()):
            yield from address_warnings(address, f"spec.clusterIPs[{index}]")
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if external:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for index, address in enumerate(external):
        yield from address_warnings(address, f"spec.externalIPs[{index}]")
    if external and not headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("loadBalancerIP"):
        yield from address_warnings(spec["loadBalancerIP"], "spec.loadBalancerIP")
    if kind == "ExternalName" and external:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
