"""Conversion of custom resources by the webhook of their definition, with the checks and messages of kube-apiserver.

After pkg/apiserver/conversion of apiextensions-apiserver.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.errors import ApiError
from wharfinger.api.fields import FieldError, show
from wharfinger.api.registry import Document
from wharfinger.api.schema import structural
from wharfinger.api.schema.tree import ABSENT, Schema
from wharfinger.api.validation.selectors import annotations_faults, labels_faults
from wharfinger.apiserver import custom_rules
from wharfinger.apiserver.webhook_calls import WebhookCaller, WebhookCallFailed

_GROUP = "apiextensions.k8s.io"
_VERSIONS = ("v1", "v1beta1")
_TIMEOUT = 30  # seconds
_KEPT_BYTES = 4 * 1024 * 1024  # of converted documents
_LEAST_KEPT = 8  # of them, whatever their size: as many as one request needs


class WebhookConversion:
    """The conversion of one kind. `schemas` has those of all versions."""

    def __init__(self, definition: Document, schemas: Mapping[str, Schema], caller: WebhookCaller) -> None:
        spec = definition["spec"]
        webhook = (spec.get("conversion") or {}).get("webhook") or {}
        self._group: str = spec["group"]
        self._kind: str = spec["names"]["kind"]
        self._list: str = spec["names"].get("listKind") or f"{self._kind}List"
        self._client: Document = webhook.get("clientConfig") or {}
        given = webhook.get("conversionReviewVersions") or ()
        self._review_version = next((one for one in given if one in _VERSIONS), "")
        self._schemas = schemas
        self._caller = caller
        self._known: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()  # by version and document
        self._bytes = 0  # of these

    def known(self, document: Document, version: str) -> Document | None:
        """The document in a version, if it was converted before."""
        found = self._known.get((version, msgspec.json.encode(document)))
        return None if found is None else msgspec.json.decode(found)

    def faults(self, document: Document, version: str) -> list[FieldError]:
        """The faults of a document in the version in which it was given. Fills its defaults in place."""
        schema = self._schemas[version]
        structural.prune(schema, document)
        structural.default(schema, document)
        return structural.validate(schema, document) or custom_rules.faults(schema, document, ABSENT)

    async def convert(self, documents: Sequence[Document], version: str, *, listed: bool = False) -> list[Document]:
        """Documents in a version, all converted by one call; `listed` if they are a list. Raises ApiError."""
        whose = self._described(version if listed else _version(documents[0]), self._list if listed else self._kind)
        answered = await self._ask(documents, version, whose)
        if len(answered) != len(documents):
            raise _failure(f"{whose} returned {len(answered)} objects, expected {len(documents)}")
        made = []
        for index, (document, found) in enumerate(zip(documents, answered)):
            made.append(self._checked(document, found, version, whose, index, listed=listed))
            if not listed:
                self._keep(document, version, made[-1])
        return made

    def _described(self, version: str, kind: str) -> str:
        return f"conversion webhook for {self._group}/{version}, Kind={kind}"

    async def _ask(self, documents: Sequence[Document], version: str, whose: str) -> list[Any]:
        if not self._review_version:
            raise _failure("no supported conversion review versions")
        uid = str(uuid.uuid4())
        request = {"uid": uid, "desiredAPIVersion": f"{self._group}/{version}", "objects": list(documents)}
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"{_GROUP}/{self._review_version}",
            "request": request,
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        }
        try:
            answer = await self._caller.ask(self._client, review, _TIMEOUT)
            return self._response(answer, uid)
        except WebhookCallFailed as error:
            raise _failure(f"{whose} failed: {error}") from None

    def _response(self, answer: Document, uid: str) -> list[Any]:
        """The converted objects of an answer. As upstream, v1beta1 is checked less."""
        strict = self._review_version == "v1"
        if strict:
            wanted = f"{_GROUP}/v1, Kind=ConversionReview"
            if (got := f"{answer.get('apiVersion') or ''}, Kind={answer.get('kind') or ''}") != wanted:
                raise WebhookCallFailed(f"expected webhook response of {wanted}, got {got}")
        response = answer.get("response")
        if not isinstance(response, dict):
            raise WebhookCallFailed("no response provided")
        if strict and response.get("uid") != uid:
            raise WebhookCallFailed(f'expected response.uid="{uid}", got {show(str(response.get("uid") or ""))}')
        result = response.get("result")
        result = result if isinstance(result, dict) else {}
        if (status := result.get("status") or "") != "Success":
            raise WebhookCallFailed(
                str(result.get("message") or "") or f"response.result.status was '{status}', not 'Success'"
            )
        objects = response.get("convertedObjects")
        return objects if isinstance(objects, list) else []

    def _checked(self, given: Document, found: Any, version: str, whose: str, index: int, *, listed: bool) -> Document:
        """A converted object with the metadata of the original, except labels and annotations."""
        where = f"{whose} returned invalid {'converted object' if listed else 'object'} at index {index}: "
        if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
            raise _failure(f"{where}Object 'Kind' is missing in '{msgspec.json.encode(found).decode()}'")
        wanted, got = f"{self._group}/{version}", found.get("apiVersion") or ""
        if got != wanted:
            raise _failure(f"{where}invalid groupVersion (expected {wanted}, received {got})")
        if found["kind"] != given["kind"]:
            raise _failure(f"{where}invalid kind (expected {given['kind']}, received {found['kind']})")
        if why := _identity_fault(given["metadata"], found.get("metadata")):
            raise _failure(f"{where if listed else f'{whose} returned invalid object: '}{why}")
        try:
            metadata = _restored(given["metadata"], found.get("metadata", _MISSING))
        except ValueError as error:
            at = f"invalid metadata in object at index {index}" if listed else "invalid metadata"
            raise _failure(f"{whose} returned {at}: {error}") from None
        made = {**found, "metadata": metadata}
        structural.prune(self._schemas[version], made)
        return made

    def _keep(self, document: Document, version: str, made: Document) -> None:
        key, data = (version, msgspec.json.encode(document)), msgspec.json.encode(made)
        if key in self._known:
            self._bytes -= len(key[1]) + len(self._known.pop(key))
        self._known[key] = data
        self._bytes += len(key[1]) + len(data)
        while self._bytes > _KEPT_BYTES and len(self._known) > _LEAST_KEPT:
            (_, before), after = self._known.popitem(last=False)
            self._bytes -= len(before) + len(after)


_MISSING = object()


def _failure(message: str) -> ApiError:
    return ApiError(message, code=500, reason="")


def _version(document: Document) -> str:
    return str(document["apiVersion"]).rpartition("/")[2]


def _identity_fault(given: Document, found: Any) -> str:
    found = found if isinstance(found, dict) else {}
    for field, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        before, after = given.get(field) or "", found.get(field) or ""
        if before != after:
            return f"must have the same {shown}: {before} != {after}"
    return ""


def _restored(given: Document, found: Any) -> Document:
    """The original metadata with labels and annotations of the converted object. Raises ValueError."""
    if found is _MISSING:
        raise ValueError("missing metadata in converted object")
    if not isinstance(found, dict):
        raise ValueError(f"invalid metadata of type {_go_type(found)} in converted object")
    metadata = dict(given)
    # The path of annotations is upstream's.
    for field, check, path in (
        ("labels", labels_faults, "metadata.labels"),
        ("annotations", annotations_faults, "metadata.annotation"),
    ):
        values = found.get(field)
        if values is None:
            metadata.pop(field, None)
            continue
        if not isinstance(values, dict):
            raise ValueError(f"invalid metadata.{field} of type {_go_type(values)} in converted object")
        for key, value in values.items():
            if not isinstance(value, str):
                raise ValueError(
                    f"metadata.{field}[{key}] must be a string, but is {_go_type(value)} in converted object"
                )
        if values != given.get(field) and (faults := list(check(values, path))):
            texts = [str(fault) for fault in faults]
            raise ValueError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        metadata[field] = values
    return metadata


def _go_type(value: Any) -> str:
    """The type of a JSON value as Go prints it."""
    if value is None:
        return "<nil>"
    types = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    return types.get(type(value), "map[string]interface {}")
