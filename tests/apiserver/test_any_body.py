"""Bodies generated from the schemas of all kinds, with errors of every type in every field: the response is always a status."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from tests.apiserver.running import Api

from wharfinger.api.kinds import known_kinds
from wharfinger.api.registry import Kind
from wharfinger.api.schema.definitions import definition_name, definitions

JUNK: list[Any] = [
    None, 0, -1, 1.5, True, "", "x", "\u0000", [], {}, [None], [[]], {"a": None}, [{}], {"": ""}, "9" * 400, -(2**63), 2**31,
]  # fmt: skip


class Maker:
    """Documents of a schema; about one value in sixteen is of some other type."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        pick = self._random.choice
        if self._random.random() < 0.06:
            return pick(JUNK)
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name.endswith("Quantity"):
                return pick(["1", "100m", "1Gi", 3, "bad"])
            if name.endswith("IntOrString"):
                return pick([1, "50%", "http"])
            return {} if depth > 6 else self.value(definitions()[name], depth + 1)
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [self.value(schema.get("items") or {}, depth + 1) for _ in range(self._random.randrange(3))]
            case "string" if schema.get("format") == "date-time":
                return "2026-01-01T00:00:00Z"
            case "string":
                return pick(schema.get("enum") or ["a", "b", "", "A_B", "10.0.0.1", "*"])
            case "integer":
                return pick([0, 1, -1, 5, 70000, 2**31 - 1])
            case "boolean":
                return pick([True, False])
        return pick(JUNK)

    def _object(self, schema: dict[str, Any], depth: int) -> Any:
        if properties := schema.get("properties"):
            needed = schema.get("required") or ()
            return {
                name: self.value(part, depth + 1)
                for name, part in properties.items()
                if name in needed or self._random.random() < 0.25
            }
        extra = schema.get("additionalProperties")
        inner = extra if isinstance(extra, dict) else {"type": "string"}
        return {self._random.choice(["a", "b/c", "x.y/z", ""]): self.value(inner, depth + 1) for _ in range(2)}


CASES = [(kind, version) for kind in known_kinds() for version in kind.versions]


def schema_of(kind: Kind, version: str) -> dict[str, Any]:
    name = definition_name(kind.group, version, kind.kind)
    if name is not None:
        found: dict[str, Any] = definitions()[name]
        return found
    return kind.schema(version) if kind.schema is not None else {"type": "object"}


@pytest.mark.parametrize(("kind", "version"), CASES, ids=[f"{kind.kind}-{version}" for kind, version in CASES])
def test_every_mutated_body_gets_a_status(api: Api, kind: Kind, version: str) -> None:
    maker, resource = Maker(f"{kind.kind} {version}"), kind.resource(version)
    connection = api.connect()
    for number in range(15):
        document = maker.value(schema_of(kind, version))
        if isinstance(document, dict):
            document |= {"apiVersion": resource.api_version, "kind": kind.kind, "metadata": {"name": f"any-{number}"}}
        path = f"{resource.path('default')}?dryRun=All&fieldValidation=Ignore"
        body = json.dumps(document).encode()
        connection.request("POST", path, body, api.head({"Content-Type": "application/json"}))
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status < 500, (document, answer)
        assert response.status < 400 or answer["kind"] == "Status"
        if "patch" in kind.verbs and isinstance(document, dict):
            path = f"{resource.path('default', f'any-{number}')}?dryRun=All&fieldManager=any&force=true"
            connection.request("PATCH", path, body, api.head({"Content-Type": "application/apply-patch+yaml"}))
            response = connection.getresponse()
            answer = json.loads(response.read())
            # Upstream, too, answers 500 for what is no object of its type.
            untyped = re.match(r"failed to (create typed patch|convert new) object \(", answer.get("message", ""))
            assert response.status < 500 or untyped, (document, answer)
    connection.close()
