"""AdmissionReview and ConversionReview on the wire: decoding requests and encoding responses."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from wharfinger.admission.request import Request, User
from wharfinger.api.errors import ApiError
from wharfinger.api.fields import show
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.wording import decoding_fault
from wharfinger.webhook.handler import Operation

ADMISSION = "admission.k8s.io/v1"
CONVERSION = "apiextensions.k8s.io/v1"


class InvalidReview(ValueError):
    """The body is not a review that can be answered."""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Kind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    resource: _Resource
    kind: _Kind = _Kind()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _UserInfo = _UserInfo()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = None
    options: dict[str, Any] | None = None


class ConversionRequest(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion", default="")
    objects: list[dict[str, Any]] = []


_R = TypeVar("_R")


class _ReviewEnvelope(msgspec.Struct, Generic[_R], frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _R | None = None


_ADMISSION_DECODER = msgspec.json.Decoder(_ReviewEnvelope[AdmissionRequest])
_CONVERSION_DECODER = msgspec.json.Decoder(_ReviewEnvelope[ConversionRequest])
_ENCODER = msgspec.json.Encoder()
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")


def read_admission(body: bytes | bytearray) -> AdmissionRequest:
    """Raises InvalidReview."""
    request = _request(body, _ADMISSION_DECODER, ADMISSION, "AdmissionReview")
    if request.operation not in _OPERATIONS:
        raise InvalidReview(f"request.operation: {show(request.operation)} is not one of {', '.join(_OPERATIONS)}")
    if not request.uid:
        raise InvalidReview("request.uid: must not be empty")
    return request


def read_conversion(body: bytes | bytearray) -> ConversionRequest:
    """Raises InvalidReview."""
    return _request(body, _CONVERSION_DECODER, CONVERSION, "ConversionReview")


def _request(
    body: bytes | bytearray, decoder: msgspec.json.Decoder[_ReviewEnvelope[_R]], api_version: str, kind: str
) -> _R:
    try:
        review = decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidReview(f"the body is not a review: {decoding_fault(error)}") from error
    if review.kind != kind or review.api_version != api_version:
        raise InvalidReview(
            f"apiVersion {show(review.api_version)}, kind {show(review.kind)} is not supported; "
            f"expected {api_version}, {kind}"
        )
    if review.request is None:
        raise InvalidReview(f"the {kind} has no request")
    return review.request


def as_request(admission: AdmissionRequest, registry: Registry) -> Request:
    """Converts to the request type of reviewers."""
    resource = admission.resource
    kind = registry.of_plural(resource.group, resource.resource)
    namespaced = kind.namespaced if kind is not None else bool(admission.namespace)
    user = admission.user_info
    return Request(
        admission.operation,
        Resource(
            resource.group, resource.version, resource.resource, kind.kind if kind else admission.kind.kind, namespaced
        ),
        admission.namespace if namespaced else "",
        admission.name or _name(admission.object),
        User(user.username, user.groups or (), user.uid, user.extra or {}),
        admission.object,
        admission.old_object,
        admission.sub_resource,
        bool(admission.dry_run),
        admission.options or {},
    )


def _name(document: Document | None) -> str:
    metadata = (document or {}).get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def allow(uid: str, operations: Sequence[Operation], warnings: Sequence[str], audit: dict[str, str]) -> bytes:
    response: Document = {"uid": uid, "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(_ENCODER.encode(operations)).decode()
    return _response(response, warnings, audit)


def deny(uid: str, error: ApiError, warnings: Sequence[str] = (), audit: dict[str, str] | None = None) -> bytes:
    return _response({"uid": uid, "allowed": False, "status": error.status()}, warnings, audit or {})


def _response(response: Document, warnings: Sequence[str], audit: dict[str, str]) -> bytes:
    if warnings:
        response["warnings"] = list(warnings)
    if audit:
        # The API server prefixes each key with the webhook's name and a slash.
        response["auditAnnotations"] = {key.rpartition("/")[2]: value for key, value in audit.items()}
    return _ENCODER.encode({"apiVersion": ADMISSION, "kind": "AdmissionReview", "response": response})


def convert(request: ConversionRequest, registry: Registry) -> bytes:
    """The response with the converted objects, or with the error of the first that cannot be converted."""
    converted = []
    for index, document in enumerate(request.objects):
        kind = registry.of_object(str(document.get("apiVersion") or ""), str(document.get("kind") or ""))
        group, _, version = request.desired_api_version.rpartition("/")
        what = f"objects[{index}]: {document.get('apiVersion')} {document.get('kind')}"
        if kind is None or kind.group != group or version not in kind.versions:
            return _converted(request.uid, error=f"{what} cannot be converted to {request.desired_api_version}")
        try:
            converted.append(document if kind.convert is None else kind.convert(document, version))
        except ApiError as fault:
            return _converted(request.uid, error=f"{what}: {fault.message}")
        except ValueError as fault:
            return _converted(request.uid, error=f"{what}: {fault}")
        except (KeyError, TypeError, AttributeError):
            return _converted(request.uid, error=f"{what} is malformed")
        converted[-1]["apiVersion"] = request.desired_api_version
    return _converted(request.uid, converted)


def _converted(uid: str, objects: list[Document] | None = None, error: str = "") -> bytes:
    result: Document = {"status": "Failure", "message": error} if objects is None else {"status": "Success"}
    response = {"uid": uid, "result": result, "convertedObjects": objects or []}
    return _ENCODER.encode({"apiVersion": CONVERSION, "kind": "ConversionReview", "response": response})
