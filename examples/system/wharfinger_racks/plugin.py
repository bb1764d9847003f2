"""Scheduling: the nodes of a closed rack refuse new pods."""

from wharfinger.framework import Action, NodePlugin, WakeUp
from wharfinger_racks.kinds import LABEL, RACKS

REASON = "node(s) were in a closed rack"


class ClosedRacks(NodePlugin):
    name = "ClosedRacks"
    points = frozenset({"filter"})
    kinds = (RACKS.kind,)  # `observe` is called for these

    def __init__(self, tables, args):
        super().__init__(tables, args)
        self._closed = set()

    def observe(self, kind, old, new):
        name = (new or old)["metadata"]["name"]
        if new is not None and (new.get("spec") or {}).get("closed"):
            self._closed.add(name)
        else:
            self._closed.discard(name)
        nodes = enumerate(self.tables.nodes)
        self.tables.changed(rows=[row for row, node in nodes if node and node.metadata.labels.get(LABEL) == name])

    def filter_node(self, pod, info):
        return REASON if info.node.metadata.labels.get(LABEL) in self._closed else None

    def wake_ups(self):
        """Pods that were refused are tried again when a rack changes."""
        return (WakeUp(RACKS.kind, Action.ALL),)
