"""SchedulingPolicy on a real cluster: the reviewer over informers, with access confirmed by the API server."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from prometheus_client import Counter, Gauge

from wharfinger.admission.request import Request, User
from wharfinger.admission.requesters import RequesterReviewer, controllers_in
from wharfinger.api.kinds import pod_templates
from wharfinger.api.kinds.builtin import NAMESPACES, PRIORITY_CLASSES
from wharfinger.api.registry import Document
from wharfinger.api.views.meta import Metadata
from wharfinger.api.views.workloads import PriorityClass
from wharfinger.client.timers import SystemClock
from wharfinger.systems.scheduling_policy.admission.access import PolicyAccess, Unconfirmed
from wharfinger.systems.scheduling_policy.admission.reviewer import SchedulingPolicyReviewer
from wharfinger.systems.scheduling_policy.admission.violation_counts import ViolationCounts
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.lookup import PolicySet
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings
from wharfinger.webhook.handler import Answer, ReviewerHandler, Rule, WebhookContext, WebhookHandler

SETTINGS = "wharfinger.dev/scheduling-policy"
"""The annotation from which `wharf policy` reads the settings in effect on a cluster."""

ROUNDS = 8  # access questions that one request may raise; two identities in one namespace are the most that occur

_DOCUMENT: type[Document] = dict

RULES = (
    Rule("", ("pods",), ("CREATE",), mutating=True),  # defaults are injected on creation only
    Rule("", ("pods",), ("UPDATE",)),
    Rule("", ("pods/binding", "bindings"), ("CREATE",)),
    *(Rule(group, (plural,)) for group, plural in pod_templates()),
    Rule(SCHEDULING_POLICIES.group, (SCHEDULING_POLICIES.plural,)),
)


class WatchedPolicies:
    """What a review reads, from informers."""

    def __init__(self, context: WebhookContext, access: PolicyAccess) -> None:
        self._access = access
        self._policies = context.informers.of(SCHEDULING_POLICIES, _DOCUMENT)
        self._namespaces = context.informers.of(NAMESPACES, Metadata)
        self._classes = context.informers.of(PRIORITY_CLASSES, PriorityClass)
        self._set = PolicySet(())
        self._current = True
        self._policies.add_handler(on_add=self._changed, on_update=self._changed, on_delete=self._changed)

    def _changed(self, *objects: Document) -> None:
        self._current = False

    def policies(self) -> PolicySet:
        if not self._current:
            self._set, self._current = PolicySet(self._policies, self._set), True
        return self._set

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        return self._access.usable(user, namespace, names)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        found = self._namespaces.get(name)
        return {} if found is None else found.metadata.labels

    def global_priority_class(self) -> str:
        defaults = [found for found in self._classes if found.global_default]
        return min(defaults, key=lambda found: found.value).metadata.name if defaults else ""

    def priority_of(self, priority_class: str) -> int | None:
        found = self._classes.get(priority_class)
        return None if found is None else found.value


class SchedulingPolicyHandler(WebhookHandler):
    name = "scheduling-policy"
    order = 50  # before handlers that look at what it injects
    rules = RULES

    def __init__(self, context: WebhookContext, access: PolicyAccess | None = None) -> None:
        settings = context.configuration.of(SchedulingPolicySettings)
        self.fails_open = settings.mode in ("warn", "audit")
        self.annotations = {SETTINGS: msgspec.json.encode(settings).decode()}
        self.access = PolicyAccess(context.client, context.informers) if access is None else access
        world = WatchedPolicies(context, self.access)
        self._mutating = SchedulingPolicyReviewer(world, settings, mutating=True, namespace=context.namespace)
        self._validating = SchedulingPolicyReviewer(world, settings, mutating=False, namespace=context.namespace)
        Gauge(
            "wharfinger_subject_access_reviews",
            "SubjectAccessReviews sent to the API server since the start.",
            registry=context.metrics,
        ).set_function(lambda: float(self.access.asked))
        self._reviews = Counter(
            "wharfinger_scheduling_policy_reviews_total",
            "Pods and pod templates reviewed, by outcome.",
            ("outcome",),
            registry=context.metrics,
        )

        self._violations = ViolationCounts(context.metrics, SystemClock().now)
        self._client = context.client

    async def upkeep(self) -> None:
        await self._violations.write(self._client)

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        reviewer = self._mutating if mutating else self._validating
        for _ in range(ROUNDS):
            try:
                outcome = reviewer.judge(request)
            except Unconfirmed as missing:
                await self.access.confirm(missing.user, missing.namespace, missing.names)
                continue
            if not mutating:
                refused = outcome.evaluation is not None and outcome.evaluation.refused
                if outcome.evaluation is not None and refused and not request.dry_run:
                    self._violations.note(outcome.evaluation, outcome.mode)
                denied = outcome.review.denied is not None
                self._reviews.labels("denied" if denied else "violated" if refused else "passed").inc()
            return Answer(outcome.review, outcome.operations)
        raise RuntimeError("who may use which policy keeps changing while it is asked")


def handlers(context: WebhookContext) -> list[WebhookHandler]:
    controllers = controllers_in(context.namespace)
    mutating, validating = (RequesterReviewer(controllers, mutating=phase) for phase in (True, False))
    rules = tuple(Rule(group, (plural,), mutating=True) for group, plural in mutating.resources)
    noting = ReviewerHandler("requesters", rules, mutating=mutating, validating=validating, order=10)
    return [noting, SchedulingPolicyHandler(context)]
