"""Webhook handlers: one admission concern each, with the rules that select its requests. The extension point for systems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from wharfinger.admission.request import PASS, Request, Review, Reviewer
from wharfinger.api.configuration import Configuration
from wharfinger.api.registry import Document, Registry
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.system import systems

Operation = dict[str, Any]

# Objects come from JSON. Copying them through JSON takes a tenth of the time of `deepcopy`.
_encode = msgspec.json.Encoder().encode
_decode = cast("Any", msgspec.json.Decoder()).decode


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests for a handler, as in webhook configurations. `mutating` selects both phases instead of validation only."""

    group: str
    resources: tuple[str, ...]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    versions: tuple[str, ...] = ("*",)
    mutating: bool = False

    def matches(self, request: Request) -> bool:
        resource = request.resource.plural
        if request.subresource:
            resource = f"{resource}/{request.subresource}"
        return (
            request.resource.group == self.group and resource in self.resources and request.operation in self.operations
        )

    def document(self) -> Document:
        return {
            "apiGroups": [self.group],
            "apiVersions": list(self.versions),
            "resources": list(self.resources),
            "operations": list(self.operations),
            "scope": "*",
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """A review, and the JSON patch operations for its changes."""

    review: Review = PASS
    operations: Sequence[Operation] = ()


@dataclass(slots=True)
class WebhookContext:
    """What handlers are built from."""

    client: Client
    informers: InformerSet
    registry: Registry
    configuration: Configuration = field(default_factory=Configuration)
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)
    namespace: str = ""  # the webhook's own, which is exempt


class WebhookHandler:
    """Base class. Handlers mutate by ascending `order`; `annotations` are added to the webhook configurations.

    `fails_open` says what becomes of requests that cannot be reviewed: True admits and False refuses them. Handlers
    that leave it None take what others say, and refuse if none does.
    """

    name = ""
    order = 100
    rules: tuple[Rule, ...] = ()
    annotations: Mapping[str, str] = MappingProxyType({})
    fails_open: bool | None = None

    def concerns(self, request: Request, mutating: bool) -> bool:
        """Depends only on resource, subresource, operation and phase, so that the result can be cached."""
        return any((rule.mutating or not mutating) and rule.matches(request) for rule in self.rules)

    async def upkeep(self) -> None:
        """Called every minute or so, for what need not happen within a review."""

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        """Must not modify `request.object`; changes are returned as patch operations."""
        raise NotImplementedError


class ReviewerHandler(WebhookHandler):
    """Wraps reviewers that modify the object; the patch is computed by comparison."""

    def __init__(
        self,
        name: str,
        rules: tuple[Rule, ...],
        *,
        mutating: Reviewer | None = None,
        validating: Reviewer | None = None,
        order: int = 100,
    ) -> None:
        self.name = name
        self.rules = rules
        self.order = order
        self._mutating = mutating
        self._validating = validating

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        reviewer = self._mutating if mutating else self._validating
        if reviewer is None:
            return Answer()
        own = replace(request, object=_decode(_encode(request.object)))
        review = reviewer.review(own)
        if not mutating or own.object == request.object:
            return Answer(review)
        from jsonpatch import make_patch

        return Answer(review, make_patch(request.object, own.object).patch)


def fail_open(handlers: Iterable[WebhookHandler]) -> bool:
    """Whether requests that cannot be reviewed are admitted."""
    said = [handler.fails_open for handler in handlers if handler.fails_open is not None]
    return bool(said) and all(said)


def find_handlers(context: WebhookContext) -> list[WebhookHandler]:
    """The handlers of the core and those of the systems."""
    from wharfinger.webhook import records, validation

    found: list[WebhookHandler] = [*validation.handlers(context), *records.handlers(context)]
    for system in systems():
        found += system.webhook_handlers(context)
    return sorted(found, key=lambda handler: (handler.order, handler.name))
