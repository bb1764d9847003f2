"""The controllers that run: one line each. Simulation, `wharf up` and `wharf controllers` all start from this list.

A factory takes the context and gives something with an async `run()` and a work queue; it connects its informers when it
is made, before they start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from wharfinger.api.registry import Resource
from wharfinger.client.controller import Controller
from wharfinger.client.events import ComponentRecorder, EventRecorder
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.cron_job import CronJobController
from wharfinger.controllers.daemon_set.controller import DaemonSetController
from wharfinger.controllers.deployment.controller import DeploymentController
from wharfinger.controllers.disruption import DisruptionController
from wharfinger.controllers.garbage_collector.controller import GarbageCollector
from wharfinger.controllers.job.controller import JobController
from wharfinger.controllers.namespaces import NamespaceController
from wharfinger.controllers.node_lifecycle import NodeLifecycleController
from wharfinger.controllers.pod_gc import PodGarbageCollector
from wharfinger.controllers.replica_set import ReplicaSetController, ReplicationControllerController
from wharfinger.controllers.resource_quota import ResourceQuotaController
from wharfinger.controllers.service_account import ServiceAccountController
from wharfinger.controllers.stateful_set.controller import StatefulSetController
from wharfinger.controllers.taint_eviction import TaintEvictionController
from wharfinger.controllers.ttl_after_finished import TTLAfterFinishedController
from wharfinger.controllers.volumes import ClaimProtection, EphemeralVolumes, VolumeBinder, VolumeProtection
from wharfinger.system import systems

T = TypeVar("T")
Factory = Callable[[ControllerContext], Controller[Any]]

_STOCK: dict[str, Factory] = {
    "replicaset": ReplicaSetController,
    "replicationcontroller": ReplicationControllerController,
    "deployment": DeploymentController,
    "statefulset": StatefulSetController,
    "daemonset": DaemonSetController,
    "job": JobController,
    "cronjob": CronJobController,
    "disruption": DisruptionController,
    "resourcequota": ResourceQuotaController,
    "garbagecollector": GarbageCollector,
    "namespace": NamespaceController,
    "serviceaccount": ServiceAccountController,
    "nodelifecycle": NodeLifecycleController,
    "tainteviction": TaintEvictionController,
    "podgc": PodGarbageCollector,
    "persistentvolume-binder": VolumeBinder,
    "ephemeral-volume": EphemeralVolumes,
    "pvc-protection": ClaimProtection,
    "pv-protection": VolumeProtection,
    "ttlafterfinished": TTLAfterFinishedController,
}


@cache
def factories() -> dict[str, Factory]:
    """All controllers by name: the stock ones, and those of the systems."""
    found = dict(_STOCK)
    for system in systems():
        found.update(system.controllers())
    return found


BY_NAME_ONLY = frozenset({"reservedquota"})
"""Not among `*`: for clusters whose own controllers do not do what ours of all do."""
SPEAKERS = {
    "replicaset": "replicaset-controller",
    "replicationcontroller": "replication-controller",
    "deployment": "deployment-controller",
    "statefulset": "statefulset-controller",
    "daemonset": "daemonset-controller",
    "job": "job-controller",
    "cronjob": "cronjob-controller",
    "disruption": "controllermanager",
    "garbagecollector": "garbage-collector-controller",
    "nodelifecycle": "node-controller",
    "tainteviction": "taint-eviction-controller",
    "persistentvolume-binder": "persistentvolume-controller",
    "ephemeral-volume": "ephemeral_volume",
    "ttlafterfinished": "ttl-after-finished-controller",
}
"""Whom events name as their source, where a kube-controller-manager has such a controller."""


class UnknownController(ValueError):
    """A name that is not in the list."""


def chosen(names: Iterable[str]) -> list[str]:
    """The controllers that `names` select: `*` is all of them, but for those that must be named; `-name` takes one away,
    as kube-controller-manager reads it."""
    wanted = [name.strip() for name in names if name.strip()] or ["*"]
    for name in wanted:
        if name != "*" and name.lstrip("-") not in factories():
            raise UnknownController(f'"{name.lstrip("-")}" is not in the list of known controllers')
    everything = "*" in wanted or all(name.startswith("-") for name in wanted)
    by_default = factories().keys() - BY_NAME_ONLY if everything else set()
    return [name for name in factories() if f"-{name}" not in wanted and (name in by_default or name in wanted)]


def make_controllers(context: ControllerContext, names: Iterable[str] = ("*",)) -> list[Controller[Any]]:
    """The chosen controllers; each waits only for the informers that it asked for itself."""
    made = []
    for name in chosen(names):
        informers = _Noting(context.informers)
        recorder = context.recorder
        if name in SPEAKERS and isinstance(recorder, EventRecorder):
            recorder = ComponentRecorder(recorder, SPEAKERS[name])
        controller = factories()[name](replace(context, informers=informers, recorder=recorder))
        controller.needs = informers.asked
        made.append(controller)
    return made


class _Noting(InformerSet):
    """The shared informers, as one controller sees them: notes which of them it asks for."""

    def __init__(self, shared: InformerSet) -> None:
        super().__init__(shared.client)
        self.asked: list[Informer[Any]] = []
        self._shared = shared

    def of(self, resource: Resource, view: type[T], **selectors: str) -> Informer[T]:
        informer = self._shared.of(resource, view, **selectors)
        if informer not in self.asked:
            self.asked.append(informer)
        return informer
