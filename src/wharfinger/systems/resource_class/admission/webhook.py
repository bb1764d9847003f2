"""Device classes on a real cluster: aliases of one class, records only schedulers write, and names as settings ask."""

from __future__ import annotations

from dataclasses import replace

from wharfinger.admission.request import PASS, Request, Review, Reviewer
from wharfinger.api.kinds import pod_templates
from wharfinger.api.registry import Registry
from wharfinger.systems.resource_class.admission.names import (
    NameRewriter,
    OverlaidReviewer,
    Overlay,
    QuotaNamesReviewer,
)
from wharfinger.systems.resource_class.admission.reviewers import ClassReviewer
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.settings import ResourceClassSettings
from wharfinger.webhook.handler import ReviewerHandler, Rule, WebhookContext, WebhookHandler

_OURS = (RESOURCE_CLASSES, NODE_COMPUTE_RESOURCES)


class Defaults:
    """What our own server fills in and a definition's schema cannot: aliases and names that are made of other fields."""

    def __init__(self, registry: Registry) -> None:
        self._kinds = {each.group_plural: registry.of_resource(each) for each in _OURS}

    def review(self, request: Request) -> Review:
        kind = self._kinds.get(request.resource.group_plural)
        if kind is not None and kind.default is not None and request.object is not None:
            kind.default(request.object)
        return PASS


class InTurn:
    """Several reviewers as one: the first refusal counts, and all warnings."""

    def __init__(self, *reviewers: Reviewer) -> None:
        self._reviewers = reviewers

    def review(self, request: Request) -> Review:
        warnings: list[str] = []
        for reviewer in self._reviewers:
            review = reviewer.review(request)
            if review.denied is not None:
                return review
            warnings += review.warnings
        return Review(warnings=warnings) if warnings else PASS


def handlers(context: WebhookContext) -> list[WebhookHandler]:
    settings = context.configuration.of(ResourceClassSettings)
    informer = context.informers.of(RESOURCE_CLASSES, ResourceClass)
    informer.optional = True  # other parts of the webhook serve clusters without our classes

    def classes() -> list[ResourceClass]:
        return list(informer)

    mutating: list[Reviewer] = [Defaults(context.registry)]
    if settings.rewrite_names:
        mutating.append(NameRewriter(classes))
    if settings.overlay:
        mutating.append(Overlay(classes))
    pods = Rule("", ("pods",), mutating=settings.rewrite_names or settings.overlay)
    ours = Rule(RESOURCE_CLASSES.group, tuple(each.plural for each in _OURS), mutating=True)
    rules = [pods, Rule("", ("resourcequotas",)), ours]
    if settings.rewrite_names:
        rules[1] = replace(rules[1], mutating=True)
        rules += [Rule(group, (plural,), mutating=True) for group, plural in pod_templates()]
    validating = InTurn(
        ClassReviewer(classes, groups=settings.groups),
        OverlaidReviewer(classes, overlay=settings.overlay),
        QuotaNamesReviewer(),
    )
    return [
        ReviewerHandler(
            "resource-class",
            tuple(rules),
            mutating=InTurn(*mutating),
            validating=validating,
            order=40,  # names come first, so that others see what will be stored
        )
    ]
