"""What a review looks up: the policies, who may use which, namespaces, and the global default priority class."""

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
from wharfinger.systems.scheduling_policy.rules.merge import MergedPolicy, Strategy, merge
from wharfinger.systems.scheduling_policy.rules.shipped import only_reports, switches_on

GROUPS = (SIGS, DOCUMENT_GROUP)
"""API groups under which the verb `use` may be granted, in the order in which they are checked."""

MERGES = 256  # size of the cache; identities that may use the same policies share an entry


class _Read:
    """One parsed policy, or the errors that make it invalid."""

    __slots__ = ("audited", "faults", "name", "policy", "switches_on")

    def __init__(self, document: Document) -> None:
        metadata = document.get("metadata") or {}
        self.name: str = metadata.get("name") or ""
        self.faults = validate_policy(document)
        self.policy = None if self.faults else read_policy(document)
        self.audited = only_reports(document)
        self.switches_on = switches_on(document)


class PolicySet:
    """All policies at one moment. An invalid policy is `broken`: requests of identities that may use it cannot be
    judged.

    A set is made of documents, or of sources that `document` turns into documents. Parts of the previous set `before`
    are reused for sources that are still the same object, so that one changed policy does not cost parsing all of them.
    """

    def __init__(
        self,
        sources: Iterable[Any],
        before: PolicySet | None = None,
        *,
        document: Callable[[Any], Document] = lambda source: source,
    ) -> None:
        known = {} if before is None else before._read
        # By identity: each source is referenced here, so its id cannot be reused meanwhile.
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
        self._merged: dict[tuple[frozenset[str], Strategy], MergedPolicy] = {}
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: PolicySet) -> None:
        """Keeps the same name sets where they are equal, since cached answers are keyed by them, and merges that are
        still valid."""
        if self.names == before.names:
            self.names = before.names
        changed = {
            name for name in self.names | before.names if self.policies.get(name) is not before.policies.get(name)
        }
        self._merged = {key: merged for key, merged in before._merged.items() if key[0].isdisjoint(changed)}

    def merged(self, names: frozenset[str], strategy: Strategy) -> MergedPolicy:
        key = (names, strategy)
        found = self._merged.get(key)
        if found is None:
            if len(self._merged) >= MERGES:
                del self._merged[next(iter(self._merged))]  # the oldest
            found = self._merged[key] = merge((self.policies[name] for name in names), strategy)
        return found


class PolicyLookup(Protocol):
    def policies(self) -> PolicySet: ...

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        """The named policies that RBAC lets the user `use` in the namespace."""
        ...

    def namespace_labels(self, name: str) -> Mapping[str, str]: ...

    def global_priority_class(self) -> str:
        """The priority class of pods that name none; empty when there is none."""
        ...

    def priority_of(self, priority_class: str) -> int | None:
        """The value of a priority class; None when it does not exist."""
        ...


def usable_by(index: RbacIndex, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
    """`PolicyLookup.usable` computed from an RBAC index."""
    found: frozenset[str] = frozenset()
    for group in GROUPS:
        granted = index.names_allowed(Attributes(user, "use", group, SCHEDULING_POLICIES.plural, namespace=namespace))
        if granted is None:
            return frozenset(names)
        found |= granted
    return found & frozenset(names)


class FixedPolicies:
    """A world that does not change by itself, for files, tests and simulations of a change."""

    def __init__(
        self,
        policies: Iterable[Document] = (),
        rbac: RbacIndex | None = None,
        *,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        global_priority_class: str = "",
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        self._policies = PolicySet(policies)
        self.rbac = RbacIndex() if rbac is None else rbac
        self._namespaces = namespaces or {}
        self._global_class = global_priority_class
        self._priorities = priorities or {}

    def policies(self) -> PolicySet:
        return self._policies

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        return usable_by(self.rbac, user, namespace, names)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        return self._namespaces.get(name, {})

    def global_priority_class(self) -> str:
        return self._global_class

    def priority_of(self, priority_class: str) -> int | None:
        return self._priorities.get(priority_class)
