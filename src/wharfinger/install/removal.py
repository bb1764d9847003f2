"""Takes an installation out: everything that carries our label, webhooks first, so that nobody waits for a webhook that
is gone, and definitions last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from wharfinger.api.errors import NotFound
from wharfinger.api.groups import SIGS
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
from wharfinger.install.manifests import MANAGED_BY
from wharfinger.systems.scheduling_policy.rules import shipped

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


async def remove(client: Client, namespace: str, definitions: Iterable[str]) -> AsyncIterator[str]:
    """Deletes, and says of each object that it did. Definitions go only where they are named."""
    conversion = [name async for name in _without_conversion(client, definitions)]
    for name in conversion:
        yield f"CustomResourceDefinition {name} converts no more"
    for resource in _ORDER:
        for document in (await client.list(resource, label_selector=_SELECTOR)).items:
            yield await _delete(client, resource, document)
    for wanted in [*shipped.bindings(), *shipped.roles()]:
        resource = {"ClusterRole": CLUSTER_ROLES, "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS}.get(
            wanted["kind"], ROLE_BINDINGS
        )
        if f"schedulingpolicies.{SIGS}" in definitions:
            yield await _delete(client, resource, wanted)
    for name in definitions:
        yield await _delete(client, CUSTOM_RESOURCE_DEFINITIONS, {"metadata": {"name": name}})
    try:
        found = await client.get(NAMESPACES, namespace)
    except NotFound:
        return
    if MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items():
        yield await _delete(client, NAMESPACES, found)


async def _without_conversion(client: Client, leaving: Iterable[str]) -> AsyncIterator[str]:
    """Definitions that stay must not ask a webhook that goes: their versions would become unreadable."""
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
