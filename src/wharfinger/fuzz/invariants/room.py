"""No overcommit: what pods ask for and what is reserved and unused fits on a node whenever we put something there.

A scheduler decides on what it has seen. What others did on a node after that (a smaller node, a pod that another
scheduler bound, a larger reservation) excuses it for that decision, and for no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, TracedDecision, is_terminal, node_of, reservation_used
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.quantities import Milli, add, amounts, counted_requests, exceeding, host_ports

_KINDS = {"pods": "pods", "nodes": "nodes", "reservations": "reservations"}


class NodeUse(msgspec.Struct):
    """What is on a node by name; the node itself need not exist."""

    pods: dict[str, Document] = msgspec.field(default_factory=dict)  # by uid, those that have not finished
    reservations: dict[str, Document] = msgspec.field(default_factory=dict)  # by uid, the Available ones
    used: Milli = msgspec.field(default_factory=dict)  # by the pods
    others: dict[str, dict[object, int]] = msgspec.field(default_factory=lambda: defaultdict(dict))
    # `others`: by kind and by who did it, the last version that took room here


class NoOvercommit(Invariant):
    name = "no-overcommit"
    kinds = ("pods", "nodes", "reservations")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._uses: dict[str, NodeUse] = defaultdict(NodeUse)
        self._requests: dict[str, Milli] = {}  # by uid, of pods on nodes

    def changed(self, change: PlainChange) -> Iterator[str]:
        if change.plural == "pods":
            yield from self._pod_changed(change)
        elif change.plural == "nodes":
            self._node_changed(change)
        elif change.plural == "reservations":
            yield from self._reservation_changed(change)

    # -- what is where

    def _pod_changed(self, change: PlainChange) -> Iterator[str]:
        before, after = change.before, change.after
        was = node_of(before) if before is not None and not is_terminal(before) else ""
        now = node_of(after) if after is not None and not is_terminal(after) else ""
        if before is not None and was and (not now or after is None or _uid(before) != _uid(after)):
            self._remove(was, _uid(before))
        if after is None or not now:
            return
        use, uid = self._uses[now], _uid(after)
        known = self._requests.get(uid)
        wanted = counted_requests(after) if known is None or _asks_anew(change) else known
        if known is not None:
            if known != wanted or (before is not None and reservation_used(before) != reservation_used(after)):
                use.others["pods"][None] = change.version
                self._put(use, uid, after, wanted)
            else:
                use.pods[uid] = after
            return
        self._put(use, uid, after, wanted)
        decision = self.history.decision(uid, now)
        use.others["pods"][None if decision is None else decision.run] = change.version
        if decision is not None:
            yield from self._check(now, decision, f"pod {_title(after)}", uid, wanted, after)

    def _put(self, use: NodeUse, uid: str, pod: Document, wanted: Milli) -> None:
        if uid in self._requests:
            add(use.used, {name: -amount for name, amount in self._requests[uid].items()})
        use.pods[uid] = pod
        self._requests[uid] = wanted
        add(use.used, wanted)

    def _remove(self, node: str, uid: str) -> None:
        use = self._uses[node]
        if use.pods.pop(uid, None) is not None:
            add(use.used, {name: -amount for name, amount in self._requests.pop(uid).items()})

    def _node_changed(self, change: PlainChange) -> None:
        name = change.key[1]
        old = _allocatable(change.before)
        new = _allocatable(change.after)
        if change.before is None or change.after is None or any(new.get(each, 0) < old[each] for each in old):
            self._uses[name].others["nodes"][None] = change.version

    def _reservation_changed(self, change: PlainChange) -> Iterator[str]:
        old, new = _held(change.before), _held(change.after)
        if old and (not new or old["status"]["nodeName"] != new["status"]["nodeName"] or _uid(old) != _uid(new)):
            self._uses[old["status"]["nodeName"]].reservations.pop(_uid(old), None)
        if not new:
            return
        node, uid = new["status"]["nodeName"], _uid(new)
        use = self._uses[node]
        known = use.reservations.get(uid)
        use.reservations[uid] = new
        if known is None:
            decision = self.history.decision(uid, node)
            use.others["reservations"][None if decision is None else decision.run] = change.version
            if decision is not None and not _waited(change.before):
                wanted = amounts(new["status"].get("allocatable"))
                yield from self._check(node, decision, f"reservation {_title(new)}", uid, wanted, None)
        elif known["status"].get("allocatable") != new["status"].get("allocatable"):
            use.others["reservations"][None] = change.version

    # -- the check

    def _excused(self, use: NodeUse, decision: TracedDecision) -> bool:
        return any(
            not decision.knew(plural, version)
            for plural in _KINDS
            for who, version in use.others[plural].items()
            if who is not decision.run
        )

    def _check(
        self, node: str, decision: TracedDecision, what: str, uid: str, wanted: Milli, pod: Document | None
    ) -> Iterator[str]:
        use, document = self._uses[node], self.history.objects["nodes"].get(("", node))
        if document is None or self._excused(use, decision):
            return
        limit = _allocatable(document)
        used = self.used(node)
        for name in exceeding(used, limit, (each for each, amount in wanted.items() if amount)):
            if name in _COUNTED_ELSEWHERE or not _is_plain(name):
                continue
            if used[name] <= self.used(node, without=uid).get(name, 0):
                continue  # an owner uses its reservation: what is taken did not grow
            yield f"{what} was put on node {node}, which then has {used[name]} of {limit.get(name, 0)} milli-{name} taken"
        if pod is None:
            return
        if len(use.pods) * 1000 > limit.get("pods", 0):
            yield f"{what} is one of {len(use.pods)} pods on node {node}, which allows {limit.get('pods', 0) // 1000}"
        mine = host_ports(pod["spec"])
        if mine:
            for each, other in use.pods.items():
                if each != uid and (shared := mine & host_ports(other["spec"])):
                    yield f"{what} and pod {_title(other)} on node {node} both use the host ports {sorted(shared)}"

    def used(self, node: str, without: str = "") -> Milli:
        """By pods, and by what is reserved and unused; with or without one of them."""
        use = self._uses[node]
        total = dict(use.used)
        if without in use.pods:
            add(total, {name: -amount for name, amount in self._requests[without].items()})
        for uid, reservation in use.reservations.items():
            if uid == without:
                continue
            consumers = [each for each in use.pods.values() if reservation_used(each) == uid and _uid(each) != without]
            if consumers and reservation["spec"].get("allocateOnce", True):
                continue
            left = amounts(reservation["status"].get("allocatable"))
            for each in consumers:
                taken = self._requests[_uid(each)]
                left = {name: amount - taken.get(name, 0) for name, amount in left.items()}
            add(total, {name: max(0, amount) for name, amount in left.items()})
        return total

    def recount(self) -> Iterator[str]:
        plain: dict[str, Milli] = defaultdict(dict)
        for pod in self.history.of("pods"):
            if node_of(pod) and not is_terminal(pod):
                add(plain[node_of(pod)], counted_requests(pod))
        for node in {*plain, *self._uses}:
            kept = {name: amount for name, amount in self._uses[node].used.items() if amount}
            counted = {name: amount for name, amount in plain[node].items() if amount}
            if kept != counted:
                yield f"the check counts {kept} on node {node}, but its pods ask for {counted}"


_COUNTED_ELSEWHERE = frozenset(("pods",))


def _is_plain(name: str) -> bool:
    """Resources that a node has a plain number of; classes of devices are checked by `devices`."""
    return name in ("cpu", "memory", "ephemeral-storage") or name.startswith("example.com/")


def _asks_anew(change: PlainChange) -> bool:
    """Whether a pod may count for something else than before."""
    before, after = ((each or {}).get("status") or {} for each in (change.before, change.after))
    return change.respecified or before.get("containerStatuses") != after.get("containerStatuses")


def _uid(document: Document) -> str:
    return str(document["metadata"]["uid"])


def _title(document: Document) -> str:
    metadata = document["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _allocatable(node: Document | None) -> Milli:
    return amounts(((node or {}).get("status") or {}).get("allocatable"))


def _held(reservation: Document | None) -> Document | None:
    """The reservation if it holds room."""
    status = (reservation or {}).get("status") or {}
    return reservation if status.get("phase") == "Available" and status.get("nodeName") else None


def _waited(reservation: Document | None) -> bool:
    return ((reservation or {}).get("status") or {}).get("phase") == "Waiting"
