"""VolumeBinding: on its node, a pod's claims must be bound, or it must be possible to bind or provision them.

Bound volumes restrict the pod to the nodes of their node affinity. Claims that wait for a consumer take the smallest
matching volume, or are provisioned where their class and its capacity allow. `reserve` assumes this in the catalogue.
Before the pod is bound the assumptions are written, and the binder waits until the volume controller has bound the claims.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from wharfinger.api.fields import FieldError
from wharfinger.api.keys import ObjectKey
from wharfinger.api.selectors import BadSelector
from wharfinger.api.views import PersistentVolumeClaim, Pod
from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Args, Prepared, Scope
from wharfinger.framework.prebinding import Preparation
from wharfinger.framework.shapes import Shape
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import SUCCESS, Status, error, unresolvable
from wharfinger.framework.tables import Tables
from wharfinger.plugins.volumes.catalogue import (
    CAPACITY,
    CLAIM,
    CLASS,
    CSI_NODE,
    DRIVER,
    VOLUME,
    BindingPlan,
    Bound,
    VolumeCatalogue,
)
from wharfinger.plugins.volumes.migration import migrated_plugins
from wharfinger.plugins.volumes.plugin import VolumePlugin
from wharfinger.plugins.volumes.pre_bind import VolumesBound
from wharfinger.plugins.volumes.provisioning import Provisioning, volume_limit
from wharfinger.plugins.volumes.rules import (
    claim_name,
    claim_names,
    class_of_claim,
    class_of_volume,
    fully_bound,
    key_of,
    not_created_for,
    on_rows,
    size_of,
    waits_for_consumer,
)
from wharfinger.plugins.volumes.supply import ClaimKind, Supply, acceptable

UNBOUND_IMMEDIATE = unresolvable("pod has unbound immediate PersistentVolumeClaims")

NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME = 1, 2, 4, 8
REASONS = {
    NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NO_SPACE: "node(s) did not have enough free storage",
    NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
"""In the order in which a refusal lists them."""


class VolumeBindingArgs(Args, frozen=True):
    bind_timeout_seconds: int = 600
    shape: tuple[Any, ...] | None = None

    def faults(self) -> list[FieldError]:
        found = []
        if self.bind_timeout_seconds < 0:
            found.append(
                FieldError(
                    "bindTimeoutSeconds",
                    "FieldValueInvalid",
                    f"Invalid value: {self.bind_timeout_seconds}: invalid BindTimeoutSeconds, should not be a negative value",
                )
            )
        if self.shape is not None:
            found.append(
                FieldError(
                    "shape",
                    "FieldValueInvalid",
                    "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
                )
            )
        return found


class WantedVolume(NamedTuple):
    """An unbound claim that waits for its consumer."""

    kind: ClaimKind
    meant: int | None  # the number of the node affinity of a volume with a claimRef to this claim
    volume: str  # name of that volume
    selected: str | None  # the node that it is being provisioned for


class VolumeNeeds(NamedTuple):
    """What the volumes of a pod require of a node; pods with equal needs share a shape."""

    refusal: Status | None = None
    affinities: tuple[Bound, ...] = ()  # where the bound volumes can be used
    missing: bool = False  # whether a claim is bound to a volume that does not exist
    wanted: tuple[WantedVolume, ...] = ()


class VolumeBinding(VolumePlugin):
    name = "VolumeBinding"
    points = frozenset({"preFilter", "filter", "reserve", "preBind", "preScore", "score"})
    reserves_prepared = True
    position = 110
    args_type = VolumeBindingArgs
    kinds = (CLAIM, VOLUME, CLASS, CSI_NODE, DRIVER, CAPACITY)

    def __init__(self, tables: Tables, args: VolumeBindingArgs) -> None:
        super().__init__(tables, args)
        self._timeout = float(args.bind_timeout_seconds)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        changed = Action.ADD | Action.UPDATE
        return (
            WakeUp(CLASS, changed, _class_changed),
            WakeUp(CLAIM, changed, names_claim),
            WakeUp(VOLUME, changed),
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            WakeUp(CSI_NODE, changed, _migration_changed),
            WakeUp(DRIVER, Action.UPDATE | Action.DELETE, _capacity_ignored),
            WakeUp(CAPACITY, changed, _capacity_grew),
            # A pod that was not bound after all gives back the volumes that were chosen for it.
            WakeUp(POD, Action.DELETE, _volumes_returned),
        )

    # -- filtering

    def shape_key(self, pod: Pod) -> Hashable:
        if not pod.spec.volumes:
            return None
        needs = self._needs(pod)[0]
        return needs if needs.affinities or needs.refusal or needs.missing or needs.wanted else None

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        needs = key_of(shape, VolumeNeeds)
        if needs is None:
            return None
        return needs.refusal if needs.refusal is not None else _Volumes(self._catalogue, needs)

    def _needs(self, pod: Pod) -> tuple[VolumeNeeds, list[PersistentVolumeClaim]]:
        """What the pod's volumes require, and the claims to be bound, in the order of `wanted`."""
        catalogue = self._catalogue
        namespace = pod.metadata.namespace
        claims: list[PersistentVolumeClaim] = []
        for volume in pod.spec.volumes:
            name = claim_name(pod, volume)
            if name is None:
                continue
            claim = catalogue.claims.get((namespace, name))
            fault = _unusable(pod, name, claim, ephemeral=volume.persistent_volume_claim is None)
            if fault:
                return VolumeNeeds(unresolvable(fault)), []
            assert claim is not None
            claims.append(claim)
        affinities: set[Bound] = set()
        missing = False
        unbound: list[PersistentVolumeClaim] = []
        for claim in claims:
            if fully_bound(claim):
                held = catalogue.volumes.get(claim.spec.volume_name)
                missing = missing or held is None
                if held is not None and not missing:
                    affinities.add(catalogue.bound(held))
            elif waits_for_consumer(catalogue.classes.get(class_of_claim(claim))) and not claim.spec.volume_name:
                unbound.append(claim)
            else:
                return VolumeNeeds(UNBOUND_IMMEDIATE), []
        try:
            wanted = tuple(
                self._wanted(claim, sum(each is claim for each in unbound[:index]))
                for index, claim in enumerate(unbound)
            )
        except BadSelector as fault_found:
            return VolumeNeeds(error(str(fault_found))), []
        # Each affinity once: repeating it does not change the result.
        return VolumeNeeds(None, tuple(sorted(affinities - {Bound(0)})), missing, wanted), unbound

    def _wanted(self, claim: PersistentVolumeClaim, before: int) -> WantedVolume:
        """As upstream, every volume of the pod takes a PersistentVolume of its own, even if several name the same claim;
        `before` is the number of earlier ones that do."""
        spec = claim.spec
        kind = ClaimKind(
            class_of_claim(claim),
            size_of(claim),
            frozenset(spec.access_modes),
            None if spec.selector is None else spec.selector.compile(),
            spec.volume_mode,
            spec.volume_attributes_class_name,
        )
        for volume in self._catalogue.referring(claim):
            if class_of_volume(volume) == kind.class_name and acceptable(kind, volume):
                before -= 1
                if before >= 0:
                    continue
                number = self._catalogue.affinity(volume)
                return WantedVolume(kind, number, volume.metadata.name, self._catalogue.selected_node(claim))
        return WantedVolume(kind, None, "", self._catalogue.selected_node(claim))

    # -- reserving and binding

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        if not isinstance(prepared, _Volumes) or not prepared.needs.wanted or isinstance(pod, StandIn):
            return SUCCESS  # a stand-in needs a node that the volumes allow, but claims none of them
        needs, claims = self._needs(pod)
        if needs != prepared.needs:
            return error("the pod's claims changed during scheduling")
        flags, volumes = prepared.assign(row)
        if flags:
            return unresolvable(*(reason for flag, reason in REASONS.items() if flags & flag))
        catalogue, node = self._catalogue, self.tables.name(row)
        bindings = tuple((volumes[index], claim) for index, claim in enumerate(claims) if index in volumes)
        unmatched = [claim for index, claim in enumerate(claims) if index not in volumes]
        provisions = tuple({claim.metadata.key: claim for claim in unmatched}.values())
        for name, claim in bindings:
            catalogue.assume_volume(name, claim)
        for claim in provisions:
            catalogue.assume_node(claim.metadata.key, node)
        self._catalogue.plans[pod.metadata.key] = BindingPlan(bindings, provisions)
        return SUCCESS

    def unreserve(self, pod: Pod, row: int) -> None:
        plan = self._catalogue.plans.pop(pod.metadata.key, None)
        if plan is None:
            return
        for name, claim in plan.bindings:
            self._catalogue.forget_volume(name, claim.metadata.key)
        for claim in plan.provisions:
            if not self._planned(claim.metadata.key):
                self._catalogue.forget_node(claim.metadata.key)

    def _planned(self, claim: ObjectKey) -> bool:
        """Whether the claim is also part of the plan of another pod."""
        return any(each.metadata.key == claim for plan in self._catalogue.plans.values() for each in plan.provisions)

    def before_binding(self, pod: Pod, node_name: str) -> Preparation | None:
        plan = self._catalogue.plans.get(pod.metadata.key)
        if plan is None:
            return None
        return VolumesBound(self._catalogue, pod, node_name, plan, self._timeout)

    def commit(self, pod: Pod) -> None:
        self._catalogue.plans.pop(pod.metadata.key, None)


class _Volumes(Prepared):
    """Of node scope if all claims are bound; claims to be bound also depend on the available volumes and capacity."""

    filters = True
    follows_pods = True

    def __init__(self, catalogue: VolumeCatalogue, needs: VolumeNeeds) -> None:
        super().__init__()
        self.needs = needs
        self.scope = Scope.CLUSTER if needs.wanted else Scope.NODE
        self._catalogue = catalogue
        self._tables = catalogue.tables
        # Smaller claims choose first, so that each takes the smallest volume that fits.
        matching = [index for index, each in enumerate(needs.wanted) if each.selected is None]
        self._matching = sorted(matching, key=lambda index: needs.wanted[index].kind.size)
        self._selected = [index for index, each in enumerate(needs.wanted) if each.selected is not None]
        self._supplies: dict[int, Supply] = {
            index: catalogue.supply(needs.wanted[index].kind)
            for index in self._matching
            if needs.wanted[index].meant is None
        }
        classes = [supply.kind.class_name for supply in self._supplies.values()]
        self._competing = len(set(classes)) < len(classes)
        self._provisioning = {
            index: Provisioning(catalogue, each.kind.class_name, each.kind.size)
            for index, each in enumerate(needs.wanted)
        }
        self._faults = {
            each.fault: self.refuse(error(f'running "{VolumeBinding.name}" filter plugin: {each.fault}'))
            for each in needs.affinities
            if each.fault
        }
        self.fails = bool(self._faults)
        self._by_flags = np.zeros(16, dtype=np.int64)  # [flags] code
        for flags in range(1, 16):
            reasons = (reason for flag, reason in REASONS.items() if flags & flag)
            self._by_flags[flags] = self.refuse(unresolvable(*reasons))

    @property
    def version(self) -> int:
        return self._catalogue.provision_version + sum(each.version for each in self._supplies.values())

    def close(self) -> None:
        for supply in self._supplies.values():
            self._catalogue.release(supply)

    def filter(self, rows: Rows) -> Ints:
        flags = np.zeros(len(rows), dtype=np.int64)
        outside = np.zeros(len(rows), dtype=np.bool_)
        failed: list[tuple[int, Bools]] = []
        for bound in self.needs.affinities:
            suitable = on_rows(self._tables, self._catalogue.terms(bound.affinity), rows)
            if bound.plugin:
                moved = self._catalogue.migrated(bound.plugin, rows)
                if bound.fault:
                    failed.append((self._faults[bound.fault], moved))
                    suitable |= moved
                else:
                    suitable = np.where(
                        moved, on_rows(self._tables, self._catalogue.terms(bound.translated), rows), suitable
                    )
            outside |= ~suitable
        flags[outside] = NODE_CONFLICT
        if self.needs.missing:
            flags[~outside] = NO_VOLUME
        if self.needs.wanted:
            flags |= self._unbound(rows)
        codes = self._by_flags[flags]
        for code, where in failed:
            codes = np.where(where & ~outside, code, codes)
        return codes

    def _unbound(self, rows: Rows) -> Ints:
        """Flags for rows where a claim neither finds a volume nor can be provisioned."""
        flags = np.zeros(len(rows), dtype=np.int64)
        failed = np.zeros(len(rows), dtype=np.bool_)
        for index in self._selected:
            failed |= rows != self._tables.row_of.get(self.needs.wanted[index].selected or "", -1)
        flags[failed] = BIND_CONFLICT
        unmatched = self._unmatched(rows)
        for index in (*self._selected, *self._matching):
            left = unmatched[index] & ~failed if index in unmatched else ~failed
            if not left.any():
                continue
            possible = self._provisioning[index].possible(rows)
            refused = left & ~possible
            flags[refused] = BIND_CONFLICT
            short = left & possible & ~self._provisioning[index].sufficient(rows)
            flags[short] = NO_SPACE
            failed |= refused | short
        return flags

    def _unmatched(self, rows: Rows) -> dict[int, Bools]:
        """For each claim that may take an existing volume: the rows where it finds none."""
        if self._competing:
            return self._unmatched_by_row(rows)
        found = {}
        for index in self._matching:
            meant = self.needs.wanted[index].meant
            if meant is not None:
                found[index] = ~on_rows(self._tables, self._catalogue.terms(meant), rows)
            else:
                found[index] = ~self._supplies[index].reachable(rows)
        return found

    def _unmatched_by_row(self, rows: Rows) -> dict[int, Bools]:
        """The same when several claims of one class compete. Rows that reach the same volumes have the same result."""
        found = {index: np.zeros(len(rows), dtype=np.bool_) for index in self._matching}
        known: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for at, row in enumerate(rows.tolist()):
            reach = self._reach(row)
            missed = known.get(reach)
            if missed is None:
                chosen = self._choose(reach)
                missed = known[reach] = [index for index in self._matching if index not in chosen]
            for index in missed:
                found[index][at] = True
        return found

    def _reach(self, row: int) -> tuple[tuple[int, ...], ...]:
        """For each claim in order: the groups of volumes that it can take on the row."""
        node = self._tables.nodes[row]
        assert node is not None
        found: list[tuple[int, ...]] = []
        for index in self._matching:
            meant = self.needs.wanted[index].meant
            if meant is None:
                found.append(self._supplies[index].at(node.metadata.labels))
            else:
                on_row = on_rows(self._tables, self._catalogue.terms(meant), np.array([row]))
                found.append((meant,) if bool(on_row[0]) else ())
        return tuple(found)

    def _choose(self, reach: tuple[tuple[int, ...], ...]) -> dict[int, str]:
        """The volume that each claim takes, in order."""
        taken: set[str] = set()
        chosen: dict[int, str] = {}
        for index, groups in zip(self._matching, reach, strict=True):
            wanted = self.needs.wanted[index]
            if wanted.meant is not None:
                name = wanted.volume if groups else None
            else:
                name = self._supplies[index].smallest(groups, taken)
            if name is not None:
                taken.add(name)
                chosen[index] = name
        return chosen

    def assign(self, row: int) -> tuple[int, dict[int, str]]:
        """Why the row is not feasible, as flags, or else the volumes that claims take; the other claims are provisioned."""
        flags = int(self._unbound(np.array([row]))[0])
        return flags, {} if flags else self._choose(self._reach(row))


def _unusable(pod: Pod, name: str, claim: PersistentVolumeClaim | None, *, ephemeral: bool) -> str:
    if claim is None:
        if ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return not_created_for(pod, claim) if ephemeral else ""


# -- queueing hints


def names_claim(pod: Pod, old: Any, new: Any) -> bool:
    """Whether an added or updated claim is one of the pod's."""
    return bool(new.metadata.namespace == pod.metadata.namespace and new.metadata.name in claim_names(pod))


def _class_changed(pod: Pod, old: Any, new: Any) -> bool:
    return old is None or old.allowed_topologies != new.allowed_topologies


def _migration_changed(pod: Pod, old: Any, new: Any) -> bool:
    return old is None or migrated_plugins(old) != migrated_plugins(new)


def _capacity_ignored(pod: Pod, old: Any, new: Any) -> bool:
    """The capacity of the driver is no longer checked. Upstream considers only inline volumes here, so that pods with
    claims keep waiting."""
    return bool(old.spec.storage_capacity and not (new is not None and new.spec.storage_capacity))


def _volumes_returned(pod: Pod, old: Any, new: Any) -> bool:
    return bool(old.spec.volumes) and any(claim_names(pod))


def _capacity_grew(pod: Pod, old: Any, new: Any) -> bool:
    limit = volume_limit(new)
    before = None if old is None else volume_limit(old)
    return old is None or (limit is not None and (before is None or limit > before))


plugins = (VolumeBinding,)
