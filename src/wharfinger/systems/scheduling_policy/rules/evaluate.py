"""Evaluates a pod spec under the policies that its identity may use: what is injected, what is refused, and why."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.admission.request import User
from wharfinger.api.fields import FieldError, describe, required
from wharfinger.api.registry import Document
from wharfinger.api.views import view
from wharfinger.api.wording import path_and_fault
from wharfinger.systems.scheduling_policy.rules.checks import (
    Violation,
    priority_violations,
    violations,
    violations_of_additions,
)
from wharfinger.systems.scheduling_policy.rules.defaults import Injection, Operation, inject
from wharfinger.systems.scheduling_policy.rules.lookup import PolicyLookup, PolicySet
from wharfinger.systems.scheduling_policy.rules.merge import MergedPolicy, Strategy
from wharfinger.systems.scheduling_policy.rules.wishes import Spec, Wishes, additions, read_wishes


class PolicySubject(msgspec.Struct):
    """What is judged: a pod spec and its path, the identity and namespace, and what is known of its origin."""

    spec: Document | None
    users: tuple[User, ...]
    namespace: str
    base: str = "spec"
    old: Document | None = None  # the spec before an update; then only additions count and nothing is injected
    injecting: bool = True  # whether defaults are injected first; the final check takes the pod as it is
    daemon: bool = False  # created by the DaemonSet controller
    migration: bool = False  # a template that our controllers made from an existing pod
    numeric_priority: bool = False  # no pod is made of the template, so nothing else compares `priority` with its class
    global_class: str = ""

    @property
    def pointer(self) -> str:
        return "/" + self.base.replace(".", "/")


class Evaluation(msgspec.Struct):
    """The result. `policies` are those that were used, in order; `audited` those in audit mode."""

    users: tuple[User, ...]
    namespace: str
    policies: tuple[str, ...] = ()
    audited: tuple[str, ...] = ()
    violations: list[Violation] = msgspec.field(default_factory=list)
    injections: list[Injection] = msgspec.field(default_factory=list)
    operations: list[Operation] = msgspec.field(default_factory=list)
    set_aside: list[str] = msgspec.field(default_factory=list)
    merged: MergedPolicy | None = None

    @property
    def refused(self) -> bool:
        return bool(self.violations)

    def who(self) -> str:
        return " or ".join(f'"{user.name}"' for user in self.users)

    def reason(self) -> str:
        """Why it is refused: one line with every violation."""
        used = f"scheduling policies used: {', '.join(self.policies)}" if self.policies else "no scheduling policy"
        return f"{describe([violation.error for violation in self.violations])} ({used}; for {self.who()})"


def evaluate(
    world: PolicyLookup,
    subject: PolicySubject,
    *,
    strategy: Strategy = "deep",
    default_scheduler_is_unset: bool = True,
    with_audited: bool = False,
) -> Evaluation:
    """`with_audited` includes policies in audit mode, to show what they would change."""
    evaluation = Evaluation(subject.users, subject.namespace)
    try:
        wishes = _wishes(subject, subject.spec)
        added = None if subject.old is None else additions(wishes, _wishes(subject, subject.old))
    except msgspec.ValidationError as error:
        evaluation.violations = [Violation(_unreadable(subject.base, error))]
        return evaluation
    evaluation.set_aside = wishes.set_aside
    if added is not None and added.empty:
        return evaluation  # even if policies and grants have changed since the pod was admitted
    known = world.policies()
    # The sets are passed on unchanged where possible, since they are the keys of cached merges.
    first, *others = (world.usable(user, subject.namespace, known.names) for user in subject.users)
    usable = first.union(*others) if others else first
    audited = usable & known.audited if known.audited else known.audited
    taken = usable if with_audited or not audited else usable - audited
    evaluation.audited = _ordered(audited)
    if faults := _unusable(subject, known, taken):
        evaluation.policies = _ordered(taken)
        evaluation.violations = [Violation(fault) for fault in faults]
        return evaluation
    merged = known.merged(taken, strategy)
    evaluation.merged, evaluation.policies = merged, merged.policies
    if added is not None:
        evaluation.violations = violations_of_additions(merged, added)
        return evaluation
    if subject.injecting and subject.spec is not None:
        evaluation.operations, evaluation.injections = inject(
            merged.default,
            subject.spec,
            wishes,
            pointer=subject.pointer,
            default_scheduler_is_unset=default_scheduler_is_unset,
        )
    evaluation.violations = violations(merged, wishes)
    if subject.numeric_priority:
        evaluation.violations += priority_violations(merged, wishes, world.priority_of)
    return evaluation


def _unusable(subject: PolicySubject, known: PolicySet, names: frozenset[str]) -> list[FieldError]:
    """Why the request cannot be judged at all."""
    if subject.spec is None:
        return [required(subject.base)]
    if not names:
        who = " or ".join(f'"{user.name}"' for user in subject.users)
        why = f'{who} may not use any scheduling policy in namespace "{subject.namespace}"'
        return [FieldError(subject.base, "FieldValueForbidden", f"Forbidden: {why}")]
    return [
        FieldError(subject.base, "FieldValueForbidden", f'Forbidden: policy "{name}" is not valid: {describe(faults)}')
        for name, faults in sorted(known.broken.items())
        if name in names
    ]


def _wishes(subject: PolicySubject, spec: Document | None) -> Wishes:
    return read_wishes(
        view({} if spec is None else spec, Spec),
        subject.base,
        daemon=subject.daemon,
        migration=subject.migration,
        global_class=subject.global_class,
    )


def _unreadable(base: str, error: msgspec.ValidationError) -> FieldError:
    path, message = path_and_fault(error)
    return FieldError(f"{base}.{path}" if path else base, "FieldValueTypeInvalid", f"Invalid value: {message}")


def _ordered(names: Sequence[str] | frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=str.encode))
