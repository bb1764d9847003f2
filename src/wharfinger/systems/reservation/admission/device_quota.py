"""Quota for the devices that reservations hold: as much as the claims of pods from the template will be charged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from wharfinger.admission.reads import Derived, Reads
from wharfinger.api.device_quota import CLAIM_COUNT, ExtendedNames, device_claim_usage, extended_names
from wharfinger.api.kinds.builtin import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES
from wharfinger.api.registry import Document
from wharfinger.api.resources import Amounts
from wharfinger.api.views.pods import PodSpec
from wharfinger.client.informer import InformerSet

_DOCUMENT: type[Document] = dict


class ClaimTemplates(Protocol):
    """The objects that say what claims from templates cost."""

    def template(self, namespace: str, name: str) -> Document | None: ...

    def extended(self) -> ExtendedNames: ...


class StoredClaimTemplates:
    """Reads from the store."""

    def __init__(self, objects: Reads) -> None:
        self._objects = objects
        self._extended = Derived(
            objects, DEVICE_CLASSES, lambda found: extended_names(each.document() for each in found)
        )

    def template(self, namespace: str, name: str) -> Document | None:
        kept = self._objects.peek(RESOURCE_CLAIM_TEMPLATES, name, namespace)
        return None if kept is None else kept.document()

    def extended(self) -> ExtendedNames:
        return self._extended.get()


class WatchedClaimTemplates:
    """Reads informers. A cluster without these kinds has no devices."""

    def __init__(self, informers: InformerSet) -> None:
        self._templates = informers.of(RESOURCE_CLAIM_TEMPLATES, _DOCUMENT)
        self._classes = informers.of(DEVICE_CLASSES, _DOCUMENT)
        self._templates.optional = self._classes.optional = True

    def template(self, namespace: str, name: str) -> Document | None:
        return self._templates.get(name, namespace)

    def extended(self) -> ExtendedNames:
        return extended_names(self._classes)


def devices_of(spec: PodSpec, namespace: str, templates: ClaimTemplates) -> Amounts:
    """What the claims that are made for a pod are charged, by quota resource name. Claims that exist already are charged
    themselves."""
    total: Amounts = {}
    names = [each.resource_claim_template_name for each in spec.resource_claims if each.resource_claim_template_name]
    extended = templates.extended() if names else {}
    for name in names:
        template = templates.template(namespace, name)
        if template is not None:
            for quota_name, amount in device_claim_usage(template.get("spec") or {}, extended, {}).items():
                if quota_name != CLAIM_COUNT:
                    total[quota_name] = total.get(quota_name, 0) + amount
    return total


def left_of(reserved: Amounts, users: Iterable[Amounts]) -> Amounts:
    """What is charged for the reservation itself while its users are charged for theirs."""
    left = dict(reserved)
    for used in users:
        for name, amount in used.items():
            if name in left:
                left[name] = max(0, left[name] - amount)
    return {name: amount for name, amount in left.items() if amount}
