"""Resource classes on a real API server: unique aliases, protected device records, and the name rewriting that is
configured."""

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
from wharfinger.systems.resource_class.admission.reviewers import ClassReviewer, FormerAliasReviewer
from wharfinger.systems.resource_class.admission.unknown_names import UnknownNameReviewer
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.settings import ResourceClassSettings
from wharfinger.webhook.handler import ReviewerHandler, Rule, WebhookContext, WebhookHandler

_OURS = (RESOURCE_CLASSES, NODE_COMPUTE_RESOURCES)


class Defaults:
    """Defaults derived from other fields (aliases and names), which a CRD schema cannot express."""

    def __init__(self, registry: Registry) -> None:
        self._kinds = {each.group_plural: registry.of_resource(each) for each in _OURS}

    def review(self, request: Request) -> Review:
        kind = self._kinds.get(request.resource.group_plural)
        if kind is not None and kind.default is not None and request.object is not None:
            kind.default(request.object)
        return PASS


class InTurn:
    """Runs reviewers in order: stops at the first rejection and collects all warnings."""

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
    informer.optional = True  # the webhook also serves clusters without ResourceClasses

    def classes() -> list[ResourceClass]:
        return list(informer)

    mutating: list[Reviewer] = [Defaults(context.registry), FormerAliasReviewer()]
    if settings.rewrite_names:
        mutating.append(NameRewriter(classes))
    if settings.overlay:
        mutating.append(Overlay(classes))
    pods = Rule("", ("pods",), mutating=settings.rewrite_names or settings.overlay)
    ours = Rule(RESOURCE_CLASSES.group, tuple(each.plural for each in _OURS), mutating=True)
    rules = [
        pods,
        Rule("", ("resourcequotas",)),
        ours,
        # Annotations of pods also change with their status and with a Binding.
        Rule("", ("pods/status",), ("UPDATE",)),
        Rule("", ("pods/binding", "bindings"), ("CREATE",)),
    ]
    if settings.rewrite_names:
        rules[1] = replace(rules[1], mutating=True)
    rules += [Rule(group, (plural,), mutating=settings.rewrite_names) for group, plural in pod_templates()]
    validating = InTurn(
        ClassReviewer(classes, groups=settings.groups),
        OverlaidReviewer(classes, overlay=settings.overlay),
        QuotaNamesReviewer(),
        UnknownNameReviewer(classes),
    )
    return [
        ReviewerHandler(
            "resource-class",
            tuple(rules),
            mutating=InTurn(*mutating),
            validating=validating,
            order=40,  # rewrite names first: later reviewers see the stored form
        )
    ]
