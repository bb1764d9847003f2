"""Unsupported: refuses pods that need something this scheduler does not support, so that they are never placed wrongly."""

from __future__ import annotations

from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable

_RESTART_ALL = "RestartAllContainers"


class Unsupported(Plugin):
    name = "Unsupported"
    points = frozenset({"preFilter"})
    position = 146
    ours = True

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        needs = unsupported(shape)
        return unresolvable(f"not supported by this scheduler: {', '.join(needs)}") if needs else None


def unsupported(shape: Shape) -> list[str]:
    """What the pod needs that no plugin checks. For the last two, nodes would have to declare a feature of their kubelet."""
    spec, needs = shape.pod.spec, []
    if spec.scheduling_group is not None:
        needs.append("groups of pods (spec.schedulingGroup)")
    if spec.host_network and spec.host_users is False:
        needs.append("user namespaces on the host's network (spec.hostUsers)")
    rules = (rule for each in (*spec.init_containers, *spec.containers) for rule in each.restart_policy_rules)
    if any(rule.action == _RESTART_ALL for rule in rules):
        needs.append(f"restarts of all containers (restartPolicyRules with {_RESTART_ALL})")
    return needs
