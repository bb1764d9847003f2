"""Typed read views: msgspec structs with the fields that decisions need. They are never written back to a server.

`view(document, Pod)` and `decode(data, Pod)` make one. Wire names are camelCase.
"""

from wharfinger.api.views.base import View, decode, strip_nulls, view
from wharfinger.api.views.coordination import Lease
from wharfinger.api.views.core import (
    LimitRange,
    Namespace,
    ObjectReference,
    ReplicationController,
    ResourceQuota,
    Service,
    ServiceAccount,
)
from wharfinger.api.views.meta import Condition, Metadata, ObjectMeta, OwnerReference
from wharfinger.api.views.nodes import Node
from wharfinger.api.views.pods import Pod
from wharfinger.api.views.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from wharfinger.api.views.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from wharfinger.api.views.workloads import (
    ControllerRevision,
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    StatefulSet,
)

__all__ = [
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "ClusterRole",
    "ClusterRoleBinding",
    "Condition",
    "ControllerRevision",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Lease",
    "LimitRange",
    "Metadata",
    "Namespace",
    "Node",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "StatefulSet",
    "StorageClass",
    "View",
    "VolumeAttachment",
    "decode",
    "strip_nulls",
    "view",
]
