"""Schemas of built-in kinds: wrong types are reported by path, and merge rules are known."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from wharfinger.api.kinds import known_kinds
from wharfinger.api.schema.tree import Schema, builtin_schema
from wharfinger.api.schema.type_errors import fits, found_errors, type_errors, unknown_fields


def pod_schema() -> Schema:
    schema = builtin_schema("", "v1", "Pod")
    assert schema is not None
    return schema


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"spec": []}, "spec: Invalid value: []: must be of type object"),
        ({"spec": {"containers": {}}}, "spec.containers: Invalid value: {}: must be of type array"),
        ({"spec": {"containers": [1]}}, "spec.containers[0]: Invalid value: 1: must be of type object"),
        ({"spec": {"containers": [None]}}, "spec.containers[0]: Invalid value: null: must be of type object"),
        ({"spec": {"priority": "1"}}, 'spec.priority: Invalid value: "1": must be of type integer'),
        ({"spec": {"priority": 1 << 31}}, "spec.priority: Invalid value: 2147483648: must be of type int32"),
        ({"spec": {"priority": True}}, "spec.priority: Invalid value: true: must be of type integer"),
        ({"spec": {"nodeSelector": {"a": 1}}}, "spec.nodeSelector[a]: Invalid value: 1: must be of type string"),
        ({"spec": {"hostNetwork": "yes"}}, 'spec.hostNetwork: Invalid value: "yes": must be of type boolean'),
        ({"metadata": {"labels": ["a"]}}, 'metadata.labels: Invalid value: ["a"]: must be of type object'),
        (
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "two"}}}]}},
            "spec.containers[0].resources.requests[cpu]: Invalid value: 'two': quantities must match the regular "
            "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_a_wrong_type_is_named_by_its_path(document: dict[str, Any], fault: str) -> None:
    assert [str(error) for error in type_errors(pod_schema(), document)] == [fault]


def test_null_counts_as_absent_and_numbers_as_quantities() -> None:
    document = {
        "metadata": {"creationTimestamp": None},
        "spec": {"containers": [{"resources": {"limits": {"cpu": 2}}}]},
    }
    assert type_errors(pod_schema(), document) == []


def test_unknown_fields_are_listed_for_strict_decoding() -> None:
    document = {"spec": {"containers": [{"imgae": "a"}], "nodeSelector": {"any": "key"}}, "speck": 1}
    found = [(each.path, each.message) for each in unknown_fields(pod_schema(), document)]
    assert found == [
        ("spec.containers[0].imgae", "unknown field; did you mean image?"),
        ("speck", "unknown field; did you mean spec?"),
    ]


def test_merge_rules_of_lists() -> None:
    spec = pod_schema().fields["spec"]
    containers, volumes = spec.fields["containers"], spec.fields["volumes"]
    assert (containers.merge_key, containers.patch_strategy) == ("name", ("merge",))
    assert (volumes.merge_key, volumes.patch_strategy) == ("name", ("merge", "retainKeys"))
    assert containers.item is not None
    ports = containers.item.fields["ports"]
    assert (ports.list_type, ports.map_keys) == ("map", ("containerPort", "protocol"))
    deployment = builtin_schema("apps", "v1", "Deployment")
    assert deployment is not None
    strategy = deployment.fields["spec"].fields["strategy"]
    assert strategy.patch_strategy == ("retainKeys",)
    assert "rollingUpdate" in strategy.fields


@pytest.mark.parametrize(
    "kind", [kind for kind in known_kinds() if kind.builtin and kind.schema is None], ids=lambda kind: kind.kind
)
def test_every_built_in_kind_has_a_schema_in_every_version(kind: Any) -> None:
    for group in (kind.group, *kind.alias_groups):
        for version in kind.versions:
            assert builtin_schema(group, version, kind.kind) is not None


_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
        "hostNetwork": False,
        "activeDeadlineSeconds": 30,
    },
    "status": {"startTime": "2026-01-01T00:00:00Z"},
}
_ODD: list[Any] = [None, 1, 1.5, True, "x", [], {}, [None], {"a": None}, 1 << 31, 1 << 63, -(1 << 63), 1 << 70]
_ODD += ["2026-01-01T00:00:00Z", "1Gi", float("nan"), [1], ["a"], {"a": 1}, {"a": "b"}, [{"name": 1}]]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from _places(item, (*path, key))


@pytest.mark.parametrize("place", list(_places(_POD)), ids=lambda place: ".".join(map(str, place)))
def test_the_compiled_check_agrees_with_the_walk(place: tuple[Any, ...]) -> None:
    schema = pod_schema()
    for odd in _ODD:
        document = deepcopy(_POD)
        owner: Any = document
        for step in place[:-1]:
            owner = owner[step]
        owner[place[-1]] = odd
        assert fits(schema, document) == (not found_errors(schema, document)), odd
