"""YAML as Kubernetes reads it: YAML 1.1 words for booleans, timestamps stay strings, duplicate keys are faults.

Scalars resolve as in sigs.k8s.io/yaml. Files and bodies of requests are read by the same rules; `read_request` adds a
limit on the number of values, since a request comes from somebody else. The full reader, `yaml_events`, is loaded when it
is needed: `block_yaml` reads most files.
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.block_yaml import BlockReader
from wharfinger.api.yaml_document import MAX_DEPTH, MAX_REQUEST_NODES, BadYaml, Reading
from wharfinger.api.yaml_scalars import NotBlock, resolve

__all__ = ["MAX_DEPTH", "BadYaml", "DocumentReader", "Reading", "read", "read_request", "resolve"]


class DocumentReader:
    """Reads any number of documents of the same origin, which share strings."""

    def __init__(self) -> None:
        self._blocks = BlockReader(_unremarkable, MAX_DEPTH)

    def read(self, text: str, *, first_line: int = 1) -> Reading:
        """The first document of a text. Raises BadYaml if parsing cannot continue."""
        try:
            return Reading(self._blocks.read(text), empty=False, line=first_line)
        except NotBlock:
            return _read_fully(text, first_line, with_lines=False)


def read(text: str, *, first_line: int = 1, with_lines: bool = False) -> Reading:
    """The first document of a text. Raises BadYaml if parsing cannot continue."""
    if with_lines:
        return _read_fully(text, first_line, with_lines=True)
    return DocumentReader().read(text, first_line=first_line)


def read_request(data: bytes) -> Reading:
    """The first document of a request's body. Raises BadYaml.

    As in kube-apiserver, the last one of duplicate keys counts. Nothing is repaired.
    """
    from wharfinger.api.yaml_events import EventReader

    return EventReader(data, 1, False, max_nodes=MAX_REQUEST_NODES, request=True).read()


def _read_fully(text: str, first_line: int, *, with_lines: bool) -> Reading:
    from wharfinger.api.yaml_events import EventReader

    return EventReader(text, first_line, with_lines).read()


def _unremarkable(text: str, max_depth: int) -> Any:
    from wharfinger.api.yaml_events import EventReader

    try:
        reading = EventReader(text, 1, False, max_depth=max_depth).read()
    except BadYaml:
        raise NotBlock from None
    if reading.faults or reading.repaired:
        raise NotBlock
    return reading.value
