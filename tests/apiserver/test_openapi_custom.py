"""Published schemas of custom kinds: what each version of OpenAPI shows of a CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.apiserver.openapi_custom import list_schema, object_schema

NAMED = {"group": "example.com", "version": "v1", "kind": "Widget"}
STANDARD = {"apiVersion", "kind", "metadata"}
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}


def published(field: dict[str, Any], *, version_2: bool, **more: Any) -> Any:
    schema = {"type": "object", "properties": {"field": field}, **more}
    return object_schema(schema, NAMED, version_2=version_2)


@pytest.mark.parametrize("version_2", [False, True])
def test_every_object_has_the_standard_fields(version_2: bool) -> None:
    made = published({"type": "string"}, version_2=version_2)
    assert set(made["properties"]) == {*STANDARD, "field"}
    assert made["x-kubernetes-group-version-kind"] == [NAMED]
    assert made["properties"]["metadata"]["$ref"].endswith(".meta.v1.ObjectMeta")


def test_a_kind_without_a_schema_is_any_object() -> None:
    expected = {"type": "object", "x-kubernetes-group-version-kind": [NAMED]}
    assert object_schema(None, NAMED, version_2=True) == expected
    assert object_schema({"type": "object", **PRESERVE}, NAMED, version_2=True) == expected
    assert set(object_schema({"type": "object", **PRESERVE}, NAMED, version_2=False)["properties"]) == STANDARD


@pytest.mark.parametrize(
    ("field", "two", "three"),
    [
        ({"type": "string", "default": "x"}, {"type": "string"}, {"type": "string", "default": "x"}),
        ({"type": "string", "nullable": True}, {}, {"type": "string", "nullable": True}),
        ({"type": "string", "nullable": False}, {"type": "string"}, {"type": "string"}),
        ({"type": "object", **PRESERVE}, PRESERVE, {"type": "object", **PRESERVE}),
        ({"type": "array", "items": {"type": "string"}, **PRESERVE}, PRESERVE, {"type": "array", "items": {"type": "string"}, **PRESERVE}),
        ({"type": "integer", "oneOf": [{"minimum": 1}]}, {"type": "integer"}, {"type": "integer", "oneOf": [{"minimum": 1}]}),
        (
            {"x-kubernetes-int-or-string": True},
            {"x-kubernetes-int-or-string": True},
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        ),
        (
            {"x-kubernetes-int-or-string": True, "anyOf": [{"pattern": "a"}]},
            {"x-kubernetes-int-or-string": True},
            {"x-kubernetes-int-or-string": True, "anyOf": [{"pattern": "a"}], "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]},
        ),
    ],
)  # fmt: skip
def test_version_2_leaves_out_what_kubectl_does_not_understand(field: Any, two: Any, three: Any) -> None:
    assert published(field, version_2=True)["properties"]["field"] == two
    assert published(field, version_2=False)["properties"]["field"] == three


def test_a_nullable_field_is_not_required_in_version_2() -> None:
    field = {"type": "string", "nullable": True}
    assert "required" not in published(field, version_2=True, required=["field"])
    assert published(field, version_2=False, required=["field"])["required"] == ["field"]


def test_an_embedded_object_has_the_standard_fields() -> None:
    field = {"type": "object", "x-kubernetes-embedded-resource": True, "required": ["spec"]}
    for version_2 in (False, True):
        made = published(field, version_2=version_2)["properties"]["field"]
        assert set(made["properties"]) == STANDARD and made["required"] == ["spec", "kind", "apiVersion"]
    assert "properties" not in published({**field, **PRESERVE}, version_2=True)["properties"]["field"]


def test_lists_have_the_kind_of_the_definition() -> None:
    made = list_schema("Widget", "widgets", "com.example.v1.Widget", {**NAMED, "kind": "Widgets"})
    assert made["description"] == "Widgets is a list of Widget"
    assert made["properties"]["items"]["items"] == {"$ref": "#/definitions/com.example.v1.Widget"}
