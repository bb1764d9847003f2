"""Error messages for bodies and patches, identical to those of kube-apiserver 1.36.4, and the contents of lists."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.running import Api

JSON, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_MAP = "Go value of type map[string]interface {}"
_INVALID = ' "" is invalid: patch: Invalid value: '
_REJECTED = "the server rejected our request due to an error in our request"

PATCHES: list[tuple[str, bytes, int, str]] = [
    (MERGE, b"", 400, "error decoding patch: unexpected end of JSON input"),
    (MERGE, b"x", 400, "error decoding patch: invalid character 'x' looking for beginning of value"),
    (MERGE, b'{"a":1}x', 400, "error decoding patch: invalid character 'x' after top-level value"),
    (MERGE, b'{"a" 1}', 400, "error decoding patch: invalid character '1' after object key"),
    (MERGE, b'{"a":1 "b"}', 400, "error decoding patch: invalid character '\"' after object key:value pair"),
    (MERGE, b'{"a":[1 2]}', 400, "error decoding patch: invalid character '2' after array element"),
    (MERGE, b'{"a":tru}', 400, "error decoding patch: invalid character '}' in literal true (expecting 'e')"),
    (MERGE, b'{"a":1.}', 400, "error decoding patch: invalid character '}' after decimal point in numeric literal"),
    (MERGE, b'{"a":"\\q"}', 400, "error decoding patch: invalid character 'q' in string escape code"),
    (MERGE, b"{a}", 400, "error decoding patch: invalid character 'a' looking for beginning of object key string"),
    (MERGE, b"[]", 400, f"error decoding patch: json: cannot unmarshal array into {_MAP}"),
    (MERGE, b"null", 400, "Invalid JSON Patch"),
    (STRATEGIC, b"x", 400, "invalid character 'x' looking for beginning of value"),
    (STRATEGIC, b'"x"', 400, f"json: cannot unmarshal string into {_MAP}"),
    (JSON, b"{}", 400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    (JSON, b"[5]", 400, "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
    (JSON, b'[{"op":5}]', 400, "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
    (JSON, b"[{}]", 422, _REJECTED),
    (JSON, b'[{"op":"remove","path":"/data/zz"}]', 422, _REJECTED),
    (JSON, b'[{"op":"remove","path":"/metadata/name"}]', 400, "the name of the object (c based on URL) was undeterminable: name must be provided"),
    (MERGE, b'{"metadata":{"name":"d"}}', 400, "the name of the object (d) does not match the name on the URL (c)"),
    (MERGE, b'{"metadata":null}', 400, "the name of the object (c based on URL) was undeterminable: name must be provided"),
    (STRATEGIC, b'{"data":5}', 422, f'{_INVALID}"map[data:5]": cannot restore map from int64'),
    (STRATEGIC, b'{"data":{"q":5}}', 422, f'{_INVALID}"map[data:map[q:5]]": cannot convert int64 to string'),
    (STRATEGIC, b'{"data":{"q":{}}}', 422, f'{_INVALID}"map[data:map[q:map[]]]": unrecognized type: string'),
    (STRATEGIC, b'{"immutable":"x"}', 422, f'{_INVALID}"map[immutable:x]": unrecognized type: bool'),
    (STRATEGIC, b'{"metadata":"x"}', 422, f'{_INVALID}"map[metadata:x]": cannot restore struct from: string'),
    (STRATEGIC, b'{"metadata":{"finalizers":"x"}}', 422, f'{_INVALID}"map[metadata:map[finalizers:x]]": cannot restore slice from string'),
    (APPLY, b"x: [", 400, "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"),
    (APPLY, b"[]", 400, f"error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into {_MAP}"),
    (APPLY, b"", 400, "invalid object type: /, Kind="),
    (APPLY, b'{"apiVersion":"v1","kind":"ConfigMap","foo":1}', 500, "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .foo: field not declared in schema"),
]  # fmt: skip


@pytest.mark.parametrize(("media", "patch", "code", "text"), PATCHES)
def test_patch_errors(api: Api, base: str, media: str, patch: bytes, code: int, text: str) -> None:
    before = api.create(f"{base}/configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    answer = api.ask("PATCH", f"{base}/configmaps/c?fieldManager=m", patch, media=media)
    assert (answer.status, answer.message) == (code, text)
    assert api.get(f"{base}/configmaps/c") == before


@pytest.mark.parametrize(
    ("media", "patch"), [(MERGE, {"data": 5}), (JSON, [{"op": "replace", "path": "/data", "value": 5}])]
)
def test_patch_results_of_a_wrong_type(api: Api, base: str, media: str, patch: Any) -> None:
    api.create(f"{base}/configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    answer = api.ask("PATCH", f"{base}/configmaps/c", patch, media=media)
    assert answer.status == 422
    assert answer.message.startswith(f'{_INVALID}"{{\\"apiVersion\\":\\"v1\\",\\"data\\":5,\\"kind\\":\\"ConfigMap\\",')
    fault = "json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string"
    assert answer.message.endswith(f'}}": {fault}')


def test_unknown_fields_added_by_json_patches_are_dropped_with_a_warning(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", {"metadata": {"name": "c"}})
    patch = [{"op": "add", "path": "/foo", "value": 1}, {"op": "replace", "path": "/data", "value": {"a": "b"}}]
    answer = api.ask("PATCH", f"{base}/configmaps/c", patch, media=JSON)
    assert answer.warnings == ['299 - "unknown field \\"foo\\""']
    assert answer.json["data"] == {"a": "b"}
    assert "foo" not in answer.json


BODIES: list[tuple[str, bytes, str]] = [
    ("application/json", b"", "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"),
    ("application/json", b"hello", "couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of value (68656c6c6f)"),
    ("application/json", b'{"a":', 'couldn\'t get version/kind; json parse error: unexpected end of JSON input ({"a":)'),
    ("application/json", b"[]", 'couldn\'t get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } (5b5d)'),
    ("application/yaml", b"a: [\n", "yaml: line 1: did not find expected node content (613a205b0a)"),
]  # fmt: skip


@pytest.mark.parametrize(("media", "body", "text"), BODIES)
def test_malformed_bodies(api: Api, base: str, media: str, body: bytes, text: str) -> None:
    answer = api.ask("POST", f"{base}/pods", body, media=media)
    assert (answer.status, answer.message) == (
        400,
        f"the object provided is unrecognized (must be of type Pod): {text}",
    )


def test_an_update_names_its_object(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", {"metadata": {"name": "c"}})
    answer = api.ask("PUT", f"{base}/configmaps/c", {"metadata": {}})
    text = "the name of the object (c based on URL) was undeterminable: name must be provided"
    assert (answer.status, answer.message) == (400, text)


def test_list_items_have_type_meta_for_custom_resources_only(api: Api, base: str) -> None:
    made = api.create(f"{base}/configmaps", {"metadata": {"name": "c"}, "data": {"a": "b"}})
    listed = api.get(f"{base}/configmaps")["items"]
    assert {**listed[-1], "apiVersion": "v1", "kind": "ConfigMap"} == made
    assert all("kind" not in item and "apiVersion" not in item for item in listed)
    scores = base.replace("/api/v1", "/apis/cluster.open-cluster-management.io/v1alpha1") + "/addonplacementscores"
    score = {"apiVersion": "cluster.open-cluster-management.io/v1alpha1", "kind": "AddOnPlacementScore"}
    made = api.create(scores, {**score, "metadata": {"name": "s"}})
    assert api.get(scores)["items"] == [made]
