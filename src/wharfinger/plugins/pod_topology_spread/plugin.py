"""PodTopologySpread: spreads matching pods evenly over topology domains.

Constraints come from the pod, or by default from the services and workloads that select it. Hard constraints filter,
soft ones score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.names import qualified_name
from wharfinger.api.selectors import BadSelector, LabelSelector, Requirements, exact_labels, matches
from wharfinger.api.views import Pod
from wharfinger.api.views.pods import TopologySpreadConstraint
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Args, Plugin, Prepared
from wharfinger.framework.pod_selectors import PodSelector
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, error
from wharfinger.framework.tables import Tables
from wharfinger.plugins.pod_topology_spread.constraints import HOSTNAME, ZONE, Constraint, constraints
from wharfinger.plugins.pod_topology_spread.scoring import Spread

_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),
)


class PodTopologySpreadArgs(Args, frozen=True):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        found = []
        if self.defaulting_type == "System" and self.default_constraints:
            found.append(invalid("defaultingType", self.defaulting_type, "when .defaultConstraints are not empty"))
        seen = set()
        for index, constraint in enumerate(self.default_constraints):
            path = f"defaultConstraints[{index}]"
            if constraint.max_skew <= 0:
                found.append(invalid(f"{path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)"))
            if not constraint.topology_key:
                found.append(required(f"{path}.topologyKey", "can not be empty"))
            for fault in qualified_name(constraint.topology_key) if constraint.topology_key else ():
                found.append(invalid(f"{path}.topologyKey", constraint.topology_key, fault))
            if constraint.when_unsatisfiable not in _ACTIONS:
                found.append(not_supported(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, _ACTIONS))
            if constraint.label_selector is not None:
                detail = "constraint must not define a selector, as they deduced for each pod"
                found.append(forbidden(f"{path}.labelSelector", detail))
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                found.append(duplicate(path, f"{{{pair[0]}, {pair[1]}}}"))
            seen.add(pair)
        return found


class PodTopologySpread(Plugin):
    name = "PodTopologySpread"
    points = frozenset({"preFilter", "filter", "preScore", "score"})
    position = 130
    weight = 2
    args_type = PodTopologySpreadArgs
    kinds = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")

    def __init__(self, tables: Tables, args: PodTopologySpreadArgs) -> None:
        super().__init__(tables, args)
        self._system = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._system else args.default_constraints
        self._hard_defaults = any(each.when_unsatisfiable == "DoNotSchedule" for each in self._defaults)
        self._selectors: dict[str, dict[tuple[str, str], Any]] = {}  # namespace to (kind, name) to selector
        self._services: dict[str, dict[str, Requirements]] = {}  # namespace to name to selector, if it has one
        self.versions: dict[str, int] = {}  # namespace to the number of times its selectors changed

    def observe(self, kind: str, old: Any, new: Any) -> None:
        before = None if old is None else old.spec.selector
        after = None if new is None else new.spec.selector
        if before == after and (old is None) == (new is None):
            return  # most updates only change the status
        metadata = (new or old).metadata
        owners = self._selectors.setdefault(metadata.namespace, {})
        if new is None:
            owners.pop((kind, metadata.name), None)
        else:
            owners[kind, metadata.name] = after
        if kind == "Service":
            services = self._services.setdefault(metadata.namespace, {})
            services.pop(metadata.name, None)
            if after:
                services[metadata.name] = exact_labels(after)
        self.versions[metadata.namespace] = self.versions.get(metadata.namespace, 0) + 1
        self.tables.changed(versions=True)

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        try:
            if shape.pod.spec.topology_spread_constraints:
                return Spread(self.tables, shape, lambda: self._constraints(shape.pod), lambda: 0, require_all=True)
            if not self._defaults:
                return None
            versions, namespace = self.versions, shape.namespace
            return Spread(
                self.tables,
                shape,
                lambda: self._constraints(shape.pod),
                lambda: versions.get(namespace, 0),
                require_all=not self._system,
            )
        except BadSelector as fault:
            return error(f"obtaining pod's topology spread constraints: {fault}")

    def _constraints(self, pod: Pod) -> tuple[tuple[Constraint, ...], tuple[Constraint, ...]]:
        """The pod's hard and soft constraints. Raises BadSelector."""
        stated = pod.spec.topology_spread_constraints
        if stated:
            return tuple(constraints(stated, pod.metadata.labels, action) for action in _ACTIONS)  # type: ignore[return-value]
        selector = self.default_selector(pod)
        if not selector:
            return (), ()
        hard, soft = (
            constraints(self._defaults, pod.metadata.labels, action, PodSelector(selector)) for action in _ACTIONS
        )
        return hard, soft

    def default_selector(self, pod: Pod) -> Requirements:
        """The combined selectors of the services and the workload of a pod; empty if there are none."""
        metadata = pod.metadata
        owners = self._selectors.get(metadata.namespace, {})
        labels: dict[str, str] = {}
        for name, selector in self._services.get(metadata.namespace, {}).items():
            if matches(selector, metadata.labels):
                labels |= owners["Service", name]
        owner = metadata.controller
        if owner is None:
            return exact_labels(labels)
        found = owners.get((owner.kind, owner.name))
        if owner.kind == "ReplicationController" and owner.api_version == "v1" and isinstance(found, Mapping):
            return exact_labels(labels | dict(found))
        if owner.kind in ("ReplicaSet", "StatefulSet") and owner.api_version == "apps/v1":
            if isinstance(found, LabelSelector):
                try:
                    return (*exact_labels(labels), *found.compile())
                except BadSelector:
                    pass
        return exact_labels(labels)

    # -- queueing hints

    def wake_ups(self) -> tuple[WakeUp, ...]:
        # Terminating pods are not counted.
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE
        pods |= Action.UPDATE_POD_TERMINATING
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            WakeUp(POD, pods, self._pod_changed),
            WakeUp(NODE, nodes, self._node_changed),
            *(WakeUp(kind, Action.ALL, self._defaults_changed) for kind in self.kinds if self._hard_defaults),
        )

    def _hard(self, pod: Pod) -> tuple[Constraint, ...] | None:
        try:
            return self._constraints(pod)[0]
        except BadSelector:
            return None

    def _pod_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        if any(each is not None and not _involved(each, pod) for each in (old, new)):
            return False
        hard = self._hard(pod)
        if hard is None:
            return True
        if old is not None and new is not None:
            if pod.metadata.uid == new.metadata.uid and old.spec.tolerations != new.spec.tolerations:
                if any(constraint.honor_taints for constraint in hard):
                    return True
            before, after = old.metadata.labels, new.metadata.labels
            if new.terminating and not old.terminating:
                return any(each.selector.matches(before) for each in hard)
            return any(each.selector.matches(before) != each.selector.matches(after) for each in hard)
        return any(each.selector.matches((new or old).metadata.labels) for each in hard)

    def _node_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        hard = self._hard(pod)
        if hard is None:
            return True
        keys = [constraint.topology_key for constraint in hard]
        before = old is not None and all(key in old.metadata.labels for key in keys)
        after = new is not None and all(key in new.metadata.labels for key in keys)
        if old is None or new is None or before != after:
            return before or after
        # Beside its domains, labels decide whether a node counts for pods that select their nodes.
        return after and (old.metadata.labels != new.metadata.labels or old.spec.taints != new.spec.taints)

    def _defaults_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        """Whether the default constraints of the pod may select other pods now."""
        if pod.spec.topology_spread_constraints or (new or old).metadata.namespace != pod.metadata.namespace:
            return False
        return old is None or new is None or old.spec.selector != new.spec.selector


def _involved(changed: Pod, pod: Pod) -> bool:
    if changed.metadata.uid == pod.metadata.uid:
        return True
    if not changed.spec.node_name and not changed.status.nominated_node_name:
        return False
    return changed.metadata.namespace == pod.metadata.namespace


plugins = (PodTopologySpread,)
