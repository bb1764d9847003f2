"""Documents of any shape: defaulting and validation answer with faults, never with exceptions; defaulting is idempotent."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.api.kinds import known_kinds
from wharfinger.api.registry import Kind
from wharfinger.api.schema.tree import Schema, builtin_schema
from wharfinger.api.validation import object_faults

WITH_RULES = [kind for kind in known_kinds() if kind.validate is not None]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "A/b/c", "100m", "1Gi", "25%", "0", "-1", "1e3", "In", "Exists", "2020-01-01T00:00:00Z", "*"]),
    st.text(max_size=5),
)  # fmt: skip
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2), max_leaves=4)  # fmt: skip


def documents(schema: Schema | None, depth: int = 6) -> st.SearchStrategy[Any]:
    """Documents that mostly follow the schema, so that rules are reached, with anything at all mixed in."""
    if schema is None or depth == 0:
        return ANYTHING
    match schema.type:
        case "object":
            fields = {name: st.deferred(lambda inner=inner: documents(inner, depth - 1)) for name, inner in schema.fields.items()}  # fmt: skip
            return st.lists(st.sampled_from(sorted(fields) or ["x"]), max_size=5, unique=True).flatmap(
                lambda names: st.fixed_dictionaries({name: fields.get(name, ANYTHING) for name in names})
            )
        case "list":
            return st.lists(documents(schema.item, depth - 1), max_size=2)
        case "map":
            return st.dictionaries(st.sampled_from(["cpu", "memory", "a/b", "x y", "hugepages-2Mi"]), documents(schema.item, depth - 1), max_size=2)  # fmt: skip
        case "int32" | "int64":
            return st.one_of(st.integers(-2, 200), SCALARS)
        case "boolean":
            return st.booleans()
        case _:
            return SCALARS


@pytest.mark.parametrize("kind", WITH_RULES, ids=lambda kind: kind.kind)
def test_nothing_raises_and_defaulting_twice_changes_nothing(kind: Kind) -> None:
    schema = builtin_schema(kind.group, kind.versions[0], kind.kind)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(documents(schema), documents(schema))
    def check(document: Any, old: Any) -> None:
        if not isinstance(document, dict):
            document = {"spec": document}
        raw = copy.deepcopy(document)
        object_faults(kind, raw)
        if kind.prepare_create is not None:
            kind.prepare_create(copy.deepcopy(document))
        if kind.default is not None:
            kind.default(document)
            once = copy.deepcopy(document)
            kind.default(document)
            assert document == once
        object_faults(kind, document)
        if isinstance(old, dict) and not object_faults(kind, old):
            object_faults(kind, document, old)
        for validate in kind.validate_subresource.values():
            validate(document, None)

    check()
