"""Mirrors Endpoints that users write for Services without a selector into EndpointSlices."""

from __future__ import annotations

import ipaddress

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from wharfinger.api.object_meta import controller_document
from wharfinger.api.registry import Document
from wharfinger.controllers.context import ControllerContext, DocumentController
from wharfinger.controllers.endpoints.controllers import LEADER, STALE_RETRY, service_of
from wharfinger.controllers.endpoints.informed import WrittenVersions
from wharfinger.controllers.endpoints.pods import endpoint_port
from wharfinger.controllers.endpoints.slice_writes import carry_out, delete_slice
from wharfinger.controllers.endpoints.slices import (
    MANAGED_BY,
    SERVICE_NAME,
    TRIGGER_TIME,
    SlicePlan,
    WantedSlices,
    endpoint_details,
    endpoint_key,
    port_key,
    slice_document,
)
from wharfinger.controllers.endpoints.subsets import packed

MIRROR = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
MAX_MIRRORED = 1000  # addresses of one subset
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_MirrorKey = tuple[str, tuple[tuple[str, int, str, str], ...]]


class EndpointSliceMirroringController(DocumentController):
    name = "endpointslicemirroring"
    workers = 5

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._services = context.documents(SERVICES)
        self._endpoints = self.reconciled(ENDPOINTS, deleted=True)
        self._slices = context.documents(ENDPOINT_SLICES)
        self._written = WrittenVersions(self._slices)
        self._by_service = self._slices.index("service", service_of)
        self._services.add_handler(self._service_seen, self._service_changed, self._service_seen)
        self._slices.add_handler(self._slice_seen, self._slice_changed, self._slice_seen)

    def _service_seen(self, service: Document) -> None:
        if _has_no_selector(service):
            self.enqueue(service)

    def _service_changed(self, old: Document, new: Document) -> None:
        if _has_no_selector(old) != _has_no_selector(new):
            self.enqueue(new)

    def _slice_seen(self, document: Document) -> None:
        if _is_mirror(document):
            for key in service_of(document):
                self.queue.add(key)

    def _slice_changed(self, old: Document, new: Document) -> None:
        if _is_mirror(old) or _is_mirror(new):
            for key in (*service_of(old), *service_of(new)):
                self.queue.add(key)

    async def reconcile(self, key: ObjectKey) -> None:
        if not self._written.seen(key):
            self.queue.add_after(key, STALE_RETRY)
            return
        existing = [each for each in self._by_service.get(key) if _is_mirror(each)]
        endpoints = self._endpoints.get(key[1], key[0])
        service = self._services.get(key[1], key[0])
        if endpoints is None or service is None or not _has_no_selector(service) or not should_mirror(endpoints):
            for each in existing:
                await delete_slice(self.client, each)
            return
        wanted, invalid, skipped = mirrored(endpoints)
        if invalid:
            text = f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"
            self._warn(endpoints, "InvalidIPAddress", text)
        if skipped > invalid:
            text = f"A max of {MAX_MIRRORED} addresses can be mirrored to EndpointSlices per Endpoints subset."
            self._warn(endpoints, "TooManyAddressesToMirror", f"{text} {skipped} addresses were skipped")
        made = plan_mirror(endpoints, wanted, existing)
        await carry_out(self.client, self._written, key, endpoints, made)

    def _warn(self, endpoints: Document, reason: str, text: str) -> None:
        self.context.recorder.event(ENDPOINTS, endpoints, "Warning", reason, text)


def should_mirror(endpoints: Document) -> bool:
    metadata = endpoints["metadata"]
    return (metadata.get("labels") or {}).get(SKIP) != "true" and LEADER not in (metadata.get("annotations") or {})


def _has_no_selector(service: Document) -> bool:
    return (service.get("spec") or {}).get("selector") is None


def _is_mirror(document: Document) -> bool:
    return (document["metadata"].get("labels") or {}).get(MANAGED_BY) == MIRROR


def mirrored(endpoints: Document) -> tuple[dict[_MirrorKey, WantedSlices], int, int]:
    """The wanted endpoints by address type and ports, how many addresses are invalid, and how many are left out."""
    wanted: dict[_MirrorKey, WantedSlices] = {}
    invalid = skipped = 0
    for subset in packed(endpoints.get("subsets") or ()):
        ports = [endpoint_port(port, port["port"]) for port in subset.get("ports") or ()]
        both = {
            family: wanted.setdefault((family, port_key(ports)), WantedSlices(ports)) for family in ("IPv4", "IPv6")
        }
        members = [(address, True) for address in subset.get("addresses") or ()]
        members += [(address, False) for address in subset.get("notReadyAddresses") or ()]
        added = 0
        for address, ready in members:
            if added >= MAX_MIRRORED:
                break
            try:
                ip = ipaddress.ip_address(address["ip"])
            except ValueError:
                invalid += 1
                continue
            endpoint: Document = {"addresses": [str(ip)], "conditions": {"ready": ready}}
            for name in ("targetRef", "nodeName", "hostname"):
                if address.get(name):
                    endpoint[name] = address[name]
            both[f"IPv{ip.version}"].endpoints[endpoint_key(endpoint)] = endpoint
            added += 1
        skipped += len(members) - added
    return wanted, invalid, skipped


def plan_mirror(endpoints: Document, wanted: dict[_MirrorKey, WantedSlices], existing: list[Document]) -> SlicePlan:
    made = SlicePlan()
    by_key: dict[_MirrorKey, list[Document]] = {}
    for each in existing:
        by_key.setdefault((each["addressType"], port_key(each.get("ports"))), []).append(each)
    for key, group in wanted.items():
        present = by_key.get(key, [])
        if not group.endpoints:
            made.delete += present
            continue
        made.delete += present[1:]
        mirror = _mirror_slice(endpoints, group, key[0])
        if not present:
            made.create.append(mirror)
        elif not _same(present[0], mirror):
            made.update.append(_renamed(mirror, present[0]))
    made.delete += [each for key, group_slices in by_key.items() if key not in wanted for each in group_slices]
    return _recycled(made)


def _mirror_slice(endpoints: Document, group: WantedSlices, address_type: str) -> Document:
    metadata = endpoints["metadata"]
    annotations = {
        name: value
        for name, value in (metadata.get("annotations") or {}).items()
        if name not in (TRIGGER_TIME, _APPLIED)
    }
    made = {
        "labels": {**(metadata.get("labels") or {}), SERVICE_NAME: metadata["name"], MANAGED_BY: MIRROR},
        "annotations": annotations,
        "ownerReferences": [controller_document("v1", "Endpoints", metadata["name"], metadata["uid"])],
    }
    mirrored = list(group.endpoints.values())[:MAX_MIRRORED]
    return slice_document(endpoints, made, address_type, group.ports, mirrored)


def _same(present: Document, mirror: Document) -> bool:
    def state(document: Document) -> tuple[object, ...]:
        metadata = document["metadata"]
        found = {endpoint_key(each): endpoint_details(each) for each in document.get("endpoints") or ()}
        owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or () if owner["kind"] == "Endpoints"]
        return found, metadata.get("labels") or {}, metadata.get("annotations") or {}, owners

    return state(present) == state(mirror)


def _renamed(mirror: Document, present: Document) -> Document:
    kept = {name: present["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}
    metadata = {**mirror["metadata"], **kept}
    del metadata["generateName"]
    return {**mirror, "metadata": metadata}


def _recycled(made: SlicePlan) -> SlicePlan:
    """Turns creations into updates of slices of the same address type that would be deleted."""
    for mirror in list(made.create):
        spare = next((each for each in made.delete if each["addressType"] == mirror["addressType"]), None)
        if spare is not None:
            made.create.remove(mirror)
            made.delete.remove(spare)
            made.update.append(_renamed(mirror, spare))
    return made
