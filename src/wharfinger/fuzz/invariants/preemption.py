"""Preemption: somebody of strictly higher priority waits when the scheduler evicts a pod, and would fit on its node without
the pods of lower priority. While victims leave, their room is kept: the node is nominated for whom they were evicted.
Budgets never allow a negative number of disruptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, condition, is_deleting, is_terminal, node_of, title
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.quantities import Milli, add, amounts, counted_requests, pod_requests

_MESSAGE = re.compile(r"Preempted by pod (\S+) on node (\S+)")
_REASON = "PreemptionByScheduler"
MEMORY = 120.0  # seconds that somebody who waited is remembered: the scheduler may learn late that it left


@dataclass(frozen=True, slots=True)
class ToldPreemption:
    """An event that says for whom a pod was evicted."""

    preemptor: str  # uid
    node: str
    version: int


class PreemptionHelps(Invariant):
    name = "preemption"
    kinds = ("poddisruptionbudgets", "nodes", "events", "pods")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._waited: dict[str, tuple[float, Document]] = {}  # by uid: when last, and the pod
        self._told: list[ToldPreemption] = []  # since the last step
        self._nodes_changed: dict[str, int] = {}  # by name: the last version

    def changed(self, change: PlainChange) -> Iterator[str]:
        if change.plural == "poddisruptionbudgets" and change.after is not None:
            if ((change.after.get("status") or {}).get("disruptionsAllowed") or 0) < 0:
                yield f"budget {title(change.after)} allows a negative number of disruptions"
        if change.plural == "nodes":
            self._nodes_changed[change.key[1]] = change.version
        if change.plural == "events" and change.after is not None:
            if found := _MESSAGE.search(str(change.after.get("message"))):
                self._told.append(ToldPreemption(found[1], found[2], change.version))
        if change.plural != "pods":
            return
        for pod in (change.before, change.after):
            if pod is not None and not node_of(pod) and not is_terminal(pod):
                self._waited[pod["metadata"]["uid"]] = (self.history.now, pod)
        before, after = change.before, change.after
        if after is None or not node_of(after) or before is None:
            return
        if not _preempted(after) or _preempted(before) or is_deleting(before):
            return
        yield from self._judge(after)

    def stepped(self) -> Iterator[str]:
        """Faults may keep a nomination from being written, so this is judged only as long as there were none."""
        told, self._told = self._told, []
        if not self.history.disturbed:
            for each in told:
                yield from self._judge_nomination(each)

    def _judge_nomination(self, told: ToldPreemption) -> Iterator[str]:
        pods = self.history.objects["pods"].values()
        preemptor = next((each for each in pods if each["metadata"]["uid"] == told.preemptor), None)
        if preemptor is None or node_of(preemptor) or is_deleting(preemptor):
            return
        if self._nodes_changed.get(told.node, 0) > told.version:
            return
        leaving = [each for each in self.history.pods_on[told.node].values() if is_deleting(each) and _preempted(each)]
        if not any(_priority(each) < _priority(preemptor) for each in leaving):
            return
        if _nominated(preemptor) == told.node:
            return
        if any(_nominated(each) == told.node and _priority(each) > _priority(preemptor) for each in pods):
            return  # who took the node from it
        if self._claims_given(preemptor):
            return
        yield f"pods leave node {told.node} for pod {title(preemptor)}, but no room is kept for it there"

    def _claims_given(self, pod: Document) -> bool:
        """Whether another pod with which it shares a claim got devices for it, perhaps those of another node."""
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        for each in pod["spec"].get("resourceClaims") or ():
            claim = self.history.objects["resourceclaims"].get((namespace, each.get("resourceClaimName"))) or {}
            users = (claim.get("status") or {}).get("reservedFor") or ()
            if any(user.get("uid") != uid for user in users):
                return True
        return False

    def _judge(self, victim: Document) -> Iterator[str]:
        priority = _priority(victim)
        now = self.history.now
        self._waited = {uid: each for uid, each in self._waited.items() if now - each[0] <= MEMORY}
        waiting = [pod for _, pod in self._waited.values()] + [
            each for each in self.history.objects["pods"].values() if not node_of(each) and not is_terminal(each)
        ]
        preemptors = [
            each for each in waiting if _priority(each) > priority and each["spec"].get("preemptionPolicy") != "Never"
        ]
        if not preemptors:
            yield f"pod {title(victim)} of priority {priority} was preempted, but nobody of higher priority waits"
        elif not any(self._fits(each, node_of(victim)) for each in preemptors):
            yield f"pod {title(victim)} was preempted on node {node_of(victim)}, but that lets nobody in"

    def _fits(self, pod: Document, name: str) -> bool:
        """Whether there is room for the pod if all of lower priority go; a necessary condition."""
        node = self.history.objects["nodes"].get(("", name))
        if node is None:
            return True
        used: Milli = dict(pod_requests(pod["spec"]))
        for each in self.history.pods_on[name].values():
            if not is_terminal(each) and _priority(each) >= _priority(pod):
                if each["metadata"]["uid"] != pod["metadata"]["uid"] and not is_deleting(each):
                    add(used, counted_requests(each))
        room = amounts((node.get("status") or {}).get("allocatable"))
        return all(used[each] <= room.get(each, 0) for each in ("cpu", "memory") if each in used)


def _preempted(pod: Document) -> bool:
    return bool(condition(pod, "DisruptionTarget").get("reason") == _REASON)


def _nominated(pod: Document) -> str:
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


def _priority(pod: Document) -> int:
    return int(pod["spec"].get("priority") or 0)
