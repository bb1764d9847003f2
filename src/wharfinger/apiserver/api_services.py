"""Keeps an APIService for each version of each group that is served, and says of all APIServices whether they are available.

Other API servers cannot be reached through this one: there is no cluster network to reach them in.
"""

from __future__ import annotations

from wharfinger.api.kinds.builtin import API_SERVICES
from wharfinger.api.registry import Document
from wharfinger.apiserver.discovery import Discovery
from wharfinger.apiserver.kept_objects import KeptObjects
from wharfinger.store.store import Store

VERSION = "apiregistration.k8s.io/v1"
_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_CUSTOM = (1000, 100)  # priorities of a group and a version
_GROUPS = {  # kube-apiserver's priorities
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
}
_VERSIONS = {
    ("", "v1"): 1,
    ("autoscaling", "v2"): 30,
    ("resource.k8s.io", "v1"): 21,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
}
_NOT_SERVED = ("apiregistration.k8s.io",)  # the aggregator itself has no APIService


class ApiServices(KeptObjects):
    manager = "kube-aggregator"
    watched = (API_SERVICES,)

    def __init__(self, store: Store, discovery: Discovery) -> None:
        super().__init__(store)
        self._discovery = discovery

    async def keep(self) -> None:
        wanted = {one["metadata"]["name"]: one for one in self._local()}
        for name, document in wanted.items():
            stored = self._store.peek(API_SERVICES, name)
            if stored is None:
                await self.create(API_SERVICES, document)
            elif (found := stored.document())["spec"] != document["spec"] and _MANAGED in _labels(found):
                await self.update(API_SERVICES, {**found, "spec": document["spec"]})
        for stored in list(self._store.scan(API_SERVICES)):
            found = stored.document()
            if stored.name not in wanted and _MANAGED in _labels(found):
                await self._store.delete(API_SERVICES, stored.name)
            elif (found.get("spec") or {}).get("service") is None:
                texts = ("True", "Local", "Local APIServices are always available")
                await self.condition(API_SERVICES, found, "Available", *texts)
            else:
                text = "there is no cluster network in which this server could reach other API servers"
                await self.condition(API_SERVICES, found, "Available", "False", "FailedDiscoveryCheck", text)

    def _local(self) -> list[Document]:
        versions = [("", "v1")]
        versions += [(group, version) for group, served in self._discovery.groups().items() for version in served]
        return [self._service(group, version) for group, version in versions if group not in _NOT_SERVED]

    def _service(self, group: str, version: str) -> Document:
        builtin = group in _GROUPS
        group_priority, version_priority = _CUSTOM
        if builtin:
            group_priority, version_priority = _GROUPS[group], _VERSIONS.get((group, version), 15)
        spec: Document = {
            "version": version,
            "groupPriorityMinimum": group_priority,
            "versionPriority": version_priority,
        }
        return {
            "apiVersion": VERSION,
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}", "labels": {_MANAGED: "onstart" if builtin else "true"}},
            "spec": {**spec, "group": group} if group else spec,
        }


def _labels(document: Document) -> Document:
    found: Document = document["metadata"].get("labels") or {}
    return found
