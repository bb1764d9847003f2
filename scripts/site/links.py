"""Checks a built site: every link and every address of an image, script or style leads to a file of the site, every
anchor exists, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}


@dataclass
class _Page(HTMLParser):
    anchors: set[str] = field(default_factory=set)
    links: list[tuple[str, str, str]] = field(default_factory=list)  # tag, attribute, address

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if given.get("rel") == "canonical":
            return
        for name in ("href", "src"):
            if name in given:
                self.links.append((tag, name, given[name]))


def broken_links(site: Path) -> list[str]:
    """What is wrong with the links of a site, a line for each."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    return [
        f"{path.relative_to(site.resolve())}: {address}: {fault}"
        for path, page in pages.items()
        for address, fault in _faults(path, page, pages)
    ]


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _faults(path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[tuple[str, str]]:
    for tag, attribute, address in page.links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            if (tag, attribute) in _LOADED and parts.scheme != "data":
                yield address, "is loaded from elsewhere"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        if not target.exists():
            yield address, "does not exist"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors | {"__skip"}:
            yield address, "has no such anchor"
