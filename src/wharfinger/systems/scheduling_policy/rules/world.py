"""What a review looks up: the policies, who may use which, namespaces and the default priority class."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.request import User
from wharfinger.api.fields import FieldError
from wharfinger.api.groups import SIGS
from wharfinger.api.registry import Document
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.kinds.scheduling_policy import DOCUMENT_GROUP
from wharfinger.systems.scheduling_policy.kinds.validation import validate_policy
from wharfinger.systems.scheduling_policy.kinds.views import read_policy
from wharfinger.systems.scheduling_policy.rules.merge import Merged, Strategy, merge
from wharfinger.systems.scheduling_policy.rules.shipped import only_reports, switches_on

GROUPS = (SIGS, DOCUMENT_GROUP)
"""Groups under which the verb `use` may be granted, in the order in which they are asked."""

MERGES = 256  # kept at most; identities that may use the same policies share one


class _Read:
    """One policy as its document says; with faults it is not valid, and there is none."""

    __slots__ = ("audited", "faults", "name", "policy", "switches_on")

    def __init__(self, document: Document) -> None:
        metadata = document.get("metadata") or {}
        self.name: str = metadata.get("name") or ""
        self.faults = validate_policy(document)
        self.policy = None if self.faults else read_policy(document)
        self.audited = only_reports(document)
        self.switches_on = switches_on(document)


class PolicySet:
    """All policies at one moment. A policy that is not valid is `broken`: whoever may use it cannot be judged.

    A set is made of documents, or of whatever `document` makes them from. Where a set from `before` is given, what it
    knows of sources that are still the same is taken from it, since one change should not cost a look at all policies.
    """

    def __init__(
        self,
        sources: Iterable[Any],
        before: PolicySet | None = None,
        *,
        document: Callable[[Any], Document] = lambda source: source,
    ) -> None:
        known = {} if before is None else before._read
        # By identity: each source is held here, so that no other can have its number meanwhile.
        self._read: dict[int, tuple[Any, _Read]] = {
            id(source): known[id(source)] if id(source) in known else (source, _Read(document(source)))
            for source in sources
        }
        reads = [read for _, read in self._read.values()]
        self.policies = {read.name: read.policy for read in reads if read.policy is not None}
        self.broken: dict[str, list[FieldError]] = {read.name: read.faults for read in reads if read.faults}
        self.switched_on = any(read.switches_on for read in reads)
        self.audited = frozenset(read.name for read in reads if read.audited)
        self.names = frozenset(read.name for read in reads)
        self._merged: dict[tuple[frozenset[str], Strategy], Merged] = {}
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: PolicySet) -> None:
        """Keeps the very names where they are equal, which answers about them are known by, and merges that still hold."""
        if self.names == before.names:
            self.names = before.names
        changed = {
            name for name in self.names | before.names if self.policies.get(name) is not before.policies.get(name)
        }
        self._merged = {key: merged for key, merged in before._merged.items() if key[0].isdisjoint(changed)}

    def merged(self, names: frozenset[str], strategy: Strategy) -> Merged:
        key = (names, strategy)
        found = self._merged.get(key)
        if found is None:
            if len(self._merged) >= MERGES:
                del self._merged[next(iter(self._merged))]  # the oldest
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
