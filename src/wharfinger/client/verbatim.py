"""Writes to objects that JSON cannot carry as they are.

An API server stores raw parts of an object, such as the parameters of a device configuration, with the white space that their
author used, but sends them without it. Where such a part must not change, even a patch of something else is refused: the
server reads the patched object back from JSON. In protobuf the parts stay as they are.
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.protobuf import MessageClasses
from wharfinger.api.requests import ApiRequest, PatchType

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_PARTS = frozenset(("uid", "resourceVersion", "finalizers"))

# Fields that are not named here are kept.
_MESSAGES = MessageClasses(
    "kubernetes.verbatim",
    {
        "Unknown": "bytes raw = 2",
        "Object": "ObjectMeta metadata = 1",
        "ObjectMeta": "string uid = 5; string resource_version = 6; repeated string finalizers = 14",
    },
)


def changes_finalizers(request: ApiRequest[Any]) -> bool:
    """Whether a request is a patch of nothing but finalizers."""
    if request.verb != "patch" or request.patch_type is not PatchType.MERGE or request.subresource:
        return False
    body = request.body if isinstance(request.body, dict) else {}
    metadata = body.get("metadata") or {}
    return body.keys() == {"metadata"} and "finalizers" in metadata and metadata.keys() <= _PARTS


def with_finalizers(data: bytes, request: ApiRequest[Any]) -> bytes:
    """The object as the server stores it, with the finalizers and preconditions of the patch."""
    envelope = _MESSAGES["Unknown"].FromString(data.removeprefix(_MAGIC))
    document = _MESSAGES["Object"].FromString(envelope.raw)
    metadata = request.body["metadata"]
    document.metadata.finalizers[:] = metadata["finalizers"] or ()
    document.metadata.uid = metadata.get("uid", document.metadata.uid)
    document.metadata.resource_version = metadata.get("resourceVersion", document.metadata.resource_version)
    envelope.raw = document.SerializeToString()
    return bytes(_MAGIC + envelope.SerializeToString())
