"""What a controller is given: the client, the shared informers, the event recorder, the clock and the configuration."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.configuration import Configuration
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.client.controller import Observer
from wharfinger.client.events import ComponentRecorder, EventRecorder
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, SystemClock
from wharfinger.controllers.provision_faults import ProvisionFaults


@dataclass(slots=True)
class ControllerContext:
    client: Client
    informers: InformerSet
    recorder: EventRecorder | ComponentRecorder
    registry: Registry  # the kinds whose objects are collected and emptied out of namespaces
    clock: Clock = field(default_factory=SystemClock)
    configuration: Configuration = field(default_factory=Configuration)
    random: random.Random = field(default_factory=random.Random)
    observer: Observer | None = None
    implicit_heartbeats: bool = False  # simulation: nodes are taken to be alive until they are said to be down
    provision_faults: ProvisionFaults = field(default_factory=ProvisionFaults)
    unseen_owners: frozenset[str] = frozenset()  # simulation: uids of owners that a snapshot names but does not hold

    def now(self) -> float:
        return self.clock.now()

    def documents(self, resource: Resource) -> Informer[Document]:
        """The shared informer of whole documents, for kinds whose templates controllers copy."""
        return self.informers.of(resource, _DOCUMENT)


_DOCUMENT: type[dict[str, Any]] = dict
