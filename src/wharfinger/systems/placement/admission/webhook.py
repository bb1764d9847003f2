"""Admission of clusters and bindings on a real hub; permissions are checked with SubjectAccessReviews."""

from __future__ import annotations

from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import Request, Review
from wharfinger.api.kinds.builtin import NAMESPACES, SUBJECT_ACCESS_REVIEWS
from wharfinger.api.views.meta import Metadata
from wharfinger.client.interface import Client
from wharfinger.client.timers import SystemClock
from wharfinger.systems.placement.admission.reviewers import ClusterDefaultsReviewer, ShapeReviewer, needed
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTER_SET_BINDINGS, MANAGED_CLUSTERS, OCM
from wharfinger.systems.placement.settings import PlacementSettings
from wharfinger.webhook.handler import Answer, ReviewerHandler, Rule, WebhookContext, WebhookHandler

CLUSTERS = Rule(OCM, (MANAGED_CLUSTERS.plural,), mutating=True)
BINDINGS = Rule(OCM, (MANAGED_CLUSTER_SET_BINDINGS.plural,))


class RightsHandler(WebhookHandler):
    """Checks the permissions to accept, join and bind with SubjectAccessReviews."""

    name = "placement-rights"
    rules = (Rule(OCM, (MANAGED_CLUSTERS.plural,)), BINDINGS)

    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        for right in needed(request):
            if not await self._allowed(right.question):
                return Answer(Review(denied=right.refusal))
        return Answer()

    async def _allowed(self, question: Attributes) -> bool:
        user = question.user
        attributes = {
            "verb": question.verb,
            "group": question.group,
            "resource": question.resource,
            "subresource": question.subresource,
            "name": question.name,
        }
        spec = {
            "resourceAttributes": attributes,
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {key: list(values) for key, values in user.extra.items()},
        }
        document = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": spec,
        }
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, document)
        return bool((answer.get("status") or {}).get("allowed"))


def handlers(context: WebhookContext) -> list[WebhookHandler]:
    namespaces = context.informers.of(NAMESPACES, Metadata)

    def terminating(name: str) -> bool:
        found = namespaces.get(name)
        return found is not None and bool(found.metadata.deletion_timestamp)

    defaults = ClusterDefaultsReviewer(
        SystemClock().now, default_set=context.configuration.of(PlacementSettings).default_cluster_set
    )
    return [
        ReviewerHandler("placement", (CLUSTERS, BINDINGS), mutating=defaults, validating=ShapeReviewer(terminating)),
        RightsHandler(context.client),
    ]
