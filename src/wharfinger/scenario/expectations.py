"""Checks expectations against objects, and describes what was found if one does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from wharfinger.api.fields import show
from wharfinger.api.registry import Document
from wharfinger.api.selectors import matches
from wharfinger.api.wording import listed
from wharfinger.scenario.document import Expectation, FieldExpectation
from wharfinger.scenario.paths import ABSENT


class ExpectationOutcome(msgspec.Struct, frozen=True):
    """Whether an expectation held; `problems` describes what was found instead, `culprits` are the objects concerned."""

    expectation: Expectation
    problems: tuple[str, ...] = ()
    culprits: tuple[Document, ...] = ()
    explanation: tuple[str, ...] = ()  # explains the state of the culprits, line by line

    @property
    def ok(self) -> bool:
        return not self.problems


def select(expectation: Expectation, documents: Sequence[Document]) -> list[Document]:
    """The objects that the expectation selects, out of all objects of its kind."""
    chosen = []
    for document in documents:
        metadata = document.get("metadata") or {}
        if expectation.namespace and metadata.get("namespace", "") != expectation.namespace:
            continue
        if expectation.name and metadata.get("name") != expectation.name:
            continue
        if expectation.selector is not None and not matches(expectation.selector, metadata.get("labels") or {}):
            continue
        chosen.append(document)
    return chosen


def check(expectation: Expectation, documents: Sequence[Document]) -> ExpectationOutcome:
    chosen = select(expectation, documents)
    matching = [document for document in chosen if all(_holds(item, document) for item in expectation.fields)]
    if expectation.absent:
        # With fields, only objects that have them must be absent.
        found = matching if expectation.fields else chosen
        if not found:
            return ExpectationOutcome(expectation)
        return ExpectationOutcome(expectation, (f"expected none, found {_names(found)}",), tuple(found))
    if expectation.match_any:
        return _check_any(expectation, chosen, matching)
    problems: list[str] = []
    culprits: list[Document] = []
    if expectation.count is not None and len(chosen) != expectation.count:
        problems.append(f"expected {expectation.count}, found {len(chosen)}{_list_of(chosen)}")
        culprits += chosen
    elif not chosen and expectation.count is None:
        problems.append("not found")
    for document in chosen:
        wrong = [_difference(item, document) for item in expectation.fields if not _holds(item, document)]
        if wrong:
            prefix = "" if expectation.name else f"{_name(document)}: "
            problems += [prefix + text for text in wrong]
            culprits.append(document)
    return ExpectationOutcome(expectation, tuple(problems), tuple(culprits))


def _check_any(expectation: Expectation, chosen: list[Document], matching: list[Document]) -> ExpectationOutcome:
    if expectation.count is not None and len(matching) != expectation.count:
        text = f"expected {expectation.count} with these fields, found {len(matching)} of {len(chosen)}{_list_of(matching)}"
        return ExpectationOutcome(expectation, (text,), tuple(chosen))
    if expectation.count is None and not matching:
        shown = [f"{_name(document)}: {_values(expectation, document)}" for document in chosen[:10]]
        text = f"none of {len(chosen)} has these fields" + "".join(f"\n  {line}" for line in shown)
        return ExpectationOutcome(expectation, (text,), tuple(chosen))
    return ExpectationOutcome(expectation)


def _holds(item: FieldExpectation, document: Document) -> bool:
    return item.matches(item.path.of(document))


def _difference(item: FieldExpectation, document: Document) -> str:
    return f"{item.path.text}: expected {_show(item.wanted)}, found {_show(item.path.of(document))}"


def _values(expectation: Expectation, document: Document) -> str:
    return ", ".join(f"{item.path.text}={_show(item.path.of(document))}" for item in expectation.fields)


def _show(value: Any) -> str:
    return "nothing" if value is ABSENT else show(value)


def _name(document: Document) -> str:
    metadata = document.get("metadata") or {}
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))


def _names(documents: Sequence[Document]) -> str:
    return listed(map(_name, documents), 10)


def _list_of(documents: Sequence[Document]) -> str:
    return f": {_names(documents)}" if documents else ""
