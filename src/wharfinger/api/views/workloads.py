"""Views of workloads, disruption budgets and priority classes. Pod templates stay documents, because controllers copy
them unchanged."""

from __future__ import annotations

from typing import Any

from msgspec import field

from wharfinger.api.selectors import LabelSelector
from wharfinger.api.views.base import View
from wharfinger.api.views.meta import Condition, ObjectView

IntOrPercent = int | str
Template = dict[str, Any]
"""A pod template as a document: `{"metadata": …, "spec": …}`."""


class WorkloadSpec(View, frozen=True):
    """What the specs of replica sets, deployments, daemon sets and stateful sets have in common."""

    selector: LabelSelector = field(default_factory=LabelSelector)
    template: Template = field(default_factory=dict)
    min_ready_seconds: int = 0


class ReplicaSetSpec(WorkloadSpec, frozen=True):
    replicas: int = 1


class ReplicaSetStatus(View, frozen=True):
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class ReplicaSet(ObjectView, frozen=True):
    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class RollingUpdateDeployment(View, frozen=True):
    max_unavailable: IntOrPercent = "25%"
    max_surge: IntOrPercent = "25%"


class DeploymentStrategy(View, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(WorkloadSpec, frozen=True):
    replicas: int = 1
    strategy: DeploymentStrategy = field(default_factory=DeploymentStrategy)
    revision_history_limit: int = 10
    paused: bool = False
    progress_deadline_seconds: int = 600


class DeploymentStatus(View, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    conditions: tuple[Condition, ...] = ()
    collision_count: int | None = None


class Deployment(ObjectView, frozen=True):
    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)


class RollingUpdateDaemonSet(View, frozen=True):
    max_unavailable: IntOrPercent = 1
    max_surge: IntOrPercent = 0


class DaemonSetUpdateStrategy(View, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(WorkloadSpec, frozen=True):
    update_strategy: DaemonSetUpdateStrategy = field(default_factory=DaemonSetUpdateStrategy)
    revision_history_limit: int = 10


class DaemonSetStatus(View, frozen=True):
    observed_generation: int = 0
    collision_count: int | None = None


class DaemonSet(ObjectView, frozen=True):
    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
    status: DaemonSetStatus = field(default_factory=DaemonSetStatus)


class RollingUpdateStatefulSet(View, frozen=True):
    partition: int = 0
    max_unavailable: IntOrPercent | None = None


class StatefulSetUpdateStrategy(View, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdateStatefulSet | None = None


class ClaimRetentionPolicy(View, frozen=True):
    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class StatefulSetOrdinals(View, frozen=True):
    start: int = 0


class StatefulSetSpec(WorkloadSpec, frozen=True):
    replicas: int = 1
    volume_claim_templates: tuple[Template, ...] = ()
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: StatefulSetUpdateStrategy = field(default_factory=StatefulSetUpdateStrategy)
    revision_history_limit: int = 10
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = field(default_factory=ClaimRetentionPolicy)
    ordinals: StatefulSetOrdinals = field(default_factory=StatefulSetOrdinals)


class StatefulSetStatus(View, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None


class StatefulSet(ObjectView, frozen=True):
    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


class ControllerRevision(ObjectView, frozen=True):
    revision: int = 0
    data: dict[str, Any] = field(default_factory=dict)


class JobSpec(View, frozen=True):
    parallelism: int = 1
    completions: int | None = None  # absent: complete when one pod succeeded and all have finished
    active_deadline_seconds: int | None = None
    backoff_limit: int = 6
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    selector: LabelSelector = field(default_factory=LabelSelector)
    template: Template = field(default_factory=dict)
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    pod_replacement_policy: str = "TerminatingOrFailed"
    managed_by: str = ""
    pod_failure_policy: dict[str, Any] | None = None
    success_policy: dict[str, Any] | None = None


class UncountedPods(View, frozen=True):
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()
    start_time: str = ""
    completion_time: str = ""
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    ready: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedPods | None = None


class Job(ObjectView, frozen=True):
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class CronJobSpec(View, frozen=True):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    job_template: Template = field(default_factory=dict)
    successful_jobs_history_limit: int = 3
    failed_jobs_history_limit: int = 1


class CronJob(ObjectView, frozen=True):
    spec: CronJobSpec = field(default_factory=CronJobSpec)


class PodDisruptionBudgetSpec(View, frozen=True):
    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    selector: LabelSelector | None = None  # absent matches no pod, empty matches all


class PodDisruptionBudgetStatus(View, frozen=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(ObjectView, frozen=True):
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(ObjectView, frozen=True):
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    description: str = ""
