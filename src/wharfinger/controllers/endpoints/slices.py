"""How endpoints are spread over EndpointSlices. Pure: the existing slices and the wanted endpoints in, a plan out.

The rules are those of upstream's k8s.io/endpointslice: endpoints stay in the slice in which they are, slices that change
anyway are filled first, and no slice has more than 100 endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy

import msgspec

from wharfinger.api.names import dns_subdomain
from wharfinger.api.object_meta import controller_document
from wharfinger.api.registry import Document
from wharfinger.controllers.endpoints.pods import HEADLESS, has_cluster_ip

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
MAX_ENDPOINTS = 100
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)
_CLOSE = ("PreferClose", "PreferSameZone", "PreferSameNode")

PortKey = tuple[tuple[str, int, str, str], ...]
EndpointKey = tuple[object, ...]


class SlicePlan(msgspec.Struct):
    create: list[Document] = msgspec.field(default_factory=list)
    update: list[Document] = msgspec.field(default_factory=list)
    delete: list[Document] = msgspec.field(default_factory=list)

    def extend(self, other: SlicePlan) -> None:
        self.create += other.create
        self.update += other.update
        self.delete += other.delete

    @property
    def empty(self) -> bool:
        return not (self.create or self.update or self.delete)


class WantedSlices(msgspec.Struct):
    """Endpoints with the same ports."""

    ports: list[Document]
    endpoints: dict[EndpointKey, Document] = msgspec.field(default_factory=dict)


def port_key(ports: Iterable[Document] | None) -> PortKey:
    return tuple(
        sorted(
            (
                port.get("name") or "",
                port.get("port") or 0,
                port.get("protocol") or "TCP",
                port.get("appProtocol") or "",
            )
            for port in ports or ()
        )
    )


def endpoint_key(endpoint: Document) -> EndpointKey:
    """What makes two endpoints the same one."""
    target = endpoint.get("targetRef") or {}
    return (
        tuple(sorted(endpoint.get("addresses") or ())),
        endpoint.get("hostname") or "",
        target.get("namespace") or "",
        target.get("name") or "",
    )


def endpoint_details(endpoint: Document) -> tuple[object, ...]:
    """What may change in an endpoint while it stays the same one."""
    conditions, target = endpoint.get("conditions") or {}, endpoint.get("targetRef") or {}
    return (
        endpoint.get("nodeName"),
        endpoint.get("zone"),
        *(conditions.get(name) for name in ("ready", "serving", "terminating")),
        tuple(target.get(name) for name in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")),
    )


def slice_name_prefix(name: str) -> str:
    return f"{name}-" if not dns_subdomain(f"{name}-x") else name


def slice_labels(service: Document) -> dict[str, str]:
    """The labels of the slices of a Service: its own and those that are reserved for slices."""
    own = service["metadata"].get("labels") or {}
    labels = {key: value for key, value in own.items() if key not in _RESERVED}
    if not has_cluster_ip(service):
        labels[HEADLESS] = ""
    return {**labels, SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}


def _unreserved(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in _RESERVED}


def _service_reference(service: Document) -> Document:
    return controller_document("v1", "Service", service["metadata"]["name"], service["metadata"]["uid"])


def new_slice(service: Document, ports: list[Document], address_type: str) -> Document:
    metadata = {"labels": slice_labels(service), "ownerReferences": [_service_reference(service)]}
    return slice_document(service, metadata, address_type, ports, [])


def slice_document(
    source: Document, metadata: Document, address_type: str, ports: list[Document], endpoints: list[Document]
) -> Document:
    """A slice for a Service, or for an Endpoints object; `metadata` is what it has beside name and namespace."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": slice_name_prefix(source["metadata"]["name"]),
            "namespace": source["metadata"]["namespace"],
            **metadata,
        },
        "addressType": address_type,
        "ports": ports,
        "endpoints": endpoints,
    }


def owned_by(document: Document, service: Document) -> bool:
    uid = service["metadata"]["uid"]
    return any(
        owner.get("uid") == uid and owner.get("kind") == "Service" and owner.get("apiVersion") == "v1"
        for owner in document["metadata"].get("ownerReferences") or ()
    )


def plan(
    service: Document, wanted: Mapping[PortKey, WantedSlices], existing: list[Document], address_type: str
) -> SlicePlan:
    """What to do with the slices of one address type."""
    made = SlicePlan()
    by_ports: dict[PortKey, list[Document]] = {}
    for each in existing:
        if owned_by(each, service):
            by_ports.setdefault(port_key(each.get("ports")), []).append(each)
        else:
            made.delete.append(each)
    for key, group in wanted.items():
        made.extend(_plan_group(service, group, by_ports.get(key, []), address_type))
    made.delete += [each for key, group in by_ports.items() if key not in wanted for each in group]
    if len(made.delete) == len(existing) and not made.create:
        placeholder = new_slice(service, [], address_type)
        if len(made.delete) == 1 and _is_placeholder(made.delete[0], placeholder):
            made.delete = []
        else:
            made.create.append(placeholder)
    _set_hints(service, made, existing)
    return _recycled(service, made)


def _is_placeholder(document: Document, placeholder: Document) -> bool:
    return (
        not document.get("endpoints")
        and not document.get("ports")
        and document["addressType"] == placeholder["addressType"]
        and (document["metadata"].get("labels") or {}) == placeholder["metadata"]["labels"]
        and document["metadata"].get("ownerReferences") == placeholder["metadata"]["ownerReferences"]
    )


def _plan_group(service: Document, wanted: WantedSlices, existing: list[Document], address_type: str) -> SlicePlan:
    left = dict(wanted.endpoints)
    labels = slice_labels(service)
    unchanged, changed, emptied = [], [], []
    for each in existing:
        kept, updated = [], False
        for endpoint in each.get("endpoints") or ():
            found = left.pop(endpoint_key(endpoint), None)
            if found is None:
                continue
            if endpoint_details(found) != endpoint_details(endpoint):
                updated = True
            kept.append({**found, "hints": endpoint["hints"]} if endpoint.get("hints") else found)
        if updated or len(kept) != len(each.get("endpoints") or ()):
            if kept:
                changed.append(_copy(each, endpoints=kept, labels=labels))
            else:
                emptied.append(each)
        elif _unreserved(each["metadata"].get("labels") or {}) != _unreserved(labels):
            changed.append(_copy(each, labels=labels))
        else:
            unchanged.append(each)
    remaining = list(left.values())
    changed.sort(key=lambda each: -len(each["endpoints"]))
    for each in changed:
        room = MAX_ENDPOINTS - len(each["endpoints"])
        each["endpoints"] += remaining[:room]
        remaining = remaining[max(0, room) :]
    created = []
    while remaining:
        fullest = _closest_fit(unchanged, len(remaining)) if len(remaining) < MAX_ENDPOINTS else None
        if fullest is None:
            filled = new_slice(service, wanted.ports, address_type)
            created.append(filled)
        else:
            unchanged.remove(fullest)
            filled = _copy(fullest)
            changed.append(filled)
        room = MAX_ENDPOINTS - len(filled["endpoints"])
        filled["endpoints"] += remaining[:room]
        remaining = remaining[room:]
    return SlicePlan(created, changed, emptied)


def _closest_fit(candidates: list[Document], count: int) -> Document | None:
    """The slice that is closest to full once `count` endpoints are added."""
    best, closest = None, MAX_ENDPOINTS
    for each in candidates:
        left = MAX_ENDPOINTS - (count + len(each.get("endpoints") or ()))
        if 0 <= left < closest:
            best, closest = each, left
    return best


def _copy(document: Document, *, endpoints: list[Document] | None = None, labels: Document | None = None) -> Document:
    made = deepcopy(document)
    made["endpoints"] = (made.get("endpoints") or []) if endpoints is None else endpoints
    if labels is not None:
        made["metadata"]["labels"] = labels
    return made


def set_trigger_time(document: Document, time: str) -> None:
    """Notes when the change happened that led to this write; an older note is removed."""
    annotations = dict(document["metadata"].get("annotations") or {})
    annotations.pop(TRIGGER_TIME, None)
    if time:
        annotations[TRIGGER_TIME] = time
    document["metadata"] = {**document["metadata"], "annotations": annotations}


def _recycled(service: Document, made: SlicePlan) -> SlicePlan:
    """Turns creations into updates of slices that would be deleted."""
    kept = []
    for each in made.delete:
        if made.create and each["addressType"] == made.create[-1]["addressType"] and owned_by(each, service):
            filled = made.create.pop()
            metadata = {**each["metadata"], "labels": filled["metadata"]["labels"]}
            made.update.append({**filled, "metadata": metadata})
        else:
            kept.append(each)
    made.delete = kept
    return made


def _set_hints(service: Document, made: SlicePlan, existing: list[Document]) -> None:
    """Sets the hints that `trafficDistribution` asks for, and removes all others."""
    distribution = service["spec"].get("trafficDistribution")
    close = distribution in _CLOSE
    touched = {each["metadata"].get("name") for each in (*made.update, *made.delete)}
    for each in existing:
        if each["metadata"]["name"] in touched or not owned_by(each, service):
            continue
        if any(
            _hints(endpoint, close, distribution) != endpoint.get("hints") for endpoint in each.get("endpoints") or ()
        ):
            made.update.append(_copy(each))
    for each in (*made.create, *made.update):
        each["endpoints"] = [
            _with_hints(endpoint, _hints(endpoint, close, distribution)) for endpoint in each["endpoints"]
        ]


def _hints(endpoint: Document, close: bool, distribution: str | None) -> Document | None:
    if not close:
        return None
    if not (endpoint.get("conditions") or {}).get("ready"):
        kept: Document | None = endpoint.get("hints")  # those of endpoints that are not ready stay as they are
        return kept
    hints: Document = {}
    if endpoint.get("zone"):
        hints["forZones"] = [{"name": endpoint["zone"]}]
    if endpoint.get("nodeName") and distribution == "PreferSameNode":
        hints["forNodes"] = [{"name": endpoint["nodeName"]}]
    return hints or None


def _with_hints(endpoint: Document, hints: Document | None) -> Document:
    made = {key: value for key, value in endpoint.items() if key != "hints"}
    return made if hints is None else {**made, "hints": hints}
