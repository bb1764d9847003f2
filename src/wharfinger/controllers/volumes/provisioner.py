"""The decisions of the simulated provisioner: whether a volume can be provisioned for a claim, and with which topology. Pure.

The binder does the I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.quantity import canonical, value
from wharfinger.api.registry import Document
from wharfinger.api.selectors import BadSelector, matches
from wharfinger.api.views import CSIDriver, CSINode, CSIStorageCapacity, Node, PersistentVolumeClaim, StorageClass
from wharfinger.plugins.volumes.provisioning import volume_limit
from wharfinger.plugins.volumes.rules import class_of_claim, on_labels, topologies

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
POOL = "wharfinger.dev/storage-capacity"  # on a volume: its CSIStorageCapacity, as namespace/name


class CannotProvision(Exception):
    """No volume can be provisioned for the claim."""


class Provisioned(msgspec.Struct, frozen=True):
    volume: Document
    pool: CSIStorageCapacity | None  # whose capacity it uses


class Storage(msgspec.Struct, frozen=True):
    """The objects that the provisioner reads, by key."""

    nodes: Mapping[ObjectKey, Node]
    csi_nodes: Mapping[ObjectKey, CSINode]
    drivers: Mapping[ObjectKey, CSIDriver]
    capacities: Mapping[ObjectKey, CSIStorageCapacity]


def provision(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node_name: str | None, storage: Storage
) -> Provisioned:
    """A volume for the node, or for any suitable node if none is given. Raises CannotProvision."""
    driver = storage.drivers.get(("", storage_class.provisioner))
    limited = driver is not None and driver.spec.storage_capacity
    size = value(claim.spec.resources.requests.get("storage", 0))
    bound_to_place = limited or bool(storage_class.allowed_topologies)
    for node in _candidates(node_name, storage, any_node=bound_to_place):
        labels = {} if node is None else node.metadata.labels
        if node is not None and not on_labels(topologies(storage_class), labels):
            continue
        pool = _pool(storage_class, labels, size, storage) if limited else None
        if limited and pool is None:
            continue
        return Provisioned(_volume(claim, storage_class, _topology(storage_class, node, pool, storage), pool), pool)
    if node_name is not None and ("", node_name) not in storage.nodes:
        raise CannotProvision(f'node "{node_name}" not found')
    where = f'node "{node_name}"' if node_name else "any node"
    raise CannotProvision(
        f"no pool with {size} bytes free can be reached from {where}"
        if limited
        else f'the topologies that storage class "{storage_class.metadata.name}" allows do not include {where}'
    )


def _candidates(node_name: str | None, storage: Storage, *, any_node: bool) -> Iterator[Node | None]:
    if node_name is not None:
        if ("", node_name) in storage.nodes:
            yield storage.nodes["", node_name]
    elif any_node:
        yield from (storage.nodes[key] for key in sorted(storage.nodes))
    else:
        yield None


def _pool(
    storage_class: StorageClass, labels: Mapping[str, str], size: int, storage: Storage
) -> CSIStorageCapacity | None:
    for each in sorted(storage.capacities.values(), key=lambda each: each.metadata.key):
        limit = volume_limit(each)
        if each.storage_class_name != storage_class.metadata.name or limit is None or limit < size:
            continue
        if each.capacity is not None and value(each.capacity) < size:
            continue
        if each.node_topology is not None:
            try:
                if matches(each.node_topology.compile(), labels):
                    return each
            except BadSelector:
                continue
    return None


def _topology(
    storage_class: StorageClass, node: Node | None, pool: CSIStorageCapacity | None, storage: Storage
) -> dict[str, str]:
    """The labels of nodes that can use the volume, with the topology keys of the driver, the class or the pool."""
    if node is None:
        return {}
    csi_node = storage.csi_nodes.get(("", node.metadata.name))
    known = [] if csi_node is None else csi_node.spec.drivers
    keys = {key for driver in known if driver.name == storage_class.provisioner for key in driver.topology_keys}
    if not keys:
        for term in topologies(storage_class) or ():
            if matches(term.labels, node.metadata.labels):
                keys = {requirement.key for requirement in term.labels}
                break
    if not keys and pool is not None and pool.node_topology is not None:
        keys = set(pool.node_topology.match_labels)
    return {key: node.metadata.labels[key] for key in sorted(keys) if key in node.metadata.labels}


def _volume(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    topology: Mapping[str, str],
    pool: CSIStorageCapacity | None,
) -> Document:
    own = claim.metadata
    name = f"pvc-{own.uid}"
    annotations = {PROVISIONED_BY: storage_class.provisioner}
    if pool is not None:
        annotations[POOL] = f"{pool.metadata.namespace}/{pool.metadata.name}"
    spec: Document = {
        "accessModes": list(claim.spec.access_modes),
        "capacity": {"storage": canonical(claim.spec.resources.requests.get("storage", 0))},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": own.namespace,
            "name": own.name,
            "uid": own.uid,
        },
        "csi": {"driver": storage_class.provisioner, "volumeHandle": name},
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or "Delete",
        "storageClassName": class_of_claim(claim),
        "volumeMode": claim.spec.volume_mode,
    }
    if claim.spec.volume_attributes_class_name:
        spec["volumeAttributesClassName"] = claim.spec.volume_attributes_class_name
    if topology:
        wanted = [{"key": key, "operator": "In", "values": [text]} for key, text in topology.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": wanted}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }
