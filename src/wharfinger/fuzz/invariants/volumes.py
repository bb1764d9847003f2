"""Volumes: a decision of ours never puts more volumes of a CSI driver on a node than its CSINode allows, and a volume that
is for one pod is used by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, TracedDecision, is_terminal, node_of, title
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.invariants.interference import Interference


class VolumesAttachable(Invariant):
    name = "volumes"
    kinds = ("csinodes", "persistentvolumeclaims", "pods", "nodes")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._interference = Interference(history)
        self._changed: dict[str, int] = defaultdict(int)  # by kind: the last version at which what we check changed
        self._nodes: dict[str, list[tuple[int, bool]]] = defaultdict(list)
        # `_nodes`: by name, the versions at which one was created or deleted, and whether it was there from then on

    def changed(self, change: PlainChange) -> Iterator[str]:
        if change.plural == "nodes" and (change.before is None or change.after is None):
            self._nodes[change.key[1]].append((change.version, change.after is not None))
        if change.plural == "csinodes":
            self._changed[change.plural] = change.version
        elif change.plural == "persistentvolumeclaims":
            if change.before is None or change.after is None:  # otherwise, it is bound: that is ours
                self._changed[change.plural] = change.version
        elif change.plural in ("pods", "nodes"):
            decision = self._interference.observe(change)
            if decision is not None and change.after is not None:
                yield from self._check(change.after, decision)

    def _check(self, pod: Document, decision: TracedDecision) -> Iterator[str]:
        mine, node = set(self._claims(pod)), node_of(pod)
        if not mine or self._interference.excuses(node, decision):
            return
        if not all(decision.knew(kind, version) for kind, version in self._changed.items()):
            return
        there = [each for each in self.history.pods_on[node].values() if not is_terminal(each)]
        limits = self._limits(node)
        for driver in sorted({driver for claim in mine if (driver := self._driver(claim)) in limits}):
            taken = {claim for each in there for claim in self._claims(each) if self._driver(claim) == driver}
            if len(taken) > limits[driver]:
                yield f"pod {title(pod)} is on node {node}, with {len(taken)} volumes of {driver}, of {limits[driver]}"
        for claim in sorted(mine):
            users = [each for each in self.history.of("pods") if self._uses_alone(each, claim, decision)]
            if users:
                yield f"{len(users) + 1} pods use the claim {'/'.join(claim)}, which is for one pod"

    def _uses_alone(self, pod: Document, claim: tuple[str, str], decision: TracedDecision) -> bool:
        """Whether another pod that the same scheduler placed uses a claim that is for one pod."""
        other = self.history.placed_by(pod["metadata"]["uid"], node_of(pod))
        if other is None or other is decision or other.run is not decision.run:
            return False
        if is_terminal(pod) or claim not in self._claims(pod):
            return False
        modes = self.history.objects["persistentvolumeclaims"][claim]["spec"].get("accessModes") or ()
        first, second = (decision, other) if decision.before(other) else (other, decision)
        return "ReadWriteOncePod" in modes and self._saw_node(second, first.node)

    def _saw_node(self, decision: TracedDecision, node: str) -> bool:
        """Whether there was a node when a decision was made, as far as the scheduler knew. As in kube-scheduler, the pods
        on one that is gone use no claims."""
        known = [there for version, there in self._nodes[node] if decision.knew("nodes", version)]
        return bool(known) and known[-1]

    def _claims(self, pod: Document) -> Iterator[tuple[str, str]]:
        """The claims of a pod that exist."""
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            key = (pod["metadata"]["namespace"], name)
            if name and key in self.history.objects["persistentvolumeclaims"]:
                yield key

    def _driver(self, claim: tuple[str, str]) -> str:
        """The CSI driver of the volume that a claim is bound to."""
        name = self.history.objects["persistentvolumeclaims"][claim]["spec"].get("volumeName")
        volume = self.history.objects["persistentvolumes"].get(("", name)) or {}
        return str(((volume.get("spec") or {}).get("csi") or {}).get("driver") or "")

    def _limits(self, node: str) -> dict[str, int]:
        found = self.history.objects["csinodes"].get(("", node)) or {}
        return {
            each["name"]: int(each["allocatable"]["count"])
            for each in (found.get("spec") or {}).get("drivers") or ()
            if (each.get("allocatable") or {}).get("count") is not None
        }
