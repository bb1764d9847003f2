"""What screens show of each node, read once for each change of it: quantities are slow to parse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from wharfinger.api.conditions import find_condition
from wharfinger.api.registry import Document
from wharfinger.api.resources import Amounts
from wharfinger.dashboard.usage import allocatable

GROUPED_LABELS = 40  # labels offered for grouping
_VALUES = 200  # values of a label beyond which it does not group anything


class NodeRow(msgspec.Struct, frozen=True):
    name: str
    ready: bool
    cordoned: bool
    room: Amounts  # what is allocatable
    labels: Mapping[str, str]


class NodeRows:
    def __init__(self, nodes: Iterable[Document] = ()) -> None:
        self._rows: dict[str, NodeRow] = {}
        self._ordered: list[NodeRow] | None = None
        self._names: tuple[str, ...] | None = None
        self._labels: dict[str, Document] | None = None
        for node in nodes:
            self.node_changed(None, node)

    def node_changed(self, old: Document | None, new: Document | None) -> None:
        before = None if old is None else self._rows.pop(old["metadata"]["name"], None)
        after = None if new is None else _row(new)
        if after is not None:
            self._rows[after.name] = after
        self._ordered = None
        if before is None or after is None or before.name != after.name:
            self._names = self._labels = None
        elif before.labels != after.labels:
            self._labels = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> list[NodeRow]:
        """By name."""
        if self._ordered is None:
            self._ordered = [self._rows[name] for name in self.names]
        return self._ordered

    @property
    def names(self) -> tuple[str, ...]:
        """In order; the same object as long as no node comes or goes."""
        if self._names is None:
            self._names = tuple(sorted(self._rows))
        return self._names

    @property
    def label_columns(self) -> dict[str, Document]:
        """Labels that group nodes: their values, and for each node the position of its value, or -1."""
        if self._labels is None:
            self._labels = _label_columns([row.labels for row in self.rows])
        return self._labels


def _row(node: Document) -> NodeRow:
    metadata, spec = node["metadata"], node.get("spec") or {}
    return NodeRow(
        metadata["name"],
        is_ready(node),
        bool(spec.get("unschedulable")),
        allocatable(node),
        metadata.get("labels") or {},
    )


def is_ready(node: Document) -> bool:
    condition = find_condition((node.get("status") or {}).get("conditions") or (), "Ready") or {}
    return condition.get("status") == "True"


def _label_columns(nodes: list[Mapping[str, str]]) -> dict[str, Document]:
    counts: dict[str, dict[str, int]] = {}
    for labels in nodes:
        for name, value in labels.items():
            values = counts.setdefault(name, {})
            values[value] = values.get(value, 0) + 1
    useful = [
        name
        for name, values in counts.items()
        if len(values) <= _VALUES
        and (len(values) < len(nodes) or name.startswith("topology."))
        and name != "kubernetes.io/hostname"
    ]
    found: dict[str, Document] = {}
    for name in sorted(useful, key=lambda each: (not each.startswith("topology."), each))[:GROUPED_LABELS]:
        index = {value: position for position, value in enumerate(sorted(counts[name]))}
        found[name] = {"values": list(index), "of": [index[labels[name]] if name in labels else -1 for labels in nodes]}
    return found
