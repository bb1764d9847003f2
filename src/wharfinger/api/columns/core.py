"""Columns of core kinds other than pods and nodes."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.columns.cells import (
    AGE,
    CREATED_AT,
    NONE,
    UNKNOWN,
    UNSET,
    computed,
    labels_text,
    since,
    spec,
    status,
    template_columns,
)
from wharfinger.api.registry import Column, Document


def _phase(document: Document) -> str:
    if (document.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    return str(status(document).get("phase") or "")


NAMESPACE_COLUMNS = (Column("Status", "status.phase"), AGE)


def _cluster_ip(service: Document) -> str:
    addresses = spec(service).get("clusterIPs") or ()
    return (addresses[0] if addresses else spec(service).get("clusterIP")) or NONE


def _external_ip(service: Document) -> str:
    kind, external = spec(service).get("type"), spec(service).get("externalIPs") or []
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(external) or NONE
    if kind == "LoadBalancer":
        ingress = (status(service).get("loadBalancer") or {}).get("ingress") or ()
        addresses = [one.get("ip") or one.get("hostname") or "" for one in ingress]
        return ",".join([*filter(None, addresses), *external]) or "<pending>"
    if kind == "ExternalName":
        return str(spec(service).get("externalName") or "")
    return UNKNOWN


def _ports(service: Document) -> str:
    texts = []
    for port in spec(service).get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return ",".join(texts) or NONE


SERVICE_COLUMNS = (
    Column("Type", "spec.type"),
    computed("Cluster-IP", _cluster_ip),
    computed("External-IP", _external_ip),
    computed("Port(s)", _ports),
    AGE,
    computed("Selector", lambda service: labels_text(spec(service).get("selector")), wide=True),
)
SECRET_COLUMNS = (
    Column("Type", "type"),
    computed("Data", lambda secret: str(len(secret.get("data") or ()))),
    AGE,
)
CONFIG_MAP_COLUMNS = (
    computed("Data", lambda config: str(len(config.get("data") or ()) + len(config.get("binaryData") or ()))),
    AGE,
)
SERVICE_ACCOUNT_COLUMNS = (AGE,)


def _usage(quota: Document, *, limits: bool) -> str:
    hard, used = status(quota).get("hard") or {}, status(quota).get("used") or {}
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard) if name.startswith("limits.") is limits
    )


QUOTA_COLUMNS = (
    computed("Request", lambda quota: _usage(quota, limits=False)),
    computed("Limit", lambda quota: _usage(quota, limits=True)),
    AGE,
)

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _claim_of(volume: Document) -> str:
    reference = spec(volume).get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def _attributes_class(document: Document) -> str:
    return str(spec(document).get("volumeAttributesClassName") or UNSET)


def _mode(document: Document) -> str:
    return str(spec(document).get("volumeMode") or UNSET)


VOLUME_COLUMNS = (
    computed("Capacity", lambda volume: str((spec(volume).get("capacity") or {}).get("storage", "0"))),
    computed("Access Modes", lambda volume: _access(spec(volume).get("accessModes"))),
    Column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
    computed("Status", _phase),
    computed("Claim", _claim_of),
    Column("StorageClass", "spec.storageClassName"),
    computed("VolumeAttributesClass", _attributes_class),
    Column("Reason", "status.reason"),
    AGE,
    computed("VolumeMode", _mode, wide=True),
)


def _claim_capacity(claim: Document) -> str:
    return str((status(claim).get("capacity") or {}).get("storage", "0")) if spec(claim).get("volumeName") else ""


CLAIM_COLUMNS = (
    computed("Status", _phase),
    Column("Volume", "spec.volumeName"),
    computed("Capacity", _claim_capacity),
    computed(
        "Access Modes", lambda claim: _access(status(claim).get("accessModes")) if spec(claim).get("volumeName") else ""
    ),
    Column("StorageClass", "spec.storageClassName"),
    computed("VolumeAttributesClass", _attributes_class),
    AGE,
    computed("VolumeMode", _mode, wide=True),
)


def _first_seen(event: Document, now: float) -> str:
    return since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: Document, now: float) -> str:
    series = event.get("series")
    if series:
        return since(series.get("lastObservedTime"), now)
    return since(event["lastTimestamp"], now) if event.get("lastTimestamp") else _first_seen(event, now)


def _target(event: Document) -> str:
    involved = event.get("involvedObject") or {}
    kind = str(involved.get("kind") or "").lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _source(event: Document) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else str(component)


def _count(event: Document) -> str:
    series = event.get("series")
    return str((series.get("count") if series else event.get("count")) or 1)


EVENT_COLUMNS = (
    Column("Last Seen", cell=_last_seen),
    Column("Type", "type"),
    Column("Reason", "reason"),
    computed("Object", _target),
    Column("Subobject", "involvedObject.fieldPath", priority=1),
    computed("Source", _source, wide=True),
    computed("Message", lambda event: str(event.get("message") or "").strip()),
    Column("First Seen", priority=1, cell=_first_seen),
    computed("Count", _count, wide=True),
    Column("Name", "metadata.name", priority=1),
)


def _endpoints(endpoints: Document) -> str:
    texts = []
    for subset in endpoints.get("subsets") or ():
        ports = [port.get("port") for port in subset.get("ports") or ()] or [None]
        for port in ports:
            for address in subset.get("addresses") or ():
                texts.append(f"{address.get('ip')}:{port}" if port else str(address.get("ip")))
    if len(texts) > 3:
        return f"{','.join(texts[:3])} + {len(texts) - 3} more..."
    return ",".join(texts) or NONE


ENDPOINTS_COLUMNS = (computed("Endpoints", _endpoints), AGE)

REPLICATION_CONTROLLER_COLUMNS = (
    Column("Desired", "spec.replicas", "integer"),
    computed("Current", lambda owner: status(owner).get("replicas") or 0, type="integer"),
    computed("Ready", lambda owner: status(owner).get("readyReplicas") or 0, type="integer"),
    AGE,
    *template_columns(
        lambda owner: spec(owner).get("template") or {}, lambda owner: labels_text(spec(owner).get("selector"))
    ),
)


def _containers(field: str) -> Callable[[Document], str]:
    return lambda owner: ",".join(
        str(container.get(field, "")) for container in spec(owner.get("template") or {}).get("containers") or ()
    )


POD_TEMPLATE_COLUMNS = (
    computed("Containers", _containers("name")),
    computed("Images", _containers("image")),
    computed(
        "Pod Labels",
        lambda owner: labels_text(((owner.get("template") or {}).get("metadata") or {}).get("labels")),
    ),
)


LIMIT_RANGE_COLUMNS = (CREATED_AT,)
