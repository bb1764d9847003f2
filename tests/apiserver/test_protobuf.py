"""Bodies in protobuf form: documents are read back from what a client of Go would send."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec
import pytest
from tests.apiserver.running import Api
from tests.apiserver.test_kubectl_verbs import WIDGETS

from wharfinger.api.schema.definitions import definition_name
from wharfinger.apiserver.protobuf import MEDIA, Field, _layout, decode_protobuf
from wharfinger.apiserver.protobuf_wire import delimited_field, double_field, varint_field

EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."


def enveloped(document: dict[str, Any]) -> bytes:
    group, _, version = document["apiVersion"].rpartition("/")
    name = definition_name(group, version, document["kind"])
    assert name is not None
    inner = message(name, {key: value for key, value in document.items() if key not in ("apiVersion", "kind")})
    head = delimited_field(1, document["apiVersion"].encode()) + delimited_field(2, document["kind"].encode())
    return b"k8s\x00" + delimited_field(1, head) + delimited_field(2, inner)


def message(name: str, document: dict[str, Any]) -> bytes:
    made = b""
    for number, field in _layout()[name].items():
        if "n" in field[2]:
            made += written(number, field, document)
        elif field[0] in document:
            made += written(number, field, document[field[0]])
    return made


def written(number: int, field: Field, value: Any) -> bytes:
    _, kind, flags = field
    if "m" in flags:
        entries = (written(1, ("", "s", ""), key) + written(2, ("", kind, ""), item) for key, item in value.items())
        return b"".join(delimited_field(number, entry) for entry in entries)
    if "r" in flags:
        return b"".join(written(number, ("", kind, ""), item) for item in value)
    match kind:
        case "s":
            return delimited_field(number, value.encode())
        case "b":
            return delimited_field(number, b64decode(value))
        case "i" | "u" | "t":
            return varint_field(number, int(value))
        case "d":
            return double_field(number, value)
    if kind == EXTENSIONS + "JSON":
        return delimited_field(number, delimited_field(1, msgspec.json.encode(value)))
    if kind == EXTENSIONS + "JSONSchemaPropsOrBool":
        if isinstance(value, bool):
            return delimited_field(number, varint_field(1, value))
        inner = varint_field(1, 1) + delimited_field(2, message(EXTENSIONS + "JSONSchemaProps", value))
        return delimited_field(number, inner)
    if kind == EXTENSIONS + "JSONSchemaPropsOrArray":
        schemas = value if isinstance(value, list) else [value]
        field_number = 2 if isinstance(value, list) else 1
        parts = (delimited_field(field_number, message(EXTENSIONS + "JSONSchemaProps", one)) for one in schemas)
        return delimited_field(number, b"".join(parts))
    return delimited_field(number, message(kind, value))


SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 2.5}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}, "required": ["a"]},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": True}}},
    {"type": "object", "properties": {"a": {"enum": ["x", 1, None, {"b": []}], "nullable": True}}},
    {"type": "object", "properties": {"a": {"type": "object", "default": {"b": [1, "2"]}}}},
    {"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {}]}}},
    {"type": "object", "x-kubernetes-validations": [{"rule": "true", "message": "m"}]},
    {"type": "object", "properties": {"a": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}}},
    {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_of_definitions(schema: dict[str, Any]) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {**WIDGETS, "spec": {**WIDGETS["spec"], "versions": [version]}}  # type: ignore[dict-item]
    assert decode_protobuf(enveloped(definition)) == definition


def test_a_definition_in_protobuf_form_is_served(api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = {"plural": "gadgets", "kind": "Gadget"}
    spec = {**WIDGETS["spec"], "group": "wire.example.com", "names": names}  # type: ignore[dict-item]
    definition = {**WIDGETS, "metadata": {"name": "gadgets.wire.example.com"}, "spec": spec}
    answer = api.ask("POST", path, enveloped(definition), media=MEDIA)
    assert answer.status == 201, answer.data
    assert answer.json["spec"]["versions"] == spec["versions"]
    assert api.ask("DELETE", f"{path}/gadgets.wire.example.com").status == 200
