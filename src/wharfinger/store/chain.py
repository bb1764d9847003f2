"""The admission chain: the reviewers of a write and their order.

Reviewers see documents in the storage version; `request.resource` is the resource as requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wharfinger.admission.extension import BindCompletion
from wharfinger.admission.request import PASS, Checker, Request, Review, Reviewer
from wharfinger.api.fields import MALFORMED, FieldError
from wharfinger.store.versions import ConversionNeeded


class RemoteReviewer(Protocol):
    """A reviewer that has to wait, such as one that calls webhooks of users. May have `repeats`, as a `Reviewer`."""

    async def review(self, request: Request) -> Review: ...


class RemoteMutator(Protocol):
    """A reviewer that has to wait and may change the object. May have `repeats`, as a `Reviewer`."""

    async def review(self, request: Request, repeat: Callable[[], None]) -> Review:
        """`repeat` runs the in-process mutating reviewers again, for an object that this reviewer changed."""
        ...


@dataclass(slots=True)
class Chain:
    """Reviewers run in this order: mutating, remote mutating, (validation of the kind, and checkers), validating, remote
    validating, final.

    Final reviewers run in the same step as the write, without waiting in between, so counts that they check are exact.
    """

    mutating: list[Reviewer] = field(default_factory=list)
    remote_mutating: list[RemoteMutator] = field(default_factory=list)
    validating: list[Reviewer] = field(default_factory=list)
    remote_validating: list[RemoteReviewer] = field(default_factory=list)
    final: list[Reviewer] = field(default_factory=list)
    on_bind: list[BindCompletion] = field(default_factory=list)
    seen_on_bind: list[bytes] = field(default_factory=list)  # names in pods that reviewers of Bindings look at
    checking: list[Checker] = field(default_factory=list)
    _chosen: dict[tuple[str, str, str, str], tuple[Sequence[Reviewer], Sequence[Reviewer]]] = field(
        default_factory=dict, repr=False
    )  # by phase, group, plural and subresource: all reviewers of the phase when cached, and those concerned

    _checkers: dict[tuple[str, str, str], tuple[Sequence[Checker], Sequence[Checker]]] = field(
        default_factory=dict, repr=False
    )  # the same for checkers, by group, plural and subresource

    @property
    def mutates(self) -> bool:
        return bool(self.mutating or self.remote_mutating)

    @property
    def waits(self) -> bool:
        return bool(self.remote_mutating or self.remote_validating)

    async def mutate(self, request: Request, warnings: list[str]) -> None:
        await self._ask("mutating", self.mutating, request, warnings)
        for remote in self.remote_mutating:
            _take(
                await remote.review(request, lambda: self._decide("mutating", self.mutating, request, warnings)),
                request,
                warnings,
            )

    def faults(self, request: Request, found: Sequence[FieldError]) -> list[FieldError]:
        """Faults besides those that the kind's own validation `found`. Checkers expect well-formed documents."""
        resource = request.resource
        at = (resource.group, resource.plural, request.subresource)
        known = self._checkers.get(at)
        if known is None or known[0] != self.checking:
            known = self._checkers[at] = (list(self.checking), [each for each in self.checking if each.concerns(*at)])
        if not known[1] or any(fault.reason == MALFORMED for fault in found):
            return []
        return [fault for checker in known[1] for fault in checker.faults(request)]

    async def validate(self, request: Request, warnings: list[str]) -> None:
        await self._ask("validating", self.validating, request, warnings)
        for remote in self.remote_validating:
            _take(await remote.review(request), request, warnings)

    async def connect(self, request: Request, warnings: list[str]) -> None:
        """Reviews a request that opens a connection. Only rules that users write can concern it: policies and webhooks."""
        for mutator in self.remote_mutating:
            _take(await mutator.review(request, lambda: None), request, warnings)
        for reviewer in self.validating:
            if getattr(reviewer, "connects", False):
                _take(reviewer.review(request), request, warnings)
        for remote in self.remote_validating:
            _take(await remote.review(request), request, warnings)

    def finish(self, request: Request, warnings: list[str]) -> None:
        self._decide("final", self.final, request, warnings)

    def repeats(self, request: Request) -> bool:
        """Whether an equal request for an object of another name gets the same answer until a setting changes."""
        at = (request.resource.group, request.resource.plural, request.subresource)
        if any(checker.concerns(*at) for checker in self.checking):
            return False
        reviewers = (
            *self._concerned("mutating", self.mutating, request),
            *self._concerned("validating", self.validating, request),
            *self._concerned("final", self.final, request),
            *self.remote_mutating,
            *self.remote_validating,
        )
        return all((repeats := getattr(one, "repeats", None)) is not None and repeats(request) for one in reviewers)

    @property
    def size(self) -> tuple[int, ...]:
        """Numbers of reviewers, which change when some are added."""
        remote = len(self.remote_mutating) + len(self.remote_validating)
        return len(self.mutating), len(self.validating), len(self.final), remote

    def completes(self, pod: bytes) -> bool:
        """Whether a pod may be completed when it is bound; it is given as JSON."""
        for completion in self.on_bind:
            for name in completion.names:
                if name in pod:
                    return True
        return False

    def sees_on_bind(self, pod: bytes) -> bool:
        """Whether there is something in a pod that reviewers of its Binding, or completions, look at."""
        return any(text in pod for text in self.seen_on_bind) or self.completes(pod)

    async def _ask(self, phase: str, reviewers: list[Reviewer], request: Request, warnings: list[str]) -> None:
        """Asks reviewers, again from the first one if one of them needs a document in a version that has to be waited for."""
        while True:
            try:
                return self._decide(phase, reviewers, request, warnings)
            except ConversionNeeded as needed:
                await needed.resolve()

    def _decide(self, phase: str, reviewers: list[Reviewer], request: Request, warnings: list[str]) -> None:
        for reviewer in self._concerned(phase, reviewers, request):
            review = reviewer.review(request)
            if review is not PASS:
                _take(review, request, warnings)

    def _concerned(self, phase: str, reviewers: list[Reviewer], request: Request) -> Sequence[Reviewer]:
        """The reviewers of a phase that a request concerns."""
        resource = request.resource
        key = (phase, resource.group, resource.plural, request.subresource)
        known = self._chosen.get(key)
        if known is None or known[0] != reviewers:  # reviewers may be added while the chain is in use
            chosen = [one for one in reviewers if _concerns(one, resource.group, resource.plural, request.subresource)]
            known = self._chosen[key] = (list(reviewers), chosen)
        return known[1]


def _concerns(reviewer: Reviewer, group: str, plural: str, subresource: str) -> bool:
    concerns = getattr(reviewer, "concerns", None)
    return concerns is None or bool(concerns(group, plural, subresource))


def _take(review: Review, request: Request, warnings: list[str]) -> None:
    warnings.extend(review.warnings)
    if review.audit and request.audit is not None:
        for key, value in review.audit.items():
            request.audit.setdefault(key, value)  # as upstream, the first one counts
    if review.denied is not None:
        raise review.denied
