"""The documentation: links lead somewhere, examples run, and references name every command, option and field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from wharfinger.api.kinds import registry
from wharfinger.cli.main import wharf

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "src/wharfinger/systems/*/README.md")
    for path in ROOT.glob(pattern)
)
SYSTEM_PAGES = ("placement", "reservation", "resource-class", "resource-policy", "scheduling-policy")
MAPS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs" / "internals").glob("*.md"),
    *(ROOT / "src" / "wharfinger" / "systems").glob("*/README.md"),
]
FOLDERS = ("docs", "examples", "scenarios", "src", "tests", "scripts", "charts", "web/src")
EXAMPLES = [ROOT / "docs" / "internals" / name for name in ("engine.md", "objects.md", "plugins.md")]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.name)
def test_examples_print_what_their_comments_say(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for example in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if "load([" in example:
            continue  # reads files of the user's
        exec(compile(example, str(page), "exec"), {})  # noqa: S102 - our own page
        printed = capsys.readouterr().out
        for comment in re.findall(r"print\(.*\)  # (\S.*)$", example, re.MULTILINE):
            assert comment in printed or comment == "every plugin's score"


@pytest.mark.parametrize("page", MAPS, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_maps_of_the_code_name_exist(page: Path) -> None:
    found = (path for folder in FOLDERS for path in [ROOT / folder, *(ROOT / folder).rglob("*")])
    paths = {f"/{path.relative_to(ROOT)}{'/' * path.is_dir()}" for path in found}
    named = re.findall(r"`([\w/.-]+(?:\.py|/))`", page.read_text(encoding="utf-8"))

    missing = [name for name in named if "NAME" not in name and not any(path.endswith(f"/{name}") for path in paths)]

    assert missing == []


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from commands(found, f"{name} {each}")


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^#+ (wharf .+?)\n(.*?)(?=^#|\Z)", page, re.DOTALL | re.MULTILINE))
    missing = []
    for name, command in commands(wharf, "wharf"):
        if name == "wharf":
            continue
        missing += [] if name in sections else [name]
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden and "--help" not in option.opts:
                missing += [f"{name} {each}" for each in option.opts if each not in sections.get(name, "")]

    assert missing == []


def fields(schema: dict[str, Any]) -> Iterator[str]:
    """The names of all fields that users read or write, except those of the types of Kubernetes."""
    for name, field in (schema.get("properties") or {}).items():
        yield name
        if name in ("conditions", "labelSelector", "podSelector", "nodeSelector", "object", "controller"):
            continue
        if name.endswith(("Ref", "Refs", "currentOwners", "taints", "affinities", "allowedAffinities")):
            continue
        yield from fields(field)
        yield from fields(field.get("items") or {})


def test_every_field_of_our_kinds_is_on_the_page_of_its_system() -> None:
    pages = " ".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in SYSTEM_PAGES)
    words = set(re.findall(r"\w+", pages))
    missing = []
    for kind in registry():
        if not kind.ours or kind.schema is None:
            continue
        properties = kind.schema(kind.versions[0])["properties"]
        for part in ("spec", "status"):
            missing += [f"{kind.kind}: {name}" for name in fields(properties.get(part) or {}) if name not in words]

    assert missing == []
