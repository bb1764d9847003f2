"""The reviewer of the admission chain: which requests are judged, in which mode, and how the answer is worded."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.admission.requesters import controllers_in
from wharfinger.admission.scheduler_records import SCHEDULERS, is_one_of
from wharfinger.api.errors import ApiError, forbidden
from wharfinger.api.kinds import pod_templates
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.kinds.validation import validate_policy
from wharfinger.systems.scheduling_policy.kinds.views import MODE_KEY, SchedulingPolicy, read_policy
from wharfinger.systems.scheduling_policy.rules.defaults import Operation, apply_operations
from wharfinger.systems.scheduling_policy.rules.evaluate import Evaluation, PolicySubject, evaluate
from wharfinger.systems.scheduling_policy.rules.lint import silenced, silencing
from wharfinger.systems.scheduling_policy.rules.lookup import GROUPS, PolicyLookup
from wharfinger.systems.scheduling_policy.rules.subjects import acting_user, is_mirror, pod_subject, template_subject
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

Mode = Literal["off", "audit", "warn", "enforce"]
_STRICTNESS: dict[str, int] = {"off": 0, "audit": 1, "warn": 2, "enforce": 3}

AUDIT_PREFIX = "scheduling-policy.wharfinger.dev/"
"""Prefix of the keys of audit annotations."""


class PolicyReview(msgspec.Struct, frozen=True):
    """A review with the evaluation behind it, for commands that explain."""

    review: Review
    mode: Mode = "off"
    skipped: str = ""  # why the request was not judged
    evaluation: Evaluation | None = None
    with_audited: Evaluation | None = None  # the same with policies in audit mode taking part
    operations: tuple[Operation, ...] = ()  # the injected defaults


class SchedulingPolicyReviewer:
    """Reviews in one phase: a `mutating` instance injects defaults, the other checks the final object."""

    def __init__(
        self,
        world: PolicyLookup,
        settings: SchedulingPolicySettings | None = None,
        *,
        mutating: bool,
        namespace: str = "",
        on_violation: Callable[[Evaluation, Mode], None] | None = None,
    ) -> None:
        self._world = world
        self._on_violation = on_violation
        self._settings = SchedulingPolicySettings() if settings is None else settings
        self._mutating = mutating
        self._controllers = controllers_in(namespace)
        self._own_namespace = namespace  # namespace of our own components on a real cluster, which is never judged

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        if subresource == "binding" or (group, plural) == ("", "bindings"):
            return not self._mutating and not group
        if subresource:
            return False
        if (group, plural) == ("", "pods"):
            return True
        policy = plural == SCHEDULING_POLICIES.plural and group in GROUPS
        return not self._mutating and (policy or (group, plural) in pod_templates())

    def repeats(self, request: Request) -> bool:
        """Violations are counted, so only where nothing is judged."""
        return self._is_off(request)

    def _is_off(self, request: Request) -> bool:
        if self._settings.mode != "auto" or request.resource.plural == SCHEDULING_POLICIES.plural:
            return False
        policies = self._world.policies()
        return not policies.switched_on and not policies.audited

    def review(self, request: Request) -> Review:
        if self._is_off(request):
            return PASS  # the fast path of what `judge` would answer
        outcome = self.judge(request)
        if outcome.operations and request.object is not None:
            apply_operations(request.object, list(outcome.operations))
        violated = outcome.evaluation is not None and outcome.evaluation.refused
        if violated and outcome.evaluation is not None and self._on_violation is not None and not request.dry_run:
            self._on_violation(outcome.evaluation, outcome.mode)
        return outcome.review

    def judge(self, request: Request) -> PolicyReview:
        """Reviews a request without changing the object."""
        resource = (request.resource.group, request.resource.plural)
        if (resource == ("", "pods") and request.subresource == "binding") or resource == ("", "bindings"):
            return _skip("only the final look concerns bindings") if self._mutating else self._binding(request)
        if request.subresource or request.operation not in ("CREATE", "UPDATE"):
            return _skip("policies speak of creates and updates of pods and their templates")
        if resource == ("", "pods"):
            return self._pod(request)
        if resource in pod_templates() and not self._mutating:
            return self._template(request)
        if request.resource.plural == SCHEDULING_POLICIES.plural and request.resource.group in GROUPS:
            return self._policy(request)
        return _skip("neither a pod nor a workload with a pod template")

    def mode(self, namespace: str = "") -> Mode:
        """The mode in effect in a namespace."""
        configured = self._settings.mode
        mode: Mode
        if configured == "auto":
            mode = "enforce" if self._world.policies().switched_on else "off"
        else:
            mode = configured
        if mode != "off" and self._settings.namespace_mode_label and namespace:
            asked: Any = self._world.namespace_labels(namespace).get(MODE_KEY)
            if asked in ("audit", "warn") and _STRICTNESS[asked] < _STRICTNESS[mode]:
                mode = asked
        return mode

    def _idle(self, mode: Mode) -> bool:
        """Whether nothing is enforced and no policy in audit mode has anything to report."""
        return mode == "off" and not self._world.policies().audited

    # Pods

    def _pod(self, request: Request) -> PolicyReview:
        mode = self.mode(request.namespace)
        if self._idle(mode):
            return _skip(_SWITCHED_OFF)
        if why := self._exempt(request, request.namespace):
            return _skip(why)
        if is_mirror(request):
            return _skip("a mirror pod of a node")
        if request.operation == "UPDATE" and _unchanged(request):
            return _skip("the spec did not change")
        subject = pod_subject(
            request,
            with_requester=self._settings.identity == "ServiceAccountOrUser",
            global_class=self._world.global_priority_class(),
            injecting=True,
        )
        if mode == "enforce" and not self._mutating:
            subject.injecting = False
        elif mode != "enforce" and self._mutating:
            return _skip(f"defaults are not injected in mode {mode}")
        return self._answer(request, subject, mode, denies=True)

    # Templates

    def _template(self, request: Request) -> PolicyReview:
        if is_one_of(request.user, SCHEDULERS) or is_one_of(request.user, self._settings.scheduler_identities):
            return _skip("a scheduler, for a pod that was admitted")
        subject = template_subject(
            request,
            with_requester=self._settings.identity == "ServiceAccountOrUser",
            global_class=self._world.global_priority_class(),
            controllers=self._controllers,
        )
        if subject is None:
            return _skip("the pod template did not change")
        if why := self._exempt(request, subject.namespace):
            return _skip(why)
        mode = self.mode(subject.namespace)
        if self._idle(mode):
            return _skip(_SWITCHED_OFF)
        outcome = self._answer(request, subject, mode, denies=self._settings.enforce_templates)
        return PolicyReview(outcome.review, outcome.mode, outcome.skipped, outcome.evaluation, outcome.with_audited)

    # Policies themselves

    def _policy(self, request: Request) -> PolicyReview:
        """Warns about valid policies that probably do not mean what they say; validation has refused invalid ones."""
        if self._mutating or request.object is None or validate_policy(request.object):
            return _skip("a policy")
        policy = read_policy(request.object)
        opened = (
            [] if request.old is None or validate_policy(request.old) else _opened(read_policy(request.old), policy)
        )
        return PolicyReview(Review(warnings=[*policy.warnings, *opened, *self._silencing(policy)]), skipped="a policy")

    def _silencing(self, policy: SchedulingPolicy) -> list[str]:
        """Under the strategy `first`, whom the first policy is granted to gets no other."""
        if self._settings.merge_strategy != "first":
            return []
        if before := silencing(self._world, policy.name):
            return [f"under mergeStrategy first, everyone gets {before} and never this policy"]
        others = silenced(self._world, policy.name)
        if not others:
            return []
        return [f"under mergeStrategy first, everyone may use this policy, so these never apply: {', '.join(others)}"]

    # Bindings

    def _binding(self, request: Request) -> PolicyReview:
        if why := self._exempt(request, request.namespace):
            return _skip(why)
        mode = self.mode(request.namespace)
        if mode == "off" or request.operation != "CREATE":
            return _skip(_SWITCHED_OFF)
        if is_one_of(request.user, SCHEDULERS) or is_one_of(request.user, self._settings.scheduler_identities):
            return _skip("a scheduler")
        why = f'only schedulers may bind pods while scheduling policies are enforced, and "{request.user.name}" is none'
        denied = forbidden("", "pods", request.name, why)
        return PolicyReview(_in_mode(mode, denied, [f"scheduling policy: {why}"], {"binding": why}), mode)

    # Shared by all of them

    def _exempt(self, request: Request, namespace: str) -> str:
        exempt = self._settings.exempt
        user = acting_user(request, self._controllers)
        if user.name in exempt.users:
            return f'user "{user.name}" is exempt'
        if namespace in exempt.namespaces or (namespace and namespace == self._own_namespace):
            return f'namespace "{namespace}" is exempt'
        return ""

    def _answer(self, request: Request, subject: PolicySubject, mode: Mode, *, denies: bool) -> PolicyReview:
        evaluation = self._evaluate(subject)
        audit: dict[str, str] = {}
        audited = None
        if evaluation.audited:
            audited = self._evaluate(subject, with_audited=True)
            base = evaluation if mode != "off" else None
            if difference := _difference(base, audited):
                audit["audit-policies"] = difference
        if mode == "off":
            return PolicyReview(Review(audit=_prefixed(audit)), mode, _SWITCHED_OFF, evaluation, audited)
        injected = mode == "enforce" and self._mutating
        if evaluation.policies:
            audit["policies"] = ",".join(evaluation.policies)
        if not evaluation.refused:
            operations = tuple(evaluation.operations) if injected else ()
            if operations:
                audit["injected"] = "; ".join(f"{each.path} by {each.policy}" for each in evaluation.injections)
            return PolicyReview(Review(audit=_prefixed(audit)), mode, "", evaluation, audited, operations)
        audit["violations"] = evaluation.reason()
        name = request.name or _name(request)
        denied = forbidden(request.resource.group, request.resource.plural, name, evaluation.reason())
        denied.details["causes"] = [
            {"reason": one.error.reason, "message": one.error.message, "field": one.path}
            for one in evaluation.violations
        ]
        warnings = [
            f"scheduling policy: {one} (policies used: {', '.join(evaluation.policies) or 'none'})"
            for one in evaluation.violations
        ]
        lowered = mode if denies or mode != "enforce" else "warn"
        return PolicyReview(_in_mode(lowered, denied, warnings, audit), mode, "", evaluation, audited)

    def _evaluate(self, subject: PolicySubject, *, with_audited: bool = False) -> Evaluation:
        return evaluate(
            self._world,
            subject,
            strategy=self._settings.merge_strategy,
            default_scheduler_is_unset=self._settings.default_scheduler_counts_as_unset,
            with_audited=with_audited,
        )


_SWITCHED_OFF = "only the shipped policies exist, so nothing is enforced"


@lru_cache(256)
def _skip(why: str) -> PolicyReview:
    return PolicyReview(PASS, skipped=why)


def _in_mode(mode: Mode, denied: ApiError, warnings: list[str], audit: dict[str, str]) -> Review:
    if mode == "enforce":
        return Review(denied, audit=_prefixed(audit))
    return Review(warnings=warnings if mode == "warn" else (), audit=_prefixed(audit))


def _prefixed(audit: dict[str, str]) -> dict[str, str]:
    return {f"{AUDIT_PREFIX}{key}": value for key, value in audit.items()}


def _opened(old: SchedulingPolicy, new: SchedulingPolicy) -> list[str]:
    """Removing the last entry of a list allows everything, which is rarely intended."""
    return [
        f"spec.allowed.{name} is empty now, which allows anything; to allow nothing, remove it"
        for name, had, has in (
            ("schedulerNames", old.allowed.scheduler_names, new.allowed.scheduler_names),
            ("priorityClasseNames", old.allowed.priority_classes, new.allowed.priority_classes),
            ("nodeSelectors", old.allowed.node_selectors, new.allowed.node_selectors),
            ("tolerations", old.allowed.tolerations, new.allowed.tolerations),
            ("affinities", old.allowed.affinities, new.allowed.affinities),
            ("runtimeClassNames", old.allowed.runtime_classes, new.allowed.runtime_classes),
            ("topologySpreadConstraints", old.allowed.spread, new.allowed.spread),
        )
        if had and has is not None and not has
    ]


def _unchanged(request: Request) -> bool:
    return (request.object or {}).get("spec") == (request.old or {}).get("spec")


def _name(request: Request) -> str:
    metadata = (request.object or {}).get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else ""
    return str(name or "")


def _difference(now: Evaluation | None, then: Evaluation) -> str:
    """What policies in audit mode would change."""
    had = {str(one) for one in now.violations} if now else set()
    would = {str(one) for one in then.violations}
    injected = {(one.path, str(one.value)) for one in now.injections} if now else set()
    parts = [f"would refuse {text}" for text in sorted(would - had)]
    parts += [f"would no longer refuse {text}" for text in sorted(had - would)]
    parts += [
        f"would set {one.path} by {one.policy}" for one in then.injections if (one.path, str(one.value)) not in injected
    ]
    return f"{', '.join(then.audited)}: {'; '.join(parts)}" if parts else ""
