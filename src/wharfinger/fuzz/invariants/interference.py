"""What others did on a node, and whether a decision was made before it could be known."""

from __future__ import annotations

from collections import defaultdict

from wharfinger.fuzz.history import PlainChange, PlainHistory, TracedDecision, is_terminal, node_of


class Interference:
    """For each node and kind of object: who changed something there, and the last version."""

    def __init__(self, history: PlainHistory) -> None:
        self._history = history
        self._by_node: dict[str, dict[tuple[str, object], int]] = defaultdict(dict)

    def note(self, node: str, plural: str, version: int, who: object = None) -> None:
        self._by_node[node][plural, who] = version

    def observe(self, change: PlainChange) -> TracedDecision | None:
        """Notes a change of a pod or a node; returns the decision of ours that put the pod where it is now, if that
        is what changed."""
        if change.plural == "nodes":
            self.note(change.key[1], "nodes", change.version)
            return None
        before, after = change.before, change.after
        if after is None or not node_of(after) or is_terminal(after):
            return None
        node = node_of(after)
        if before is not None and node_of(before) == node and before["metadata"]["uid"] == after["metadata"]["uid"]:
            if change.respecified or change.relabelled:
                self.note(node, "pods", change.version)
            return None
        decision = self._history.decision(after["metadata"]["uid"], node)
        self.note(node, "pods", change.version, None if decision is None else decision.run)
        return decision

    def excuses(self, node: str, decision: TracedDecision) -> bool:
        """Whether others changed something there that the decision could not know."""
        return any(
            not decision.knew(plural, version)
            for (plural, who), version in self._by_node[node].items()
            if who is not decision.run
        )
