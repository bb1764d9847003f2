"""A SimulationReport as text: where pods run, which wait and why, and the sections of the systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from wharfinger.api.encoded import parts_of_kind
from wharfinger.api.wording import counted, listed
from wharfinger.cli.output import paint, table
from wharfinger.system import ordered_systems

Document = dict[str, Any]
_MANY = 40  # rows of a section; more are only counted
_FEW = 10  # nodes; a cluster of more is summed up by pool and zone
_NAMED, _NAMED_PENDING = 6, 3  # pods in a cell


class _ListedMeta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str | None = None
    deletion_timestamp: str | None = None


class _ListedNode(msgspec.Struct, gc=False):
    metadata: _ListedMeta


class _ListedSpec(msgspec.Struct, rename="camel", gc=False):
    node_name: str | None = None


class _ListedStatus(msgspec.Struct, gc=False):
    phase: str | None = None


class _ListedPod(msgspec.Struct, gc=False):
    metadata: _ListedMeta
    spec: _ListedSpec = msgspec.field(default_factory=_ListedSpec)
    status: _ListedStatus = msgspec.field(default_factory=_ListedStatus)

    @property
    def phase(self) -> str:
        return "Terminating" if self.metadata.deletion_timestamp else self.status.phase or "Pending"


def render(report: Document, *, everything: bool = False) -> str:
    """All sections that have rows, separated by blank lines."""
    objects: Sequence[Document] = report["objects"]
    limit = None if everything else _MANY
    sections = (
        _utilisation(report.get("utilisation") or (), everything),
        _nodes(objects, limit),
        _pending(report["unscheduled"], limit),
        *(
            _section(each.title, each.header, each.rows, limit)
            for system in ordered_systems()
            for each in system.report().sections(objects)
        ),
        _refused(report["rejections"], limit),
        _expectations(report["expectations"]),
    )
    return "\n\n".join(section for section in sections if section)


def _section(title: str, header: tuple[str, ...], rows: Sequence[tuple[Any, ...]], limit: int | None) -> str:
    if not rows:
        return ""
    shown = rows if limit is None else rows[:limit]
    text = f"{paint(title, 'cyan', bold=True)}\n{table(header, shown)}"
    if len(shown) < len(rows):
        text += f"\n{left_out(len(rows) - len(shown))}"
    return text


def _nodes(objects: Sequence[Document], limit: int | None) -> str:
    by_node: dict[str, list[tuple[str, str]]] = {
        node.metadata.name: [] for node in parts_of_kind(objects, "Node", _ListedNode)
    }
    for pod in parts_of_kind(objects, "Pod", _ListedPod):
        metadata = pod.metadata
        name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        by_node.setdefault(pod.spec.node_name or "", []).append((name, pod.phase))
    elsewhere = by_node.pop("", [])
    total = sum(len(pods) for pods in by_node.values())
    rows = [(node, _phases(pods), _pod_names(pods)) for node, pods in by_node.items()]
    if limit is not None and len(rows) > limit:
        rows = []  # they are summed up by pool and zone
    title = f"Pods on nodes: {total} on {counted(len(by_node), 'node')}"
    if elsewhere:
        title += f", {len(elsewhere)} on none"
    if by_node and not rows:
        return paint(f"{title} (--all lists them)", "cyan", bold=True)
    return _section(title, ("node", "state", "pods"), rows, limit)


def _utilisation(groups: Sequence[Document], everything: bool) -> str:
    if not everything and sum(group["nodes"] for group in groups) <= _FEW:
        return ""
    shares = [group["requestedShare"] for group in groups]
    # Besides cpu and memory, what pods request: a device that nobody uses says nothing.
    used = {name for share in shares for name, part in share.items() if part}
    resources = ["cpu", "memory", *sorted(used - {"cpu", "memory"})]
    rows = [
        (
            group["pool"],
            group["zone"],
            group["nodes"],
            group["pods"],
            *(f"{group['requestedShare'][name]:.0%}" if name in group["requestedShare"] else "-" for name in resources),
        )
        for group in groups
    ]
    return _section("Requested, by pool and zone", ("pool", "zone", "nodes", "pods", *resources), rows, None)


def _phases(pods: Iterable[tuple[str, str]]) -> str:
    counted = Counter(phase for _, phase in pods)
    return ", ".join(f"{count} {phase}" for phase, count in sorted(counted.items())) or "empty"


def _pod_names(pods: Iterable[tuple[str, str]]) -> str:
    return listed((name for name, _ in pods), _NAMED)


def _pending(unscheduled: list[Document], limit: int | None) -> str:
    """Pods that wait for the same reason share a row, unless every row is shown."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for each in unscheduled:
        name, why = f"{each['namespace']}/{each['name']}", each["message"] or "not tried yet"
        by_reason.setdefault((why, name if limit is None else ""), []).append(name)
    rows = [(listed(names, _NAMED_PENDING), why) for (why, _), names in by_reason.items()]
    return _section(f"Pending: {counted(len(unscheduled), 'pod')}", ("pod", "why"), rows, limit)


def _refused(rejections: list[Document], limit: int | None) -> str:
    rows = [
        (
            f"{each['kind']} {each['namespace'] + '/' if each['namespace'] else ''}{each['name']}",
            each["user"],
            each["message"],
        )
        for each in rejections
    ]
    return _section("Refused", ("request", "by", "why"), rows, limit)


def _expectations(expectations: list[Document]) -> str:
    if not expectations:
        return ""
    failed = [each for each in expectations if not each["ok"]]
    if not failed:
        all_hold = f"All {len(expectations)} expectations hold." if len(expectations) > 1 else "The expectation holds."
        return paint(all_hold, "green", bold=True)
    lines = [paint(f"{len(failed)} of {counted(len(expectations), 'expectation')} failed:", "red", bold=True)]
    for each in failed:
        lines += failure(each)
    return "\n".join(lines)


def left_out(number: int) -> str:
    return f"… and {number} more (--all shows them)"


def failure(each: Document) -> Iterator[str]:
    head = f"  {each['step']}"
    if each.get("expect"):
        head += f" ({each['expect']})"
    yield head
    for problem in each.get("problems") or ():
        yield from (f"    {line}" for line in str(problem).splitlines())
    for line in str(each.get("explanation") or "").splitlines():
        yield f"    {line}"
