"""The view of a Pod, for scheduling, quota and the node."""

from __future__ import annotations

import msgspec
from msgspec import field

from wharfinger.api.selectors import LabelSelector, NodeSelector, NodeSelectorTerm
from wharfinger.api.views.base import View
from wharfinger.api.views.meta import Condition, ObjectView

Quantities = dict[str, str | int | float]
"""Resource name to quantity, as written; see `wharfinger.api.quantity`."""


class ResourceRequirements(View, frozen=True):
    requests: Quantities = field(default_factory=dict)
    limits: Quantities = field(default_factory=dict)


class ContainerPort(View, frozen=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"


class AllocatedResource(View, frozen=True):
    """So many devices of one ComputeResource."""

    compute_resource_name: str = ""
    count: int = 0


class ContainerRestartRule(View, frozen=True):
    action: str = ""


class Container(View, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""  # `Always` on an init container makes it a sidecar
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    allocated_compute_resources: dict[str, tuple[AllocatedResource, ...]] | None = None  # embedded server only


class Toleration(View, frozen=True):
    key: str = ""
    operator: str = ""  # Equal when empty
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredSchedulingTerm(View, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(View, frozen=True):
    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(View, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None  # absent matches no pod
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None  # absent: only `namespaces`; empty: all namespaces
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(View, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(View, frozen=True):
    required: tuple[PodAffinityTerm, ...] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(View, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(View, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None  # Honor when absent
    node_taints_policy: str | None = None  # Ignore when absent
    match_label_keys: tuple[str, ...] = ()


class ReadinessGate(View, frozen=True):
    condition_type: str = ""


class SchedulingGate(View, frozen=True):
    name: str = ""


class ClaimVolumeSource(View, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(View, frozen=True):
    """Only its presence matters: the claim is named after pod and volume."""


class InlineCsiVolumeSource(View, frozen=True):
    driver: str = ""


class ImageVolumeSource(View, frozen=True):
    reference: str = ""


class GcePersistentDisk(View, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(View, frozen=True):
    volume_id: str = field(name="volumeID", default="")
    read_only: bool = False


class AzureDisk(View, frozen=True):
    disk_name: str = ""
    kind: str = ""
    disk_uri: str = field(name="diskURI", default="")


class Cinder(View, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class PortworxVolume(View, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class Iscsi(View, frozen=True):
    iqn: str = ""
    read_only: bool = False


class Rbd(View, frozen=True):
    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class InTreeSources(View, frozen=True):
    """Volume sources of former in-tree drivers, in pods and PersistentVolumes."""

    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None


class Volume(InTreeSources, frozen=True):
    name: str = ""
    image: ImageVolumeSource | None = None
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: InlineCsiVolumeSource | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None


class PodResourceClaim(View, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(View, frozen=True):
    pod_group_name: str | None = None


class PodSpec(View, frozen=True):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    service_account_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None  # PreemptLowerPriority when absent
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = field(default_factory=dict)
    resources: ResourceRequirements | None = None  # pod-level resources
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()
    host_network: bool = False
    host_users: bool | None = None  # true when absent
    scheduling_group: PodSchedulingGroup | None = None
    volumes: tuple[Volume, ...] = ()  # without those of which only the name is known
    resource_claims: tuple[PodResourceClaim, ...] = ()
    termination_grace_period_seconds: int | None = None
    restart_policy: str = "Always"
    active_deadline_seconds: int | None = None
    runtime_class_name: str | None = None
    hostname: str = ""
    subdomain: str = ""

    def __post_init__(self) -> None:
        # Almost every pod of a real cluster has one with the token of its service account, which concerns no decision.
        if self.volumes and any(volume == Volume(name=volume.name) for volume in self.volumes):
            kept = tuple(volume for volume in self.volumes if volume != Volume(name=volume.name))
            msgspec.structs.force_setattr(self, "volumes", kept)


class ContainerRunning(View, frozen=True):
    started_at: str = ""


class ContainerTerminated(View, frozen=True):
    exit_code: int = 0
    reason: str = ""
    started_at: str = ""
    finished_at: str = ""


class ContainerWaiting(View, frozen=True):
    reason: str = ""


class ContainerState(View, frozen=True):
    """At most one is set; if none is, the container is waiting."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: ContainerTerminated | None = None


class ActualResources(View, frozen=True):
    """What a pod or container has. None: not stated, which is not the same as nothing."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerStatus(View, frozen=True):
    name: str = ""
    state: ContainerState = field(default_factory=ContainerState)
    ready: bool = False
    restart_count: int = 0
    container_id: str = field(name="containerID", default="")
    allocated_resources: Quantities | None = None
    resources: ActualResources | None = None


class PodIP(View, frozen=True):
    ip: str = ""


class PodResourceClaimStatus(View, frozen=True):
    """The claim that was made from a template; without a name if none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodExtendedResourceClaimStatus(View, frozen=True):
    """The claim for the extended resources of a pod."""

    resource_claim_name: str = ""


class PodStatus(View, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    start_time: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(name="podIP", default="")
    pod_ips: tuple[PodIP, ...] = field(name="podIPs", default=())
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resize: str = ""
    allocated_resources: Quantities | None = None  # pod level
    resources: ActualResources | None = None  # pod level
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    observed_generation: int = 0

    def condition(self, kind: str) -> Condition | None:
        for condition in self.conditions:
            if condition.type == kind:
                return condition
        return None


class Pod(ObjectView, frozen=True):
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def terminal(self) -> bool:
        """Finished: it no longer uses resources of its node."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    @property
    def ready(self) -> bool:
        condition = self.status.condition("Ready")
        return condition is not None and condition.status == "True"
