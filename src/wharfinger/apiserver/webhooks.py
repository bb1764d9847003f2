"""Admission webhooks that users register: called as Kubernetes calls them, with its matching, failure policy and words.

Service references cannot be resolved here (there is no cluster network), so such a webhook fails as one that cannot be
reached. Match conditions and reinvocation are not evaluated: a webhook with conditions is called for every match.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from base64 import b64decode
from collections.abc import Iterable
from typing import Any

import aiohttp
import jsonpatch
import jsonpointer
import msgspec

from wharfinger.admission.reads import Derived
from wharfinger.admission.reads import Stored as Read
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ApiError, BadRequest, InternalError
from wharfinger.api.kinds.builtin import MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import BadSelector, LabelSelector, Requirements, compile_label_selector, matches
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_LARGEST = 3 * 1024 * 1024  # bytes of an answer


class Webhook:
    """One webhook of a configuration, ready to match."""

    def __init__(self, document: Document, *, mutating: bool) -> None:
        self.name = str(document.get("name") or "")
        self.mutating = mutating
        self.fails = document.get("failurePolicy", "Fail") == "Fail"
        self.timeout = float(document.get("timeoutSeconds") or 10)
        self.side_effects = document.get("sideEffects", "None") not in ("None", "NoneOnDryRun")
        self.client: Document = document.get("clientConfig") or {}
        self._rules: list[Document] = document.get("rules") or []
        self._namespaces = _selector(document.get("namespaceSelector"))
        self._objects = _selector(document.get("objectSelector"))

    def concerns(self, request: Request, namespace_labels: dict[str, str] | None) -> bool:
        if not any(_rule_matches(rule, request) for rule in self._rules):
            return False
        if self._namespaces and namespace_labels is not None and not matches(self._namespaces, namespace_labels):
            return False
        if not self._objects:
            return True
        return any(matches(self._objects, _labels(one)) for one in (request.object, request.old) if one is not None)


def _selector(document: Document | None) -> Requirements:
    try:
        return compile_label_selector(msgspec.convert(document or {}, LabelSelector))
    except (BadSelector, msgspec.ValidationError):
        return ()  # validation refuses these


def _labels(document: Document) -> dict[str, str]:
    labels = (document.get("metadata") or {}).get("labels")
    return labels if isinstance(labels, dict) else {}


def _rule_matches(rule: Document, request: Request) -> bool:
    resource = request.resource
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    return (
        _listed(rule.get("operations"), request.operation)
        and _listed(rule.get("apiGroups"), resource.group)
        and _listed(rule.get("apiVersions"), resource.version)
        and any(_resource_matches(entry, resource.plural, request.subresource) for entry in rule.get("resources") or [])
    )


def _listed(entries: Iterable[str] | None, wanted: str) -> bool:
    listed = tuple(entries or ())
    return "*" in listed or wanted in listed


def _resource_matches(entry: str, plural: str, subresource: str) -> bool:
    name, slash, part = entry.partition("/")
    if name not in ("*", plural):
        return False
    return part in ("*", subresource) if slash else not subresource


class WebhookReviewer:
    """All webhooks of one phase; one for the mutating phase, one for the validating one."""

    def __init__(self, store: Store, *, mutating: bool) -> None:
        self._store = store
        self._mutating = mutating
        self._hooks = Derived(store, MUTATING_WEBHOOKS if mutating else VALIDATING_WEBHOOKS, self._read)
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    def _read(self, stored: Iterable[Read]) -> list[Webhook]:
        """In the order of the configurations' names, as upstream calls them."""
        found = sorted(stored, key=lambda one: one.name)
        return [
            Webhook(hook, mutating=self._mutating) for one in found for hook in one.document().get("webhooks") or []
        ]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def review(self, request: Request) -> Review:
        hooks = self._hooks.get()
        if not hooks or request.resource.group == MUTATING_WEBHOOKS.group:
            return PASS
        labels = self._namespace_labels(request)
        called = [hook for hook in hooks if hook.concerns(request, labels)]
        warnings: list[str] = []
        if self._mutating:
            for hook in called:
                denied = await self._call(hook, request, warnings)
                if denied is not None:
                    return Review(denied, warnings)
        else:
            for denied in await asyncio.gather(*(self._call(hook, request, warnings) for hook in called)):
                if denied is not None:
                    return Review(denied, warnings)
        return Review(warnings=warnings) if warnings else PASS

    def _namespace_labels(self, request: Request) -> dict[str, str] | None:
        """Of the object's namespace, or of the namespace that is written itself; None for what has none."""
        if request.resource.plural == NAMESPACES.plural and not request.resource.group:
            return _labels(request.object or request.old or {})
        if not request.namespace:
            return None
        found = self._store.peek(NAMESPACES, request.namespace)
        return {} if found is None else _labels(found.document())

    async def _call(self, hook: Webhook, request: Request, warnings: list[str]) -> ApiError | None:
        if request.dry_run and hook.side_effects:
            return BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        identity = str(uuid.uuid4())
        try:
            async with asyncio.timeout(hook.timeout):
                answer = await self._ask(hook, _review(request, identity))
            response = answer.get("response")
            if not isinstance(response, dict) or response.get("uid") != identity:
                raise ValueError(f'expected response.uid="{identity}"')
            warnings += [str(text) for text in response.get("warnings") or ()]
            if not response.get("allowed"):
                return _denial(hook, response.get("status") or {})
            if hook.mutating and response.get("patch"):
                _patch(request, response)
            return None
        except TimeoutError:
            why = "context deadline exceeded"
        except (aiohttp.ClientError, OSError, ValueError, TypeError, AttributeError) as error:
            why = str(error) or type(error).__name__
        if not hook.fails:
            log.warning("webhook %s failed and is ignored: %s", hook.name, why)
            return None
        return InternalError(
            f'Internal error occurred: failed calling webhook "{hook.name}": failed to call webhook: {why}'
        )

    async def _ask(self, hook: Webhook, review: Document) -> Document:
        url = hook.client.get("url")
        if not url:
            service = hook.client.get("service") or {}
            raise ValueError(f'service "{service.get("name", "")}" cannot be reached: there is no cluster network')
        if self._session is None:
            self._session = aiohttp.ClientSession(json_serialize=lambda value: msgspec.json.encode(value).decode())
        context = self._context(hook.client.get("caBundle") or "")
        async with self._session.post(url, json=review, ssl=context, allow_redirects=False) as response:
            data = await response.content.read(_LARGEST)
            if response.status != 200:
                raise ValueError(f"the webhook answered {response.status}")
        try:
            answer = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"the answer is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise ValueError("the answer is not an AdmissionReview")
        return answer

    def _context(self, bundle: str) -> ssl.SSLContext:
        """Trusts the bundle of the configuration; without one, what the machine trusts."""
        if bundle not in self._contexts:
            data = b64decode(bundle).decode() if bundle else None
            self._contexts[bundle] = ssl.create_default_context(cadata=data)
        return self._contexts[bundle]


def _review(request: Request, identity: str) -> Document:
    resource, user = request.resource, request.user
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    named = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    who: Document = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    if user.extra:
        who["extra"] = {key: list(values) for key, values in user.extra.items()}
    options = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}.get(request.operation)
    asked: Document = {
        "uid": identity,
        "kind": kind,
        "resource": named,
        "requestKind": kind,
        "requestResource": named,
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.operation,
        "userInfo": who,
        "object": _typed(request.object, resource, request.subresource),
        "oldObject": _typed(request.old, resource, request.subresource),
        "dryRun": request.dry_run,
        "options": {"kind": options, "apiVersion": "meta.k8s.io/v1", **request.options} if options else None,
    }
    if request.subresource:
        asked |= {"subResource": request.subresource, "requestSubResource": request.subresource}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}


def _typed(document: Document | None, resource: Resource, subresource: str) -> Document | None:
    if document is None or subresource:
        return document
    return {**document, "apiVersion": resource.api_version, "kind": resource.kind}


def _denial(hook: Webhook, status: Document) -> ApiError:
    said = status.get("message") or status.get("reason")
    text = f'admission webhook "{hook.name}" denied the request'
    text += f": {said}" if said else " without explanation"
    code = status.get("code") or 403
    reason = status.get("reason") or ("Forbidden" if code == 403 else "")
    return ApiError(text, code=code if isinstance(code, int) and 400 <= code < 600 else 403, reason=str(reason))


def _patch(request: Request, response: Document) -> None:
    if response.get("patchType") != "JSONPatch":
        raise ValueError("webhook returned response.patch but not response.patchType of JSONPatch")
    try:
        operations = msgspec.json.decode(b64decode(response["patch"]))
        patched: Any = jsonpatch.apply_patch(request.object or {}, operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, msgspec.DecodeError, KeyError) as error:
        raise ValueError(f"the patch cannot be applied: {error}") from None
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise ValueError("the patch leaves no object")
    request.object = patched
