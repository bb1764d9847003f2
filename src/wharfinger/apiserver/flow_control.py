"""Keeps the mandatory and suggested FlowSchemas and PriorityLevelConfigurations, and the conditions of FlowSchemas."""

from __future__ import annotations

from wharfinger.api.flow_control import AUTO_UPDATE, MANDATORY, flow_schemas, priority_levels
from wharfinger.api.kinds.builtin import FLOW_SCHEMAS, PRIORITY_LEVELS
from wharfinger.api.registry import Document, Resource
from wharfinger.apiserver.kept_objects import KeptObjects


class FlowControlObjects(KeptObjects):
    manager = "api-priority-and-fairness-config-producer-v1"
    watched = (FLOW_SCHEMAS, PRIORITY_LEVELS)

    async def keep(self) -> None:
        for document in priority_levels():
            await self._ensure(PRIORITY_LEVELS, document)
        for document in flow_schemas():
            await self._ensure(FLOW_SCHEMAS, document)
        levels = {stored.name for stored in self._store.scan(PRIORITY_LEVELS)}
        for stored in list(self._store.scan(FLOW_SCHEMAS)):
            schema = stored.document()
            level = ((schema.get("spec") or {}).get("priorityLevelConfiguration") or {}).get("name", "")
            text = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" '
            if level in levels:
                texts = ("False", "Found", text + "and it exists")
            else:
                texts = ("True", "NotFound", text + "but there is no such object")
            await self.condition(FLOW_SCHEMAS, schema, "Dangling", *texts)

    async def _ensure(self, resource: Resource, wanted: Document) -> None:
        """Mandatory objects always have their spec; others do while they are not changed by users."""
        name = wanted["metadata"]["name"]
        stored = self._store.peek(resource, name)
        if stored is None:
            await self.create(resource, wanted)
            return
        found = stored.document()
        metadata = found["metadata"]
        annotation = (metadata.get("annotations") or {}).get(AUTO_UPDATE)
        automatic = name in MANDATORY or annotation == "true" or (annotation is None and metadata["generation"] == 1)
        spec = wanted["spec"]
        if name == "exempt" and resource == PRIORITY_LEVELS:
            spec = {**spec, "exempt": found["spec"].get("exempt", spec["exempt"])}  # this part belongs to users
        if automatic and (found.get("spec") != spec or annotation != "true"):
            annotations = {**(metadata.get("annotations") or {}), AUTO_UPDATE: "true"}
            await self.update(resource, {**found, "metadata": {**metadata, "annotations": annotations}, "spec": spec})
