"""The section of the changelog that belongs to a version."""

from __future__ import annotations

import re


class NoSection(Exception):
    """The changelog has no section for the version."""


def section(changelog: str, version: str) -> str:
    """The notes of a version, with its number as heading. A version that is not released yet is in `Unreleased`."""
    parts = re.split(r"^## \[?([^\]\s]+)\]?.*\n", changelog, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2]))
    text = sections.get(version) or sections.get("Unreleased")
    if not text or not text.strip():
        raise NoSection(f"CHANGELOG.md has no section for {version}, and none that is called Unreleased")
    return f"## {version}\n\n{text.strip()}\n"
