"""Keeps pods off nodes in maintenance and prefers nodes with few pods: over rows, and for one node at a time."""

import numpy as np

from wharfinger.framework import NodeInfo, NodePlugin, Plugin, Prepared, Scope, unschedulable

LABEL = "example.com/maintenance"
REASON = "node(s) were in maintenance"


class QuietRacks(Plugin):
    name, points, enabled = "QuietRacks", frozenset({"filter", "score"}), False

    def prepare(self, shape):
        return Quiet(self.tables)


class Quiet(Prepared):
    filters, scores, scope = True, True, Scope.ROW

    def __init__(self, tables):
        super().__init__()
        self.tables, self.refusal = tables, self.refuse(unschedulable(REASON))

    def filter(self, rows):
        return np.where(self.tables.label(LABEL).codes.take(rows) >= 0, self.refusal, 0)

    def score(self, rows):
        return 100 - np.minimum(self.tables.pod_count.take(rows), 100)


class QuietNodes(NodePlugin):
    name, points, enabled = "QuietNodes", frozenset({"filter", "score"}), False

    def filter_node(self, pod, info: NodeInfo):
        return REASON if LABEL in info.node.metadata.labels else None

    def score_node(self, pod, info: NodeInfo):
        return 100 - min(len(info.pods), 100)
