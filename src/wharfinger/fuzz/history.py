"""What happened, in plain documents: the objects as the API server holds them, every change in order, and what our
schedulers decided on the basis of which versions. Invariants read this and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.framework.status import Status
from wharfinger.scheduler.scheduler import Scheduler
from wharfinger.simulate.processes import ProcessRun
from wharfinger.store import Store
from wharfinger.store.collection import ObjectChange

_PREEMPTED = b'"Preempted"'
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


class PlainChange(msgspec.Struct, frozen=True, dict=True):
    """One write: an object before and after it. `before` is None for a creation, `after` for a removal."""

    plural: str
    version: int
    before: Document | None
    after: Document | None

    @property
    def key(self) -> tuple[str, str]:
        metadata = (self.after or self.before or {})["metadata"]
        return metadata.get("namespace") or "", metadata["name"]

    @cached_property
    def respecified(self) -> bool:
        """Whether the spec is not what it was before, or there was or is nothing."""
        return self.before is None or self.after is None or self.before.get("spec") != self.after.get("spec")

    @cached_property
    def relabelled(self) -> bool:
        """The same of the labels."""
        if self.before is None or self.after is None:
            return True
        return bool(self.before["metadata"].get("labels") != self.after["metadata"].get("labels"))


class TracedDecision(msgspec.Struct, frozen=True):
    """A node that one of our schedulers chose, and the versions that it had seen of every kind."""

    run: ProcessRun
    number: int  # among all decisions, in the order in which they were made: they may be written in another one
    node: str
    seen: dict[str, int]

    def knew(self, plural: str, version: int) -> bool:
        """Whether a change had been seen. Not to have listed a kind at all is no excuse: nothing is decided before."""
        return version <= self.seen.get(plural, version)

    def before(self, other: TracedDecision) -> bool:
        """Whether the same scheduler made the other decision later, and so knew of this one."""
        return self.run is other.run and self.number < other.number


class PlainHistory(msgspec.Struct):
    objects: dict[str, dict[tuple[str, str], Document]] = msgspec.field(default_factory=lambda: defaultdict(dict))
    pods_on: dict[str, dict[tuple[str, str], Document]] = msgspec.field(default_factory=lambda: defaultdict(dict))
    # `pods_on`: by node, the pods that have it in their spec, finished ones too
    decisions: dict[str, dict[ProcessRun, TracedDecision]] = msgspec.field(default_factory=lambda: defaultdict(dict))
    # `decisions`: by uid, the last one of each scheduler
    placed: dict[str, TracedDecision] = msgspec.field(default_factory=dict)  # by uid, the one that was carried out
    first_decisions: dict[ProcessRun, frozenset[str]] = msgspec.field(default_factory=dict)  # the kinds listed by then
    reviewed: dict[tuple[str, str], dict[str, int]] = msgspec.field(default_factory=dict)
    # `reviewed`: by the key of a pod, the versions that the webhook had seen of every kind when it let it be created
    decided: int = 0  # the number of decisions so far
    version: int = 0
    now: float = 0.0
    enforced: bool = False  # whether scheduling policies are enforced
    disturbed: bool = False  # whether there was a fault so far
    skewed: bool = False  # whether a clock was ahead or behind so far

    def follow(self, scheduler: Scheduler, run: ProcessRun) -> None:
        """Notes the decisions of a scheduler from now on."""
        engine, assume = scheduler.engine, scheduler.engine.assume

        def noted(pod: Pod, node_name: str, profile: str | None = None) -> Status:
            if run not in self.first_decisions:
                self.first_decisions[run] = frozenset(run.seen)
            status = assume(pod, node_name, profile)
            if status.ok:
                self.decided += 1
                self.decisions[pod.metadata.uid][run] = TracedDecision(run, self.decided, node_name, run.seen)
            return status

        engine.assume = noted  # type: ignore[method-assign]  # only watched, not changed

    def carry_out(self, run: ProcessRun, uid: str) -> None:
        """One of our schedulers has written its decision. Somebody else may choose the same node for the same pod."""
        if (decision := self.decisions[uid].get(run)) is not None:
            self.placed[uid] = decision

    def placed_by(self, uid: str, node: str) -> TracedDecision | None:
        """The decision of ours that put something on a node, unless another hand did."""
        found = self.placed.get(uid)
        return found if found is not None and found.node == node else None

    def review(self, run: ProcessRun, request: Document) -> None:
        """The webhook has answered a request."""
        if request["operation"] == "CREATE" and request["resource"]["resource"] == "pods" and request.get("object"):
            metadata = request["object"]["metadata"]
            self.reviewed[request.get("namespace") or "", metadata.get("name") or ""] = run.seen

    def decision(self, uid: str, node: str) -> TracedDecision | None:
        """The decision that put something on a node, unless another hand did, or one that has ended since."""
        found = self.placed_by(uid, node)
        return found if found is not None and found.run.alive else None

    def advance(self, store: Store) -> Iterator[PlainChange]:
        """The changes since the last call, one by one; `objects` has each when it is given. Of leases and events, only those
        that a check needs."""
        for plural, change in store.changes(self.version):
            self.version = change.version
            if plural in _UNINTERESTING and not _UNINTERESTING[plural](change):
                continue
            objects = self.objects[plural]
            metadata_key = (
                (change.event.object.namespace, change.event.object.name) if change.event.object else ("", "")
            )
            before = objects.get(metadata_key)
            after = None if change.after is None else msgspec.json.decode(change.after.data)
            if after is None:
                objects.pop(metadata_key, None)
            else:
                objects[metadata_key] = after
            if plural == "pods":
                self._move(metadata_key, before, after)
            yield PlainChange(plural, change.version, before, after)
        self.version = max(self.version, store.version)

    def _move(self, key: tuple[str, str], before: Document | None, after: Document | None) -> None:
        if before is not None and (node := node_of(before)):
            self.pods_on[node].pop(key, None)
        if after is not None and (node := node_of(after)):
            self.pods_on[node][key] = after

    def of(self, plural: str) -> list[Document]:
        return list(self.objects[plural].values())


_UNINTERESTING: dict[str, Callable[[ObjectChange], bool]] = {
    "leases": lambda change: False,
    "events": lambda change: change.after is not None and _PREEMPTED in change.after.data,
}
"""Kinds of which few objects matter, and which."""


def node_of(pod: Document) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def is_terminal(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_deleting(document: Document) -> bool:
    return bool(document["metadata"].get("deletionTimestamp"))


def title(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def annotation(document: Document, name: str) -> str:
    return str((document["metadata"].get("annotations") or {}).get(name) or "")


def reservation_used(pod: Document) -> str:
    """The uid of the reservation that a pod uses; empty if none."""
    text = annotation(pod, ALLOCATED)
    if not text:
        return ""
    try:
        found: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return ""
    return str(found.get("uid") or "") if isinstance(found, dict) else ""


def condition(document: Document, type: str) -> Document:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type), {})
