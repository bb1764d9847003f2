"""The pods counted by one ResourcePolicy, by group, with the unit each is charged to.

A group is defined relative to a pod: it contains the pods with the same values for all keys that this pod has, like
matchLabelKeys in topology spread constraints. A pod that lacks a key therefore sees pods of several other groups. Only
groups that have been acquired are kept.
"""

from __future__ import annotations

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.systems.resource_policy.plugin.charges import Charges, Order, Units
from wharfinger.systems.resource_policy.plugin.sized import Size, SizedCharges
from wharfinger.systems.resource_policy.rules.policy import PolicyRules, Signature

Group = Charges | SizedCharges

Share = tuple[Size, int]
"""What a pod takes in a group: limited resources and places."""


class Counted(msgspec.Struct):
    order: Order
    signature: Signature
    units: Units  # units of its node
    size: Size  # requests for limited resources
    users: tuple[Counted, ...] = ()  # for a reservation: counted pods that use it

    def share(self, group: Signature) -> Share | None:
        """What the pod takes in a group it belongs to; None if nothing. A reservation's place passes to its users in
        that group, and their sizes are deducted from its own."""
        users = [user for user in self.users if sees(group, user.signature)]
        if not users:
            return self.size, 1
        left = {name: amount - sum(user.size.get(name, 0) for user in users) for name, amount in self.size.items()}
        left = {name: amount for name, amount in left.items() if amount > 0}
        return (left, 0) if left else None


class Counting:
    def __init__(self, rules: PolicyRules) -> None:
        self.rules = rules
        self.pods: dict[ObjectKey, Counted] = {}
        self._limits = [unit.limit for unit in rules.units]
        self._groups: dict[Signature, tuple[int, Group]] = {}  # with reference counts
        self._asked: dict[
            tuple[int, ...], int
        ] = {}  # indexes of the keys that groups use, with the number of such groups
        # cache by pod signature; cleared when groups are added or removed
        self._seen_by: dict[Signature, list[tuple[Signature, Group]]] = {}

    def acquire(self, signature: Signature) -> Group:
        """The group as seen by a pod with this signature. Each call must be paired with `release`."""
        users, found = self._groups.get(signature, (0, None))
        if found is None:
            found = SizedCharges(self._limits) if self.rules.sized else Charges([each.count for each in self._limits])
            keys = _present(signature)
            self._asked[keys] = self._asked.get(keys, 0) + 1
            self._seen_by.clear()
            for pod in self.pods.values():
                if _projected(pod.signature, keys) == signature and (share := pod.share(signature)) is not None:
                    found.add(pod.order, pod.units, *share)
        self._groups[signature] = (users + 1, found)
        return found

    def release(self, signature: Signature) -> None:
        users, found = self._groups[signature]
        if users > 1:
            self._groups[signature] = (users - 1, found)
            return
        del self._groups[signature]
        self._seen_by.clear()
        keys = _present(signature)
        self._asked[keys] -= 1
        if not self._asked[keys]:
            del self._asked[keys]

    def add(self, key: ObjectKey, pod: Counted) -> bool:
        """Count a pod; returns whether a unit may have become full or gained room."""
        self.pods[key] = pod
        changed = False
        for signature, group in self._seeing(pod.signature):
            before = group.version
            if not pod.users:
                group.add(pod.order, pod.units, pod.size)
            elif (share := pod.share(signature)) is not None:
                group.add(pod.order, pod.units, *share)
            changed = changed or group.version != before
        return changed

    def remove(self, key: ObjectKey) -> bool:
        pod = self.pods.pop(key, None)
        if pod is None:
            return False
        changed = False
        for signature, group in self._seeing(pod.signature):
            if not pod.users or pod.share(signature) is not None:
                before = group.version
                group.remove(pod.order)
                changed = changed or group.version != before
        return changed

    def _seeing(self, signature: Signature) -> list[tuple[Signature, Group]]:
        """The groups that contain pods with this signature."""
        found = self._seen_by.get(signature)
        if found is None:
            found = self._seen_by[signature] = [
                (projected, self._groups[projected][1])
                for keys in self._asked
                if all(signature[index] is not None for index in keys)
                and (projected := _projected(signature, keys)) in self._groups
            ]
        return found


def sees(signature: Signature, other: Signature) -> bool:
    """Whether the group of the first signature contains pods with the second."""
    return _projected(other, _present(signature)) == signature


def _present(signature: Signature) -> tuple[int, ...]:
    return tuple(index for index, value in enumerate(signature) if value is not None)


def _projected(signature: Signature, keys: tuple[int, ...]) -> Signature:
    """The signature restricted to these keys."""
    if len(keys) == len(signature):
        return signature
    return tuple(value if index in keys else None for index, value in enumerate(signature))
