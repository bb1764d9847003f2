"""The base class of controllers that own pods: claims, creates and deletes them, and maps pod events to owners."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar
from weakref import WeakValueDictionary

from wharfinger.api.errors import ApiError, NotFound, is_terminating_namespace
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.object_meta import object_key
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.views import ObjectMeta, OwnerReference, Pod
from wharfinger.client.events import EventKind
from wharfinger.client.informer import Informer
from wharfinger.controllers.batches import slow_start
from wharfinger.controllers.context import ControllerContext, DocumentController
from wharfinger.controllers.expectations import Expectations
from wharfinger.controllers.ownership import ORPHANS, claim, owner_index, selector_of

BATCH_WINDOW = 0.01
"""Seconds for which pod events are collected before their owner is reconciled. Pods change in bursts, and the cost of
reconciling grows with the number of pods."""


class OwnedPods:
    """Passes changes of pods on to the controllers that they concern: those of their owner's kind, or for orphans all."""

    # By the id of the informer, whose handlers keep it, and which it keeps by its controllers: both go together.
    _known: ClassVar[WeakValueDictionary[int, OwnedPods]] = WeakValueDictionary()

    def __init__(self) -> None:
        self._all: list[PodOwner] = []
        self._by_kind: dict[str, list[PodOwner]] = {}

    @classmethod
    def of(cls, pods: Informer[Pod]) -> OwnedPods:
        found = cls._known.get(id(pods))
        if found is None:
            found = cls._known[id(pods)] = OwnedPods()
            pods.add_handler(found._added, found._updated, found._deleted)
        return found

    def add(self, controller: PodOwner) -> None:
        self._all.append(controller)
        self._by_kind.setdefault(controller.resource.kind, []).append(controller)

    def _concerned(self, owner: OwnerReference | None) -> Sequence[PodOwner]:
        return self._all if owner is None else self._by_kind.get(owner.kind, ())

    def _added(self, pod: Pod) -> None:
        for each in self._concerned(pod.metadata.controller):
            each.pod_added(pod)

    def _updated(self, old: Pod, new: Pod) -> None:
        owner = new.metadata.controller
        for each in self._concerned(owner) if old.metadata.controller == owner else self._all:
            each.pod_updated(old, new)

    def _deleted(self, pod: Pod) -> None:
        for each in self._concerned(pod.metadata.controller):
            each.pod_deleted(pod)


class PodOwner(DocumentController):
    """Watches its own kind and pods. Pods are indexed by the uid of their controller, orphans by namespace."""

    resource: Resource
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.owners = self.reconciled(self.resource, deleted=True)
        self.pods = context.pods
        self.pods_by_owner = owner_index(self.pods)
        self.expectations = Expectations()
        OwnedPods.of(self.pods).add(self)

    async def reconcile(self, key: ObjectKey) -> None:
        document = self.owners.get(key[1], key[0])
        if document is None:
            self.expectations.forget(key)
            return
        selector = selector_of(document)
        if selector is not None:
            await self.sync(key, document, selector)

    @abstractmethod
    async def sync(self, key: ObjectKey, document: Document, selector: Requirements) -> None:
        """Reconciles an owner that exists and has a selector."""

    def has_caught_up(self, key: ObjectKey) -> bool:
        """Whether informers have shown what was created and deleted. If a watch broke off, some of that may never be shown,
        so the owner is reconciled again once the expectations have expired."""
        now = self.context.now()
        if self.expectations.satisfied(key, now):
            return True
        self.queue.add_after(key, self.expectations.expires_in(key, now) + 1.0, background=True)
        return False

    def enqueue_soon(self, document: Document) -> None:
        self.queue.add_after(object_key(document), BATCH_WINDOW)

    def owner_of(self, metadata: ObjectMeta) -> Document | None:
        """The managing controller, if it is of our kind and has the uid of the owner reference."""
        reference = metadata.controller
        if reference is None or reference.kind != self.resource.kind:
            return None
        owner = self.owners.get(reference.name, metadata.namespace)
        return owner if owner is not None and owner["metadata"]["uid"] == reference.uid else None

    def owners_matching(self, pod: Pod) -> Iterable[Document]:
        """The owners whose selector matches an orphan."""
        if not pod.metadata.labels:
            return
        for owner in self.owners:
            if owner["metadata"].get("namespace") != pod.metadata.namespace:
                continue
            selector = selector_of(owner)
            if selector is not None and matches(selector, pod.metadata.labels):
                yield owner

    def candidates(self, owner: ObjectMeta) -> list[Pod]:
        """The owner's pods and the orphans of its namespace, by name."""
        found = self.pods_by_owner.get(owner.uid) + self.pods_by_owner.get((ORPHANS, owner.namespace))
        return sorted(found, key=lambda pod: pod.metadata.name)

    async def claim_pods(
        self,
        owner: ObjectMeta,
        selector: Requirements,
        candidates: Sequence[Pod] | None = None,
        *,
        belongs: Callable[[Pod], bool] = lambda pod: True,
        finalizers: Sequence[str] = (),
    ) -> list[Pod]:
        """The pods of the owner, after adopting orphans and releasing pods that the selector no longer matches."""
        return await claim(
            self.client,
            owner=owner,
            owner_resource=self.resource,
            resource=PODS,
            candidates=self.candidates(owner) if candidates is None else candidates,
            matches=lambda pod: matches(selector, pod.metadata.labels) and belongs(pod),
            finalizers=finalizers,
        )

    def event(self, owner: Document, type: EventKind, reason: str, message: str) -> None:
        self.context.recorder.event(self.resource, owner, type, reason, message)

    async def create_pods(
        self, key: ObjectKey, owner: Document, count: int, make: Callable[[int], Document]
    ) -> tuple[int, Exception | None]:
        """Creates `make(0)` to `make(count - 1)`, which are expected. Returns how many succeeded and the first failure."""

        async def create(index: int) -> None:
            if await self.create_pod(owner, make(index)) is None:
                self.expectations.creation_observed(key)

        created, failure = await slow_start(count, create, in_turn=self.client.at_once)
        # There will be no event for pods that were not created.
        self.expectations.creation_observed(key, count - created)
        return created, failure

    async def create_pod(self, owner: Document, pod: Document) -> Document | None:
        """Creates a pod and records an event on its owner; None if the namespace is being deleted."""
        try:
            created = await self.client.create(PODS, pod, owner["metadata"]["namespace"], brief=True)
        except ApiError as error:
            if is_terminating_namespace(error):
                return None
            self.event(owner, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        self.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        return created

    async def delete_pods(
        self,
        key: ObjectKey,
        owner: Document,
        pods: Sequence[Pod],
        deleted: Callable[[Pod, bool], None] = lambda pod, existed: None,
    ) -> Exception | None:
        """Deletes the pods, which are expected to go. Returns the first failure. `deleted` is called for each success."""

        async def delete(pod: Pod) -> None:
            try:
                existed = await self.delete_pod(owner, pod)
            except ApiError:
                self.expectations.deletion_observed(key, pod.metadata.name)
                raise
            if not existed:
                self.expectations.deletion_observed(key, pod.metadata.name)
            deleted(pod, existed)

        outcomes = await asyncio.gather(*(delete(pod) for pod in pods), return_exceptions=True)
        return next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)

    async def delete_pod(self, owner: Document, pod: Pod) -> bool:
        """Deletes a pod and records an event on its owner; False if it did not exist any more."""
        try:
            await self.client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except NotFound:
            return False
        except ApiError as error:
            self.event(owner, "Warning", "FailedDelete", f"Error deleting: {error}")
            raise
        self.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
        return True

    def pod_added(self, pod: Pod) -> None:
        if pod.terminating:
            self.pod_deleted(pod)  # after a restart, pods that are being deleted arrive as added
            return
        owner = self.owner_of(pod.metadata)
        if owner is not None:
            self.expectations.creation_observed(object_key(owner))
            self.enqueue_soon(owner)
        elif pod.metadata.controller is None:
            for candidate in self.owners_matching(pod):
                self.enqueue_soon(candidate)

    def pod_updated(self, old: Pod, new: Pod) -> None:
        if new.terminating and not old.terminating:
            # The kubelet completes the deletion later; the expectation is met by its start.
            self.pod_deleted(new)
            if new.metadata.labels != old.metadata.labels:
                self.pod_deleted(old)
            return
        before = self.owner_of(old.metadata)
        if before is not None and old.metadata.controller != new.metadata.controller:
            self.enqueue_soon(before)
        owner = self.owner_of(new.metadata)
        if owner is not None:
            self.enqueue_soon(owner)
        elif new.metadata.controller is None and (
            old.metadata.labels != new.metadata.labels or old.metadata.controller is not None
        ):
            for candidate in self.owners_matching(new):
                self.enqueue_soon(candidate)

    def pod_deleted(self, pod: Pod) -> None:
        owner = self.owner_of(pod.metadata)
        if owner is not None:
            self.expectations.deletion_observed(object_key(owner), pod.metadata.name)
            self.enqueue_soon(owner)
