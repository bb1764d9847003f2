"""Makes a trace from what `wharf record` wrote.

Changes are ordered by resource version, which is the order in which the API server made them. Where the recorder was
late or away, the times are those that the objects themselves tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from wharfinger.api.configuration import BadConfiguration, load_configuration
from wharfinger.api.kubernetes_version import SUPPORTED
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, format_time, parse_time
from wharfinger.replay.segments import MARKS, RecordedRow, recorded_rows
from wharfinger.replay.tables import FILE, TraceHeader
from wharfinger.replay.trace import NodePeriod, Trace, TracedObject, TracedPod, TraceMoment
from wharfinger.simulate.inputs import BadInput

PRICE = "wharfinger.dev/price-per-hour"  # annotation of a node
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_SECOND = 1.0  # how exact the times in objects are
_ENDED = ("Succeeded", "Failed")
_TEMPORARY = ("not-ready", "unreachable", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable")
_SERVER_OWNED = ("resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(slots=True)
class _Change:
    at: TraceMoment
    row: RecordedRow
    document: Document
    source: str


@dataclass(slots=True)
class _Reading:
    """What the rows have told so far."""

    trace: Trace
    prices: dict[str, float]
    pods: dict[str, TracedPod] = field(default_factory=dict)  # by uid
    nodes: dict[str, NodePeriod] = field(default_factory=dict)  # by name: the current period
    objects: dict[tuple[str, str, str], Document] = field(default_factory=dict)  # last state, without status


def read_recording(folder: Path, header: TraceHeader) -> Trace:
    problems: list[str] = []
    trace = Trace(folder.resolve().name, header.start)
    prices = _prices(folder, header, problems)
    _configure(folder, header, trace, problems)
    changes = _changes(folder, trace, problems)
    if problems:
        raise BadInput(problems)
    reading = _Reading(trace, prices)
    for change in changes:
        if change.row.type in MARKS:
            continue
        if change.row.kind == "Pod":
            _pod(reading, change)
        elif change.row.kind == "Node":
            _node(reading, change)
        else:
            _object(reading, change)
    trace.pods = list(reading.pods.values())
    return trace


def _prices(folder: Path, header: TraceHeader, problems: list[str]) -> dict[str, float]:
    given = header.document.get("prices") or {}
    found: dict[str, float] = {}
    for name, price in given.items() if isinstance(given, dict) else ():
        if not isinstance(price, int | float) or price < 0:
            problems.append(f"{folder / FILE}: prices.{name}: {price!r} is not a price")
        else:
            found[str(name)] = float(price)
    return found


def _configure(folder: Path, header: TraceHeader, trace: Trace, problems: list[str]) -> None:
    given = dict(header.document.get("configuration") or {})
    version = header.document.get("kubernetesVersion")
    if version in SUPPORTED:
        given.setdefault("kubernetesVersion", version)
    try:
        trace.configuration = load_configuration(given)
    except BadConfiguration as error:
        problems += [f"{folder / FILE}: configuration.{fault}" for fault in error.errors]


def _changes(folder: Path, trace: Trace, problems: list[str]) -> list[_Change]:
    """All rows in the order in which their changes were made, with times that never go back."""
    rows: list[tuple[int, int, str, RecordedRow, Document]] = []
    version = 0
    try:
        for index, (source, row) in enumerate(recorded_rows(folder)):
            version = row.version or version
            document: Document = {}
            if row.object:
                try:
                    document = msgspec.json.decode(row.object, type=dict)
                except msgspec.DecodeError as error:
                    problems.append(f"{source}: object: not JSON: {error}")
            elif row.type in ("present", "added", "modified"):
                problems.append(f"{source}: object: missing")
            rows.append((version if row.type != "present" else 0, index, source, row, document))
    except ValueError as error:
        problems.append(str(error))
    if not rows:
        problems.append(f"{folder}: nothing was recorded yet")
        return []
    _note_gaps(trace, [row for _, _, _, row, _ in rows])
    trace.end = max(row.time for _, _, _, row, _ in rows)
    rows.sort(key=lambda each: each[:2])
    times, latest = [0.0] * len(rows), float("inf")
    for position in range(len(rows) - 1, -1, -1):
        _, _, _, row, document = rows[position]
        latest = times[position] = min(latest, row.time, _latest(row, document))
    return [
        _Change(
            TraceMoment(trace.start if row.type == "present" else max(times[order], trace.start), order),
            row,
            document,
            source,
        )
        for order, (_, _, source, row, document) in enumerate(rows)
    ]


def _latest(row: RecordedRow, document: Document) -> float:
    """The latest time at which an object can have been created, for one that was seen when it was new."""
    metadata = document.get("metadata") or {}
    fresh = row.type == "added" and not (document.get("spec") or {}).get("nodeName")
    created = _time(metadata.get("creationTimestamp")) if fresh else None
    return float("inf") if created is None else created + _SECOND


def _note_gaps(trace: Trace, rows: list[RecordedRow]) -> None:
    """Says when nobody was recording, and whether something may be missing because of that."""
    last, listed = 0.0, 0
    for row in rows:
        if row.type == "started" and last:
            trace.notes.append(
                f"the recorder did not run from {format_time(last)} to {format_time(row.time)} ({row.time - last:.0f} s)"
            )
        listed += row.type == "listed" and row.kind in ("Node", "Pod")
        last = row.time
    if listed:
        trace.notes.append(
            "the server had forgotten changes when it was asked again, after a restart or a gap: pods and nodes that came "
            "and went meanwhile are missing"
        )


# -- pods


def _pod(reading: _Reading, change: _Change) -> None:
    row, document = change.row, change.document
    pod = reading.pods.get(row.uid)
    if row.type == "deleted":
        if pod is not None and pod.departure is None:
            pod.departure = change.at
        return
    status = document.get("status") or {}
    phase, node = str(status.get("phase") or ""), str((document.get("spec") or {}).get("nodeName") or "")
    if pod is None:
        if phase in _ENDED and row.type == "present":
            return  # it had ended before the recording began
        pod = reading.pods[row.uid] = _arrived(change, node)
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    if pod.submitted is None and not pod.present and (node or _refused(conditions.get("PodScheduled") or {})):
        pod.submitted, pod.document = max(change.at, pod.arrival), _as_created(document, keep_node=False)
    if node and not pod.node:
        pod.node, pod.bound = node, change.at
    pod.preempted = pod.preempted or (conditions.get("DisruptionTarget") or {}).get("reason") == "PreemptionByScheduler"
    if phase in _ENDED and pod.departure is None:
        pod.departure, pod.phase = change.at, phase
    elif document["metadata"].get("deletionTimestamp") and pod.stopping is None and pod.departure is None:
        pod.stopping = change.at


def _refused(scheduled: Document) -> bool:
    """Whether the scheduler has tried the pod. One with gates is not tried."""
    return scheduled.get("status") == "False" and scheduled.get("reason") != "SchedulingGated"


def _arrived(change: _Change, node: str) -> TracedPod:
    document = change.document
    present = change.row.type == "present" and bool(node)
    owner = controller_of(document)
    return TracedPod(
        _as_created(document, keep_node=present),
        change.at,
        present=present,
        owner="" if owner is None else f"{owner.get('kind')}/{owner.get('name')}",
        source=change.source,
    )


def _as_created(document: Document, *, keep_node: bool) -> Document:
    metadata = {key: value for key, value in document["metadata"].items() if key not in _SERVER_OWNED}
    made: Document = {**document, "metadata": metadata, "spec": dict(document.get("spec") or {})}
    if keep_node:
        metadata["creationTimestamp"] = document["metadata"].get("creationTimestamp")
    else:
        made.pop("status", None)
        made["spec"].pop("nodeName", None)
    return made


# -- nodes


def _node(reading: _Reading, change: _Change) -> None:
    row, current = change.row, reading.nodes.get(change.row.name)
    if row.type == "deleted":
        if current is not None:
            current.end = change.at
            del reading.nodes[row.name]
        return
    document = _node_as_created(change.document)
    if current is not None:
        if current.document == document:
            return
        current.end = change.at
    period = NodePeriod(row.name, document, change.at, price=_price(reading, document), source=change.source)
    reading.nodes[row.name] = period
    reading.trace.nodes.append(period)


def _node_as_created(document: Document) -> Document:
    """Without what the server and the controllers of a replay write themselves: taints from conditions, and from
    cordoning."""
    metadata = {key: value for key, value in document["metadata"].items() if key not in (*_SERVER_OWNED, "uid")}
    spec = dict(document.get("spec") or {})
    taints = [each for each in spec.pop("taints", None) or () if not _is_temporary(str(each.get("key")))]
    if taints:
        spec["taints"] = taints
    return {**document, "metadata": metadata, "spec": spec}


def _is_temporary(key: str) -> bool:
    domain, _, name = key.partition("/")
    return domain == "node.kubernetes.io" and name in (*_TEMPORARY, "unschedulable")


def _price(reading: _Reading, document: Document) -> float:
    metadata = document["metadata"]
    try:
        return max(0.0, float((metadata.get("annotations") or {})[PRICE]))
    except (KeyError, ValueError):
        return reading.prices.get(str((metadata.get("labels") or {}).get(INSTANCE_TYPE)), 0.0)


# -- other objects


def _object(reading: _Reading, change: _Change) -> None:
    row = change.row
    key = (row.kind, row.namespace, row.name)
    if row.type == "deleted":
        if (last := reading.objects.pop(key, None)) is not None:
            reading.trace.objects.append(TracedObject(change.at, last, deleted=True, source=change.source))
        return
    document = change.document
    if row.type != "present":
        document = {name: value for name, value in document.items() if name != "status"}
    metadata = {name: value for name, value in document["metadata"].items() if name != "resourceVersion"}
    document = {**document, "metadata": metadata}
    if metadata.get("deletionTimestamp") or reading.objects.get(key) == document:
        return
    reading.objects[key] = document
    reading.trace.objects.append(TracedObject(change.at, document, source=change.source))


def _time(text: object) -> float | None:
    try:
        return parse_time(str(text))
    except BadTime:
        return None
