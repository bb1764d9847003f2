"""Removes an installation: everything that carries our label. Webhooks go first, so that no request waits for a program
that is gone; definitions go last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    VALIDATING_WEBHOOKS,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.client.interface import Client
from wharfinger.install.components import components
from wharfinger.install.manifests import MANAGED_BY

FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)
_SELECTOR = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
_ORDER = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    DEPLOYMENTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    FLOW_SCHEMAS,
)
_RBAC = {each.kind: each for each in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS)}


async def remove(client: Client, namespace: str, definitions: Collection[str]) -> AsyncIterator[str]:
    """Deletes, and yields a line for each object. Of the definitions only those that are named are deleted."""
    conversion = [name async for name in _without_conversion(client, definitions)]
    for name in conversion:
        yield f"CustomResourceDefinition {name} converts no more"
    for resource in _ORDER:
        for document in (await client.list(resource, label_selector=_SELECTOR)).items:
            yield await _delete(client, resource, document)
    for component in components().values():
        if any(f"{plural}.{group}" in definitions for group, plural in component.kinds):
            for document in sorted(component.objects, key=lambda each: bool(each["kind"] == CLUSTER_ROLES.kind)):
                yield await _delete(client, _RBAC[document["kind"]], document)
    for name in definitions:
        yield await _delete(client, CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": name}})
    try:
        found = await client.get(NAMESPACES, namespace)
    except NotFound:
        return
    if MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items():
        yield await _delete(client, NAMESPACES, found)


async def _without_conversion(client: Client, leaving: Collection[str]) -> AsyncIterator[str]:
    """Definitions that stay must not refer to a webhook that goes: their objects would become unreadable."""
    for document in (await client.list(CUSTOM_RESOURCE_DEFINITIONS)).items:
        name = str(document["metadata"]["name"])
        conversion = document["spec"].get("conversion") or {}
        service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service") or {}
        if name not in leaving and service.get("name") == "wharfinger-webhook":
            change: Document = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, change)
            yield name


async def _delete(client: Client, resource: Resource, document: Document) -> str:
    metadata = document["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    where = f"{namespace}/{name}" if namespace else name
    try:
        await client.delete(resource, name, namespace, propagation="Background")
    except NotFound:
        return f"{resource.kind} {where} was gone already"
    return f"{resource.kind} {where} deleted"
