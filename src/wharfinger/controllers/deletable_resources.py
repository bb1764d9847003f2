"""All resources whose objects can be listed and deleted: those of the registry, and those of established
CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.conditions import is_true
from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS
from wharfinger.api.registry import Document, Resource
from wharfinger.controllers.context import ControllerContext

_NEEDED = {"delete", "list", "watch"}
_IGNORED = {("", "events"), ("events.k8s.io", "events")}


class DeletableResources:
    """Callbacks passed to `on_change` are called when a resource is added (True) or removed (False)."""

    def __init__(self, context: ControllerContext) -> None:
        self._known: dict[tuple[str, str], Resource] = {}
        self._on_change: list[Callable[[Resource, bool], None]] = []
        for kind in context.registry:
            if set(kind.verbs) >= _NEEDED and (kind.group, kind.plural) not in _IGNORED:
                self._known[kind.group, kind.plural] = kind.storage
        definitions = context.documents(CUSTOM_RESOURCE_DEFINITIONS)
        definitions.add_handler(self._defined, lambda old, new: self._defined(new), self._undefined)

    def all(self) -> list[Resource]:
        return list(self._known.values())

    def on_change(self, call: Callable[[Resource, bool], None]) -> None:
        self._on_change.append(call)

    def _defined(self, definition: Document) -> None:
        conditions = (definition.get("status") or {}).get("conditions") or ()
        established = is_true(conditions, "Established")
        spec = definition["spec"]
        key = (spec["group"], spec["names"]["plural"])
        served = [version["name"] for version in spec["versions"] if version.get("served")]
        known = self._known.get(key)
        if known is not None and known.version not in served:
            self._undefined(definition)
        if not established or key in self._known:
            return
        storage = next((version["name"] for version in spec["versions"] if version.get("storage")), "")
        if not served:
            return
        version = storage if storage in served else served[0]
        namespaced = spec.get("scope") == "Namespaced"
        self._known[key] = Resource(*key[:1], version, key[1], spec["names"]["kind"], namespaced)
        for call in self._on_change:
            call(self._known[key], True)

    def _undefined(self, definition: Document) -> None:
        spec = definition["spec"]
        gone = self._known.pop((spec["group"], spec["names"]["plural"]), None)
        if gone is not None:
            for call in self._on_change:
                call(gone, False)
