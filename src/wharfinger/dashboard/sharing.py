"""Equal parts of documents become one object: pods of a workload differ in little, and a copy of a large cluster would
not fit into memory otherwise. Documents are only read, so nobody notices."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from wharfinger.api.registry import Document

MOST = 8_000  # recent parts that are remembered, and as many before them
_SPEC = ("containers", "initContainers", "tolerations", "volumes", "affinity", "securityContext", "nodeSelector")
_METADATA = ("labels", "annotations", "ownerReferences")
_STATUS = ("conditions", "containerStatuses", "hostIPs")
_EVENT = ("reason", "message", "type", "count", "lastTimestamp", "eventTime", "series")


def shorten_event(event: Document) -> None:
    """Leaves what is shown of an event: many come, and each stays for an hour."""
    metadata, involved = event["metadata"], event.get("involvedObject") or {}
    kept: Document = {name: event[name] for name in _EVENT if event.get(name)}
    kept["reportingComponent"] = event.get("reportingComponent") or (event.get("source") or {}).get("component") or ""
    for name in ("reason", "type", "lastTimestamp", "reportingComponent"):
        if name in kept:
            kept[name] = sys.intern(kept[name])
    event.clear()
    event["metadata"] = _part(metadata, ("name", "namespace", "uid", "resourceVersion", "creationTimestamp"))
    event["involvedObject"] = _part(involved, ("kind", "namespace", "name"))
    event.update(kept)


def _part(document: Document, names: tuple[str, ...]) -> Document:
    return {name: document[name] for name in names if document.get(name)}


class SharedParts:
    def __init__(self) -> None:
        self._recent: dict[bytes, Any] = {}
        self._before: dict[bytes, Any] = {}

    def share(self, document: Document) -> None:
        """Replaces the parts of a document by equal ones that are known. Who manages which field is dropped."""
        document["metadata"].pop("managedFields", None)
        for name, parts in (("metadata", _METADATA), ("spec", _SPEC), ("status", _STATUS)):
            section = document.get(name)
            if isinstance(section, dict):
                for part in parts:
                    if part in section:
                        section[part] = self._shared(section[part])

    def _shared(self, value: Any) -> Any:
        if not value:
            return value
        key = msgspec.json.encode(value)
        if key not in self._recent:
            if len(self._recent) >= MOST:  # parts that are in use were seen since, or will be seen again soon
                self._before, self._recent = self._recent, {}
            self._recent[key] = self._before.get(key, value)
        return self._recent[key]
