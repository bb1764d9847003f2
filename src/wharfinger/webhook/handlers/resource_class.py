"""Device classes on a real cluster: aliases of one class, records only schedulers write, and names as settings ask."""

from __future__ import annotations

from dataclasses import replace

from wharfinger.admission.class_names import NameRewriter, OverlaidReviewer, Overlay, QuotaNamesReviewer
from wharfinger.admission.request import PASS, Request, Review, Reviewer
from wharfinger.admission.resource_class import ClassReviewer, RecordReviewer
from wharfinger.admission.scheduling_policy.reviewer import SCHEDULERS
from wharfinger.admission.scheduling_policy.subjects import TEMPLATES
from wharfinger.api.kinds.ours import RESOURCE_CLASSES
from wharfinger.api.views.resource_class import ResourceClass
from wharfinger.webhook.handler import Context, Handler, ReviewerHandler, Rule


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


def handlers(context: Context) -> list[Handler]:
    settings = context.configuration.resource_class
    informer = context.informers.of(RESOURCE_CLASSES, ResourceClass)
    informer.optional = True  # other parts of the webhook serve clusters without our classes
    schedulers = SCHEDULERS | set(context.configuration.scheduling_policy.scheduler_identities)

    def classes() -> list[ResourceClass]:
        return list(informer)

    mutating: list[Reviewer] = []
    if settings.rewrite_names:
        mutating.append(NameRewriter(classes))
    if settings.overlay:
        mutating.append(Overlay(classes))
    pods = Rule("", ("pods",), mutating=bool(mutating))
    rules = [pods, Rule("", ("resourcequotas",)), Rule(RESOURCE_CLASSES.group, (RESOURCE_CLASSES.plural,))]
    if settings.rewrite_names:
        rules[1] = replace(rules[1], mutating=True)
        rules += [Rule(group, (plural,), mutating=True) for group, plural in TEMPLATES]
    validating = InTurn(
        ClassReviewer(classes, groups=settings.groups),
        RecordReviewer(schedulers),
        OverlaidReviewer(classes, overlay=settings.overlay),
        QuotaNamesReviewer(),
    )
    return [
        ReviewerHandler(
            "resource-class",
            tuple(rules),
            mutating=InTurn(*mutating) if mutating else None,
            validating=validating,
            order=40,  # names come first, so that others see what will be stored
        )
    ]
