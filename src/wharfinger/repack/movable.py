"""Which pods can be moved, what moving one costs, and why the others stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from wharfinger.admission.scheduler_records import scheduler_records
from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.api.selectors import BadSelector, Requirements, matches
from wharfinger.api.views import Pod, PodDisruptionBudget
from wharfinger.devices.pod_claims import claim_keys, is_made_for
from wharfinger.engine import Engine
from wharfinger.framework.stand_ins import StandIn

DISRUPTION_COST = "wharfinger.dev/disruption-cost"
"""On a pod: what a restart costs, compared with 1 for other pods."""

CLAIM = "ResourceClaim"
_MIRROR = "kubernetes.io/config.mirror"
_KEEPS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "karpenter.sh/do-not-evict": "true",
}
"""Annotations by which users forbid autoscalers to move a pod; they hold here as well."""


_Budgets = dict[str, list[tuple[PodDisruptionBudget, Requirements]]]
"""By namespace, with their selectors."""


class BadCost(ValueError):
    """A disruption cost is not a number, or not positive."""


@dataclass(frozen=True, slots=True)
class MovablePod:
    """A pod that can be moved from `node`."""

    key: ObjectKey
    pod: Pod  # as its replacement would be created: without a node
    node: str
    cost: float = 1.0
    recreated: bool = True  # by a controller
    budget: PodDisruptionBudget | None = None  # the one that covers it
    claims: tuple[Document, ...] = ()  # ResourceClaims that were made for it; its replacement gets others

    @property
    def name(self) -> str:
        return f"{self.key[0]}/{self.key[1]}"

    @property
    def strain(self) -> float:
        """The part of what its budget allows that the move takes. Of plans that cost the same, the one with less is better."""
        return 0.0 if self.budget is None else 1 / self.budget.status.disruptions_allowed


@dataclass(frozen=True, slots=True)
class FixedPod:
    key: ObjectKey
    node: str
    why: str
    what: str  # as people call it


@dataclass(frozen=True, slots=True)
class RepackedPods:
    """The pods that matter: those that may move, and those that keep their nodes from becoming free."""

    movable: dict[ObjectKey, MovablePod]
    fixed: dict[ObjectKey, FixedPod]


def sort_pods(engine: Engine, *, alone: bool = True) -> RepackedPods:
    """Sorts the pods on nodes. Those of DaemonSets and static pods are neither: they leave with their node. Pods that no
    controller creates again are movable only if `alone` says so."""
    movable, fixed = dict[ObjectKey, MovablePod](), dict[ObjectKey, FixedPod]()
    records = {record.annotation for record in scheduler_records()}
    budgets = _compiled(engine.budgets)
    for placed in engine.tables.placed():
        pod = placed.pod
        if _stays_with_node(pod):
            continue
        covering = _covering(pod, budgets)
        why = _why_fixed(pod, covering)
        if not why and not alone and _controller(pod) is None:
            why = "no controller would create it again"
        if why:
            fixed[placed.key] = FixedPod(placed.key, placed.node_name, why, _title(pod))
            continue
        movable[placed.key] = MovablePod(
            placed.key,
            as_new(pod, records, engine),
            placed.node_name,
            cost_of(pod),
            _controller(pod) is not None,
            next(iter(covering), None),
            _made_claims(pod, engine),
        )
    return RepackedPods(movable, fixed)


def as_new(pod: Pod, records: Iterable[str], engine: Engine) -> Pod:
    """The pod as its replacement is created: without node, nomination and what the scheduler noted on it. The claims that
    were made for it stand for those of the replacement."""
    metadata, spec = pod.metadata, msgspec.structs.replace(pod.spec, node_name="")
    if spec.scheduler_name not in engine.profiles:
        spec = msgspec.structs.replace(spec, scheduler_name=next(iter(engine.profiles)))
    if any(name in metadata.annotations for name in records):
        kept = {name: text for name, text in metadata.annotations.items() if name not in records}
        metadata = msgspec.structs.replace(metadata, annotations=kept)
    status = type(pod.status)(resource_claim_statuses=pod.status.resource_claim_statuses)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)


def _made_claims(pod: Pod, engine: Engine) -> tuple[Document, ...]:
    known = (engine.known(CLAIM, *key) for key in claim_keys(pod))
    return tuple(claim for claim in known if claim is not None and is_made_for(claim, pod))


def cost_of(pod: Pod) -> float:
    text = pod.metadata.annotations.get(DISRUPTION_COST)
    if text is None:
        return 1.0
    try:
        cost = float(text)
    except ValueError:
        cost = 0.0
    if not 0 < cost < float("inf"):
        where = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
        raise BadCost(f"{where}: annotation {DISRUPTION_COST} must be a positive number, not {text!r}")
    return cost


def _title(pod: Pod) -> str:
    if isinstance(pod, StandIn):
        return f"{pod.kind} {pod.object_name}"
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _controller(pod: Pod) -> object | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def _stays_with_node(pod: Pod) -> bool:
    if _MIRROR in pod.metadata.annotations:
        return True
    return any(owner.controller and owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)


def _why_fixed(pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> str:
    if isinstance(pod, StandIn):
        return "it keeps room there"
    if pod.metadata.deletion_timestamp:
        return "it is being deleted already"
    for name, text in _KEEPS.items():
        if pod.metadata.annotations.get(name) == text:
            return f"it has the annotation {name}: {text}"
    return _budget_fault(budgets)


def _compiled(budgets: Iterable[PodDisruptionBudget]) -> _Budgets:
    found: _Budgets = {}
    for budget in budgets:
        if budget.spec.selector is not None:
            with suppress(BadSelector):
                selector = budget.spec.selector.compile()
                found.setdefault(budget.metadata.namespace, []).append((budget, selector))
    return found


def _covering(pod: Pod, budgets: _Budgets) -> list[PodDisruptionBudget]:
    of_namespace = budgets.get(pod.metadata.namespace, ())
    return [budget for budget, selector in of_namespace if matches(selector, pod.metadata.labels)]


def _budget_fault(covering: Sequence[PodDisruptionBudget]) -> str:
    """Why the eviction API would refuse to evict a pod for ever; a budget that allows one disruption allows all moves,
    one after the other."""
    if len(covering) > 1:
        return "more than one PodDisruptionBudget covers it, so it cannot be evicted"
    for budget in covering:
        if budget.status.disruptions_allowed < 1:
            name = f"{budget.metadata.namespace}/{budget.metadata.name}"
            return f"PodDisruptionBudget {name} allows no disruption"
    return ""
