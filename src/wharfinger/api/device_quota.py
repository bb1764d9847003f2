"""What ResourceClaims are charged to a ResourceQuota: devices by class and, where classes serve extended resources, those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.api.quantity import NANO
from wharfinger.api.registry import Document
from wharfinger.api.resources import Amounts

DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of the claim that a scheduler creates for the extended resources of a pod."""
_MOST_DEVICES = 32  # that a claim may get, and what one for all devices is charged

CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"

ExtendedNames = Mapping[str, str]
"""Device classes to the extended resources that they serve."""


def counts_claims(limits: Iterable[str], extended: ExtendedNames) -> bool:
    """Whether a quota with these limits charges ResourceClaims at all."""
    served = set(extended.values())
    return any(
        name == CLAIM_COUNT
        or name.endswith(DEVICES_OF_CLASS)
        or name.removeprefix(f"requests.{DEVICE_CLASS_PREFIX}") in extended
        or (name.startswith("requests.") and name.removeprefix("requests.") in served)
        for name in limits
    )


def may_count_claims(limits: Iterable[str]) -> bool:
    """Whether it may, depending on DeviceClasses."""
    return any(
        name == CLAIM_COUNT or name.endswith(DEVICES_OF_CLASS) or name.startswith("requests.") for name in limits
    )


def device_claim_usage(document: Document, extended: ExtendedNames, of_pod: Amounts) -> Amounts:
    """What a ResourceClaim costs. `of_pod` is what the pod is charged whose extended resources the claim is for."""
    amounts: Amounts = {}
    for request in ((document.get("spec") or {}).get("devices") or {}).get("requests") or ():
        most: dict[str, int] = {}
        for each in request.get("firstAvailable") or ([request["exactly"]] if request.get("exactly") else ()):
            name = each.get("deviceClassName") or ""
            most[name] = max(most.get(name, 0), _asked_devices(each))
        for name, count in most.items():
            amounts[name] = amounts.get(name, 0) + count * NANO
    charged_names: Amounts = {CLAIM_COUNT: NANO}
    for name, amount in amounts.items():
        charged_names[name + DEVICES_OF_CLASS] = amount
        others = [f"requests.{DEVICE_CLASS_PREFIX}{name}"]
        if name in extended:
            others.append(f"requests.{extended[name]}")
        for other in others:
            if amount > of_pod.get(other, 0):
                charged_names[other] = amount - of_pod.get(other, 0)
    return charged_names


def _asked_devices(request: Document) -> int:
    match request.get("allocationMode"):
        case "All":
            return _MOST_DEVICES
        case "ExactCount":
            return int(request.get("count") or 0)
    return 0


def extended_names(classes: Iterable[Document]) -> ExtendedNames:
    """From DeviceClasses."""
    found = ((each["metadata"]["name"], (each.get("spec") or {}).get("extendedResourceName")) for each in classes)
    return {name: extended for name, extended in found if extended}


def extended_claim_owner(document: Document) -> tuple[str, str] | None:
    """The name and UID of the pod whose extended resources a claim is for; None for any other claim."""
    metadata = document.get("metadata") or {}
    if (metadata.get("annotations") or {}).get(EXTENDED_CLAIM) != "true":
        return None
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            is_pod = (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod")
            return (str(owner.get("name")), str(owner.get("uid"))) if is_pod else None
    return None


def is_extended_claim_of(claim: Document, named: str | None, others: Iterable[Document]) -> bool:
    """Whether a pod is charged for the claim already: its status names the claim or, as long as it names none, this is
    the first of its claims."""
    if named is not None:
        return bool(named == claim["metadata"]["name"])
    own = _age(claim)
    return all(_age(other) >= own for other in others)


def _age(document: Document) -> tuple[str, str]:
    return document["metadata"].get("creationTimestamp") or "", document["metadata"].get("name") or ""
