"""Admission of clusters and bindings on a real hub; permissions are checked with SubjectAccessReviews."""

from __future__ import annotations

from wharfinger.admission.request import Request, Review
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.views.meta import Metadata
from wharfinger.client.access_reviews import is_allowed
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
            if not await is_allowed(self._client, right.question):
                return Answer(Review(denied=right.refusal))
        return Answer()


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
