"""The fault simulation bites: every defect that is put back on purpose is found by the seed that the table names, or by
one of a few others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fuzz.mutations import MUTATIONS, Mutation, found_by

PAGE = Path(__file__).parents[2] / "docs" / "fuzzing.md"
OTHERS = range(12)  # seeds to try if a change of the generator has made the recorded one blind


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_defect_is_found(mutation: Mutation) -> None:
    found = next((found for seed in (mutation.seed, *OTHERS) if (found := found_by(mutation, seed))), None)
    assert found is not None, f"no seed found: {mutation.defect}"


def test_the_table_of_the_documentation_has_every_defect() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| .*? \| `([a-z-]+)` \| .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {(each.name, each.invariant) for each in MUTATIONS} <= set(rows)
    assert len(MUTATIONS) >= 20
