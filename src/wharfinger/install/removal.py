"""Removes an installation: everything that carries our label, what our programs created, and what they wrote on objects
of others. Webhooks go first, so that no request waits for a program that is gone; definitions go last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator

from wharfinger.api.errors import Conflict, NotFound
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    FLOW_SCHEMAS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import object_name
from wharfinger.client.interface import Client
from wharfinger.contributions import InstallTrace
from wharfinger.install.access import LEASE_NAMESPACE, lease_of
from wharfinger.install.cluster import list_all
from wharfinger.install.components import components
from wharfinger.install.options import CLUSTER_NAMESPACES, MANAGED_BY, full_name, known_processes

_NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
_CERTIFICATES = Resource("cert-manager.io", "v1", "certificates", "Certificate")
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
    SERVICES,
    POD_DISRUPTION_BUDGETS,
    _NETWORK_POLICIES,
    _CERTIFICATES,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
)
_RBAC = {each.kind: each for each in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS)}


async def remove(client: Client, namespace: str, definitions: Collection[str]) -> AsyncIterator[str]:
    """Deletes, and yields a line for each object. Of the definitions only those that are named are deleted."""
    async for line in _without_conversion(client, definitions):
        yield line
    # A webhook that still runs may register itself again until it has lost its rights.
    for resource in (*_ORDER, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for document in await list_all(client, resource, _SELECTOR):
            yield await _delete(client, resource, document)
    async for line in _without_conversion(client, definitions):
        yield line
    for resource, document in _left_by_programs(namespace):
        if await _exists(client, resource, document):
            yield await _delete(client, resource, document)
    for trace in (each for component in components().values() for each in component.traces):
        async for line in _take_back(client, trace):
            yield line
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
    if namespace not in CLUSTER_NAMESPACES and MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items():
        yield await _delete(client, NAMESPACES, found)


def _left_by_programs(namespace: str) -> Iterator[tuple[Resource, Document]]:
    """What our programs create without a label: the webhook's certificates, and leases."""
    yield SECRETS, {"metadata": {"name": full_name("webhook"), "namespace": namespace}}
    for process in known_processes():
        if lease := lease_of(process):
            yield LEASES, {"metadata": {"name": lease, "namespace": LEASE_NAMESPACE}}


async def _take_back(client: Client, trace: InstallTrace) -> AsyncIterator[str]:
    for document in await list_all(client, trace.resource):
        change, metadata = trace.undo(document), document["metadata"]
        if change is None:
            continue
        identity = {**change.get("metadata", {}), "uid": metadata["uid"]}
        try:
            await client.patch(
                trace.resource, metadata["name"], {**change, "metadata": identity}, metadata.get("namespace", "")
            )
        except (NotFound, Conflict):  # it is gone, perhaps with another one in its place
            continue
        yield f"{trace.resource.kind} {object_name(document)} {trace.done}"


async def _exists(client: Client, resource: Resource, document: Document) -> bool:
    metadata = document["metadata"]
    try:
        await client.get(resource, metadata["name"], metadata.get("namespace", ""))
    except NotFound:
        return False
    return True


async def _without_conversion(client: Client, leaving: Collection[str]) -> AsyncIterator[str]:
    """Definitions that stay must not refer to a webhook that goes: their objects would become unreadable. Yields a line
    for each that did."""
    for document in (await client.list(CUSTOM_RESOURCE_DEFINITIONS)).items:
        name = str(document["metadata"]["name"])
        conversion = document["spec"].get("conversion") or {}
        service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service") or {}
        if name not in leaving and service.get("name") == "wharfinger-webhook":
            change: Document = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, change)
            yield f"CustomResourceDefinition {name} converts no more"


async def _delete(client: Client, resource: Resource, document: Document) -> str:
    metadata = document["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    where = f"{namespace}/{name}" if namespace else name
    try:
        await client.delete(resource, name, namespace, propagation="Background")
    except NotFound:
        return f"{resource.kind} {where} was gone already"
    return f"{resource.kind} {where} deleted"
