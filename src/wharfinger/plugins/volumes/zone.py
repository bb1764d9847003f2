"""VolumeZone: a node with zone or region labels must be in the zones and regions of the pod's bound volumes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from wharfinger.api.selectors import Operator, Requirement
from wharfinger.api.views import PersistentVolume, Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, Action, WakeUp
from wharfinger.framework.plugin import Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable
from wharfinger.framework.tables import Tables
from wharfinger.plugins.volumes.catalogue import CLAIM, CLASS, VOLUME
from wharfinger.plugins.volumes.plugin import VolumePlugin
from wharfinger.plugins.volumes.rules import class_of_claim, key_of, waits_for_consumer

REASON = unresolvable("node(s) had no available volume zone")

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_STABLE = {"failure-domain.beta.kubernetes.io/zone": _ZONE, "failure-domain.beta.kubernetes.io/region": _REGION}
LABELS = (*_STABLE, _ZONE, _REGION)

Topology = tuple[str, frozenset[str]]
"""A label key and the zones or regions of a volume."""


class Zones(NamedTuple):
    """What this plugin adds to a shape's key."""

    refusal: Status | None = None
    topologies: tuple[Topology, ...] = ()


class VolumeZone(VolumePlugin):
    name = "VolumeZone"
    points = frozenset({"preFilter", "filter"})
    position = 120
    kinds = (CLAIM, VOLUME, CLASS)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(CLASS, Action.ADD, lambda pod, old, new: waits_for_consumer(new)),
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            WakeUp(CLAIM, Action.ADD | Action.UPDATE, _names_claim),
            WakeUp(VOLUME, Action.ADD | Action.UPDATE, _topology_changed),
        )

    def shape_key(self, pod: Pod) -> Hashable:
        if not pod.spec.volumes:
            return None
        refusal, found = self._read(pod)
        return Zones(refusal, tuple(sorted(found, key=_sorted))) if refusal or found else None

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        zones = key_of(shape, Zones)
        if zones is None:
            return None
        return zones.refusal if zones.refusal is not None else _InZones(self.tables, zones.topologies)

    def _read(self, pod: Pod) -> tuple[Status | None, set[Topology]]:
        """The topologies of the pod's bound volumes, or why they are unknown. Ephemeral claims are ignored."""
        catalogue = self._catalogue
        found: set[Topology] = set()
        for each in pod.spec.volumes:
            if each.persistent_volume_claim is None:
                continue
            name = each.persistent_volume_claim.claim_name
            if not name:
                return unresolvable("PersistentVolumeClaim had no name"), found
            claim = catalogue.claims.get((pod.metadata.namespace, name))
            if claim is None:
                return unresolvable(f'persistentvolumeclaim "{name}" not found'), found
            if not claim.spec.volume_name:
                class_name = class_of_claim(claim)
                if not class_name:
                    return unresolvable("PersistentVolumeClaim had no pv name and storageClass name"), found
                storage_class = catalogue.classes.get(class_name)
                if storage_class is None:
                    return unresolvable(f'storageclass.storage.k8s.io "{class_name}" not found'), found
                if not waits_for_consumer(storage_class):
                    return unresolvable("PersistentVolume had no name"), found
                continue
            volume = catalogue.volumes.get(claim.spec.volume_name)
            if volume is None:
                return unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found'), found
            found.update(topologies_of(volume))
        return None, found


class _InZones(Prepared):
    filters = True

    def __init__(self, tables: Tables, topologies: tuple[Topology, ...]) -> None:
        super().__init__()
        self._tables = tables
        self._topologies = topologies
        self._code = self.refuse(REASON)

    def filter(self, rows: Rows) -> Ints:
        label = self._tables.label
        somewhere = np.zeros(
            len(rows), dtype=np.bool_
        )  # whether the node has any of the labels; if not, it takes all volumes
        for key in LABELS:
            somewhere |= label(key).codes.take(rows) >= 0
        outside = np.zeros(len(rows), dtype=np.bool_)
        for key, values in self._topologies:
            matched = label(key).mask(Requirement(key, Operator.IN, values), rows)
            stable = _STABLE.get(key)
            if stable is not None:
                absent = label(key).codes.take(rows) < 0
                matched |= absent & label(stable).mask(Requirement(stable, Operator.IN, values), rows)
            outside |= ~matched
        return np.where(somewhere & outside, self._code, 0)


def topologies_of(volume: PersistentVolume) -> list[Topology]:
    """The zones and regions in a volume's labels. Several are separated by `__`; a label with an empty one is ignored."""
    found = []
    for key in LABELS:
        text = volume.metadata.labels.get(key)
        if text is not None:
            values = [value.strip() for value in text.split("__")]
            if all(values):
                found.append((key, frozenset(values)))
    return found


def _sorted(topology: Topology) -> tuple[str, list[str]]:
    return topology[0], sorted(topology[1])


def _names_claim(pod: Pod, old: Any, new: Any) -> bool:
    """Whether the pod names the claim; ephemeral claims are ignored."""
    return new.metadata.namespace == pod.metadata.namespace and any(
        volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == new.metadata.name
        for volume in pod.spec.volumes
    )


def _topology_changed(pod: Pod, old: Any, new: Any) -> bool:
    return old is None or topologies_of(old) != topologies_of(new)


plugins = (VolumeZone,)
