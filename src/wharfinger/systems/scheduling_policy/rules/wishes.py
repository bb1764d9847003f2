"""What a pod asks of the scheduler, read from its spec. Additions by the system itself are set aside."""

from __future__ import annotations

import msgspec
from msgspec import field as wire

from wharfinger.api.selectors import NodeSelectorTerm, SelectorExpression
from wharfinger.api.taints import (
    DAEMON_TOLERATIONS,
    HOST_NETWORK_DAEMON_TOLERATION,
    NO_EXECUTE,
    NOT_READY,
    UNREACHABLE,
)
from wharfinger.api.views.base import View
from wharfinger.api.views.pods import Affinity, Toleration
from wharfinger.systems.scheduling_policy.kinds.views import HARD, SOFT

DEFAULT_SCHEDULER = "default-scheduler"
Terms = list[tuple[str, NodeSelectorTerm]]
"""Node affinity terms with their paths."""


class SpreadWish(View, frozen=True):
    """What policies look at in a topology spread constraint."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class Spec(View, frozen=True):
    """The fields of a pod spec that policies cover."""

    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    node_selector: dict[str, str] = wire(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    runtime_class_name: str = ""
    topology_spread_constraints: tuple[SpreadWish, ...] = ()


class Wishes(msgspec.Struct):
    """What the pod asks for, each with its path; `injected` maps paths to the policy whose default wrote there."""

    base: str  # path of the pod spec
    node_name: str = ""
    scheduler: str = ""
    priority_class: str = ""
    priority: int | None = None
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: list[tuple[str, Toleration]] = msgspec.field(default_factory=list)
    hard_terms: Terms = msgspec.field(default_factory=list)
    soft_terms: Terms = msgspec.field(default_factory=list)
    alternatives: dict[str, Terms] = msgspec.field(
        default_factory=dict
    )  # updates: terms that were added beside others, by hardness
    before: dict[str, NodeSelectorTerm] = msgspec.field(
        default_factory=dict
    )  # updates: the older term that the term at a path narrows
    pod_affinity: dict[tuple[str, str], str] = msgspec.field(
        default_factory=dict
    )  # (kind, hardness) in use, with its path
    runtime_class: str = ""
    spread: list[tuple[str, SpreadWish]] = msgspec.field(default_factory=list)
    set_aside: list[str] = msgspec.field(default_factory=list)
    # The pod did not ask for what was set aside, but has it, so it may satisfy a requirement.
    system_class: str = ""
    system_tolerations: list[Toleration] = msgspec.field(default_factory=list)
    injected: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing is asked for."""
        return not (
            self.node_name
            or self.scheduler
            or self.priority_class
            or self.selector
            or self.tolerations
            or self.hard_terms
            or self.soft_terms
            or self.pod_affinity
            or self.runtime_class
            or self.spread
        )

    @property
    def hard_path(self) -> str:
        return f"{self.base}.affinity.nodeAffinity.{HARD}"

    @property
    def soft_path(self) -> str:
        return f"{self.base}.affinity.nodeAffinity.{SOFT}"


def read_wishes(
    spec: Spec, base: str = "spec", *, daemon: bool = False, migration: bool = False, global_class: str = ""
) -> Wishes:
    """`daemon`: the pod comes from the DaemonSet controller, whose additions the user did not ask for. `migration`: the
    template comes from the migration controller, which excludes the node that the pod leaves."""
    wishes = Wishes(
        base, spec.node_name, spec.scheduler_name, spec.priority_class_name, spec.priority, dict(spec.node_selector)
    )
    if wishes.priority_class in ("", global_class):
        wishes.system_class = global_class  # already written, or about to be
    if wishes.priority_class and wishes.priority_class == global_class:
        wishes.priority_class = ""
        wishes.set_aside.append(f"{base}.priorityClassName: {global_class} is the cluster's default class")
    for index, toleration in enumerate(spec.tolerations):
        path = f"{base}.tolerations[{index}]"
        if _by_default_toleration_seconds(toleration):
            wishes.set_aside.append(f"{path}: added to every pod by the API server")
        elif daemon and _by_daemon_set(toleration):
            wishes.set_aside.append(f"{path}: added by the DaemonSet controller")
        else:
            wishes.tolerations.append((path, toleration))
            continue
        wishes.system_tolerations.append(toleration)
    wishes.runtime_class = spec.runtime_class_name
    wishes.spread = [
        (f"{base}.topologySpreadConstraints[{index}]", each)
        for index, each in enumerate(spec.topology_spread_constraints)
    ]
    if spec.affinity is not None:
        _read_affinity(wishes, spec.affinity, daemon, migration)
    return wishes


def _read_affinity(wishes: Wishes, affinity: Affinity, daemon: bool, migration: bool) -> None:
    node = affinity.node_affinity
    if node is not None and node.required is not None:
        for index, term in enumerate(node.required.node_selector_terms):
            path = f"{wishes.hard_path}.nodeSelectorTerms[{index}]"
            if daemon and _names_one_node(term):
                wishes.set_aside.append(f"{path}.matchFields: added by the DaemonSet controller")
                if not term.match_expressions:
                    continue
                term = NodeSelectorTerm(term.match_expressions)
            if migration and (left := [one for one in term.match_fields if not _excludes_node(one)]) != list(
                term.match_fields
            ):
                wishes.set_aside.append(f"{path}.matchFields: added by the migration controller")
                if not term.match_expressions and not left:
                    continue
                term = NodeSelectorTerm(term.match_expressions, tuple(left))
            wishes.hard_terms.append((path, term))
    for index, preferred in enumerate(node.preferred if node is not None else ()):
        wishes.soft_terms.append((f"{wishes.soft_path}[{index}].preference", preferred.preference))
    for kind, pods in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if pods is not None:
            for hardness, terms in ((HARD, pods.required), (SOFT, pods.preferred)):
                if terms:
                    wishes.pod_affinity[kind, hardness] = f"{wishes.base}.affinity.{kind}.{hardness}"


def _names_one_node(term: NodeSelectorTerm) -> bool:
    if len(term.match_fields) != 1:
        return False
    only = term.match_fields[0]
    return only.key == "metadata.name" and only.operator == "In" and len(only.values) == 1


def _excludes_node(one: SelectorExpression) -> bool:
    return one.key == "metadata.name" and one.operator == "NotIn" and len(one.values) == 1


def _by_default_toleration_seconds(toleration: Toleration) -> bool:
    """What the admission plugin DefaultTolerationSeconds adds to pods that do not tolerate these two taints."""
    return (
        toleration.key in (NOT_READY, UNREACHABLE)
        and toleration.operator == "Exists"
        and toleration.effect == NO_EXECUTE
        and toleration.toleration_seconds == 300
    )


_DAEMON_TOLERATIONS = {*DAEMON_TOLERATIONS, HOST_NETWORK_DAEMON_TOLERATION}


def _by_daemon_set(toleration: Toleration) -> bool:
    """As AddOrUpdateDaemonPodTolerations in pkg/controller/daemon/util."""
    return (
        (toleration.key, toleration.effect) in _DAEMON_TOLERATIONS
        and toleration.operator == "Exists"
        and toleration.toleration_seconds is None
    )


def additions(new: Wishes, old: Wishes) -> Wishes:
    """What `new` asks for beyond `old`."""
    added = Wishes(new.base, set_aside=new.set_aside)
    added.node_name = new.node_name if new.node_name != old.node_name else ""
    added.scheduler = new.scheduler if new.scheduler != old.scheduler else ""
    added.priority_class = new.priority_class if new.priority_class != old.priority_class else ""
    added.selector = {key: value for key, value in new.selector.items() if old.selector.get(key) != value}
    # Policies do not limit how long a taint is tolerated, so a changed tolerationSeconds is not an addition.
    tolerated = {_without_seconds(toleration) for _, toleration in old.tolerations}
    added.tolerations = [item for item in new.tolerations if _without_seconds(item[1]) not in tolerated]
    added.hard_terms = _added_terms(new.hard_terms, old.hard_terms, added.before)
    added.soft_terms = _added_terms(new.soft_terms, old.soft_terms, added.before)
    # A term that narrows none of the older ones may bypass what they ask for, since terms are alternatives.
    added.alternatives = {
        hardness: [item for item in terms if item[0] not in added.before]
        for hardness, terms, had in ((HARD, added.hard_terms, old.hard_terms), (SOFT, added.soft_terms, old.soft_terms))
        if had
    }
    added.runtime_class = new.runtime_class if new.runtime_class != old.runtime_class else ""
    had = [one for _, one in old.spread]
    added.spread = [item for item in new.spread if item[1] not in had]
    added.pod_affinity = {slot: path for slot, path in new.pod_affinity.items() if slot not in old.pod_affinity}
    return added


def _without_seconds(toleration: Toleration) -> tuple[str, str, str, str]:
    return (toleration.key, toleration.operator or "Equal", toleration.value, toleration.effect)


def _added_terms(new: Terms, old: Terms, before: dict[str, NodeSelectorTerm]) -> Terms:
    """Terms that are new. One that narrows an older term is noted with it in `before`."""
    had = [term for _, term in old]
    added = [(path, term) for path, term in new if term not in had]
    for path, term in added:
        if narrowed := next((older for older in had if _narrows(term, older)), None):
            before[path] = narrowed
    return added


def _narrows(term: NodeSelectorTerm, older: NodeSelectorTerm) -> bool:
    return all(one in term.match_expressions for one in older.match_expressions) and all(
        one in term.match_fields for one in older.match_fields
    )
