"""Keeps the EndpointSlices and the Endpoints of Services that select pods."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from wharfinger.api.errors import ApiError, NotFound, is_terminating_namespace
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from wharfinger.api.object_meta import object_key
from wharfinger.api.registry import Document
from wharfinger.api.views import Node, Pod
from wharfinger.client.informer import Index
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.endpoints import pods as published
from wharfinger.controllers.endpoints import slices, subsets
from wharfinger.controllers.endpoints.informed import WrittenVersions
from wharfinger.controllers.endpoints.slice_writes import carry_out
from wharfinger.controllers.endpoints.trigger_times import TriggerTimes

LEADER = "control-plane.alpha.kubernetes.io/leader"
_ENDPOINTS_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_MANAGER = "endpoint-controller"
STALE_RETRY = 1.0  # seconds; the event that the informer has not shown yet comes sooner


class ServiceController(ContextController[ObjectKey]):
    """Reconciles Services by their pods. Pods cost nothing while no Service selects any."""

    workers = 5

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._services = context.documents(SERVICES)
        self._pods = context.pods
        self._nodes = context.nodes
        self._selecting: dict[str, dict[str, dict[str, str]]] = {}  # selectors by namespace and name of the Service
        self._times = TriggerTimes()
        self._by_namespace: Index[Pod] | None = None  # made when the first Service needs it
        self._services.add_handler(self._service_seen, lambda old, new: self._service_seen(new), self._service_gone)
        self._pods.add_handler(self._pod_seen, self._pod_changed, self._pod_seen, while_any=self._services)

    def _service_seen(self, service: Document) -> None:
        metadata = service["metadata"]
        wanted = published.selector(service)
        known = self._selecting.setdefault(metadata["namespace"], {})
        if wanted is None:
            known.pop(metadata["name"], None)
        else:
            known[metadata["name"]] = wanted
        if not known:
            del self._selecting[metadata["namespace"]]
        self.queue.add((metadata["namespace"], metadata["name"]))

    def _service_gone(self, service: Document) -> None:
        metadata = service["metadata"]
        known = self._selecting.get(metadata["namespace"], {})
        known.pop(metadata["name"], None)
        if not known:
            self._selecting.pop(metadata["namespace"], None)
        self.queue.add((metadata["namespace"], metadata["name"]))

    def _pod_seen(self, pod: Pod) -> None:
        if self._selecting:
            self._enqueue_services(pod)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if not self._selecting:
            return
        moved = old.metadata.labels != new.metadata.labels
        if moved or _endpoint_state(old) != _endpoint_state(new):
            self._enqueue_services(new)
            if moved:
                self._enqueue_services(old)

    def _enqueue_services(self, pod: Pod) -> None:
        for name, wanted in self._selecting.get(pod.metadata.namespace, {}).items():
            if published.selects(wanted, pod.metadata.labels):
                self.queue.add((pod.metadata.namespace, name))

    def _selected(self, service: Document, wanted: dict[str, str]) -> list[Pod]:
        if self._by_namespace is None:
            self._by_namespace = self._pods.index("namespace", lambda pod: (pod.metadata.namespace,))
        found = self._by_namespace.get(service["metadata"]["namespace"])
        return sorted(
            (pod for pod in found if published.selects(wanted, pod.metadata.labels)), key=lambda pod: pod.metadata.name
        )

    async def reconcile(self, key: ObjectKey) -> None:
        service = self._services.get(key[1], key[0])
        if service is None:
            self._times.forget(key)
            await self._clean_up(key)
            return
        wanted = published.selector(service)
        if wanted is not None:
            await self._publish(key, service, self._selected(service, wanted))

    @abstractmethod
    async def _publish(self, key: ObjectKey, service: Document, pods: list[Pod]) -> None: ...

    @abstractmethod
    async def _clean_up(self, key: ObjectKey) -> None: ...


def _endpoint_state(pod: Pod) -> tuple[object, ...]:
    """What endpoints show of a pod."""
    status = pod.status
    return pod.ready, pod.terminating, pod.terminal, status.pod_ip, status.pod_ips, pod.spec.node_name


class EndpointSliceController(ServiceController):
    name = "endpointslice"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._slices = context.documents(ENDPOINT_SLICES)
        self._written = WrittenVersions(self._slices)
        self._by_service = self._slices.index("service", service_of)
        self._slices.add_handler(self._slice_seen, self._slice_changed, self._slice_seen)
        self._nodes.add_handler(self._node_seen, self._node_changed)

    async def _publish(self, key: ObjectKey, service: Document, pods: list[Pod]) -> None:
        if not self._written.seen(key):
            self.queue.add_after(key, STALE_RETRY)
            return
        existing = [each for each in self._by_service.get(key) if _managed(each)]
        triggered = self._times.changed(key, service, pods)
        made = slices.SlicePlan()
        types = published.address_types(service)
        for address_type in types:
            wanted, homeless = self._wanted(service, pods, address_type)
            same_type = [each for each in existing if each["addressType"] == address_type]
            made.extend(slices.plan(service, wanted, same_type, address_type))
            if homeless:
                self.queue.add_after(key, STALE_RETRY, background=True)
        made.delete += [each for each in existing if each["addressType"] not in types]
        for each in (*made.create, *made.update):
            slices.set_trigger_time(each, triggered)
        await carry_out(self.client, self._written, key, service, made)

    def _wanted(
        self, service: Document, pods: Iterable[Pod], address_type: str
    ) -> tuple[dict[slices.PortKey, slices.WantedSlices], bool]:
        """The wanted endpoints by their ports, and whether pods were left out because their node is not known."""
        wanted: dict[slices.PortKey, slices.WantedSlices] = {}
        homeless = False
        for pod in pods:
            if not published.is_published(pod, terminating=True):
                continue
            ports = published.ports(service, pod)
            group = wanted.setdefault(slices.port_key(ports), slices.WantedSlices(ports))
            node = self._nodes.get(pod.spec.node_name)
            if node is None and not service["spec"].get("publishNotReadyAddresses"):
                homeless = True
                continue
            endpoint = published.endpoint(service, pod, node, address_type)
            if endpoint["addresses"]:
                group.endpoints[slices.endpoint_key(endpoint)] = endpoint
        return wanted, homeless

    async def _clean_up(self, key: ObjectKey) -> None:
        return  # the slices have the Service as their owner

    def _slice_seen(self, document: Document) -> None:
        if _managed(document):
            self._enqueue_service(document)

    def _slice_changed(self, old: Document, new: Document) -> None:
        if _managed(old) or _managed(new):
            self._enqueue_service(old)
            self._enqueue_service(new)

    def _enqueue_service(self, document: Document) -> None:
        for key in service_of(document):
            self.queue.add(key)

    def _node_seen(self, node: Node) -> None:
        """Pods whose node was not known are published when it appears."""
        if self._selecting and self._by_namespace is not None:
            for pod in self._pods:
                if pod.spec.node_name == node.metadata.name:
                    self._enqueue_services(pod)

    def _node_changed(self, old: Node, new: Node) -> None:
        if old.metadata.labels.get(published.ZONE) != new.metadata.labels.get(published.ZONE):
            self._node_seen(new)


def _managed(document: Document) -> bool:
    return (document["metadata"].get("labels") or {}).get(slices.MANAGED_BY) == slices.MANAGER


def service_of(document: Document) -> tuple[ObjectKey, ...]:
    metadata = document["metadata"]
    name = (metadata.get("labels") or {}).get(slices.SERVICE_NAME)
    return ((metadata["namespace"], name),) if name else ()


class EndpointsController(ServiceController):
    name = "endpoint"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._endpoints = context.documents(ENDPOINTS)
        self._written = WrittenVersions(self._endpoints)
        self._endpoints.add_handler(on_delete=lambda document: self.queue.add(object_key(document)))

    async def prepare(self) -> None:
        """Endpoints whose Service was deleted while nobody watched are deleted too."""
        for document in self._endpoints:
            if LEADER not in (document["metadata"].get("annotations") or {}):
                self.queue.add(object_key(document))

    async def _publish(self, key: ObjectKey, service: Document, pods: list[Pod]) -> None:
        if not self._written.seen(key):
            self.queue.add_after(key, STALE_RETRY)
            return
        current = self._endpoints.get(key[1], key[0])
        triggered = self._times.changed(key, service, pods)
        found, over_capacity = subsets.truncated(subsets.subsets(service, pods))
        labels = dict(service["metadata"].get("labels") or {})
        labels[_ENDPOINTS_MANAGED_BY] = _ENDPOINTS_MANAGER
        if published.has_cluster_ip(service):
            labels.pop(published.HEADLESS, None)
        else:
            labels[published.HEADLESS] = ""
        metadata: Document = {"name": key[1], "namespace": key[0]} if current is None else dict(current["metadata"])
        annotations = {
            name: value
            for name, value in (metadata.get("annotations") or {}).items()
            if name not in (slices.TRIGGER_TIME, subsets.OVER_CAPACITY)
        }
        if over_capacity:
            annotations[subsets.OVER_CAPACITY] = "truncated"
        if current is not None and self._is_current(current, found, labels, over_capacity):
            return
        if triggered:
            annotations[slices.TRIGGER_TIME] = triggered
        metadata |= {"labels": labels, "annotations": annotations}
        document: Document = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
        if found:
            document["subsets"] = found
        try:
            if current is None:
                written = await self.client.create(ENDPOINTS, document, key[0])
            else:
                written = await self.client.update(ENDPOINTS, document, key[0], name=key[1])
        except ApiError as error:
            if is_terminating_namespace(error):
                return
            raise
        self._written.wrote(key, written)

    def _is_current(
        self, current: Document, found: list[Document], labels: dict[str, str], over_capacity: bool
    ) -> bool:
        annotated = subsets.OVER_CAPACITY in (current["metadata"].get("annotations") or {})
        return (
            subsets.comparable(current.get("subsets") or ()) == subsets.comparable(found)
            and (current["metadata"].get("labels") or {}) == labels
            and annotated == over_capacity
        )

    async def _clean_up(self, key: ObjectKey) -> None:
        try:
            await self.client.delete(ENDPOINTS, key[1], key[0])
        except NotFound:
            return
