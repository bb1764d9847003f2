"""Admission webhooks that users register: called as Kubernetes calls them, with its matching, failure policy and words.

A service reference is followed where the Service names a host (`type: ExternalName`); there is no cluster network in which
any other could be found, so that such a webhook fails as one that cannot be reached, and says so.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp
import jsonpatch
import jsonpointer
import msgspec

from wharfinger.admission.reads import Derived, StoredObject
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ApiError, BadRequest, InternalError, forbidden
from wharfinger.api.kinds.builtin import MUTATING_WEBHOOKS, SERVICES, VALIDATING_WEBHOOKS
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.apiserver import admission_review
from wharfinger.apiserver.authorizer import Allowed
from wharfinger.apiserver.expressions import Input
from wharfinger.apiserver.matching import Matcher, Unclear, conditions_hold, exempt
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_LARGEST = 3 * 1024 * 1024  # bytes of an answer
_GROUP = "admission.k8s.io"
_VERSIONS = ("v1", "v1beta1")
_HEADERS = {"Accept": "application/json, */*", "User-Agent": "kube-apiserver-admission"}


class Webhook:
    """One webhook of a configuration, ready to match."""

    def __init__(self, document: Document, *, mutating: bool) -> None:
        self.name = str(document.get("name") or "")
        self.mutating = mutating
        self.fails = document.get("failurePolicy", "Fail") == "Fail"
        self.timeout = int(document.get("timeoutSeconds") or 10)
        self.side_effects = document.get("sideEffects", "None") not in ("None", "NoneOnDryRun")
        self.client: Document = document.get("clientConfig") or {}
        self.again = document.get("reinvocationPolicy") == "IfNeeded"
        self.conditions: list[Document] = document.get("matchConditions") or []
        self.version = next((one for one in document.get("admissionReviewVersions") or () if one in _VERSIONS), "v1")
        self.matcher = Matcher(document, rules="rules")


@dataclass(frozen=True, slots=True)
class Invocation:
    hook: Webhook
    resource: Resource  # under which the request was matched


class CallFailed(Exception):
    """The webhook gave no answer, or one that cannot be used; the text says why."""


class WebhookReviewer:
    """All webhooks of one phase; one for the mutating phase, one for the validating one."""

    def __init__(self, store: Store, allowed: Allowed, *, mutating: bool) -> None:
        self._store = store
        self._allowed = allowed
        self._mutating = mutating
        self._hooks = Derived(store, MUTATING_WEBHOOKS if mutating else VALIDATING_WEBHOOKS, self._read)
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    def _read(self, stored: Iterable[StoredObject]) -> list[Webhook]:
        """In the order of the configurations' names, as upstream calls them."""
        found = sorted(stored, key=lambda one: one.name)
        return [
            Webhook(hook, mutating=self._mutating) for one in found for hook in one.document().get("webhooks") or []
        ]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def review(self, request: Request, repeat: Callable[[], None] = lambda: None) -> Review:
        """`repeat` lets the reviewers in process look again at an object that webhooks have changed."""
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
        self, hooks: list[Webhook], request: Request, warnings: list[str], repeat: Callable[[], None]
    ) -> None:
        """One after another; then once more those that ask for it and were called before something changed."""
        before: set[Webhook] = set()  # called since the last change
        stale: set[Webhook] = set()  # called before a change
        changed = False
        for hook in hooks:
            invocation = self._invocation(hook, request)
            if invocation is None:
                continue
            if await self._call(invocation, request, warnings):
                changed = True
                stale, before = stale | before, set()
            if hook.again:
                before.add(hook)
        if not changed:
            return
        left = msgspec.json.encode(request.object)
        repeat()
        if msgspec.json.encode(request.object) != left:
            stale |= before
        for hook in hooks:
            if hook in stale and (invocation := self._invocation(hook, request)) is not None:
                await self._call(invocation, request, warnings)

    async def _validate(self, hooks: list[Webhook], request: Request, warnings: list[str]) -> None:
        called = [found for hook in hooks if (found := self._invocation(hook, request)) is not None]
        answers = await asyncio.gather(*(self._call(one, request, warnings) for one in called), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _invocation(self, hook: Webhook, request: Request) -> Invocation | None:
        labels = admission_review.namespace_labels(request, self._store.peek)
        matched = hook.matcher.find(request, self._store.registry, labels)
        if matched is None:
            return None
        if hook.conditions:
            variables = admission_review.variables(request, self._store.registry, matched)
            given = Input(variables, allowed=self._allowed)
            try:
                if not conditions_hold(hook.conditions, given, fails=hook.fails):
                    return None
            except Unclear as error:
                raise forbidden(request.resource.group, request.resource.plural, request.name, str(error)) from None
        return Invocation(hook, matched)

    async def _call(self, invocation: Invocation, request: Request, warnings: list[str]) -> bool:
        """Whether the webhook changed the object. Raises ApiError where it refuses, or must not fail and did."""
        hook = invocation.hook
        if request.dry_run and hook.side_effects:
            raise BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        identity = str(uuid.uuid4())
        try:
            answer = await self._ask(hook, _review(request, invocation, self._store.registry, identity))
            response = _response(hook, answer, identity)
            warnings += [str(text) for text in response.get("warnings") or ()]
            if not response.get("allowed"):
                raise _denial(hook, response.get("status") or {})
            patch = response.get("patch") if hook.mutating else None
            return bool(patch) and _patch(request, invocation.resource, self._store.registry, str(patch))
        except CallFailed as error:
            if not hook.fails:
                log.warning("webhook %s failed and is ignored: %s", hook.name, error)
                return False
            raise InternalError(f'Internal error occurred: failed calling webhook "{hook.name}": {error}') from None

    async def _ask(self, hook: Webhook, review: Document) -> Document:
        url, server_name = self._address(hook)
        url += f"{'&' if '?' in url else '?'}timeout={hook.timeout}s"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                json_serialize=lambda value: msgspec.json.encode(value).decode(), headers=_HEADERS
            )
        try:
            context = self._context(hook.client.get("caBundle") or "")
            async with (
                asyncio.timeout(hook.timeout),
                self._session.post(
                    url, json=review, ssl=context, allow_redirects=False, server_hostname=server_name
                ) as response,
            ):
                data = await response.content.read(_LARGEST)
        except TimeoutError:
            raise CallFailed(f'failed to call webhook: Post "{url}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailed(f'failed to call webhook: Post "{url}": {str(error) or type(error).__name__}') from None
        if response.status != 200:
            raise CallFailed(f"failed to call webhook: the server answered {response.status} {response.reason}")
        try:
            answer = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise CallFailed(f"failed to call webhook: the answer is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise CallFailed("failed to call webhook: the answer is not an AdmissionReview")
        return answer

    def _address(self, hook: Webhook) -> tuple[str, str | None]:
        """Where the webhook is, and the name that its certificate must carry where that is another."""
        if hook.client.get("url"):
            return str(hook.client["url"]), None
        wanted = hook.client.get("service") or {}
        name, namespace = str(wanted.get("name") or ""), str(wanted.get("namespace") or "")
        found = self._store.peek(SERVICES, name, namespace)
        if found is None:
            raise CallFailed(f'failed to call webhook: service "{name}" not found')
        spec = found.document().get("spec") or {}
        if spec.get("type") != "ExternalName":
            raise CallFailed(
                f'failed to call webhook: service "{namespace}/{name}" cannot be reached: there is no cluster network; '
                "use clientConfig.url, or a Service of type ExternalName"
            )
        path = str(wanted.get("path") or "").lstrip("/")
        return f"https://{spec.get('externalName')}:{wanted.get('port') or 443}/{path}", f"{name}.{namespace}.svc"

    def _context(self, bundle: str) -> ssl.SSLContext:
        """Trusts the bundle of the configuration; without one, what the machine trusts."""
        if bundle not in self._contexts:
            data = b64decode(bundle).decode() if bundle else None
            self._contexts[bundle] = ssl.create_default_context(cadata=data)
        return self._contexts[bundle]


def _review(request: Request, invocation: Invocation, registry: Registry, identity: str) -> Document:
    at, below = invocation.resource, request.subresource
    asked = admission_review.asked(request, at, identity)
    asked["object"] = admission_review.shown(request.object, registry, at, below)
    asked["oldObject"] = admission_review.shown(request.old, registry, at, below)
    return {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{invocation.hook.version}", "request": asked}


def _response(hook: Webhook, answer: Document, identity: str) -> Document:
    """The response inside an answer, if it is one to this question."""
    wrong = "received invalid webhook response: "
    response = answer.get("response")
    if not isinstance(response, dict):
        raise CallFailed(f"{wrong}webhook response was absent")
    if hook.version == "v1":
        if response.get("uid") != identity:
            got = msgspec.json.encode(response.get("uid") or "").decode()
            raise CallFailed(f'{wrong}expected response.uid="{identity}", got {got}')
        said = f"{answer.get('apiVersion') or ''}, Kind={answer.get('kind') or ''}"
        if said != f"{_GROUP}/v1, Kind=AdmissionReview":
            raise CallFailed(f"{wrong}expected webhook response of {_GROUP}/v1, Kind=AdmissionReview, got {said}")
        patch, patch_type = response.get("patch"), response.get("patchType")
        if not hook.mutating and (patch or patch_type):
            field = "patch" if patch else "patchType"
            raise CallFailed(f"{wrong}validating webhook may not return response.{field}")
        if patch and not patch_type:
            raise CallFailed(f"{wrong}webhook returned response.patch but not response.patchType")
        if patch_type and not patch:
            raise CallFailed(f"{wrong}webhook returned response.patchType but not response.patch")
        if patch_type not in (None, "JSONPatch"):
            raise CallFailed(f'unsupported patch type "{patch_type}"')
    if not isinstance(response.get("status") or {}, dict) or not isinstance(response.get("warnings") or [], list):
        raise CallFailed(f"{wrong}status must be an object, and warnings a list")
    return response


def _denial(hook: Webhook, status: Document) -> ApiError:
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
    """Applies what the webhook wants changed; whether that made a difference."""
    present = admission_review.shown(request.object, registry, matched, request.subresource)
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
        raise InternalError("Internal error occurred: the patch leaves no object")
    if patched == present:
        return False
    request.object = admission_review.taken(patched, registry, matched, request)
    return True
