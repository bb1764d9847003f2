"""The ResourceQuota controller: computes `status.used` from the objects of the namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wharfinger.admission.quota import QuotaExtensions
from wharfinger.api import device_quota
from wharfinger.api import quota as rules
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
)
from wharfinger.api.quantity import canonical, parse_nano
from wharfinger.api.registry import Document, Resource
from wharfinger.api.resource_names import PLAIN, ResourceNames
from wharfinger.api.resources import Amounts
from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod, ResourceQuota, view
from wharfinger.client.informer import Index, Informer
from wharfinger.controllers.context import ControllerContext, DocumentController
from wharfinger.controllers.pod_owner import BATCH_WINDOW
from wharfinger.controllers.status_patches import patch_status
from wharfinger.system import systems

_PLAIN = {
    "services": SERVICES,
    "persistentvolumeclaims": PERSISTENT_VOLUME_CLAIMS,
    "configmaps": CONFIG_MAPS,
    "secrets": SECRETS,
    "replicationcontrollers": REPLICATION_CONTROLLERS,
    "resourcequotas": RESOURCE_QUOTAS,
}


class PodUsages:
    """What the pods of a namespace use, computed once for each state of a pod: few of them change between two counts."""

    def __init__(self) -> None:
        self._names = PLAIN
        self._known: dict[str, tuple[Pod, bool, Amounts]] = {}  # by uid: the pod, and whether it is charged

    def at(self, now: float, names: ResourceNames, pods: int) -> Callable[[Pod], Amounts]:
        """A function that returns what a pod uses at a moment, which must not be changed. `pods` is how many there are."""
        if names is not self._names or len(self._known) > 2 * pods:
            self._names, self._known = names, {}  # or most of them are gone
        known = self._known

        def usage(pod: Pod) -> Amounts:
            charged, found = rules.charged(pod, now), known.get(pod.metadata.uid)
            if found is None or found[0] is not pod or found[1] != charged:
                found = known[pod.metadata.uid] = (pod, charged, rules.pod_usage(pod, now, names))
            return found[2]

        return usage


class ResourceQuotaController(DocumentController):
    """The informer of a kind other than pods is started when a quota first counts that kind."""

    name = "resourcequota"
    workers = 2

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.quotas = self.reconciled(RESOURCE_QUOTAS)
        self.pods = context.pods
        self.pods_by_namespace = _by_namespace(self.pods)
        self._usages: dict[str, PodUsages] = {}  # by namespace
        self._counted: dict[Resource, Index[Any]] = {}
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed, while_any=self.quotas)
        found = (system.quota(context, self._extension_changed) for system in systems())
        self._extension = QuotaExtensions(each for each in found if each is not None)

    async def reconcile(self, key: ObjectKey) -> None:
        document = self.quotas.get(key[1], key[0])
        if document is None:
            return
        quota = view(document, ResourceQuota)
        used, again = await self._used(quota)
        limits = {name: canonical(quantity) for name, quantity in quota.spec.hard.items()}
        old = document.get("status") or {}
        status: Document = {"hard": limits, "used": rules.as_written(limits, used)}
        same = _equal(old.get("hard"), status["hard"]) and _equal(old.get("used"), status["used"])
        if not same:
            for part in ("hard", "used"):
                gone = {name: None for name in (old.get(part) or {}) if name not in status[part]}
                status[part] |= gone
            await patch_status(self.client, RESOURCE_QUOTAS, document, status, locked=True)
        if again is not None:
            self.queue.add_after(key, again, background=True)

    async def _used(self, quota: ResourceQuota) -> tuple[Amounts, float | None]:
        """The usage, and in how many seconds a pod that is being deleted stops counting."""
        now = self.context.now()
        namespace = quota.metadata.namespace
        pods = self.pods_by_namespace.get(namespace)
        usage = self._usages.setdefault(namespace, PodUsages()).at(now, self._extension.names(), len(pods))
        total: Amounts = {}
        again: float | None = None
        for pod in pods:
            if rules.pod_matches(quota, pod):
                rules.add(total, usage(pod))
                if pod.terminating and rules.charged(pod, now):
                    grace = pod.metadata.deletion_grace_period_seconds or 0
                    left = parse_time(pod.metadata.deletion_timestamp) + grace - now + 1
                    again = left if again is None else min(again, left)
        if rules.is_scoped(quota):
            return total, again
        rules.add(total, self._extension.held(namespace))
        for resource in self._resources(quota):
            for item in await self._objects(resource, namespace):
                rules.add(total, rules.usage(resource, item, now))
        if device_quota.may_count_claims(quota.spec.hard):
            rules.add(total, await self._devices(quota, usage))
        return total, again

    async def _devices(self, quota: ResourceQuota, of_pod: Callable[[Pod], Amounts]) -> Amounts:
        """What the ResourceClaims of a namespace are charged."""
        namespace = quota.metadata.namespace
        extended = device_quota.extended_names(await self._objects(DEVICE_CLASSES, ""))
        if not device_quota.counts_claims(quota.spec.hard, extended):
            return {}
        claims = await self._objects(RESOURCE_CLAIMS, namespace)
        owners = [device_quota.extended_claim_owner(claim) for claim in claims]
        total: Amounts = {}
        for claim, owner in zip(claims, owners):
            paid: Amounts = {}
            pod = None if owner is None else self.pods.get(owner[0], namespace)
            if pod is not None and owner is not None and pod.metadata.uid == owner[1]:
                status = pod.status.extended_resource_claim_status
                named = None if status is None else status.resource_claim_name
                others = (other for other, of in zip(claims, owners) if of == owner)
                if device_quota.is_extended_claim_of(claim, named, others):
                    paid = of_pod(pod)
            rules.add(total, device_quota.device_claim_usage(claim, extended, paid))
        return total

    def _resources(self, quota: ResourceQuota) -> Iterable[Resource]:
        """The kinds other than pods that the quota counts."""
        found: dict[Resource, None] = {}
        for name in quota.spec.hard:
            if name.startswith("count/"):
                plural, _, group = name.removeprefix("count/").partition(".")
                kind = self.context.registry.of_plural(group, plural)
                if (group, plural) == (RESOURCE_CLAIMS.group, RESOURCE_CLAIMS.plural):
                    continue  # see `_devices`
                if kind is not None and kind.namespaced and plural != "pods":
                    found[kind.storage] = None
            elif name == "requests.storage" or ".storageclass.storage.k8s.io/" in name:
                found[PERSISTENT_VOLUME_CLAIMS] = None
            elif name.partition(".")[0] in _PLAIN:
                found[_PLAIN[name.partition(".")[0]]] = None
        return found

    async def _objects(self, resource: Resource, namespace: str) -> list[Document]:
        if resource not in self._counted:
            informer = self.context.documents(resource)
            self._counted[resource] = informer.index("namespace", _document_namespace)
            informer.add_handler(self._object_changed, lambda old, new: self._object_changed(new), self._object_changed)
            informer.start()
        else:
            informer = self.context.documents(resource)
        await informer.wait_synced()
        return list(self._counted[resource].get(namespace))

    def _namespace_changed(self, namespace: str) -> None:
        for quota in self.quotas:
            if quota["metadata"].get("namespace") == namespace:
                self.queue.add_after((namespace, quota["metadata"]["name"]), BATCH_WINDOW)

    def _pod_changed(self, pod: Pod) -> None:
        self._namespace_changed(pod.metadata.namespace)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if (
            old.status.phase != new.status.phase
            or old.terminating != new.terminating
            or old.metadata.generation != new.metadata.generation
            or old.spec != new.spec
        ):
            self._pod_changed(new)

    def _extension_changed(self, namespace: str | None) -> None:
        if namespace is not None:
            self._namespace_changed(namespace)
            return
        for quota in self.quotas:
            self.enqueue(quota)

    def _object_changed(self, document: Document) -> None:
        namespace = document["metadata"].get("namespace")
        self._extension_changed(namespace or None)


def _by_namespace(pods: Informer[Pod]) -> Index[Pod]:
    return pods.index("namespace", lambda pod: (pod.metadata.namespace,))


def _document_namespace(document: Document) -> tuple[str]:
    return (document["metadata"].get("namespace") or "",)


def _equal(old: Any, new: dict[str, str]) -> bool:
    """Whether both have the same amounts, however they are written."""
    return (
        isinstance(old, dict)
        and old.keys() == new.keys()
        and all(parse_nano(old[name]) == parse_nano(new[name]) for name in new)
    )
