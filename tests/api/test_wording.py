"""Faults of decoding in words that do not give away the language we are written in."""

from __future__ import annotations

import msgspec
import pytest

from wharfinger.api.wording import decoding_fault


class Part(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int | None = None
    flags: tuple[bool, ...] = ()
    size: float = 0.0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[{"name": 5}]', "[0].name: expected string, got integer"),
        ('[{"name": "a", "count": "x"}]', "[0].count: expected integer or null, got string"),
        ('[{"name": "a", "flags": [1]}]', "[0].flags[0]: expected boolean, got integer"),
        ('[{"name": "a", "size": {}}]', "[0].size: expected number, got object"),
        ("[{}]", "[0]: object missing required field name"),
        ('[{"name": "a", "more": 1}]', "[0]: object contains unknown field more"),
        ("{}", "expected array, got object"),
        ("[", "input data was truncated"),
    ],
)
def test_types_are_those_of_json(text: str, fault: str) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(text, type=list[Part])
    assert decoding_fault(caught.value) == fault
