"""What a handler is: a concern of admission that this server asks, with the requests it wants to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from wharfinger.admission.request import PASS, Request, Review, Reviewer
from wharfinger.api.configuration import Configuration
from wharfinger.api.registry import Document, Registry
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.system import systems

Operation = dict[str, Any]

# Objects come from JSON: through it a copy is made in a tenth of the time of `deepcopy`.
_encode = msgspec.json.Encoder().encode
_decode = cast("Any", msgspec.json.Decoder()).decode


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests that a handler wants to see, as webhook configurations name them. `mutating` asks for both phases."""

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
    """A review, and the JSON patch operations that carry out what it changes."""

    review: Review = PASS
    operations: Sequence[Operation] = ()


@dataclass(slots=True)
class Context:
    """What handlers are made of."""

    client: Client
    informers: InformerSet
    registry: Registry
    configuration: Configuration = field(default_factory=Configuration)
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)
    namespace: str = ""  # our own; never judged


class Handler:
    """Base of handlers. `order` decides who mutates first; `annotations` tell others, on the webhook configurations."""

    name = ""
    order = 100
    rules: tuple[Rule, ...] = ()
    annotations: Mapping[str, str] = MappingProxyType({})

    def concerns(self, request: Request, mutating: bool) -> bool:
        """By resource, subresource, operation and phase alone: the answer holds for all requests alike in these."""
        return any((rule.mutating or not mutating) and rule.matches(request) for rule in self.rules)

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        """Leaves `request.object` alone: the operations carry out what is to be changed."""
        raise NotImplementedError


class ReviewerHandler(Handler):
    """A handler around a reviewer that decides in process; its changes are found by comparison."""

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


def find_handlers(context: Context) -> list[Handler]:
    """The handlers of the core and those of the systems."""
    from wharfinger.webhook import records, validation

    found: list[Handler] = [*validation.handlers(context), *records.handlers(context)]
    for system in systems():
        found += system.webhook_handlers(context)
    return sorted(found, key=lambda handler: (handler.order, handler.name))
