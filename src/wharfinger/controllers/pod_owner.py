"""The base of controllers that own pods: their informer of owners, their events, and which owner a pod concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wharfinger.api.errors import ApiError, Forbidden, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import BadSelector, LabelSelector, Requirements, matches
from wharfinger.api.views import ObjectMeta, Pod, view
from wharfinger.client.controller import Controller
from wharfinger.client.events import EventKind
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.expectations import Expectations
from wharfinger.controllers.ownership import ORPHANS, owner_index

SOON = 0.01
"""Seconds that changes of pods are gathered before their owner looks at all of them: a look costs as much as there are
pods, and changes come in bursts."""


def compiled(selector: LabelSelector | None) -> Requirements | None:
    """The selector's requirements; None where it selects nothing: absent, empty or faulty, as controllers read it."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return None
    try:
        return selector.compile()
    except BadSelector:
        return None


def selector_of(document: Document) -> Requirements | None:
    """The compiled `spec.selector` of a workload, in either of its forms."""
    spec = (document.get("spec") or {}).get("selector")
    if not spec:
        return None
    if not ("matchLabels" in spec or "matchExpressions" in spec):
        spec = {"matchLabels": spec}  # ReplicationController: a plain map
    return compiled(view(spec, LabelSelector))


def is_terminating_namespace(error: ApiError) -> bool:
    """Whether a creation was refused because the namespace ends; trying again is of no use then."""
    causes = error.details.get("causes") or ()
    return isinstance(error, Forbidden) and any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


class PodOwner(Controller[ObjectKey]):
    """Watches its own kind and pods. Pods are found by their controller's uid, orphans by namespace."""

    resource: Resource
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(observer=context.observer)
        self.context = context
        self.client = context.client
        self.owners = context.documents(self.resource)
        self.pods = context.informers.of(PODS, Pod)
        self.pods_by_owner = owner_index(self.pods)
        self.expectations = Expectations()
        self.owners.add_handler(self.enqueue, lambda old, new: self.enqueue(new), self.enqueue)
        self.pods.add_handler(self._pod_added, self._pod_updated, self._pod_deleted)

    def enqueue(self, document: Document) -> None:
        metadata = document["metadata"]
        self.queue.add((metadata.get("namespace") or "", metadata["name"]))

    def enqueue_soon(self, document: Document) -> None:
        self.queue.add_after(_key(document), SOON)

    def owner_of(self, metadata: ObjectMeta) -> Document | None:
        """The object of our kind that controls, checked by uid."""
        reference = metadata.controller
        if reference is None or reference.kind != self.resource.kind:
            return None
        owner = self.owners.get(reference.name, metadata.namespace)
        return owner if owner is not None and owner["metadata"]["uid"] == reference.uid else None

    def owners_matching(self, pod: Pod) -> Iterable[Document]:
        """Owners that might adopt an orphan."""
        if not pod.metadata.labels:
            return
        for owner in self.owners:
            if owner["metadata"].get("namespace") != pod.metadata.namespace:
                continue
            selector = selector_of(owner)
            if selector is not None and matches(selector, pod.metadata.labels):
                yield owner

    def candidates(self, owner: ObjectMeta, keep: Callable[[Pod], bool] = lambda pod: True) -> list[Pod]:
        """The owner's pods and the namespace's orphans, which it may adopt, in a stable order."""
        found = self.pods_by_owner.get(owner.uid) + self.pods_by_owner.get((ORPHANS, owner.namespace))
        return sorted((pod for pod in found if keep(pod)), key=lambda pod: pod.metadata.name)

    def event(self, owner: Document, type: EventKind, reason: str, message: str) -> None:
        self.context.recorder.event(self.resource, owner, type, reason, message)

    async def create_pod(self, owner: Document, pod: Document) -> Document | None:
        """Creates a pod, telling so on its owner; None when the namespace is ending."""
        try:
            created = await self.client.create(PODS, pod, owner["metadata"]["namespace"])
        except ApiError as error:
            if is_terminating_namespace(error):
                return None
            self.event(owner, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        self.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        return created

    async def delete_pod(self, owner: Document, pod: Pod) -> bool:
        """Deletes a pod, telling so on its owner; False when it was gone already."""
        try:
            await self.client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except NotFound:
            return False
        except ApiError as error:
            self.event(owner, "Warning", "FailedDelete", f"Error deleting: {error}")
            raise
        self.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
        return True

    def pod_changed(self, owner: Document, old: Pod, new: Pod) -> None:
        """A hook: one of the owner's pods changed, beyond being worth another look."""

    def _pod_added(self, pod: Pod) -> None:
        if pod.terminating:
            self._pod_deleted(pod)  # seen first when already on its way out: after a restart
            return
        owner = self.owner_of(pod.metadata)
        if owner is not None:
            self.expectations.creation_observed(_key(owner))
            self.enqueue_soon(owner)
        elif pod.metadata.controller is None:
            for candidate in self.owners_matching(pod):
                self.enqueue_soon(candidate)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if new.terminating and not old.terminating:
            # Kubelets finish deletions later; for us the pod is gone now.
            self._pod_deleted(new)
            if new.metadata.labels != old.metadata.labels:
                self._pod_deleted(old)
            return
        before = self.owner_of(old.metadata)
        if before is not None and old.metadata.controller != new.metadata.controller:
            self.enqueue_soon(before)
        owner = self.owner_of(new.metadata)
        if owner is not None:
            self.pod_changed(owner, old, new)
            self.enqueue_soon(owner)
        elif new.metadata.controller is None and (
            old.metadata.labels != new.metadata.labels or old.metadata.controller is not None
        ):
            for candidate in self.owners_matching(new):
                self.enqueue_soon(candidate)

    def _pod_deleted(self, pod: Pod) -> None:
        owner = self.owner_of(pod.metadata)
        if owner is not None:
            self.expectations.deletion_observed(_key(owner), pod.metadata.name)
            self.enqueue_soon(owner)


def _key(document: Document) -> ObjectKey:
    metadata = document["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
