"""Objects that every cluster has: system namespaces, priority classes, roles and role bindings."""

from __future__ import annotations

import contextlib

import msgspec

from wharfinger.admission.priority import system_classes
from wharfinger.api.configuration import PUBLISHED_KEY, PUBLISHED_NAME, Configuration
from wharfinger.api.errors import AlreadyExists, Conflict, NotFound
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, NAMESPACES, PRIORITY_CLASSES
from wharfinger.api.registry import Document, Resource
from wharfinger.apiserver.default_roles import cluster_role_bindings, cluster_roles, reconciled
from wharfinger.store.store import Store

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_MANAGER = "wharfinger-bootstrap"


async def bootstrap(store: Store) -> None:
    """Creates missing objects, and restores permissions that default roles have lost."""
    for name in _NAMESPACES:
        await _ensure(store, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for document in system_classes():
        await _ensure(store, PRIORITY_CLASSES, document)
    for document in cluster_roles():
        await _reconcile(store, CLUSTER_ROLES, document)
    for document in cluster_role_bindings():
        await _reconcile(store, CLUSTER_ROLE_BINDINGS, document)


async def publish_configuration(store: Store, configuration: Configuration) -> None:
    """Tells clients such as `wharf policy check` the configuration that this server runs with, unless it is the default."""
    namespace, name = "kube-system", PUBLISHED_NAME
    with contextlib.suppress(NotFound):
        await store.delete(CONFIG_MAPS, name, namespace)
    if configuration != Configuration():
        data = {PUBLISHED_KEY: msgspec.yaml.encode(configuration.document()).decode()}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await store.create(CONFIG_MAPS, document, namespace, field_manager=_MANAGER)


async def _ensure(store: Store, resource: Resource, document: Document) -> None:
    if store.peek(resource, document["metadata"]["name"]) is None:
        with contextlib.suppress(AlreadyExists):
            await store.create(resource, document, field_manager=_MANAGER)


async def _reconcile(store: Store, resource: Resource, wanted: Document) -> None:
    name = wanted["metadata"]["name"]
    found = store.peek(resource, name)
    if found is None:
        await _ensure(store, resource, wanted)
        return
    merged = reconciled(wanted, found.document())
    if merged is not None:
        with contextlib.suppress(Conflict, NotFound):  # changed at the same moment; the next start reconciles it again
            await store.update(resource, merged, name=name, field_manager=_MANAGER)
