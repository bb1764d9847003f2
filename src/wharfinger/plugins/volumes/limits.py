"""NodeVolumeLimits: the number of volumes of a CSI driver on a node must not exceed the limit in its CSINode."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.views import Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import POD, Action, WakeUp
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.stand_ins import mounts_volumes
from wharfinger.framework.status import Code, Status, error, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.plugins.volumes.attachments import (
    Attachments,
    CsiVolume,
    UncountedVolume,
    attachments_of,
    counted,
    limits_of,
)
from wharfinger.plugins.volumes.binding import names_claim
from wharfinger.plugins.volumes.catalogue import ATTACHMENT, CLAIM, CLASS, CSI_NODE, DRIVER, VOLUME
from wharfinger.plugins.volumes.migration import MIGRATED, in_tree_plugin
from wharfinger.plugins.volumes.plugin import VolumePlugin
from wharfinger.plugins.volumes.rules import claim_name, key_of

REASON = unschedulable("node(s) exceed max volume count")


class Attaching(NamedTuple):
    """What this plugin adds to a shape's key: the number of volumes by driver, and separately the volumes that pods on
    nodes or nominated pods also use."""

    refusal: Status | None = None  # on every node
    inline: Status | None = None  # on nodes with a CSINode; comes before `refusal`
    fresh: tuple[tuple[str, int], ...] = ()
    shared: frozenset[CsiVolume] = frozenset()
    required: tuple[tuple[str, bool], ...] = ()  # drivers that must be on the node, and whether also without a CSINode
    counted: bool = False  # whether pods whose volumes cannot be counted matter


class NodeVolumeLimits(VolumePlugin):
    name = "NodeVolumeLimits"
    points = frozenset({"preFilter", "filter"})
    position = 100
    kinds = (CLAIM, VOLUME, CLASS, CSI_NODE, DRIVER, ATTACHMENT)

    def __init__(self, tables: Tables, args: Any) -> None:
        super().__init__(tables, args)
        self._attachments = attachments_of(tables)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(CSI_NODE, Action.ADD | Action.DELETE),
            WakeUp(CSI_NODE, Action.UPDATE, _driver_changed),
            WakeUp(DRIVER, Action.UPDATE | Action.DELETE, _no_longer_required),
            WakeUp(POD, Action.DELETE, _volumes_freed),
            WakeUp(CLAIM, Action.ADD | Action.UPDATE, names_claim),
            WakeUp(ATTACHMENT, Action.DELETE, _may_detach),
        )

    def shape_key(self, pod: Pod) -> Hashable:
        if not pod.spec.volumes:
            return None
        attachments = self._attachments
        used = list(attachments.used_by(pod))
        refusal, inline = _refusals(pod, used)
        if refusal is not None:
            return Attaching(refusal, inline)
        volumes = set(counted(used))
        if not volumes and inline is None:
            return None
        nominated = attachments.nominated()
        fresh: dict[str, int] = {}
        shared = []
        for volume in volumes:
            if not attachments.limited(volume[0]):
                continue
            if volume in attachments.rows_of or volume in nominated:
                shared.append(volume)
            else:
                fresh[volume[0]] = fresh.get(volume[0], 0) + 1
        found = Attaching(
            None,
            inline,
            tuple(sorted(fresh.items())),
            frozenset(shared),
            self._required(pod, {driver for driver, _ in volumes}),
            bool(attachments.faulty_rows),
        )
        return None if found == Attaching() else found

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        attaching = key_of(shape, Attaching)
        if attaching is None:
            return None
        return _Limits(self._attachments, attaching)

    def _required(self, pod: Pod, drivers: set[str]) -> tuple[tuple[str, bool], ...]:
        """The drivers that ask for it (VolumeLimitScaling, since 1.37)."""
        known = self._catalogue.drivers
        if not known or self.tables.kubernetes < KubernetesVersion.V1_37:
            return ()
        wanted = sorted(
            driver
            for driver in drivers
            if (found := known.get(driver)) is not None and found.spec.prevent_pod_scheduling_if_missing
        )
        if not wanted:
            return ()
        native = self._attachments.native_drivers(pod)
        return tuple((driver, driver in native) for driver in wanted)


def _refusals(pod: Pod, used: Iterable[CsiVolume | UncountedVolume]) -> tuple[Status | None, Status | None]:
    """Why the volumes of the pod are not known, on all nodes and on those with a CSINode: the first that is found."""
    inline: Status | None = None
    for found in used:
        if not isinstance(found, UncountedVolume):
            continue
        if found.inline:
            inline = inline or failed(found.fault)
        elif found.fault:
            return failed(found.fault), inline
        else:
            name = found.missing
            where = f"{pod.metadata.namespace}/{name}"
            return unresolvable(f'looking up PVC {where}: persistentvolumeclaim "{name}" not found'), inline
    return None, inline


def failed(fault: str) -> Status:
    return error(f'running "{NodeVolumeLimits.name}" filter plugin: {fault}')


class _ImaginedVolumes:
    """What a simulation changes on its row."""

    def __init__(self) -> None:
        self.volumes: dict[CsiVolume, int] = {}  # the change in the number of pods that use a volume
        self.faults: dict[ObjectKey, str] = {}  # of pods that came; empty for pods that left


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
        self._everywhere = 0 if attaching.refusal is None else self.refuse(attaching.refusal)
        self._inline = 0 if attaching.inline is None else self.refuse(attaching.inline)
        self._required = [
            (driver, native, self.refuse(unschedulable(f"{driver} CSI driver is not installed on the node")))
            for driver, native in attaching.required
        ]
        self._early = bool(self._everywhere or self._inline or self._required)
        self._counted = attaching.counted
        self.fails = self._counted or any(
            each is not None and each.code is Code.ERROR for each in (attaching.refusal, attaching.inline)
        )

    def filter(self, rows: Rows) -> Ints:
        attachments = self._attachments
        codes = self._before_counting(rows)
        if self._counted:
            faulty = np.isin(rows, list(attachments.faulty_rows))
            for at in np.flatnonzero(faulty & (codes == 0)).tolist():
                codes[at] = self._fault(int(rows[at]), None)
        refused = np.zeros(len(rows), dtype=np.bool_)
        for driver in self._drivers:
            more = np.full(len(rows), self._fresh.get(driver, 0), dtype=np.int64)
            for volume in self._shared:
                if volume[0] == driver:
                    more += ~np.isin(rows, list(attachments.rows_of.get(volume, ())))
            count, limit = attachments.count(driver), attachments.limit(driver)
            refused |= (more > 0) & (count.take(rows) + more > limit.take(rows))
        codes[(codes == 0) & refused] = self._code
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        attachments = self._attachments
        if code := int(self._before_counting(np.array([row]))[0]) if self._early else 0:
            return code
        imagined: _ImaginedVolumes | None = None if simulation is None else simulation.state.get(self)
        if self._counted and (code := self._fault(row, imagined)):
            return code
        used = attachments.used.get(row, {})
        changes: dict[CsiVolume, int] = {} if imagined is None else imagined.volumes
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
        imagined = simulation.state.setdefault(self, _ImaginedVolumes())
        for volume in set(self._attachments.volumes_of(pod.pod)):
            imagined.volumes[volume] = imagined.volumes.get(volume, 0) + sign
        if self._counted:
            imagined.faults.pop(pod.key, None)
            imagined.faults[pod.key] = self._attachments.fault_of(pod.pod) if sign > 0 else ""

    def _before_counting(self, rows: Rows) -> Ints:
        """What does not depend on the pods on the rows."""
        codes = np.zeros(len(rows), dtype=np.int64)
        if self._inline or self._required:
            registered = self._attachments.registered.take(rows) != 0
            codes[registered] = self._inline
            for driver, native, code in self._required:
                lacking = self._attachments.installed(driver).take(rows) == 0
                codes[(codes == 0) & (lacking if native else lacking & registered)] = code
        codes[codes == 0] = self._everywhere
        return codes

    def _fault(self, row: int, imagined: _ImaginedVolumes | None) -> int:
        """The code for the first pod on the row whose volumes cannot be counted. That matters only where there are limits."""
        faults = self._attachments.faults_on(row)
        if imagined is not None:
            faults = {**faults, **imagined.faults}
        first = next((fault for fault in faults.values() if fault), "")
        return self.refuse(failed(first)) if first and self._attachments.limits_anything(row) else 0


# -- queueing hints


def _driver_changed(pod: Pod, old: Any, new: Any) -> bool:
    """Whether a driver was installed, or a limit grew."""
    if not {driver.name for driver in new.spec.drivers} <= {driver.name for driver in old.spec.drivers}:
        return True
    before, after = limits_of(old), limits_of(new)
    return any(limit > before.get(driver, 0) for driver, limit in after.items()) or not before.keys() <= after.keys()


def _no_longer_required(pod: Pod, old: Any, new: Any) -> bool:
    required = old.spec.prevent_pod_scheduling_if_missing
    return bool(required and not (new is not None and new.spec.prevent_pod_scheduling_if_missing))


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
