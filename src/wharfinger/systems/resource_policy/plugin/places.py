"""Places in the units of one ResourcePolicy: which pods and reservations occupy them. Used by scheduler and controller.

A reservation occupies a place through its stand-in. In a group that contains a pod using the reservation, the place
passes to that pod, and the reservation is charged only for the part of its size that its users leave. In all other
groups the reservation keeps the place. A place held by a reservation is thus never given to another pod.
"""

from __future__ import annotations

from wharfinger.api.keys import ObjectKey
from wharfinger.api.resources import requests
from wharfinger.api.views import Pod
from wharfinger.framework.stand_ins import StandIn
from wharfinger.systems.resource_policy.plugin.charges import Units
from wharfinger.systems.resource_policy.plugin.counting import Counted, Counting
from wharfinger.systems.resource_policy.plugin.sized import NOTHING
from wharfinger.systems.resource_policy.rules.policy import PolicyRules, Signature, order

Reserved = tuple[str, str]
"""The uid of a reservation and its node. A pod on another node does not use it, whatever its annotation says."""


class Places:
    """Methods that return a bool report whether unit usage may have changed."""

    def __init__(self, rules: PolicyRules) -> None:
        self._rules = rules
        self.counting = Counting(rules)
        # Two while a reservation that waits on a node gets room there: its own, and that of its move.
        self._stand_ins: dict[Reserved, list[ObjectKey]] = {}
        self._stands_for: dict[ObjectKey, Reserved] = {}
        self._users: dict[Reserved, dict[ObjectKey, Counted]] = {}
        self._uses: dict[ObjectKey, Reserved] = {}

    def reservation_of(self, key: ObjectKey) -> str | None:
        """The uid of the reservation that a pod uses according to its annotation."""
        return self._uses[key][0] if key in self._uses else None

    def add(
        self, key: ObjectKey, pod: Pod, node: str, units: Units, signature: Signature, reservation: str | None = None
    ) -> bool:
        """Count a governed pod on a node in these units, with the uid of the reservation it uses, if any."""
        size = self._rules.size(requests(pod)) if self._rules.sized else NOTHING
        counted = Counted(order(pod.metadata), signature, units, size)
        if isinstance(pod, StandIn):
            reserved = self._stands_for[key] = (pod.metadata.uid, node)
            self._stand_ins.setdefault(reserved, []).append(key)
            counted.users = tuple(self._users.get(reserved, {}).values())
            return self.counting.add(key, counted)
        changed = self.counting.add(key, counted)
        if reservation:
            reserved = self._uses[key] = (reservation, node)
            self._users.setdefault(reserved, {})[key] = counted
            changed = self._share(reserved) or changed
        return changed

    def remove(self, key: ObjectKey) -> bool:
        """Stop counting a pod."""
        stood_for = self._stands_for.pop(key, None)
        if stood_for is not None:
            keys = self._stand_ins[stood_for]
            keys.remove(key)
            if not keys:
                del self._stand_ins[stood_for]
        changed = self.counting.remove(key)
        reserved = self._uses.pop(key, None)
        if reserved is not None:
            users = self._users[reserved]
            del users[key]
            if not users:
                del self._users[reserved]
            changed = self._share(reserved) or changed
        return changed

    def move(self, key: ObjectKey, units: Units) -> None:
        """Charge a pod again after the units of its node changed."""
        counted = self.counting.pods.get(key)
        if counted is not None:
            self.counting.remove(key)
            counted.units = units
            self.counting.add(key, counted)

    def _share(self, reserved: Reserved) -> bool:
        """Charge a reservation again after its users changed."""
        changed = False
        for key in self._stand_ins.get(reserved, ()):
            counted = self.counting.pods[key]
            changed = self.counting.remove(key) or changed
            counted.users = tuple(self._users.get(reserved, {}).values())
            changed = self.counting.add(key, counted) or changed
        return changed
