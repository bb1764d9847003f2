"""Devices: what is recorded for pods on a node never exceeds the devices there, and equals what the pods ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, is_terminal, node_of, title
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.invariants.interference import Interference


class DevicesHeldOnce(Invariant):
    name = "devices"
    kinds = ("pods", "nodes")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._interference = Interference(history)

    def changed(self, change: PlainChange) -> Iterator[str]:
        if change.plural not in ("pods", "nodes"):
            return
        decision = self._interference.observe(change)
        pod = change.after
        if decision is None or pod is None:
            return
        taken = _taken(pod)
        for name, wanted in _wanted(pod).items():
            if (given := sum(taken[name].values())) != wanted:
                yield f"pod {title(pod)} asks for {wanted} of {name}, but {given} are recorded"
        if not taken or self._interference.excuses(node_of(pod), decision):
            return
        node = self.history.objects["nodes"].get(("", node_of(pod)))
        if node is None:
            return
        there = {each["name"]: len(_usable(each)) for each in (node.get("status") or {}).get("computeResources") or ()}
        held: Counter[str] = Counter()
        for other in self.history.pods_on[node_of(pod)].values():
            if not is_terminal(other):
                for counts in _taken(other).values():
                    held.update(counts)
        for name in sorted({name for counts in taken.values() for name in counts}):
            if held[name] > there.get(name, 0):
                yield (
                    f"pod {title(pod)} was put on node {node_of(pod)}, where {held[name]} devices of {name} are then "
                    f"taken, of {there.get(name, 0)}"
                )


def _usable(resource: Document) -> list[str]:
    healthy = resource.get("allocatableDevices")
    return list(resource.get("devices") or ()) if healthy is None else list(healthy)


def _taken(pod: Document) -> dict[str, Counter[str]]:
    """By class or raw name: the devices recorded, by compute resource."""
    found: dict[str, Counter[str]] = {}
    for container in pod["spec"].get("containers") or ():
        for name, records in (container.get("allocatedComputeResources") or {}).items():
            counts = found.setdefault(name, Counter())
            for record in records:
                counts[record["computeResourceName"]] += int(record["count"])
    return found


def _wanted(pod: Document) -> dict[str, int]:
    """What the pod asks for of the names for which something is recorded."""
    found: Counter[str] = Counter()
    for container in pod["spec"].get("containers") or ():
        recorded = container.get("allocatedComputeResources") or {}
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in recorded:
                found[name] += int(amount)
    return dict(found)
