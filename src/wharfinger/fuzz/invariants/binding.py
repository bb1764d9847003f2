"""Bound once: the node of a pod never changes, and nothing that is being deleted is bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from wharfinger.fuzz.history import PlainChange, PlainHistory, is_deleting, node_of, title
from wharfinger.fuzz.invariants.base import Invariant


class BoundOnce(Invariant):
    name = "bound-once"
    kinds = ("pods",)

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._nodes: dict[str, str] = {}  # by uid, of every pod that ever was

    def changed(self, change: PlainChange) -> Iterator[str]:
        pod = change.after
        if change.plural != "pods" or pod is None:
            return
        uid, node = str(pod["metadata"]["uid"]), node_of(pod)
        known = self._nodes.get(uid)
        if known is not None and node != known:
            yield f"pod {title(pod)} was on node {known}, and is now on {node or 'none'}"
        if not node:
            return
        self._nodes[uid] = node
        if known is None and change.before is not None:
            if is_deleting(change.before):
                yield f"pod {title(pod)} was bound to {node} while it was being deleted"
            if str(change.before["metadata"]["uid"]) == uid and (change.before["spec"].get("schedulingGates")):
                yield f"pod {title(pod)} was bound to {node} though it has scheduling gates"

    def recount(self) -> Iterator[str]:
        plain: dict[str, list[str]] = defaultdict(list)
        for pod in self.history.of("pods"):
            if node_of(pod):
                plain[node_of(pod)].append(title(pod))
        for node in {*plain, *self.history.pods_on}:
            noted = sorted(title(pod) for pod in self.history.pods_on[node].values())
            if noted != sorted(plain[node]):
                yield f"the checks know of {noted} on node {node}, but there are {sorted(plain[node])}"
