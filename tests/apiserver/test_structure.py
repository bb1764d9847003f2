"""The structure of bodies: over HTTP, and the walk compared with the decoder."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from tests.apiserver.running import Api, pod

from wharfinger.api.errors import BadRequest
from wharfinger.api.kinds import registry
from wharfinger.api.schema.decoding import repeated_fields
from wharfinger.apiserver.structure import Structure, Structures


def changed(path: str, value: Any) -> dict[str, Any]:
    """A pod with one field set; a path of dots and numbers."""
    document = copy.deepcopy(pod())
    *parents, last = path.split(".")
    place: Any = document
    for part in parents:
        place = place[int(part)] if part.isdigit() else place.setdefault(part, {})
    place[last] = value
    return document


WRONG = [
    ("spec.containers", "none", "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"),
    ("spec.containers.0.ports", [{"containerPort": "80"}], "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"),
    ("spec.containers.0.ports", [{"containerPort": 1 << 40}], "json: cannot unmarshal number 1099511627776 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32"),
    ("spec.hostNetwork", "yes", "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"),
    ("metadata.labels", ["a"], "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string"),
    ("metadata.labels", {"a": 1}, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"),
    ("spec", 3, "json: cannot unmarshal number into Go struct field Pod.spec of type v1.PodSpec"),
    ("metadata.creationTimestamp", "yesterday", 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse'),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "fault"), WRONG)
def test_a_wrong_type_is_rejected_with_the_decoder_message(
    api: Api, base: str, path: str, value: Any, fault: str
) -> None:
    answer = api.ask("POST", f"{base}/pods", changed(path, value))
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert answer.message == f'Pod in version "v1" cannot be handled as a Pod: {fault}'


def test_unknown_fields_are_dropped_with_a_warning_or_refused(api: Api, base: str) -> None:
    document = changed("spec.containers.0.imgae", "x")
    document["speck"] = {}
    warned = api.ask("POST", f"{base}/pods?dryRun=All", document)
    assert warned.status == 201
    assert warned.warnings == [
        '299 - "unknown field \\"spec.containers[0].imgae\\""',
        '299 - "unknown field \\"speck\\""',
    ]
    assert "imgae" not in warned.json["spec"]["containers"][0]
    ignored = api.ask("POST", f"{base}/pods?dryRun=All&fieldValidation=Ignore", document)
    assert (ignored.status, ignored.warnings) == (201, [])
    refused = api.ask("POST", f"{base}/pods?fieldValidation=Strict", document)
    assert refused.status == 400
    assert refused.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].imgae", unknown field "speck"'
    )
    assert api.ask("POST", f"{base}/pods?fieldValidation=Perhaps", document).status == 422


def test_duplicate_fields_are_reported(api: Api, base: str) -> None:
    text = json.dumps(pod()).replace('"name": "c"', '"name": "c", "name": "c"').encode()
    refused = api.ask("POST", f"{base}/pods?fieldValidation=Strict", text)
    assert 'strict decoding error: duplicate field "spec.containers[0].name"' in refused.message
    assert api.ask("POST", f"{base}/pods?dryRun=All", text).warnings == [
        '299 - "duplicate field \\"spec.containers[0].name\\""'
    ]


def test_unknown_fields_of_patches_are_reported(api: Api, base: str) -> None:
    api.create(f"{base}/pods", pod())
    patch = {"spec": {"nosuch": 1}, "metadata": {"labels": {"x": "y"}}}
    media = "application/strategic-merge-patch+json"
    refused = api.ask("PATCH", f"{base}/pods/p?fieldValidation=Strict", patch, media=media)
    assert (refused.status, refused.message) == (
        422,
        ' "" is invalid: patch: Invalid value: "map[metadata:map[labels:map[x:y]] spec:map[nosuch:1]]": '
        'strict decoding error: unknown field "spec.nosuch"',
    )
    warned = api.ask("PATCH", f"{base}/pods/p", patch, media=media)
    assert warned.warnings == ['299 - "unknown field \\"spec.nosuch\\""']
    assert warned.json["metadata"]["labels"]["x"] == "y"
    directive = {"spec": {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "c", "image": "b"}]}}
    assert api.ask("PATCH", f"{base}/pods/p?fieldValidation=Strict", directive, media=media).status == 200


def test_a_body_of_another_kind_is_rejected(api: Api, base: str) -> None:
    unregistered = 'no kind "{}" is registered for version "{}" in scheme "pkg/runtime/scheme.go:111"'
    for version, kind, why in (
        ("v1", "Service", "converting (v1.Service) to (core.Pod): unknown conversion"),
        ("apps/v1", "Deployment", "converting (v1.Deployment) to (core.Pod): unknown conversion"),
        ("v1", "PodList", "converting (v1.PodList) to (core.Pod): unknown conversion"),
        ("v1", "Nothing", unregistered.format("Nothing", "v1")),
        ("foo/v1", "Service", unregistered.format("Service", "foo/v1")),
    ):
        answer = api.ask("POST", f"{base}/pods", {"apiVersion": version, "kind": kind, "metadata": {"name": "s"}})
        wanted = f'{kind} in version "v1" cannot be handled as a Pod: {why}'
        assert (answer.status, answer.message) == (400, wanted)
    answer = api.ask("POST", f"{base}/pods", {"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "s"}})
    assert answer.message == "the API version in the data (v2) does not match the expected API version (v1)"


def test_nulls_are_dropped_and_null_list_items_are_zero_values() -> None:
    document = changed("spec.nodeName", None)
    document["spec"]["containers"].append(None)
    structure = pods()
    assert structure.check(document, json.dumps(document).encode(), validation="Strict") == []
    assert "nodeName" not in document["spec"]
    assert document["spec"]["containers"][1] == {}


def pods() -> Structure:
    found = Structures(registry()).of("", "v1", "Pod")
    assert found is not None
    return found


def test_our_kinds_have_a_structure_too() -> None:
    structures = Structures(registry())
    structure = structures.of("scheduling.sigs.x-k8s.io", "v1alpha1", "ResourcePolicy")
    assert structure is not None
    document = {"kind": "ResourcePolicy", "metadata": {"name": "a"}, "spec": {"nosuch": 1}}
    assert structure.check(document, json.dumps(document).encode(), validation="Warn") == [
        'unknown field "spec.nosuch"'
    ]
    # Wrong types are left to the validation of the kind, which names all of them by path.
    assert structure.check({"spec": 1}, b'{"spec":1}', validation="Strict") == []


@pytest.mark.parametrize(("path", "value", "fault"), WRONG)
def test_the_decoder_and_the_walk_agree(path: str, value: Any, fault: str) -> None:
    structure, document = pods(), changed(path, value)
    with pytest.raises(msgspec.DecodeError):
        structure._decoder.decode(json.dumps(document).encode())
    with pytest.raises(BadRequest, match="cannot be handled as a Pod"):
        structure.prune(document)


def test_duplicate_fields_are_found_everywhere() -> None:
    body = b'{"a":1,"b":{"c":1,"c":2},"a":2,"d":[{"e":1,"e":1}]}'
    assert repeated_fields(body, json.loads(body)) == [
        'duplicate field "a"',
        'duplicate field "b.c"',
        'duplicate field "d[0].e"',
    ]
    assert repeated_fields(b'{"a":"\\u0022"}', {"a": '"'}) == []
