"""What is allowed and yet most likely a mistake, in the words a Kubernetes API server warns of it.

`warnings_of` is asked of objects that passed validation; after upstream's registry strategies (WarningsOnCreate and
WarningsOnUpdate). Reasons to refuse are in validation.
"""

from __future__ import annotations

from wharfinger.api.registry import Document, Kind
from wharfinger.api.warnings import others, workloads

_OF_KIND = {
    ("", "Node"): others.node_warnings,
    ("", "PersistentVolume"): others.volume_warnings,
    ("", "PersistentVolumeClaim"): others.claim_warnings,
    ("", "Pod"): workloads.pod_warnings,
    ("", "PodTemplate"): workloads.pod_template_warnings,
    ("", "ReplicationController"): workloads.named_template_warnings,
    ("", "ResourceQuota"): others.quota_warnings,
    ("", "Secret"): others.secret_warnings,
    ("", "Service"): others.service_warnings,
    ("", "ServiceAccount"): others.service_account_warnings,
    ("apps", "DaemonSet"): workloads.template_warnings,
    ("apps", "Deployment"): workloads.named_template_warnings,
    ("apps", "ReplicaSet"): workloads.named_template_warnings,
    ("apps", "StatefulSet"): workloads.stateful_set_warnings,
    ("batch", "CronJob"): workloads.cron_job_warnings,
    ("batch", "Job"): workloads.job_warnings,
    ("networking.k8s.io", "Ingress"): others.ingress_warnings,
    ("node.k8s.io", "RuntimeClass"): others.runtime_class_warnings,
    ("storage.k8s.io", "StorageClass"): others.storage_class_warnings,
}


def warnings_of(kind: Kind, new: Document, old: Document | None) -> list[str]:
    found = _OF_KIND.get((kind.group, kind.kind))
    return [] if found is None else list(found(new, old))
