"""VolumeRestrictions: disks that pods on a node cannot share, and claims that only one pod in the cluster may use."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod
from wharfinger.api.views.pods import AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.stand_ins import StandIn, mounts_volumes
from wharfinger.framework.status import Status, unresolvable, unschedulable
from wharfinger.framework.tables import PodOnNode
from wharfinger.plugins.volumes.catalogue import CLAIM, VolumeCatalogue
from wharfinger.plugins.volumes.plugin import VolumePlugin
from wharfinger.plugins.volumes.rules import READ_WRITE_ONCE_POD, key_of, named_claims

DISK_CONFLICT = unschedulable("node(s) had no available disk")
IN_USE = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)

Disk = GcePersistentDisk | AwsElasticBlockStore | Iscsi | Rbd


class Exclusive(NamedTuple):
    """What this plugin adds to a shape's key."""

    refusal: Status | None
    disks: tuple[Disk, ...]
    claims: frozenset[ObjectKey]  # with access mode ReadWriteOncePod


class VolumeRestrictions(VolumePlugin):
    name = "VolumeRestrictions"
    points = frozenset({"preFilter", "filter"})
    position = 90
    kinds = (CLAIM,)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(POD, Action.DELETE, _volume_freed),
            # The pods on a node that is gone are no longer counted.
            WakeUp(NODE, Action.ADD | Action.DELETE),
            WakeUp(CLAIM, Action.ADD, _names_claim),
        )

    def shape_key(self, pod: Pod) -> Hashable:
        if not pod.spec.volumes:
            return None
        disks = disks_of(pod)
        exclusive = []
        for name in named_claims(pod):
            claim = self._catalogue.claims.get((pod.metadata.namespace, name))
            if claim is None:
                return Exclusive(unresolvable(f'persistentvolumeclaim "{name}" not found'), (), frozenset())
            # A stand-in uses no claim: the pod that it keeps room for may be the one that has the claim now.
            if READ_WRITE_ONCE_POD in claim.spec.access_modes and not isinstance(pod, StandIn):
                exclusive.append(claim.metadata.key)
        return Exclusive(None, disks, frozenset(exclusive)) if disks or exclusive else None

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        exclusive = key_of(shape, Exclusive)
        if exclusive is None:
            return None
        return exclusive.refusal if exclusive.refusal is not None else _Restrictions(self._catalogue, exclusive)


class _Restrictions(Prepared):
    """Disks depend on the pods on the row, claims on all pods."""

    scope = Scope.CLUSTER
    filters = True
    follows_pods = True

    def __init__(self, catalogue: VolumeCatalogue, exclusive: Exclusive) -> None:
        super().__init__()
        self._catalogue = catalogue
        self._tables = catalogue.tables
        self._disks = exclusive.disks
        self._claims = exclusive.claims
        self._by_disk = self.refuse(DISK_CONFLICT)
        self._by_claim = self.refuse(IN_USE)

    @property
    def version(self) -> int:
        return self._catalogue.exclusive_version if self._claims else 0

    def filtering(self) -> bool:
        return bool(self._disks) or self._uses() > 0

    def filter(self, rows: Rows) -> Ints:
        codes = np.full(len(rows), self._by_claim if self._uses() > 0 else 0, dtype=np.int64)
        if self._disks:
            for index, row in enumerate(rows.tolist()):
                if self._conflict(self._tables.pods_on[row].values()):
                    codes[index] = self._by_disk
        return codes

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        pods, uses = self._tables.pods_on[row], self._uses()
        changed = None if simulation is None else simulation.state.get(self)
        if changed is not None:
            pods = dict(pods)
            for pod, sign in changed:
                uses += sign * sum((pod.key[0], name) in self._claims for name in named_claims(pod.pod))
                if sign > 0:
                    pods[pod.key] = pod
                else:
                    pods.pop(pod.key, None)
        if self._disks and self._conflict(pods.values()):
            return self._by_disk
        return self._by_claim if uses > 0 else 0

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        if mounts_volumes(pod.pod):
            simulation.state.setdefault(self, []).append((pod, sign))

    def _uses(self) -> int:
        """The number of claims that pods on nodes name. Use through an ephemeral volume does not count, as upstream."""
        return sum(claim in self._catalogue.named for claim in self._claims)

    def _conflict(self, pods: Iterable[PodOnNode]) -> bool:
        return any(mounts_volumes(each.pod) and conflict(self._disks, disks_of(each.pod)) for each in pods)


def disks_of(pod: Pod) -> tuple[Disk, ...]:
    return tuple(
        disk
        for volume in pod.spec.volumes
        for disk in (volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.iscsi, volume.rbd)
        if disk is not None
    )


def conflict(wanted: Iterable[Disk], used: tuple[Disk, ...]) -> bool:
    """Whether two pods cannot be on the same node: they use the same disk, and not both read-only."""
    return any(_same(mine, other) for mine in wanted for other in used)


def _same(mine: Disk, other: Disk) -> bool:
    match mine, other:
        case AwsElasticBlockStore(), AwsElasticBlockStore():
            return mine.volume_id == other.volume_id  # even if read-only
        case GcePersistentDisk(), GcePersistentDisk():
            same = mine.pd_name == other.pd_name
        case Iscsi(), Iscsi():
            same = mine.iqn == other.iqn
        case Rbd(), Rbd():
            shared = not set(mine.monitors).isdisjoint(other.monitors)
            same = shared and (mine.pool, mine.image) == (other.pool, other.image)
        case _:
            return False
    return same and not (mine.read_only and other.read_only)


def _names_claim(pod: Pod, old: Any, new: Any) -> bool:
    return new.metadata.namespace == pod.metadata.namespace and new.metadata.name in named_claims(pod)


def _volume_freed(pod: Pod, old: Any, new: Any) -> bool:
    if conflict(disks_of(pod), disks_of(old)):
        return True
    same = old.metadata.namespace == pod.metadata.namespace
    return same and not set(named_claims(pod)).isdisjoint(named_claims(old))


plugins = (VolumeRestrictions,)
