"""Validation of our kinds beyond what the schema of a CustomResourceDefinition can express."""

from __future__ import annotations

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import invalid_object
from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.registry import Registry
from wharfinger.webhook.handler import ReviewerHandler, Rule, WebhookContext, WebhookHandler


class KindValidation:
    """Runs the validation of the kind on the object in its storage version."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def review(self, request: Request) -> Review:
        kind = self._registry.of_plural(request.resource.group, request.resource.plural)
        if kind is None or kind.validate is None or request.object is None:
            return PASS
        faults: list[FieldError] = []
        if request.operation == "CREATE" and kind.name_faults is not None and request.name:
            faults = [invalid("metadata.name", request.name, fault) for fault in kind.name_faults(request.name)]
        new, old = request.object, request.old
        stored = kind.storage.version
        if kind.convert is not None and request.resource.version != stored:
            new = kind.convert(new, stored)
            old = None if old is None else kind.convert(old, stored)
        faults += kind.validate(new, old)
        if faults:
            return Review(invalid_object(kind.group, kind.kind, request.name, faults))
        return PASS


def handlers(context: WebhookContext) -> list[WebhookHandler]:
    rules = tuple(
        Rule(kind.group, (kind.plural,), versions=kind.versions)
        for kind in context.registry
        if kind.ours and kind.validate is not None
    )
    return [ReviewerHandler("validation", rules, validating=KindValidation(context.registry))]
