"""The two forms of an Event: that of the core group, which is stored, and that of `events.k8s.io`."""

from __future__ import annotations

from wharfinger.api.registry import Document

_NAMES = {
    "message": "note",
    "involvedObject": "regarding",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _NAMES.items()}


def convert_event(document: Document, group: str) -> Document:
    """The event with the field names of the group."""
    names = _NAMES if group else _BACK
    return {names.get(name, name): value for name, value in document.items()}
