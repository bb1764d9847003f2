"""What a review looks up: the policies, who may use which, namespaces and the default priority class."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.request import User
from wharfinger.admission.scheduling_policy.merge import Merged, Strategy, merge
from wharfinger.admission.scheduling_policy.shipped import switches_on
from wharfinger.api.fields import FieldError
from wharfinger.api.kinds.ours import SCHEDULING_POLICIES, SIGS
from wharfinger.api.kinds.scheduling_policy import DOCUMENT_GROUP
from wharfinger.api.kinds.scheduling_policy_validation import validate_policy
from wharfinger.api.registry import Document
from wharfinger.api.views.scheduling_policy import SchedulingPolicy, read_policy

GROUPS = (SIGS, DOCUMENT_GROUP)
"""Groups under which the verb `use` may be granted, in the order in which they are asked."""


class PolicySet:
    """All policies at one moment. A policy that is not valid is `broken`: whoever may use it cannot be judged."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.policies: dict[str, SchedulingPolicy] = {}
        self.broken: dict[str, list[FieldError]] = {}
        self.switched_on = False
        for document in documents:
            name = (document.get("metadata") or {}).get("name") or ""
            if faults := validate_policy(document):
                self.broken[name] = faults
            else:
                self.policies[name] = read_policy(document)
            self.switched_on = self.switched_on or switches_on(document)
        self.audited = frozenset(name for name, policy in self.policies.items() if policy.audited)
        self.names = frozenset((*self.policies, *self.broken))
        self._merged: dict[tuple[frozenset[str], Strategy], Merged] = {}

    def merged(self, names: frozenset[str], strategy: Strategy) -> Merged:
        key = (names, strategy)
        found = self._merged.get(key)
        if found is None:
            found = self._merged[key] = merge((self.policies[name] for name in names), strategy)
        return found


class World(Protocol):
    def policies(self) -> PolicySet: ...

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        """Those of the policies named that RBAC lets the user `use` in the namespace."""
        ...

    def namespace_labels(self, name: str) -> Mapping[str, str]: ...

    def global_priority_class(self) -> str:
        """The class of pods that name none; empty when there is no such class."""
        ...


def usable_by(index: RbacIndex, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
    """The look-up of `World.usable` where roles and bindings are at hand."""
    found: frozenset[str] = frozenset()
    for group in GROUPS:
        granted = index.names_allowed(Attributes(user, "use", group, SCHEDULING_POLICIES.plural, namespace=namespace))
        if granted is None:
            return frozenset(names)
        found |= granted
    return found & frozenset(names)


class FixedWorld:
    """A world that does not change by itself: for files, tests and simulations of a change."""

    def __init__(
        self,
        policies: Iterable[Document] = (),
        rbac: RbacIndex | None = None,
        *,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        global_priority_class: str = "",
    ) -> None:
        self._policies = PolicySet(policies)
        self.rbac = RbacIndex() if rbac is None else rbac
        self._namespaces = namespaces or {}
        self._global_class = global_priority_class

    def policies(self) -> PolicySet:
        return self._policies

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        return usable_by(self.rbac, user, namespace, names)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        return self._namespaces.get(name, {})

    def global_priority_class(self) -> str:
        return self._global_class
