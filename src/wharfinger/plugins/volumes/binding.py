"""VolumeBinding: on its node, a pod's claims must be bound, or it must be possible to bind or provision them.

Bound volumes restrict the pod to the nodes of their node affinity. Claims that wait for a consumer take the smallest
matching volume, or are provisioned where their class and its capacity allow. `reserve` assumes this in the catalogue.
Before the pod is bound the assumptions are written, and the binder waits until the volume controller has bound the claims.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from wharfinger.api.fields import FieldError
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.selectors import BadSelector
from wharfinger.api.views import PersistentVolumeClaim, Pod
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Args, Prepared
from wharfinger.framework.prebinding import Preparation
from wharfinger.framework.shapes import Shape
from wharfinger.framework.stand_ins import StandIn
from wharfinger.framework.status import SUCCESS, Status, error, unresolvable
from wharfinger.framework.tables import Tables
from wharfinger.plugins.node_resources.scoring import UtilizationPoint, shape_faults
from wharfinger.plugins.volumes.catalogue import (
    CAPACITY,
    CLAIM,
    CLASS,
    CSI_NODE,
    DRIVER,
    VOLUME,
    BindingPlan,
    Bound,
)
from wharfinger.plugins.volumes.fit import REASONS, MeantVolume, NoClaims, VolumeFit, VolumeNeeds, WantedVolume
from wharfinger.plugins.volumes.migration import migrated_plugins
from wharfinger.plugins.volumes.plugin import VolumePlugin
from wharfinger.plugins.volumes.pre_bind import VolumesBound
from wharfinger.plugins.volumes.provisioning import volume_limit
from wharfinger.plugins.volumes.rules import (
    capacity_bytes,
    claim_name,
    claim_names,
    class_of_claim,
    class_of_volume,
    fully_bound,
    key_of,
    not_created_for,
    size_of,
    waits_for_consumer,
)
from wharfinger.plugins.volumes.scoring import DEFAULT_SHAPE, CapacityScore
from wharfinger.plugins.volumes.supply import ClaimKind, acceptable

UNBOUND_IMMEDIATE = unresolvable("pod has unbound immediate PersistentVolumeClaims")


class VolumeBindingArgs(Args, frozen=True):
    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationPoint, ...] | None = None  # since 1.37

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        found = []
        if self.bind_timeout_seconds < 0:
            found.append(
                FieldError(
                    "bindTimeoutSeconds",
                    "FieldValueInvalid",
                    f"Invalid value: {self.bind_timeout_seconds}: invalid BindTimeoutSeconds, should not be a negative value",
                )
            )
        if kubernetes >= KubernetesVersion.V1_37:
            found += shape_faults(self.shape or DEFAULT_SHAPE, "shape")
        elif self.shape is not None:
            found.append(
                FieldError(
                    "shape",
                    "FieldValueInvalid",
                    "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
                )
            )
        return found


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
        self._score = (
            CapacityScore(args.shape or DEFAULT_SHAPE) if tables.kubernetes >= KubernetesVersion.V1_37 else None
        )

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
            return None if self._score is None else NoClaims()
        return needs.refusal if needs.refusal is not None else VolumeFit(self._catalogue, needs, self._score)

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
        affinities: dict[Bound, None] = {}  # in order; repeating one does not change the result
        missing = False
        unbound: list[PersistentVolumeClaim] = []
        for claim in claims:
            if fully_bound(claim):
                held = catalogue.volumes.get(claim.spec.volume_name)
                missing = missing or held is None
                if held is not None and not missing:
                    affinities[catalogue.bound(held)] = None
            elif waits_for_consumer(catalogue.classes.get(class_of_claim(claim))) and not claim.spec.volume_name:
                unbound.append(claim)
            else:
                return VolumeNeeds(UNBOUND_IMMEDIATE), []
        try:
            wanted = tuple(map(self._wanted, unbound))
        except BadSelector as fault_found:
            return VolumeNeeds(error(str(fault_found))), []
        affinities.pop(Bound(0), None)
        # Errors make the order matter. Without them it does not, and more pods share a shape if it is always the same.
        ordered = affinities if any(bound.fault for bound in affinities) else sorted(affinities)
        return VolumeNeeds(None, tuple(ordered), missing, wanted), unbound

    def _wanted(self, claim: PersistentVolumeClaim) -> WantedVolume:
        spec = claim.spec
        kind = ClaimKind(
            class_of_claim(claim),
            size_of(claim),
            frozenset(spec.access_modes),
            None if spec.selector is None else spec.selector.compile(),
            spec.volume_mode,
            spec.volume_attributes_class_name,
        )
        selected = self._catalogue.selected_node(claim)
        class_name = kind.class_name if spec.storage_class_name is None else spec.storage_class_name
        meant = tuple(
            MeantVolume(self._catalogue.affinity(volume), volume.metadata.name, capacity_bytes(volume))
            for volume in self._catalogue.referring(claim)
            if class_of_volume(volume) == kind.class_name and acceptable(kind, volume)
        )
        return WantedVolume(kind, meant, selected, class_name)

    # -- reserving and binding

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        if not isinstance(prepared, VolumeFit) or not prepared.needs.wanted or isinstance(pod, StandIn):
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
