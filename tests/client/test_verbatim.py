"""Finalizers of objects that JSON cannot carry as they are: everything else stays, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.kinds.builtin import RESOURCE_CLAIMS
from wharfinger.api.requests import ApiRequest, PatchType
from wharfinger.client.verbatim import changes_finalizers, with_finalizers

SPEC = b'\x12\x0b{"a":   1 }'  # field 2, which is not known here


def request(body: Any, **more: Any) -> ApiRequest[Any]:
    return ApiRequest("patch", RESOURCE_CLAIMS, "default", "c", body=body, **more)


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def stored(*, finalizers: tuple[bytes, ...] = (), version: bytes = b"7") -> bytes:
    metadata = field(1, b"c") + field(5, b"u") + field(6, version) + b"".join(field(14, each) for each in finalizers)
    return b"k8s\x00" + field(1, b"") + field(2, field(1, metadata) + SPEC)


def test_only_the_finalizers_and_the_precondition_change() -> None:
    patch = request({"metadata": {"uid": "u", "resourceVersion": "6", "finalizers": ["a", "b"]}})
    changed = with_finalizers(stored(finalizers=(b"a",)), patch)
    assert SPEC in changed
    assert field(6, b"6") in changed and field(6, b"7") not in changed
    assert field(14, b"a") + field(14, b"b") in changed
    assert changed.startswith(b"k8s\x00")


@pytest.mark.parametrize("none", [None, []])
def test_finalizers_are_removed(none: Any) -> None:
    assert field(14, b"a") not in with_finalizers(
        stored(finalizers=(b"a",)), request({"metadata": {"finalizers": none}})
    )


@pytest.mark.parametrize(
    "other",
    [
        request({"metadata": {"finalizers": ["a"], "labels": {}}}),
        request({"metadata": {"finalizers": ["a"]}, "spec": {}}),
        request({"metadata": {"labels": {}}}),
        request({"metadata": None}),
        request([], patch_type=PatchType.JSON),
        request({"metadata": {"finalizers": ["a"]}}, subresource="status"),
    ],
)
def test_other_patches_are_sent_as_they_are(other: ApiRequest[Any]) -> None:
    assert not changes_finalizers(other)
    assert changes_finalizers(request({"metadata": {"finalizers": ["a"], "uid": "u"}}))
