"""Makes traces from tables. Every rule about rows that cannot be true is here."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path

from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.validation.resources import is_extended
from wharfinger.replay.tables import EVENTS, MOST_PROBLEMS, TraceHeader, TraceRow, read_header, rows_of
from wharfinger.replay.trace import NodePeriod, Trace, TracedObject, TracedPod, TraceMoment
from wharfinger.simulate.inputs import BadInput

HOSTNAME = "kubernetes.io/hostname"
PHASES = ("", "Succeeded", "Failed")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INT32 = 1 << 31


def read_trace(path: Path, format: str | None = None) -> Trace:
    """Reads a trace of any format that a folder can have. Raises BadInput with every row that cannot be true."""
    header = read_header(path)
    if (format or header.format) == EVENTS:
        from wharfinger.replay.k8s_events import read_recording

        return read_recording(path, header)
    return _Tables(path, header).trace()


class _Tables:
    def __init__(self, folder: Path, header: TraceHeader) -> None:
        self._folder = folder
        self._header = header
        self._problems: list[str] = []
        self._trace = Trace(folder.name, header.start)
        self._devices: set[str] = set()
        self._objects: dict[str, Document] = {}  # by `Kind/name`

    def trace(self) -> Trace:
        readers = {"objects": self._object, "nodes": self._node, "work": self._work}
        for table, read in readers.items():
            mapping = self._header.tables.get(table)
            if mapping is None:
                continue
            for number, row in enumerate(rows_of(self._folder, table, mapping, self._problems)):
                before = len(self._problems)
                read(row, number)
                if len(self._problems) > MOST_PROBLEMS > before:
                    break
            if table == "nodes":
                self._check_overlaps()
        self._check_names()
        if self._problems:
            raise BadInput(self._problems)
        trace = self._trace
        trace.pods.sort(key=lambda pod: pod.arrival)
        trace.objects.sort(key=lambda change: change.at)
        trace.nodes.sort(key=lambda period: (period.start, period.name))
        return trace

    # -- objects

    def _object(self, row: TraceRow, number: int) -> None:
        document = self._manifest(row)
        if not document:
            return
        kind, name = document.get("kind"), (document.get("metadata") or {}).get("name")
        if not (isinstance(document.get("apiVersion"), str) and isinstance(kind, str) and isinstance(name, str)):
            row.refuse("manifest: apiVersion, kind or metadata.name is missing")
            return
        at = row.time("time", self._header.start) if row.has("time") else self._header.start
        self._objects[f"{kind}/{name}"] = document
        if at is not None:
            self._trace.objects.append(
                TracedObject(TraceMoment(at, number), document, row.flag("deleted"), source=row.where)
            )

    @staticmethod
    def _manifest(row: TraceRow) -> Document:
        """The object in the column, which is JSON."""
        return row.json("manifest", dict) or {}

    # -- nodes

    def _node(self, row: TraceRow, number: int) -> None:
        name, start = row.text("name"), self._header.start
        document = self._manifest(row) or {"apiVersion": "v1", "kind": "Node"}
        metadata = document.setdefault("metadata", {})
        metadata["name"] = name
        metadata["labels"] = {
            HOSTNAME: name,
            **(metadata.get("labels") or {}),
            **{key: str(value) for key, value in row.mapping("labels").items()},
        }
        status = document.setdefault("status", {})
        devices = self._counts(row)
        self._devices |= devices.keys()
        given = self._amounts(row, "allocatable")
        amounts = {"pods": "110", **(status.get("allocatable") or {}), **given, **devices}
        status["allocatable"] = amounts
        status["capacity"] = {**(status.get("capacity") or {}), **amounts}
        self._devices |= amounts.keys()
        if row.has("taints"):
            document.setdefault("spec", {})["taints"] = _taints(row)
        price = row.number("price") or 0.0
        if price < 0:
            row.refuse(f"price: {price:g} is negative")
        begins = row.time("from", start) if row.has("from") else start
        ends = row.time("to", start) if row.has("to") else None
        if begins is None:
            return
        if ends is not None and ends <= begins:
            row.refuse(f"to: the node is gone {_before(begins - ends)} it comes")
        end = None if ends is None else TraceMoment(ends, number)
        self._trace.nodes.append(NodePeriod(name, document, TraceMoment(begins, number), end, price, row.where))

    def _check_overlaps(self) -> None:
        last: dict[str, NodePeriod] = {}
        for period in sorted(self._trace.nodes, key=lambda each: (each.name, each.start)):
            before = last.get(period.name)
            if before is not None and (before.end is None or before.end.time > period.start.time):
                self._problems.append(
                    f"{period.source}: name: node {period.name} is there at the same time in {before.source}"
                )
            last[period.name] = period

    # -- work

    def _work(self, row: TraceRow, number: int) -> None:
        start = self._header.start
        document = self._template(row)
        arrival = row.time("arrival", start)
        times = {
            name: row.time(name, start) if row.has(name) else None
            for name in ("departure", "stopping", "bound", "submitted")
        }
        run_time = row.number("run_time")
        if run_time is not None and run_time < 0:
            row.refuse(f"run_time: {run_time:g} s is negative")
        if run_time is not None and times["departure"] is not None:
            row.refuse(
                "run_time and departure exclude each other: the one counts from the binding, the other is a time"
            )
        for name, when in times.items():
            if arrival is not None and when is not None and when < arrival:
                row.refuse(f"{name}: it is {_before(arrival - when)} the arrival")
        node = row.text("node")
        if node and not any(period.name == node for period in self._trace.nodes):
            row.refuse(f"node: there is no node {node} in the trace")
        phase = row.text("phase")
        if phase not in PHASES:
            row.refuse(f"phase: {phase!r} is neither Succeeded nor Failed")
        owner = row.text("owner")
        if owner and "objects" in self._header.tables and owner not in self._objects:
            row.refuse(f"owner: there is no {owner} among the objects of the trace")
        if arrival is None:
            return
        departure, stopping, bound, submitted = (
            None if when is None else TraceMoment(when, number) for when in (times[each] for each in times)
        )
        self._trace.pods.append(
            TracedPod(
                document,
                TraceMoment(arrival, number),
                run_time,
                departure,
                stopping,
                phase or ("Succeeded" if run_time is not None else ""),
                row.flag("preempted"),
                node,
                bound,
                submitted,
                row.flag("present"),
                owner,
                row.where,
            )
        )

    def _template(self, row: TraceRow) -> Document:
        """The pod: from a manifest, from the template of a workload, or made from what the row says."""
        document = self._manifest(row)
        if row.has("workload"):
            found = self._objects.get(row.text("workload"))
            template = ((found or {}).get("spec") or {}).get("template")
            if not isinstance(template, dict):
                row.refuse(f"workload: there is no {row.text('workload')} with a template among the objects")
            else:
                document = copy.deepcopy(template)
        document = {"apiVersion": "v1", "kind": "Pod", **document}
        metadata, spec = document.setdefault("metadata", {}), document.setdefault("spec", {})
        metadata["name"] = row.text("name")
        metadata["namespace"] = row.text("namespace") or metadata.get("namespace") or "default"
        if labels := row.mapping("labels"):
            metadata["labels"] = {
                **(metadata.get("labels") or {}),
                **{key: str(value) for key, value in labels.items()},
            }
        containers = spec.setdefault("containers", [{"name": "main", "image": "trace"}])
        wanted = {**self._amounts(row, "requests"), **self._wanted_devices(row)}
        if wanted and containers:
            resources = containers[0].setdefault("resources", {})
            resources["requests"] = {**(resources.get("requests") or {}), **wanted}
            if scarce := {name: amount for name, amount in wanted.items() if is_extended(name)}:
                resources["limits"] = {**(resources.get("limits") or {}), **scarce}
        priority = row.number("priority")
        if priority is not None:
            if priority != int(priority) or not -_INT32 <= priority < _INT32:
                row.refuse(f"priority: {priority:g} is not a whole number of 32 bits")
            spec["priority"] = int(priority)
        return document

    def _wanted_devices(self, row: TraceRow) -> dict[str, str]:
        wanted = self._counts(row)
        for name in wanted:
            if name not in self._devices:
                row.refuse(f"devices: no node of the trace has {name}")
        return wanted

    # -- amounts

    def _amounts(self, row: TraceRow, name: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for resource, value in row.mapping(name).items():
            try:
                if parse_nano(str(value)) < 0:
                    row.refuse(f"{name}.{resource}: {value} is negative")
                found[resource] = str(value)
            except BadQuantity as error:
                row.refuse(f"{name}.{resource}: {value!r} is not a quantity: {error}")
        return found

    def _counts(self, row: TraceRow) -> dict[str, str]:
        found = {}
        for name, count in row.mapping("devices").items():
            if not is_extended(name):
                row.refuse(f"devices: {name!r} is not the name of an extended resource, such as example.com/gpu")
            text = str(count)
            if not text.isdigit():
                row.refuse(f"devices: {name}: {text} is not a number of devices")
                continue
            found[name] = text
        return found

    def _check_names(self) -> None:
        """Two pods of one name cannot be there at the same time."""
        last: dict[tuple[str, str], TracedPod] = {}
        for pod in sorted(self._trace.pods, key=lambda each: each.arrival):
            before = last.get((pod.namespace, pod.name))
            if before is not None and (before.departure is None or before.departure.time > pod.arrival.time):
                self._problems.append(f"{pod.source}: name: pod {pod.title} is there already: {before.source}")
            last[pod.namespace, pod.name] = pod


def _taints(row: TraceRow) -> list[Document]:
    """JSON as in a node, or texts such as `key=value:NoSchedule, other:NoExecute`."""
    text = row.text("taints").strip()
    if text.startswith("["):
        found = row.json("taints", list) or []
    else:
        found = []
        for part in filter(None, (each.strip() for each in text.split(","))):
            pair, colon, effect = part.rpartition(":")
            key, _, value = pair.partition("=")
            if not colon:
                row.refuse(f"taints: {part!r} is not KEY=VALUE:EFFECT")
                continue
            found.append({"key": key, **({"value": value} if value else {}), "effect": effect})
    for taint in found:
        if not isinstance(taint, dict) or not taint.get("key") or taint.get("effect") not in EFFECTS:
            row.refuse(f"taints: {taint!r} has no key, or none of the effects {', '.join(EFFECTS)}")
    return [taint for taint in found if isinstance(taint, dict)]


def _before(seconds: float) -> str:
    return "when" if seconds == 0 else f"{seconds:g} s before"


def periods_by_node(periods: Iterable[NodePeriod]) -> Mapping[str, list[NodePeriod]]:
    """The periods of each node, in order of time."""
    found: dict[str, list[NodePeriod]] = {}
    for period in sorted(periods, key=lambda each: each.start):
        found.setdefault(period.name, []).append(period)
    return found
