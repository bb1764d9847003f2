"""Commands on pages that are marked to be run print what the pages say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.runnable import SavedFile, blocks, marks, play

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ("README.md", "docs/**/*.md")
    for page in sorted(ROOT.glob(pattern))
    if marks(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_print_what_the_page_says(page: Path, tmp_path: Path) -> None:
    play(page, ROOT, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_mark_is_followed_by_a_block(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert len(list(blocks(text))) == marks(text)


def test_every_system_has_a_tutorial_with_commands_to_run() -> None:
    tutorials = {page.stem for page in PAGES if page.parent.name == "tutorials"}

    assert tutorials == {"placement", "reservation", "resource-class", "resource-policy", "scheduling-policy"}


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("$ echo one\ntwo\n", "one"),
        ("$ echo one\none\ntwo\n", "one"),
        ("$ echo one; echo two\none\n", "two"),
        ("$ false\n", "false"),
    ],
)
def test_a_page_that_is_wrong_is_found(shown: str, problem: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- run -->\n```console\n{shown}```\n")

    with pytest.raises(AssertionError, match=problem):
        play(page, ROOT, tmp_path)


def test_left_out_text_and_lines_match_anything(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: a.txt -->\n```text\none 1\ntwo\nthree\n```\n\n"
        "<!-- run: exit 3 -->\n```console\n$ cat a.txt\none …\n…\nthree\n$ exit 3\n```\n"
    )

    play(page, ROOT, tmp_path)

    assert [isinstance(block, SavedFile) for block in blocks(page.read_text())] == [True, False]
