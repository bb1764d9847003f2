"""Keeps a DeviceClass for every ResourceClass that names a DRA driver.

The DeviceClass serves the alias of the class as an extended resource, so that a stock scheduler and a stock kubelet honour
it. One of the same name that somebody else made is left alone.
"""

from __future__ import annotations

from wharfinger.api.errors import AlreadyExists, Invalid, NotFound
from wharfinger.api.kinds.builtin import DEVICE_CLASSES
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.registry import Document
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.devices.classes import GROUP_BY, GROUP_SIZE, GROUPED_RESOURCE
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.rules.device_selectors import (
    NotExpressible,
    device_attribute,
    device_expression,
)


class DeviceClassKeeper(ContextController[str]):
    """Keys are names of ResourceClasses, which are those of their DeviceClasses, too."""

    name = "resourceclass-devices"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._classes = context.informers.of(RESOURCE_CLASSES, ResourceClass)
        self._kept = context.documents(DEVICE_CLASSES)
        self._classes.add_handler(
            lambda new: self.queue.add(new.name),
            lambda old, new: self.queue.add(new.name),
            lambda old: self.queue.add(old.name),
        )
        self._kept.add_handler(self._changed, lambda old, new: self._changed(new), self._changed)

    def _changed(self, document: Document) -> None:
        self.queue.add(document["metadata"]["name"])

    async def reconcile(self, key: str) -> None:
        owner, found = self._classes.get(key), self._kept.get(key)
        if owner is None or not owner.spec.driver:
            # Garbage collection deletes it with its owner; a class that no longer names a driver has none.
            if owner is not None and found is not None and _is_kept(found, owner):
                await self._delete(found)
            return
        try:
            wanted = device_class(owner)
        except NotExpressible as fault:
            self._warn(owner, "NotExpressible", f"no DeviceClass is kept: {fault}")
            return
        if found is None:
            await self._create(owner, wanted)
        elif not _is_kept(found, owner):
            self._warn(owner, "DeviceClassExists", f"DeviceClass {key} exists and is not ours; it is left as it is")
        elif found.get("spec") != wanted["spec"] or _grouping(found) != _grouping(wanted):
            metadata = {"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]}
            gone = {name: None for name in found.get("spec") or {} if name not in wanted["spec"]}
            patch = {
                "metadata": {**metadata, "annotations": _grouping(wanted)},
                "spec": {**gone, **wanted["spec"]},
            }
            await self.client.patch(DEVICE_CLASSES, key, patch)

    async def _create(self, owner: ResourceClass, wanted: Document) -> None:
        try:
            await self.client.create(DEVICE_CLASSES, wanted)
        except AlreadyExists:
            return  # the informer lacks it
        except Invalid as error:
            self._warn(owner, "DeviceClassRefused", error.message)

    async def _delete(self, found: Document) -> None:
        try:
            await self.client.delete(DEVICE_CLASSES, found["metadata"]["name"], uid=found["metadata"]["uid"])
        except NotFound:
            return

    def _warn(self, owner: ResourceClass, reason: str, text: str) -> None:
        self.context.recorder.event(RESOURCE_CLASSES, owner, "Warning", reason, text)


def device_class(owner: ResourceClass) -> Document:
    """The DeviceClass of a ResourceClass. Raises NotExpressible."""
    expression = device_expression(owner.spec.driver, owner.spec.selectors)
    metadata: Document = {
        "name": owner.name,
        "ownerReferences": [controller_reference(RESOURCE_CLASSES, owner.metadata)],
    }
    spec: Document = {"selectors": [{"cel": {"expression": expression}}]}
    if owner.group_size > 1:
        # A stock scheduler would give single devices for the alias, so that only ours is to serve it.
        metadata["annotations"] = {
            GROUPED_RESOURCE: owner.alias,
            GROUP_BY: device_attribute(owner.spec.driver, owner.spec.group_by),
            GROUP_SIZE: str(owner.group_size),
        }
    else:
        spec["extendedResourceName"] = owner.alias
    return {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": DEVICE_CLASSES.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _grouping(document: Document) -> dict[str, str | None]:
    annotations = document["metadata"].get("annotations") or {}
    return {name: annotations.get(name) for name in (GROUPED_RESOURCE, GROUP_BY, GROUP_SIZE)}


def _is_kept(document: Document, owner: ResourceClass) -> bool:
    owners = document["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each.get("uid") == owner.metadata.uid for each in owners)
