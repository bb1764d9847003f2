"""Loads a snapshot into a simulated cluster as it is, before any component runs.

An object that a server stored (it has a uid) is restored with its status, its deletion timestamp and all records.
Whatever people wrote themselves is applied afterwards, as with `kubectl apply`.
"""

from __future__ import annotations

from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from wharfinger.api.manifests import Manifest
from wharfinger.api.pod_texts import PodText
from wharfinger.api.registry import Document
from wharfinger.scenario import applying, runner
from wharfinger.simulate.cluster import SimulatedCluster

_NEEDED = (NAMESPACES.kind, PRIORITY_CLASSES.kind)


async def restore(world: SimulatedCluster, manifests: list[Manifest], results: runner.Results) -> list[Manifest]:
    """Restores the objects of a snapshot and returns the other manifests. Objects that cannot be restored are recorded
    as refused."""
    rest: list[Manifest] = []
    definitions: list[Manifest] = []
    stored: list[Manifest] = []
    for manifest in manifests:
        if isinstance(manifest.content, PodText):
            stored.append(manifest)
        elif not from_server(manifest.content):
            rest.append(manifest)
        elif manifest.content.get("kind") == CUSTOM_RESOURCE_DEFINITIONS.kind:
            definitions.append(manifest)
        else:
            stored.append(manifest)
    client = world.client("", lambda warning: None)
    for manifest in definitions:
        # Applied, so that the kinds are served before their objects come.
        results.rejections += await runner.request(
            manifest.document, "", applying.apply(client, manifest.document, world.registry)
        )
    manifests.clear()  # each is released when it has been stored
    if stored:
        # The nodes of pods that run, so that no component sees these pods without their nodes.
        for manifest in [each for each in rest if each.document.get("kind") == NODES.kind]:
            rest.remove(manifest)
            results.rejections += await runner.request(
                manifest.document, "", applying.apply(client, manifest.document, world.registry)
            )
    # Those that other objects need come first, or they would be created for them.
    stored.sort(key=_order)
    stored.reverse()
    while stored:
        manifest = stored.pop()
        again = await _restore(world, manifest, results)
        if again is not None:
            rest.append(again)
    return rest


def _order(manifest: Manifest) -> bool:
    return isinstance(manifest.content, PodText) or manifest.content.get("kind") not in _NEEDED


def from_server(document: Document) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("uid"))


async def _restore(world: SimulatedCluster, manifest: Manifest, results: runner.Results) -> Manifest | None:
    """Returns the manifest if an earlier one in the input has the same name: then it is a change to that object."""
    text = manifest.content if isinstance(manifest.content, PodText) else None
    if text is not None:
        if world.store.peek(PODS, text.name, text.front.namespace) is not None:
            return manifest
        if world.store.restore_like_others(text):
            return None
    document = manifest.document
    resource = world.registry.resource_of(document)
    if resource is None or resource.group_plural == EVENTS.group_plural or _is_gone(document):
        return None
    namespace = applying.namespace_of(document, resource)
    name = str(document["metadata"].get("name") or "")
    if world.store.peek(resource, name, namespace) is not None and not world.is_initial(resource, namespace, name):
        return manifest
    if resource.namespaced:
        await world.ensure_namespace(namespace)
    if resource == PODS:
        await world.ensure_priority_class(document)
    results.rejections += await runner.request(document, "", world.store.restore(resource, document, text))
    return None


def _is_gone(document: Document) -> bool:
    """Whether nothing holds back the deletion of an object that is being deleted. Pods wait for their kubelets."""
    metadata = document["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers") or document.get("kind") == "Pod":
        return False
    return not (document.get("kind") == "Namespace" and (document.get("spec") or {}).get("finalizers"))
