"""Mutating and validating webhooks that users configure, called as kube-apiserver calls them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jsonpatch
import jsonpointer
import msgspec

from wharfinger.admission.reads import Derived, ObjectVersion
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ApiError, BadRequest, InternalError, forbidden
from wharfinger.api.kinds.builtin import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.apiserver.admission import review as admission_review
from wharfinger.apiserver.admission.authorizer import Authorize
from wharfinger.apiserver.admission.matching import MatchConditionError, RequestMatcher, conditions_hold, exempt
from wharfinger.apiserver.expressions import bind
from wharfinger.apiserver.webhook_calls import WebhookCaller, WebhookCallFailed
from wharfinger.cel import EvaluationBudget
from wharfinger.store.store import Store
from wharfinger.store.versions import converted

log = logging.getLogger(__name__)

_GROUP = "admission.k8s.io"
_VERSIONS = ("v1", "v1beta1")


class WebhookEntry:
    """One webhook of a configuration."""

    def __init__(self, document: Document, *, mutating: bool) -> None:
        self.name = str(document.get("name") or "")
        self.mutating = mutating
        self.fails = document.get("failurePolicy", "Fail") == "Fail"
        self.timeout = int(document.get("timeoutSeconds") or 10)
        self.side_effects = document.get("sideEffects", "None") not in ("None", "NoneOnDryRun")
        self.client: Document = document.get("clientConfig") or {}
        self.reinvoke = document.get("reinvocationPolicy") == "IfNeeded"
        self.conditions: list[Document] = document.get("matchConditions") or []
        self.version = next((one for one in document.get("admissionReviewVersions") or () if one in _VERSIONS), "v1")
        self.matcher = RequestMatcher(document, rules="rules")


@dataclass(frozen=True, slots=True)
class WebhookInvocation:
    hook: WebhookEntry
    resource: Resource  # as which the request matched


class WebhookReviewer:
    """All mutating or all validating webhooks."""

    def __init__(self, store: Store, authorize: Authorize, caller: WebhookCaller, *, mutating: bool) -> None:
        self._store = store
        self._authorize = authorize
        self._mutating = mutating
        self._hooks = Derived(store, MUTATING_WEBHOOKS if mutating else VALIDATING_WEBHOOKS, self._read)
        self._caller = caller

    def _read(self, stored: Iterable[ObjectVersion]) -> list[WebhookEntry]:
        """Ordered by the names of their configurations, as kube-apiserver calls them."""
        found = sorted(stored, key=lambda one: one.name)
        return [
            WebhookEntry(hook, mutating=self._mutating)
            for one in found
            for hook in one.document().get("webhooks") or []
        ]

    def repeats(self, request: Request) -> bool:
        """Webhooks are called for every request."""
        return not self._hooks.get() or exempt(request.resource)

    async def review(self, request: Request, repeat: Callable[[], None] = lambda: None) -> Review:
        """`repeat` runs the built-in mutating reviewers again after webhooks changed the object."""
        hooks = self._hooks.get()
        if not hooks or exempt(request.resource):
            return PASS
        warnings: list[str] = []
        try:
            if self._mutating:
                await self._mutate(hooks, request, warnings, repeat)
            else:
                await self._validate(hooks, request, warnings)
        except ApiError as denied:
            return Review(denied, warnings)
        return Review(warnings=warnings) if warnings else PASS

    async def _mutate(
        self, hooks: list[WebhookEntry], request: Request, warnings: list[str], repeat: Callable[[], None]
    ) -> None:
        """Calls the webhooks in turn, then reinvokes those with policy IfNeeded that were called before a later change."""
        current: set[WebhookEntry] = set()  # called since the last change
        stale: set[WebhookEntry] = set()  # called before a change
        changed = False
        for hook in hooks:
            invocation = await self._invocation(hook, request)
            if invocation is None:
                continue
            if await self._call(invocation, request, warnings):
                changed = True
                stale, current = stale | current, set()
            if hook.reinvoke:
                current.add(hook)
        if not changed:
            return
        left = msgspec.json.encode(request.object)
        repeat()
        if msgspec.json.encode(request.object) != left:
            stale |= current
        for hook in hooks:
            if hook in stale and (invocation := await self._invocation(hook, request)) is not None:
                await self._call(invocation, request, warnings)

    async def _validate(self, hooks: list[WebhookEntry], request: Request, warnings: list[str]) -> None:
        called = [found for hook in hooks if (found := await self._invocation(hook, request)) is not None]
        answers = await asyncio.gather(*(self._call(one, request, warnings) for one in called), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _invocation(self, hook: WebhookEntry, request: Request) -> WebhookInvocation | None:
        labels = admission_review.namespace_labels(request, self._store.peek)
        matched = hook.matcher.find(request, self._store.registry, labels)
        if matched is None:
            return None
        if hook.conditions:
            variables = await converted(lambda: admission_review.variables(request, self._store.registry, matched))
            bindings = bind(variables, authorize=self._authorize)
            try:
                with EvaluationBudget():
                    if not conditions_hold(hook.conditions, bindings, fails=hook.fails):
                        return None
            except MatchConditionError as error:
                raise forbidden(request.resource.group, request.resource.plural, request.name, str(error)) from None
        return WebhookInvocation(hook, matched)

    async def _call(self, invocation: WebhookInvocation, request: Request, warnings: list[str]) -> bool:
        """Whether the webhook changed the object. Raises ApiError if it denies the request, or fails under policy Fail."""
        hook = invocation.hook
        if request.dry_run and hook.side_effects:
            raise BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        uid = str(uuid.uuid4())
        try:
            review = await converted(lambda: _review(request, invocation, self._store.registry, uid))
            try:
                answer = await self._caller.ask(hook.client, review, hook.timeout)
            except WebhookCallFailed as error:
                raise WebhookCallFailed(f"failed to call webhook: {error}") from None
            response = _response(hook, answer, uid)
            warnings += [str(text) for text in response.get("warnings") or ()]
            if request.audit is not None:
                for key, value in (response.get("auditAnnotations") or {}).items():
                    request.audit.setdefault(f"{hook.name}/{key}", str(value))
            if not response.get("allowed"):
                raise _denial(hook, response.get("status") or {})
            patch = response.get("patch") if hook.mutating else None
            return bool(patch) and await converted(
                lambda: _patch(request, invocation.resource, self._store.registry, str(patch))
            )
        except WebhookCallFailed as error:
            if not hook.fails:
                log.warning("webhook %s failed, ignored by its failure policy: %s", hook.name, error)
                return False
            raise InternalError(f'Internal error occurred: failed calling webhook "{hook.name}": {error}') from None


def _review(request: Request, invocation: WebhookInvocation, registry: Registry, uid: str) -> Document:
    matched, subresource = invocation.resource, request.subresource
    document = admission_review.admission_request(request, matched, uid)
    document["object"] = admission_review.as_matched(request.object, registry, matched, subresource)
    document["oldObject"] = admission_review.as_matched(request.old, registry, matched, subresource)
    return {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{invocation.hook.version}", "request": document}


def _response(hook: WebhookEntry, answer: Document, uid: str) -> Document:
    """The `response` of an AdmissionReview; raises WebhookCallFailed if it is invalid."""
    wrong = "received invalid webhook response: "
    response = answer.get("response")
    if not isinstance(response, dict):
        raise WebhookCallFailed(f"{wrong}webhook response was absent")
    if hook.version == "v1":
        if response.get("uid") != uid:
            got = msgspec.json.encode(response.get("uid") or "").decode()
            raise WebhookCallFailed(f'{wrong}expected response.uid="{uid}", got {got}')
        said = f"{answer.get('apiVersion') or ''}, Kind={answer.get('kind') or ''}"
        if said != f"{_GROUP}/v1, Kind=AdmissionReview":
            raise WebhookCallFailed(
                f"{wrong}expected webhook response of {_GROUP}/v1, Kind=AdmissionReview, got {said}"
            )
        patch, patch_type = response.get("patch"), response.get("patchType")
        if not hook.mutating and (patch or patch_type):
            field = "patch" if patch else "patchType"
            raise WebhookCallFailed(f"{wrong}validating webhook may not return response.{field}")
        if patch and not patch_type:
            raise WebhookCallFailed(f"{wrong}webhook returned response.patch but not response.patchType")
        if patch_type and not patch:
            raise WebhookCallFailed(f"{wrong}webhook returned response.patchType but not response.patch")
        if patch_type not in (None, "JSONPatch"):
            raise WebhookCallFailed(f'unsupported patch type "{patch_type}"')
    if not isinstance(response.get("status") or {}, dict) or not isinstance(response.get("warnings") or [], list):
        raise WebhookCallFailed(f"{wrong}status must be an object, and warnings a list")
    return response


def _denial(hook: WebhookEntry, status: Document) -> ApiError:
    said = status.get("message") or status.get("reason")
    text = f'admission webhook "{hook.name}" denied the request'
    text += f": {said}" if said else " without explanation"
    code = status.get("code")
    error = ApiError(text, code=code if isinstance(code, int) and 400 <= code < 600 else 400, reason="")
    error.reason = str(status.get("reason") or "")
    if isinstance(status.get("details"), dict):
        error.details.update(status["details"])
    return error


def _patch(request: Request, matched: Resource, registry: Registry, patch: str) -> bool:
    """Applies the patch of a webhook; returns whether it changed the object."""
    present = admission_review.as_matched(request.object, registry, matched, request.subresource)
    if present is None:
        raise InternalError(
            "Internal error occurred: admission webhook attempted to modify the object, which is not supported for this"
            " operation"
        )
    try:
        patched: Any = jsonpatch.apply_patch(present, msgspec.json.decode(b64decode(patch)))
    except (
        *(jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, msgspec.DecodeError),
        *(KeyError, ValueError, TypeError, AttributeError),
    ) as error:
        raise InternalError(f"Internal error occurred: {error}") from None
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise InternalError("Internal error occurred: the patch does not result in an object")
    if patched == present:
        return False
    request.object = admission_review.as_stored(patched, registry, matched, request)
    return True
