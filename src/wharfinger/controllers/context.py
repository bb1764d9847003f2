"""What all controllers share: client, informers, event recorder, clock and configuration."""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from wharfinger.api.configuration import Configuration
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.object_meta import object_key
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.views import Node, Pod
from wharfinger.client.controller import Controller, Observer
from wharfinger.client.events import ComponentRecorder, EventRecorder
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, SystemClock
from wharfinger.controllers.provision_faults import ProvisionFaults

if TYPE_CHECKING:
    from wharfinger.client.metrics import ControllerGauges
    from wharfinger.controllers.certificates.authority import SigningAuthority

K = TypeVar("K", bound=Hashable)


class ControllerContext(msgspec.Struct):
    client: Client
    informers: InformerSet
    recorder: EventRecorder | ComponentRecorder
    registry: Registry  # the kinds that garbage collection and namespace deletion cover
    clock: Clock = msgspec.field(default_factory=SystemClock)
    configuration: Configuration = msgspec.field(default_factory=Configuration)
    random: random.Random = msgspec.field(default_factory=random.Random)
    observer: Observer | None = None
    gauges: ControllerGauges | None = None  # None: nothing is measured
    implicit_heartbeats: bool = False  # simulation: nodes are alive unless marked as down
    provision_faults: ProvisionFaults = msgspec.field(default_factory=ProvisionFaults)
    root_ca: str = ""  # PEM of the certificate authority of the API server; empty: not published
    signing: SigningAuthority | None = None  # signs certificates; None: nobody does
    unseen_owners: frozenset[str] = frozenset()  # simulation: uids of owners that a snapshot refers to but lacks
    unseen_kinds: frozenset[str] = frozenset()  # simulation: kinds of which a snapshot may lack objects

    def now(self) -> float:
        return self.clock.now()

    @property
    def nodes(self) -> Informer[Node]:
        """The shared informer of nodes."""
        return self.informers.of(NODES, Node)

    @property
    def pods(self) -> Informer[Pod]:
        """The shared informer of pods."""
        return self.informers.of(PODS, Pod)

    def documents(self, resource: Resource, *, field_selector: str = "") -> Informer[Document]:
        """The shared informer of documents, for kinds whose templates are copied."""
        return self.informers.of(resource, _DOCUMENT, field_selector=field_selector)


class ContextController(Controller[K]):
    """The base class of controllers that are made from a context."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(observer=context.observer)
        self.context = context
        self.client = context.client


class DocumentController(ContextController[ObjectKey]):
    """The base class of controllers that reconcile the objects of one kind."""

    def reconciled(self, resource: Resource, *, deleted: bool = False) -> Informer[Document]:
        """The shared informer of that kind. Objects get into the queue when they are added or change, and with `deleted`
        also when they are deleted."""
        informer = self.context.documents(resource)
        informer.add_handler(self.enqueue, lambda old, new: self.enqueue(new), self.enqueue if deleted else None)
        return informer

    def enqueue(self, document: Document) -> None:
        self.queue.add(object_key(document))


_DOCUMENT: type[dict[str, Any]] = dict
