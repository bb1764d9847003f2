"""The records of what was allocated to a pod, on a real API server: only schedulers and node agents may write them."""

from __future__ import annotations

from collections.abc import Collection

from wharfinger.admission.request import Request, Review
from wharfinger.admission.scheduler_records import (
    RecordRules,
    is_binding,
    is_one_of,
    own_schedulers,
    scheduler_records,
    schedulers,
)
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds import pod_templates
from wharfinger.api.kinds.builtin import PODS
from wharfinger.client.access_reviews import is_allowed
from wharfinger.client.interface import Client
from wharfinger.webhook.handler import Answer, Rule, WebhookContext, WebhookHandler


class SchedulerRecordHandler(WebhookHandler):
    name = "scheduler-records"

    def __init__(self, client: Client, rules: RecordRules, trusted: Collection[str]) -> None:
        """`trusted` schedulers write every record that the pod has, so their bindings need no look at the pod."""
        self._client = client
        self._rules = rules
        self._trusted = trusted
        self.rules = (
            # An update of the status may change annotations, too. That of ephemeral containers or resources may not.
            Rule("", ("pods", "pods/status")),
            Rule("", ("pods/binding", "bindings"), ("CREATE",)),
            *(
                Rule(group, (plural, f"{plural}/status"), ("UPDATE",))
                for (group, plural), kind in pod_templates().items()
                if kind.pod_template_identity == "requester"
            ),
        )

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        verdict = self._rules.judge(request)
        denied = verdict.denied
        if denied is not None and verdict.unless is not None and await is_allowed(self._client, verdict.unless):
            denied = None
        if denied is None and is_binding(request) and not is_one_of(request.user, self._trusted):
            try:
                pod = await self._client.get(PODS, request.name, request.namespace)
            except NotFound:
                return Answer()  # the API server says so
            denied = self._rules.unanswered(request, pod)
        return Answer() if denied is None else Answer(Review(denied=denied))


def handlers(context: WebhookContext) -> list[WebhookHandler]:
    rules = RecordRules(schedulers(context.configuration), scheduler_records())
    return [SchedulerRecordHandler(context.client, rules, own_schedulers(context.configuration))]
