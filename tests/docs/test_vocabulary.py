"""One name, one concept: no two classes of the package share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import wharfinger

PACKAGE = Path(wharfinger.__file__).parent
EXCEPTIONS: frozenset[str] = frozenset()  # deliberate ones; docs/glossary.md lists them too


def test_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    shared = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    assert shared.keys() <= EXCEPTIONS, shared
