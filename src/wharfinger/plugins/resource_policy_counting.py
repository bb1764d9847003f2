"""The pods one ResourcePolicy counts, by group, with the unit each is charged to.

A group is seen from one of its pods: it holds the pods with the same values for all keys that this one has, as
matchLabelKeys of topology spread has it. So a pod without some key sees pods of several other groups. Only groups that
somebody asked for are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.plugins.resource_policy_charges import Charges, Order, Units
from wharfinger.plugins.resource_policy_rules import Rules, Signature
from wharfinger.plugins.resource_policy_sized import NOTHING, Size, SizedCharges

Group = Charges | SizedCharges

Key = tuple[str, str]
"""Namespace and name of a pod."""


@dataclass(slots=True)
class Counted:
    order: Order
    signature: Signature
    units: Units  # of its node
    size: Size  # of the resources that some unit limits


class Counting:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.pods: dict[Key, Counted] = {}
        self._limits = [unit.limit for unit in rules.units]
        self._groups: dict[Signature, tuple[int, Group]] = {}  # with the number of users
        self._asked: dict[tuple[int, ...], int] = {}  # which keys groups go by, with the number of groups that do
        self._seen_by: dict[Signature, list[Group]] = {}  # by the pods' signature, while the groups stay the same

    def acquire(self, signature: Signature) -> Group:
        """The group as a pod with this signature sees it; give it back with `release`."""
        users, found = self._groups.get(signature, (0, None))
        if found is None:
            found = SizedCharges(self._limits) if self.rules.sized else Charges([each.count for each in self._limits])
            keys = _present(signature)
            self._asked[keys] = self._asked.get(keys, 0) + 1
            self._seen_by.clear()
            for pod in self.pods.values():
                if _projected(pod.signature, keys) == signature:
                    found.add(pod.order, pod.units, pod.size)
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

    def add(self, key: Key, order: Order, signature: Signature, units: Units, size: Size = NOTHING) -> bool:
        """Counts a pod; says whether some unit may have got full or have room again by it."""
        self.pods[key] = Counted(order, signature, units, size)
        changed = False
        for group in self._seeing(signature):
            before = group.version
            group.add(order, units, size)
            changed = changed or group.version != before
        return changed

    def remove(self, key: Key) -> bool:
        pod = self.pods.pop(key, None)
        if pod is None:
            return False
        changed = False
        for group in self._seeing(pod.signature):
            before = group.version
            group.remove(pod.order)
            changed = changed or group.version != before
        return changed

    def sees(self, signature: Signature, other: Signature) -> bool:
        """Whether the group of the first holds pods with the second."""
        return _projected(other, _present(signature)) == signature

    def _seeing(self, signature: Signature) -> list[Group]:
        """The groups that hold pods with this signature."""
        found = self._seen_by.get(signature)
        if found is None:
            found = self._seen_by[signature] = [
                self._groups[projected][1]
                for keys in self._asked
                if all(signature[index] is not None for index in keys)
                and (projected := _projected(signature, keys)) in self._groups
            ]
        return found


def _present(signature: Signature) -> tuple[int, ...]:
    return tuple(index for index, value in enumerate(signature) if value is not None)


def _projected(signature: Signature, keys: tuple[int, ...]) -> Signature:
    """The signature without the keys that are not among these."""
    if len(keys) == len(signature):
        return signature
    return tuple(value if index in keys else None for index, value in enumerate(signature))
