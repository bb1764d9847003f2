"""Equal parts of documents become one object: pods of a workload differ in little, and a copy of a large cluster would
not fit into memory otherwise. Documents are only read, so nobody notices."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.registry import Document

MOST = 50_000  # parts that are remembered; after that it starts anew
_SPEC = ("containers", "initContainers", "tolerations", "volumes", "affinity", "securityContext", "nodeSelector")
_METADATA = ("labels", "annotations", "ownerReferences")
_STATUS = ("conditions", "containerStatuses", "hostIPs")


class SharedParts:
    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

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
        if len(self._known) >= MOST:
            self._known.clear()
        return self._known.setdefault(key, value)
