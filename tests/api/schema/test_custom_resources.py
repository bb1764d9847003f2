"""CRD manifests made from types are structural, and say the same as the kinds' own validation."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import yaml
from click.testing import CliRunner
from msgspec import Meta, field

from wharfinger.api.kinds import known_kinds, registry
from wharfinger.api.registry import Kind
from wharfinger.api.schema import structural
from wharfinger.api.schema.crds import crds
from wharfinger.api.schema.models import Int32, Model, Quantity, doc, keyed, kind_schema, struct_schema
from wharfinger.api.schema.tree import ABSENT, structural_schema
from wharfinger.cli.main import wharf

OURS = [kind for kind in known_kinds() if kind.ours]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.kind)
def test_our_schemas_are_structural(kind: Kind) -> None:
    assert kind.schema is not None
    for version in kind.versions:
        schema = kind.schema(version)
        assert list(structural.schema_faults(schema, "schema")) == []
        assert schema["type"] == "object"


@pytest.mark.parametrize("manifest", crds(registry()), ids=lambda manifest: manifest["metadata"]["name"])
def test_manifests_have_what_an_api_server_requires(manifest: dict[str, Any]) -> None:
    spec = manifest["spec"]
    assert manifest["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert "." in spec["group"]
    assert [version["storage"] for version in spec["versions"]].count(True) == 1
    for version in spec["versions"]:
        assert set(version) >= {"name", "served", "storage", "schema"}


def test_the_command_prints_all_of_them_as_yaml() -> None:
    result = CliRunner().invoke(wharf, ["crds"])
    assert result.exit_code == 0, result.output
    assert list(yaml.safe_load_all(result.output)) == crds(registry())


@pytest.mark.needs_system("resource_policy")
def test_the_command_refuses_what_is_not_ours() -> None:
    result = CliRunner().invoke(wharf, ["crds", "pods"])
    assert result.exit_code == 2
    assert "resourcepolicies" in result.output


class Part(Model):
    """A part."""

    name: str
    size: Quantity = "1"


class Whole(Model):
    """The whole
    thing."""

    parts: Annotated[list[Part], keyed("name"), Meta(max_length=2), doc("Its parts.")] = field(default_factory=list)
    count: Annotated[Int32, Meta(ge=1), doc("How many.", immutable=True)] = 1
    template: dict[str, Any] = field(default_factory=dict)
    free: Any = None


def test_types_become_schemas() -> None:
    schema = struct_schema(Whole)
    assert schema["description"] == "The whole thing."
    parts = schema["properties"]["parts"]
    assert parts["x-kubernetes-list-map-keys"] == ["name"]
    assert parts["maxItems"] == 2
    assert parts["items"]["required"] == ["name"]
    assert parts["items"]["properties"]["size"]["x-kubernetes-int-or-string"] is True
    assert schema["properties"]["count"] == {
        "type": "integer",
        "minimum": 1,
        "format": "int32",
        "description": "How many.",
        "default": 1,
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
    }
    assert schema["properties"]["template"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert schema["properties"]["free"] == {"x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("document", "old", "faults"),
    [
        ({}, None, []),
        ({"count": 0}, None, ["count: Invalid value: 0: count in body should be greater than or equal to 1"]),
        ({"count": "1"}, None, ['count: Invalid value: "string": count in body must be of type integer: "string"']),
        ({"count": True}, None, ['count: Invalid value: "boolean": count in body must be of type integer: "boolean"']),
        ({"count": 1 << 40}, None, ["count: Invalid value: 1099511627776: count in body must be of type int32: 1099511627776"]),
        ({"parts": [{}]}, None, ["parts[0].name: Required value"]),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, None, ['parts[1]: Duplicate value: {"name":"a"}']),
        ({"parts": [{"name": c} for c in "abc"]}, None, ["parts: Too many: 3: must have at most 2 items"]),
        ({"parts": [{"name": "a", "size": "much"}]}, None, None),
        ({"parts": [{"name": "a", "size": 5}]}, None, []),
        ({"count": 3}, {"count": 3}, []),
        ({"count": 3}, {"count": 2}, ["count: Invalid value: 3: field is immutable"]),
    ],
)  # fmt: skip
def test_documents_are_held_against_the_schema(document: Any, old: Any, faults: list[str] | None) -> None:
    schema = structural_schema(struct_schema(Whole))
    errors = structural.validate(schema, document, "", ABSENT if old is None else old)
    if faults is None:
        assert [error.path for error in errors] == ["parts[0].size"]
    else:
        assert [str(error) for error in errors] == faults


def test_defaults_are_filled_below_what_is_there_and_unknown_fields_pruned() -> None:
    document: dict[str, Any] = {"parts": [{"name": "a", "more": 1}], "template": {"any": {"thing": 1}}, "count": None}
    schema = structural_schema(kind_schema(Whole))
    structural.default(schema, document)
    structural.prune(schema, document)
    assert document == {"parts": [{"name": "a", "size": "1"}], "template": {"any": {"thing": 1}}, "count": 1}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({}, "s.type"),
        ({"type": "array"}, "s.items"),
        ({"type": "object", "properties": {"a": {}}}, "s.properties[a].type"),
        ({"type": "object", "$ref": "#/x"}, "s.$ref"),
        ({"type": "integer", "default": "x"}, "s.default"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}, "s.additionalProperties"),
        ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}, "s.x-kubernetes-list-map-keys"),
    ],
)  # fmt: skip
def test_what_makes_a_schema_not_structural(schema: dict[str, Any], path: str) -> None:
    assert path in [fault.path for fault in structural.schema_faults(schema, "s")]
