"""NodeVolumeLimits: the number of volumes of a CSI driver on a node must not exceed the limit in its CSINode."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from wharfinger.api.views import Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import POD, Action, WakeUp
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.stand_ins import mounts_volumes
from wharfinger.framework.status import Status, error, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.plugins.volumes.attachments import Attachments, CsiVolume, attachments_of, limits_of
from wharfinger.plugins.volumes.binding import names_claim
from wharfinger.plugins.volumes.catalogue import ATTACHMENT, CLAIM, CLASS, CSI_NODE, VOLUME
from wharfinger.plugins.volumes.migration import MIGRATED, in_tree_plugin
from wharfinger.plugins.volumes.plugin import VolumePlugin
from wharfinger.plugins.volumes.rules import claim_name, key_of, not_created_for

REASON = unschedulable("node(s) exceed max volume count")


class Attaching(NamedTuple):
    """What this plugin adds to a shape's key: the number of volumes by driver, and separately the volumes that pods on
    nodes or nominated pods also use."""

    refusal: Status | None = None
    fresh: tuple[tuple[str, int], ...] = ()
    shared: frozenset[CsiVolume] = frozenset()


class NodeVolumeLimits(VolumePlugin):
    name = "NodeVolumeLimits"
    points = frozenset({"preFilter", "filter"})
    position = 100
    kinds = (CLAIM, VOLUME, CLASS, CSI_NODE, ATTACHMENT)

    def __init__(self, tables: Tables, args: Any) -> None:
        super().__init__(tables, args)
        self._attachments = attachments_of(tables)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(CSI_NODE, Action.ADD | Action.DELETE),
            WakeUp(CSI_NODE, Action.UPDATE, _limit_grew),
            WakeUp(POD, Action.DELETE, _volumes_freed),
            WakeUp(CLAIM, Action.ADD | Action.UPDATE, names_claim),
            WakeUp(ATTACHMENT, Action.DELETE, _may_detach),
        )

    def shape_key(self, pod: Pod) -> Hashable:
        if not pod.spec.volumes:
            return None
        refusal = self._refusal(pod)
        if refusal is not None:
            return Attaching(refusal)
        attachments = self._attachments
        nominated = attachments.nominated()
        fresh: dict[str, int] = {}
        shared = []
        for volume in set(attachments.volumes_of(pod)):
            if not attachments.limited(volume[0]):
                continue
            if volume in attachments.rows_of or volume in nominated:
                shared.append(volume)
            else:
                fresh[volume[0]] = fresh.get(volume[0], 0) + 1
        return Attaching(None, tuple(sorted(fresh.items())), frozenset(shared)) if fresh or shared else None

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        attaching = key_of(shape, Attaching)
        if attaching is None:
            return None
        return _Limits(self._attachments, attaching) if attaching.refusal is None else _Nowhere(attaching.refusal)

    def _refusal(self, pod: Pod) -> Status | None:
        for volume in pod.spec.volumes:
            name = claim_name(pod, volume)
            if name is None:
                continue
            claim = self._catalogue.claims.get((pod.metadata.namespace, name))
            if claim is None:
                where = f"{pod.metadata.namespace}/{name}"
                return unresolvable(f'looking up PVC {where}: persistentvolumeclaim "{name}" not found')
            fault = not_created_for(pod, claim) if volume.persistent_volume_claim is None else ""
            if fault:
                return error(fault)
        return None


class _Nowhere(Prepared):
    """The pod's volumes are unknown. Refuses every node instead of the pod, so that the reasons of other plugins come first."""

    filters = True

    def __init__(self, refusal: Status) -> None:
        super().__init__()
        self._code = self.refuse(refusal)

    def filter(self, rows: Rows) -> Ints:
        return np.full(len(rows), self._code, dtype=np.int64)


class _Limits(Prepared):
    scope = Scope.ROW
    filters = True

    def __init__(self, attachments: Attachments, attaching: Attaching) -> None:
        super().__init__()
        self._attachments = attachments
        self._fresh = dict(attaching.fresh)
        self._shared = attaching.shared
        self._drivers = sorted({*self._fresh, *(driver for driver, _ in self._shared)})
        self._code = self.refuse(REASON)

    def filter(self, rows: Rows) -> Ints:
        refused = np.zeros(len(rows), dtype=np.bool_)
        for driver in self._drivers:
            more = np.full(len(rows), self._fresh.get(driver, 0), dtype=np.int64)
            for volume in self._shared:
                if volume[0] == driver:
                    more += ~np.isin(rows, list(self._attachments.rows_of.get(volume, ())))
            count, limit = self._attachments.count(driver), self._attachments.limit(driver)
            refused |= (more > 0) & (count.take(rows) + more > limit.take(rows))
        return np.where(refused, self._code, 0)

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        attachments = self._attachments
        used = attachments.used.get(row, {})
        changes: dict[CsiVolume, int] = {} if simulation is None else simulation.state.get(self, {})
        for driver in self._drivers:
            limit = attachments.limit(driver).cells[row]
            count = attachments.count(driver).cells[row]
            more = self._fresh.get(driver, 0) + sum(
                volume[0] == driver and used.get(volume, 0) + changes.get(volume, 0) <= 0 for volume in self._shared
            )
            if changes:
                stated = attachments.stated(row)
                for volume, change in changes.items():
                    if volume[0] == driver and volume not in stated:
                        before = used.get(volume, 0)
                        count += (before + change > 0) - (before > 0)
            if more and count + more > limit:
                return self._code
        return 0

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        if not mounts_volumes(pod.pod):
            return
        changes = simulation.state.setdefault(self, {})
        for volume in set(self._attachments.volumes_of(pod.pod)):
            changes[volume] = changes.get(volume, 0) + sign


# -- queueing hints


def _limit_grew(pod: Pod, old: Any, new: Any) -> bool:
    before, after = limits_of(old), limits_of(new)
    return any(limit > before.get(driver, 0) for driver, limit in after.items()) or not before.keys() <= after.keys()


def _volumes_freed(pod: Pod, old: Any, new: Any) -> bool:
    if not old.spec.node_name and not old.status.nominated_node_name:
        return False
    return any(claim_name(old, volume) is not None or in_tree_plugin(volume) for volume in old.spec.volumes)


def _may_detach(pod: Pod, old: Any, new: Any) -> bool:
    for volume in pod.spec.volumes:
        plugin = in_tree_plugin(volume)
        if volume.persistent_volume_claim is not None or (plugin and MIGRATED[plugin] == old.spec.attacher):
            return True
    return False


plugins = (NodeVolumeLimits,)
