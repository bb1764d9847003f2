"""Applies manifests like `kubectl apply`: creates missing objects and merges into existing ones. A status is written
to the status subresource."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from wharfinger.api.conditions import is_true
from wharfinger.api.errors import BadRequest, NotFound
from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS, PODS
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.requests import PatchType
from wharfinger.api.views import strip_nulls
from wharfinger.client.interface import Client

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# In a simulation no time passes while other tasks run; a real server needs some.
_ESTABLISHING = (*[0.0] * 20, *[0.25] * 20)
# Fields of a snapshot that the server owns; they are not part of what a client wants.
_POSTED = {("v1", "Binding"): "binding", ("policy/v1", "Eviction"): "eviction"}  # to subresources of pods
_SERVER_OWNED = ("resourceVersion", "managedFields", "selfLink", "generation", "deletionTimestamp")


def resource_for(document: Document, registry: Registry) -> Resource:
    """The resource of a manifest. Raises BadRequest if the kind is not served."""
    resource = registry.resource_of(document)
    if resource is None:
        api_version, kind = document.get("apiVersion"), document.get("kind")
        raise BadRequest(f'no matches for kind "{kind}" in version "{api_version}"')
    return resource


def namespace_of(document: Document, resource: Resource) -> str:
    if not resource.namespaced:
        return ""
    return str((document.get("metadata") or {}).get("namespace") or "default")


async def apply(client: Client, document: Document, registry: Registry) -> Document:
    """Creates or updates the object, then writes its status if it has one. A Binding or an Eviction is sent as it is."""
    if subresource := _POSTED.get((str(document.get("apiVersion")), str(document.get("kind")))):
        metadata = document.get("metadata") or {}
        namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
        return await client.create(PODS, document, namespace, name=name, subresource=subresource)
    resource = resource_for(document, registry)
    namespace = namespace_of(document, resource)
    wanted = _cleaned(document)
    status = wanted.pop("status", None) if registry.of_resource(resource).status else None
    name = str(wanted["metadata"].get("name") or "")
    current = await _get(client, resource, name, namespace) if name else None
    if current is None:
        written = await client.create(resource, wanted, namespace)
        name = written["metadata"]["name"]
        status = strip_nulls(status)  # nothing could be removed
    else:
        if wanted["metadata"].get("creationTimestamp"):
            # An object of a snapshot that every cluster has, such as the namespace `default`: treated as the same,
            # although another server created it.
            for key in ("uid", "creationTimestamp"):
                wanted["metadata"].pop(key, None)
        patch = three_way(_last_applied(current), wanted, current)
        written = await client.patch(resource, name, patch, namespace) if patch else current
    if status:
        written = await client.patch(
            resource, name, {"status": status}, namespace, type=PatchType.MERGE, subresource="status"
        )
    if resource == CUSTOM_RESOURCE_DEFINITIONS:
        await _established(client, name)
    return written


async def _established(client: Client, name: str) -> None:
    """Waits until the kind of a CustomResourceDefinition is served, with a limit: the next objects may be of that
    kind."""
    for delay in _ESTABLISHING:
        await asyncio.sleep(delay)
        definition = await _get(client, CUSTOM_RESOURCE_DEFINITIONS, name, "")
        conditions = ((definition or {}).get("status") or {}).get("conditions") or ()
        if definition is None or is_true(conditions, "Established"):
            return


async def patch(
    client: Client,
    resource: Resource,
    name: str,
    namespace: str,
    merge: Document,
    registry: Registry,
    *,
    subresource: str = "",
) -> None:
    """A merge patch of a subresource, or of the object; then its `status` part goes to the status subresource."""
    if subresource:
        await client.patch(resource, name, merge, namespace, subresource=subresource)
        return
    merge = dict(merge)
    status = merge.pop("status", None) if registry.of_resource(resource).status else None
    if merge:
        await client.patch(resource, name, merge, namespace)
    if status is not None:
        await client.patch(resource, name, {"status": status}, namespace, subresource="status")


async def _get(client: Client, resource: Resource, name: str, namespace: str) -> Document | None:
    try:
        return await client.get(resource, name, namespace)
    except NotFound:
        return None


def _cleaned(document: Document) -> Document:
    """A copy without the server's own fields, with the annotation of what was last applied."""
    metadata = dict(document.get("metadata") or {})
    for key in _SERVER_OWNED:
        metadata.pop(key, None)
    cleaned = {**document, "metadata": metadata}
    if metadata.get("creationTimestamp"):
        # From a server: it has the annotation if it was applied there.
        return cleaned
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(LAST_APPLIED, None)
    plain = {key: value for key, value in cleaned.items() if key != "status"}
    if "metadata" in plain and annotations != (metadata.get("annotations") or {}):
        plain["metadata"] = {**metadata, "annotations": annotations}
    applied = msgspec.json.encode(plain, order="deterministic").decode()
    metadata["annotations"] = {**annotations, LAST_APPLIED: applied}
    return cleaned


def _last_applied(current: Document) -> Document:
    text = ((current.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return {}
    try:
        decoded = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def three_way(original: Document, modified: Document, current: Document) -> Document:
    """The merge patch that sets what is wanted and removes what was applied before and is no longer wanted."""
    patch: dict[str, Any] = {}
    for key, value in modified.items():
        present = current.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            before = original.get(key)
            inner = three_way(before if isinstance(before, dict) else {}, value, present)
            if inner:
                patch[key] = inner
        elif value != present:
            patch[key] = value
    for key in original:
        if key not in modified and key in current:
            patch[key] = None
    return patch
