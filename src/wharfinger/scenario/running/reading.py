"""What a real cluster shows, read as a scenario says it: there records of devices and what reservations take of a quota are
annotations, and classes are asked for and counted by alias."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from wharfinger.api.defaults.walk import child, children
from wharfinger.api.quantity import parse_nano
from wharfinger.api.quota import shown
from wharfinger.api.registry import Document
from wharfinger.api.validation.resources import is_unqualified
from wharfinger.api.views import view
from wharfinger.scenario.document import Expectation, Scenario
from wharfinger.scenario.matchers import matcher
from wharfinger.scenario.paths import parse_path
from wharfinger.systems.reservation.controllers.quotas import RESERVED
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ALIAS_PREFIX, ResourceClass
from wharfinger.systems.resource_class.rules.compute_resources import RECORD, BadRecord, as_fields, parse_record


class ClassNames:
    """One name for each class, whichever of its names is used: what a scenario expects and what a cluster says compare
    equal once both are `plain`."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._names: dict[str, str] = {}
        raws = set()
        for document in documents:
            if document.get("kind") == RESOURCE_CLASSES.kind:
                found = view(document, ResourceClass)
                self._names[found.alias] = found.name
                raws.add(found.spec.resource_name)
        others = "|".join(re.escape(name) for name in sorted({*self._names, *raws} - {""}, key=len, reverse=True))
        prefixed = rf"{re.escape(ALIAS_PREFIX)}(?P<default>[\w.-]*\w)"
        self._pattern = re.compile(rf"(?:\brequests\.)?(?:{prefixed}{f'|(?P<other>{others})' if others else ''})")
        self.used = bool(raws)  # whether the scenario has classes at all

    def plain(self, value: Any) -> Any:
        """A text, or every text in a document, with aliases as the names of their classes."""
        if isinstance(value, str):
            return self._pattern.sub(self._name, value)
        if isinstance(value, dict):
            return {self.plain(key): self.plain(item) for key, item in value.items()}
        return [self.plain(item) for item in value] if isinstance(value, list) else value

    def _name(self, match: re.Match[str]) -> str:
        default = match["default"]
        if default is not None:
            return str(self._names.get(f"{ALIAS_PREFIX}{default}", default))
        return self._names.get(match["other"], str(match["other"]))

    def scenario(self, scenario: Scenario) -> Scenario:
        """The scenario with everything that it expects in plain names. What it applies stays as it is."""
        if not self.used:
            return scenario
        steps = (
            replace(
                step,
                rejected=self.plain(step.rejected),
                warned=self.plain(step.warned),
                expect=tuple(map(self._expectation, step.expect)),
            )
            for step in scenario.steps
        )
        return replace(scenario, steps=tuple(steps))

    def _expectation(self, expectation: Expectation) -> Expectation:
        fields = []
        for field in expectation.fields:
            path, wanted = parse_path(self.plain(field.path.text)), self.plain(field.wanted)
            fields.append(replace(field, path=path, wanted=wanted, matches=matcher(wanted, path.text)[0]))
        return replace(expectation, fields=tuple(fields))

    def document(self, document: Document) -> Document:
        """An object of the cluster as the scenario would have it."""
        document = with_reserved(document)
        return self.plain(with_record(document)) if self.used else document


def with_record(document: Document) -> Document:
    """A pod with its record in the containers' fields, where an embedded server shows it."""
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(RECORD)
    spec = document.get("spec") or {}
    if text is None or "containers" not in spec:
        return document
    try:
        record = as_fields(parse_record(text))
    except BadRecord:
        return document
    parts = {
        part: [
            {**container, "allocatedComputeResources": record[container["name"]]}
            if container.get("name") in record
            else container
            for container in spec[part]
        ]
        for part in ("initContainers", "containers")
        if spec.get(part)
    }
    return {**document, "spec": {**spec, **parts}}


def with_reserved(document: Document) -> Document:
    """A quota with what reservations take of it among what is used, as an embedded server counts it."""
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(RESERVED)
    if text is None:
        return document
    status = document.get("status") or {}
    used = {name: parse_nano(quantity) for name, quantity in (status.get("used") or {}).items()}
    for name, quantity in msgspec.json.decode(text, type=dict[str, str]).items():
        used[name] = used.get(name, 0) + parse_nano(quantity)
    return {**document, "status": {**status, "used": {name: shown(name, amount) for name, amount in used.items()}}}


def unqualified(document: Document) -> Iterable[str]:
    """Resource names of a pod's or a template's containers, or of a quota, that real API servers refuse."""
    spec = child(document, "spec")
    if document.get("kind") == "ResourceQuota":
        yield from filter(is_unqualified, child(spec, "hard"))
        return
    while "containers" not in spec and (inner := child(spec, "template") or child(spec, "jobTemplate")):
        spec = child(inner, "spec")
    for container in (*children(spec, "initContainers"), *children(spec, "containers")):
        for part in ("requests", "limits"):
            yield from filter(is_unqualified, child(child(container, "resources"), part))
