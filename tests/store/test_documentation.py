"""The example in docs/internals/store.md runs and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "store.md"


def test_the_example_runs() -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example[1], str(PAGE), "exec"), {})  # noqa: S102 - our own page
    conflict, added, modified = printed.getvalue().splitlines()
    assert "the object has been modified" in conflict
    assert added.endswith("{'sky': 'blue'}") and added.startswith("ADDED")
    assert modified.endswith("{'sky': 'grey'}") and modified.startswith("MODIFIED")
