"""Which lists of Kubernetes' own kinds are merged element by element, and by which key.

A `Shape` names the fields of one type that a strategic merge treats specially, or below which there are such fields;
all other lists are replaced and all other objects merged. From the patch tags of k8s.io/api.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Field:
    """`key` is what tells elements apart; a merging list without one holds plain values."""

    shape: Shape
    merging: bool = False
    key: str = ""
    replacing: bool = False  # an object that a patch replaces as a whole


@dataclass(frozen=True, slots=True)
class Shape:
    fields: Mapping[str, Field] = field(default_factory=dict)

    def field(self, name: str) -> Field:
        return self.fields.get(name, _PLAIN)


_NOTHING = Shape()
_PLAIN = Field(_NOTHING)


def _list(key: str, shape: Shape = _NOTHING) -> Field:
    return Field(shape, merging=True, key=key)


def _below(shape: Shape) -> Field:
    return Field(shape)


_VALUES = Field(_NOTHING, merging=True)
_CONDITIONS = Shape({"conditions": _list("type")})
_METADATA = Shape({"ownerReferences": _list("uid"), "finalizers": _VALUES})

_CONTAINER = Shape(
    {
        "ports": _list("containerPort"),
        "env": _list("name"),
        "volumeMounts": _list("mountPath"),
        "volumeDevices": _list("devicePath"),
    }
)
_CONTAINER_STATUS = Shape({"volumeMounts": _list("mountPath"), "allocatedResourcesStatus": _list("name")})
_CLAIM_TEMPLATE = Shape({"metadata": _below(_METADATA)})
_VOLUME = Shape({"ephemeral": _below(Shape({"volumeClaimTemplate": _below(_CLAIM_TEMPLATE)}))})
_POD_SPEC = Shape(
    {
        "volumes": _list("name", _VOLUME),
        "initContainers": _list("name", _CONTAINER),
        "containers": _list("name", _CONTAINER),
        "ephemeralContainers": _list("name", _CONTAINER),
        "imagePullSecrets": _list("name"),
        "hostAliases": _list("ip"),
        "topologySpreadConstraints": _list("topologyKey"),
        "schedulingGates": _list("name"),
        "resourceClaims": _list("name"),
    }
)
_POD_STATUS = Shape(
    {
        "conditions": _list("type"),
        "hostIPs": _list("ip"),
        "podIPs": _list("ip"),
        "initContainerStatuses": _below(_CONTAINER_STATUS),
        "containerStatuses": _below(_CONTAINER_STATUS),
        "ephemeralContainerStatuses": _below(_CONTAINER_STATUS),
        "resourceClaimStatuses": _list("name"),
    }
)
_TEMPLATE = Shape({"metadata": _below(_METADATA), "spec": _below(_POD_SPEC)})
_TEMPLATED = Shape({"template": _below(_TEMPLATE)})
_JOB_TEMPLATE = Shape({"metadata": _below(_METADATA), "spec": _below(_TEMPLATED)})
_CLAIM = Shape({"metadata": _below(_METADATA), "status": _below(_CONDITIONS)})
_WEBHOOK = Shape({"matchConditions": _list("name")})


def _object(spec: Shape = _NOTHING, status: Shape = _NOTHING, **fields: Field) -> Shape:
    return Shape({"metadata": _below(_METADATA), "spec": _below(spec), "status": _below(status), **fields})


_WORKLOAD = _object(_TEMPLATED, _CONDITIONS)
_OTHER = _object()

_KINDS = {
    "Pod": _object(_POD_SPEC, _POD_STATUS),
    "PodTemplate": _object(template=_below(_TEMPLATE)),
    "Deployment": _WORKLOAD,
    "ReplicaSet": _WORKLOAD,
    "ReplicationController": _WORKLOAD,
    "DaemonSet": _WORKLOAD,
    "StatefulSet": _WORKLOAD,
    "Job": _WORKLOAD,
    "CronJob": _object(Shape({"jobTemplate": _below(_JOB_TEMPLATE)})),
    "Namespace": _object(status=_CONDITIONS),
    "Node": _object(Shape({"podCIDRs": _VALUES}), Shape({"conditions": _list("type"), "addresses": _list("type")})),
    "PersistentVolumeClaim": _CLAIM,
    "Service": _object(Shape({"ports": _list("port")}), _CONDITIONS),
    "ServiceAccount": _object(secrets=_list("name")),
    "PodDisruptionBudget": _object(Shape({"selector": Field(_NOTHING, replacing=True)}), _CONDITIONS),
    "HorizontalPodAutoscaler": _object(status=_CONDITIONS),
    "CSINode": _object(Shape({"drivers": _list("name")})),
    "MutatingWebhookConfiguration": _object(webhooks=_list("name", _WEBHOOK)),
    "ValidatingWebhookConfiguration": _object(webhooks=_list("name", _WEBHOOK)),
    "ValidatingAdmissionPolicy": _object(Shape({"matchConditions": _list("name"), "variables": _list("name")})),
}


def shape_of(kind: str) -> Shape:
    return _KINDS.get(kind, _OTHER)
