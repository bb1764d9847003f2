"""What a scheduling plugin is: cluster tables, pod shapes, statuses and reasons, extension points.

The engine and the plugins build on this. Pure: no I/O, no clock, no global randomness. The author of a plugin needs
`Plugin`, `Prepared` and `Scope` (or `NodePlugin`, which sees one node at a time) and the status helpers.
"""

from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.events import Action, ClusterEvent, WakeUp, node_changes, pod_changes
from wharfinger.framework.nodewise import NodeInfo, NodePlugin
from wharfinger.framework.plugin import (
    MAX_SCORE,
    Args,
    Overlays,
    Plugin,
    Prepared,
    RowFunctions,
    Scope,
    normalize_by_max,
)
from wharfinger.framework.prebinding import Preparation, Write
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.status import SUCCESS, Code, Status, error, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables

__all__ = [
    "MAX_SCORE",
    "SUCCESS",
    "Action",
    "Args",
    "Bools",
    "ClusterEvent",
    "Code",
    "Ints",
    "NodeInfo",
    "NodePlugin",
    "Overlay",
    "Overlays",
    "Plugin",
    "PodOnNode",
    "Preparation",
    "Prepared",
    "RowFunctions",
    "Rows",
    "Scope",
    "Shape",
    "Simulation",
    "Status",
    "Tables",
    "WakeUp",
    "Write",
    "error",
    "node_changes",
    "normalize_by_max",
    "pod_changes",
    "unresolvable",
    "unschedulable",
]
