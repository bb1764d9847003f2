"""The site: its navigation has every page, and the check of built pages finds what is broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from scripts.site.links import broken_links

ROOT = Path(__file__).parents[2]


class _Configuration(yaml.SafeLoader):
    """Reads mkdocs.yml without the Python objects that it names."""


_Configuration.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def _pages(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from _pages(inner if isinstance(inner, list) else [inner])


def test_the_navigation_has_every_page_once() -> None:
    configuration = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=_Configuration)
    found = list(_pages(configuration["nav"]))

    assert sorted(found) == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def test_links_that_lead_somewhere_are_fine(tmp_path: Path) -> None:
    (tmp_path / "style.css").touch()
    (tmp_path / "index.html").write_text(
        '<link href="style.css"><a href="inner/page.html#there">x</a><a href="#here">y</a><h1 id="here">z</h1>'
        '<a href="https://example.com/">elsewhere</a>'
    )
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "page.html").write_text('<a href="../index.html">up</a><h2 id="there">t</h2>')

    assert broken_links(tmp_path) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="gone.html">a</a><a href="#gone">b</a><img src="gone.png">'
        '<script src="https://example.com/x.js"></script>'
    )

    assert broken_links(tmp_path) == [
        "index.html: gone.html: does not exist",
        "index.html: #gone: has no such anchor",
        "index.html: gone.png: does not exist",
        "index.html: https://example.com/x.js: is loaded from elsewhere",
    ]
