"""The list of controllers that the simulation, `wharf up` and `wharf controllers` run.

A factory takes the context and returns a controller. Controllers add their informer handlers on construction, before the
informers start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

from msgspec.structs import replace

from wharfinger.api.registry import Resource
from wharfinger.client.controller import Controller
from wharfinger.client.events import ComponentRecorder, EventRecorder
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.controllers.certificates import CertificateApprover, CertificateRequestCleaner, CertificateSigner
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.cron_job import CronJobController
from wharfinger.controllers.daemon_set.controller import DaemonSetController
from wharfinger.controllers.deployment.controller import DeploymentController
from wharfinger.controllers.devices import DeviceTaintEvictionController, ResourceClaimController
from wharfinger.controllers.disruption import DisruptionController
from wharfinger.controllers.endpoints import (
    EndpointsController,
    EndpointSliceController,
    EndpointSliceMirroringController,
)
from wharfinger.controllers.garbage_collector.controller import GarbageCollector
from wharfinger.controllers.horizontal_pod_autoscaler import HorizontalPodAutoscalerController
from wharfinger.controllers.job.controller import JobController
from wharfinger.controllers.namespaces import NamespaceController
from wharfinger.controllers.node_lifecycle import NodeLifecycleController
from wharfinger.controllers.pod_gc import PodGarbageCollector
from wharfinger.controllers.replica_set import ReplicaSetController, ReplicationControllerController
from wharfinger.controllers.resource_quota import ResourceQuotaController
from wharfinger.controllers.root_ca import RootCaPublisher
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
    "horizontalpodautoscaling": HorizontalPodAutoscalerController,
    "disruption": DisruptionController,
    "resourcequota": ResourceQuotaController,
    "garbagecollector": GarbageCollector,
    "namespace": NamespaceController,
    "serviceaccount": ServiceAccountController,
    "csrapproving": CertificateApprover,
    "csrsigning": CertificateSigner,
    "csrcleaner": CertificateRequestCleaner,
    "root-ca-cert-publisher": RootCaPublisher,
    "endpoint": EndpointsController,
    "endpointslice": EndpointSliceController,
    "endpointslicemirroring": EndpointSliceMirroringController,
    "nodelifecycle": NodeLifecycleController,
    "tainteviction": TaintEvictionController,
    "podgc": PodGarbageCollector,
    "persistentvolume-binder": VolumeBinder,
    "ephemeral-volume": EphemeralVolumes,
    "pvc-protection": ClaimProtection,
    "pv-protection": VolumeProtection,
    "resourceclaim": ResourceClaimController,
    "devicetainteviction": DeviceTaintEvictionController,
    "ttlafterfinished": TTLAfterFinishedController,
}


@cache
def factories() -> dict[str, Factory]:
    """All controllers by name: the stock controllers and those of the systems."""
    found = dict(_STOCK)
    for system in systems():
        found.update(system.controllers())
    return found


BY_NAME_ONLY = frozenset({"reservedquota"})
"""Not included in `*`: they run beside the stock controllers of a real cluster, in place of one of ours."""
SPEAKERS = {
    "replicaset": "replicaset-controller",
    "replicationcontroller": "replication-controller",
    "deployment": "deployment-controller",
    "statefulset": "statefulset-controller",
    "daemonset": "daemonset-controller",
    "job": "job-controller",
    "cronjob": "cronjob-controller",
    "horizontalpodautoscaling": "horizontal-pod-autoscaler",
    "disruption": "controllermanager",
    "garbagecollector": "garbage-collector-controller",
    "endpoint": "endpoint-controller",
    "endpointslice": "endpoint-slice-controller",
    "endpointslicemirroring": "endpoint-slice-mirroring-controller",
    "nodelifecycle": "node-controller",
    "tainteviction": "taint-eviction-controller",
    "persistentvolume-binder": "persistentvolume-controller",
    "ephemeral-volume": "ephemeral_volume",
    "resourceclaim": "resource_claim",
    "devicetainteviction": "device-taint-eviction-controller",
    "ttlafterfinished": "ttl-after-finished-controller",
}
"""The event source of controllers that kube-controller-manager has too."""


class UnknownController(ValueError):
    """There is no controller of that name."""


def chosen(names: Iterable[str]) -> list[str]:
    """The controllers that `names` selects, as kube-controller-manager's --controllers: `*` is all except those of
    BY_NAME_ONLY, `-name` disables one."""
    wanted = [name.strip() for name in names if name.strip()] or ["*"]
    for name in wanted:
        if name != "*" and name.lstrip("-") not in factories():
            raise UnknownController(f'"{name.lstrip("-")}" is not in the list of known controllers')
    everything = "*" in wanted or all(name.startswith("-") for name in wanted)
    by_default = factories().keys() - BY_NAME_ONLY if everything else set()
    return [name for name in factories() if f"-{name}" not in wanted and (name in by_default or name in wanted)]


def make_controllers(context: ControllerContext, names: Iterable[str] = ("*",)) -> list[Controller[Any]]:
    """The chosen controllers. Each waits only for the informers that it uses itself."""
    made = []
    for name in chosen(names):
        informers = _RecordingInformers(context.informers)
        recorder = context.recorder
        if name in SPEAKERS and isinstance(recorder, EventRecorder):
            recorder = ComponentRecorder(recorder, SPEAKERS[name])
        controller = factories()[name](replace(context, informers=informers, recorder=recorder))
        controller.needs = informers.used
        made.append(controller)
    return made


class _RecordingInformers(InformerSet):
    """The shared informers, with a record of those that one controller uses."""

    def __init__(self, shared: InformerSet) -> None:
        super().__init__(shared.client)
        self.used: list[Informer[Any]] = []
        self._shared = shared

    def of(self, resource: Resource, view: type[T], **selectors: str) -> Informer[T]:
        informer = self._shared.of(resource, view, **selectors)
        if informer not in self.used:
            self.used.append(informer)
        return informer
