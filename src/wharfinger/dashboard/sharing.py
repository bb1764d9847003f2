"""Equal parts of documents become one object: pods of a workload differ in little, and a copy of a large cluster would
not fit into memory otherwise. Documents are only read, so nobody notices."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod

MOST = 8_000  # recent parts that are remembered, and as many before them
_SPEC = ("containers", "initContainers", "tolerations", "volumes", "affinity", "securityContext", "nodeSelector")
_METADATA = ("labels", "annotations", "ownerReferences")
_STATUS = ("conditions", "containerStatuses", "hostIPs")
_NAMES = frozenset(("namespace", "creationTimestamp", "generateName"))  # of the metadata: the same in many objects
_EVENT = ("reason", "message", "type", "count", "lastTimestamp", "eventTime", "series")


def shorten_event(event: Document) -> None:
    """Leaves what is shown of an event: thousands are kept."""
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
                for key, value in section.items():
                    if type(value) is str and (name != "metadata" or key in _NAMES):
                        section[key] = sys.intern(value)

    def _shared(self, value: Any) -> Any:
        if not value:
            return value
        key = msgspec.json.encode(value)
        if key not in self._recent:
            if len(self._recent) >= MOST:  # parts that are in use were seen since, or will be seen again soon
                self._before, self._recent = self._recent, {}
            self._recent[key] = self._before.get(key, value)
        return self._recent[key]


_VIEWED = (
    ("metadata", (("labels", "labels"), ("annotations", "annotations"), ("ownerReferences", "owner_references"))),
    (
        "spec",
        (
            ("containers", "containers"),
            ("initContainers", "init_containers"),
            ("tolerations", "tolerations"),
            ("volumes", "volumes"),
            ("affinity", "affinity"),
            ("nodeSelector", "node_selector"),
        ),
    ),
    ("status", (("conditions", "conditions"), ("containerStatuses", "container_statuses"))),
)


class SharedViews:
    """The same for views of pods: where documents share a part, their views share its view."""

    def __init__(self) -> None:
        self._recent: dict[int, tuple[Any, Any]] = {}  # by identity of the part, which is held so that it stays its own
        self._before: dict[int, tuple[Any, Any]] = {}

    def share(self, document: Document, pod: Pod) -> None:
        """Replaces parts of a view that nobody has seen yet."""
        for name, parts in _VIEWED:
            section, viewed = document.get(name) or {}, getattr(pod, name)
            for key, attribute in parts:
                if part := section.get(key):
                    force_setattr(viewed, attribute, self._shared(part, getattr(viewed, attribute)))

    def _shared(self, part: Any, viewed: Any) -> Any:
        known = self._recent.get(id(part))
        if known is None:
            if len(self._recent) >= MOST:
                self._before, self._recent = self._recent, {}
            known = self._recent[id(part)] = self._before.get(id(part), (part, viewed))
        return known[1]
