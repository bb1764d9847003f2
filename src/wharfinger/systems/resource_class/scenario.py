"""Resource classes in scenarios.

On a real API server, device inventories and records are in separate objects and annotations, and classes are requested
and counted by alias. Observed objects are translated back to the form that scenarios use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from wharfinger.api.configuration import Configuration
from wharfinger.api.defaults.walk import child, children
from wharfinger.api.errors import AlreadyExists
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.validation.resources import is_unqualified
from wharfinger.api.views import view
from wharfinger.client.interface import Client
from wharfinger.scenario.document import Expectation, Scenario
from wharfinger.scenario.extension import ScenarioExtension
from wharfinger.scenario.matchers import matcher
from wharfinger.scenario.paths import parse_path
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ALIAS_PREFIX, ResourceClass
from wharfinger.systems.resource_class.rules.compute_resources import (
    RECORD,
    BadRecord,
    as_fields,
    name_compute_resources,
    parse_record,
)
from wharfinger.systems.resource_class.settings import ResourceClassSettings

if TYPE_CHECKING:
    from wharfinger.scenario.running.client import Footprint


class ResourceClassScenario(ScenarioExtension):
    def __init__(self) -> None:
        self._names = ClassNames(())
        self._client: Client | None = None
        self._footprint: Footprint | None = None

    def comparable(self, wanted: Configuration, running: Configuration) -> Configuration:
        """Ignores `rewriteNames`: `unmet` reports the scenarios that need it."""
        rewrite_names = running.of(ResourceClassSettings).rewrite_names
        return wanted.having(msgspec.structs.replace(wanted.of(ResourceClassSettings), rewrite_names=rewrite_names))

    def open(self, client: Client, footprint: Footprint, documents: Sequence[Document]) -> None:
        self._client, self._footprint = client, footprint
        self._names = ClassNames(documents)

    def unmet(self, documents: Sequence[Document], configuration: Configuration) -> str:
        if configuration.of(ResourceClassSettings).rewrite_names:
            return ""
        name = next((name for each in documents for name in unqualified(each)), "")
        if not name:
            return ""
        return (
            f"it requests {name}, and real API servers refuse resource names without a domain: "
            "let the webhook rewrite them (resourceClass.rewriteNames)"
        )

    def expected(self, scenario: Scenario) -> Scenario:
        return self._names.scenario(scenario)

    def observed(self, document: Document) -> Document:
        return self._names.document(document)

    def text(self, text: str) -> str:
        plain: str = self._names.plain(text)
        return plain

    async def patching(self, resource: Resource, name: str, patch: Any) -> Any:
        """Real API servers drop `status.computeResources`, so it is written to a NodeComputeResources object instead."""
        if resource != NODES or not isinstance(patch, dict) or not isinstance(status := patch.get("status"), dict):
            return patch
        if (devices := status.get("computeResources")) is not None:
            await self._publish(name, devices)
        return {**patch, "status": {key: value for key, value in status.items() if key != "computeResources"}}

    async def _publish(self, node: str, devices: list[Any]) -> None:
        assert self._client is not None and self._footprint is not None
        owner = await self._client.get(NODES, node)
        reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner["metadata"]["uid"]}
        name_compute_resources(devices := deepcopy(devices))
        spec = {"computeResources": devices}
        document = {
            "apiVersion": NODE_COMPUTE_RESOURCES.api_version,
            "kind": NODE_COMPUTE_RESOURCES.kind,
            "metadata": {"name": node, "ownerReferences": [reference]},
            "spec": spec,
        }
        try:
            written = await self._client.create(NODE_COMPUTE_RESOURCES, document)
        except AlreadyExists:
            await self._client.patch(NODE_COMPUTE_RESOURCES, node, {"spec": spec})
        else:
            self._footprint.create(NODE_COMPUTE_RESOURCES, written)


class ClassNames:
    """Normalizes the names of classes, so that expectations and observed objects compare equal."""

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
        self.used = bool(raws)  # whether the scenario has classes

    def plain(self, value: Any) -> Any:
        """The document with aliases replaced by class names in every string."""
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
        """The scenario with its expectations normalized; the objects that it applies are unchanged."""
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
        """A cluster object, normalized."""
        if not self.used:
            return document
        plain: Document = self.plain(with_record(document))
        return plain


def with_record(document: Document) -> Document:
    """The pod with its record in the container fields, as the embedded API server shows it."""
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


def unqualified(document: Document) -> Iterable[str]:
    """Resource names in a pod, pod template or quota that real API servers reject."""
    spec = child(document, "spec")
    if document.get("kind") == "ResourceQuota":
        yield from filter(is_unqualified, child(spec, "hard"))
        return
    while "containers" not in spec and (inner := child(spec, "template") or child(spec, "jobTemplate")):
        spec = child(inner, "spec")
    for container in (*children(spec, "initContainers"), *children(spec, "containers")):
        for part in ("requests", "limits"):
            yield from filter(is_unqualified, child(child(container, "resources"), part))
