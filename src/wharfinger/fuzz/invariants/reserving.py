"""Reserved means reserved: only owners use a reservation, and one that is Available ends only with a reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import (
    PlainChange,
    PlainHistory,
    condition,
    is_deleting,
    is_terminal,
    node_of,
    reservation_used,
    title,
)
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.matching import owns


class ReservedMeansReserved(Invariant):
    name = "reserved-means-reserved"
    kinds = ("reservations", "pods")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._by_uid: dict[str, Document] = {}
        self._changed_at: dict[str, int] = {}  # by uid, of reservations and pods: the last version
        # By the uid of a reservation and of the bound pods that use it: which scheduler decided that.
        self._consumers: dict[str, dict[str, object]] = defaultdict(dict)

    def changed(self, change: PlainChange) -> Iterator[str]:
        if change.plural == "reservations":
            yield from self._reservation_changed(change)
        elif change.plural == "pods":
            yield from self._pod_changed(change)

    def _reservation_changed(self, change: PlainChange) -> Iterator[str]:
        before, after = change.before, change.after
        if after is not None:
            self._by_uid[after["metadata"]["uid"]] = after
            if before is None or change.respecified or _phase(before) != _phase(after):
                self._changed_at[after["metadata"]["uid"]] = change.version
        if before is None or _phase(before) != "Available":
            return
        if after is None or after["metadata"]["uid"] != before["metadata"]["uid"]:
            return  # somebody deleted it: nothing of ours deletes one that is Available
        phase = _phase(after)
        if phase == "Available":
            if before["status"].get("nodeName") != after["status"].get("nodeName"):
                yield f"reservation {title(after)} was Available and changed its node"
            return
        ready = condition(after, "Ready")
        if phase not in ("Succeeded", "Failed"):
            yield f"reservation {title(after)} was Available and is now {phase or 'without a phase'}"
        elif ready.get("status") != "False" or not ready.get("reason"):
            yield f"reservation {title(after)} was Available and is now {phase}, but no condition says why"

    def _pod_changed(self, change: PlainChange) -> Iterator[str]:
        before, after = change.before, change.after
        if before is not None and (used := reservation_used(before)):
            if after is None or is_terminal(after) or reservation_used(after) != used:
                self._consumers[used].pop(before["metadata"]["uid"], None)
        if after is None:
            return
        uid = after["metadata"]["uid"]
        if change.relabelled:
            self._changed_at[uid] = change.version
        used = reservation_used(after)
        if not used or not node_of(after) or is_terminal(after):
            return
        if before is not None and node_of(before) and reservation_used(before) == used:
            return
        decision = self.history.placed_by(uid, node_of(after))
        if decision is None:
            return  # adopted by a reservation, or another hand
        consumers = self._consumers[used]
        consumers[uid] = decision.run
        reservation = self._by_uid.get(used)
        if reservation is None:
            yield f"pod {title(after)} uses a reservation that never was: {used}"
            return
        alike = sum(run is decision.run for run in consumers.values())
        if reservation["spec"].get("allocateOnce", True) and alike > 1:
            # Whatever others did: who decided on both knew of both.
            yield f"{alike} pods use reservation {title(reservation)}, which is for one pod"
        if not decision.knew("reservations", self._changed_at.get(used, 0)):
            return
        if not decision.knew("pods", self._changed_at.get(uid, 0)):
            return
        yield from self._may_use(after, reservation)

    def _may_use(self, pod: Document, reservation: Document) -> Iterator[str]:
        name = title(reservation)
        if not any(owns(owner, pod) for owner in reservation["spec"].get("owners") or ()):
            yield f"pod {title(pod)} uses reservation {name}, of which it is no owner"
        if (reservation.get("status") or {}).get("nodeName") != node_of(pod):
            yield f"pod {title(pod)} on node {node_of(pod)} uses reservation {name}, which is elsewhere"
        if _phase(reservation) != "Available" or is_deleting(reservation):
            yield f"pod {title(pod)} uses reservation {name}, which is {_phase(reservation)}"


def _phase(reservation: Document) -> str:
    return str((reservation.get("status") or {}).get("phase") or "")
