"""Validation of the claims that pods name, and of what their status says about claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, required, show
from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults
from wharfinger.api.validation.devices.wording import Faults, child_list, label_name_faults
from wharfinger.api.validation.selectors import each

_MIRROR = "kubernetes.io/config.mirror"
_REFERENCES = ("resourceClaimName", "resourceClaimTemplateName")


def pod_claims_faults(spec: Mapping[str, Any], path: str) -> Faults:
    """The claims of a pod, and those that its containers use."""
    claims: list[Document] = spec.get("resourceClaims") or []
    names: set[str] = set()
    for index, claim in enumerate(claims):
        yield from _claim_faults(claim, f"{path}.resourceClaims[{index}]", names)
    known = sorted({claim["name"] for claim in claims if claim.get("name")})
    for part in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in each(spec, part):
            used = (container.get("resources") or {}).get("claims") or ()
            if used:
                yield from _used_faults(used, known, f"{path}.{part}[{index}].resources.claims")


def mirror_claims_faults(document: Document) -> Faults:
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    if _MIRROR in annotations and (document.get("spec") or {}).get("resourceClaims"):
        yield forbidden("", "static pods do not support resource claims")


def _claim_faults(claim: Document, path: str, names: set[str]) -> Faults:
    name = claim.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    elif name in names:
        yield duplicate(f"{path}.name", name)
    else:
        yield from label_name_faults(name, f"{path}.name")
        names.add(name)
    given = [each for each in _REFERENCES if claim.get(each) is not None]
    if len(given) != 1:
        shown = {"Name": name, **{f"R{each[1:]}": claim.get(each) for each in _REFERENCES}}
        several = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        none = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        yield invalid(path, shown, several if given else none)
    for reference in given:
        yield from name_faults(dns_subdomain, claim[reference], f"{path}.{reference}")


def _used_faults(used: list[Document], known: list[str], path: str) -> Faults:
    seen: set[str] = set()
    for index, claim in enumerate(used):
        here, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield required(here)
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            yield duplicate(here, name)
        else:
            if request:
                yield from label_name_faults(request, f"{here}.request")
            if key in seen:
                yield duplicate(here, key)
            elif not request:
                for other in seen:
                    if other.partition("/")[0] == name:
                        yield duplicate(here, name)
            seen.add(key)
        if name not in known:
            choices = f": {', '.join(known)}" if known else " which is empty"
            detail = f"must be one of the names in pod.spec.resourceClaims{choices}"
            yield FieldError(here, "FieldValueNotFound", f"Not found: {show(name)}: {detail}")


def pod_claim_statuses_faults(document: Document) -> Faults:
    """What the status of a pod says about its claims."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    known = {claim.get("name") for claim in child_list(spec, "resourceClaims")}
    seen: set[str] = set()
    for index, entry in each(status, "resourceClaimStatuses"):
        path, name = f"status.resourceClaimStatuses[{index}]", entry.get("name") or ""
        if name not in known:
            yield invalid(f"{path}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if entry.get("resourceClaimName") is not None:
            yield from name_faults(dns_subdomain, entry["resourceClaimName"], f"{path}.resourceClaimName")
    if status.get("extendedResourceClaimStatus") is not None:
        yield from _extended_faults(status["extendedResourceClaimStatus"], spec, "status.extendedResourceClaimStatus")


def _extended_faults(status: Document, spec: Document, path: str) -> Faults:
    containers = {
        container.get("name"): container
        for part in ("initContainers", "containers")
        for container in child_list(spec, part)
    }
    mappings = child_list(status, "requestMappings")
    if not mappings:
        yield required(f"{path}.requestMappings", "at least one request mapping is required")
    seen: set[tuple[str, ...]] = set()
    for index, mapping in enumerate(mappings):
        here = f"{path}.requestMappings[{index}]"
        names = ("containerName", "resourceName", "requestName")
        key = tuple(mapping.get(name) or "" for name in names)
        if key[0] not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            yield invalid(f"{here}.containerName", key[0], detail)
        elif key[1] not in ((containers[key[0]].get("resources") or {}).get("requests") or {}):
            detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"
            yield invalid(f"{here}.resourceName", key[1], detail)
        yield from label_name_faults(key[2], f"{path}.requestName")
        if key in seen:
            for name, value in zip(names, key):
                yield duplicate(f"{here}.{name}", value)
        seen.add(key)
    if not status.get("resourceClaimName"):
        yield required(f"{path}.resourceClaimName")
    else:
        yield from name_faults(dns_subdomain, status["resourceClaimName"], f"{path}.resourceClaimName")
