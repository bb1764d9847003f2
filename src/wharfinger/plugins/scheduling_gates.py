"""SchedulingGates: a pod with scheduling gates does not enter the active queue."""

from __future__ import annotations

from wharfinger.api.views import Pod
from wharfinger.framework.events import POD, Action, WakeUp
from wharfinger.framework.plugin import Plugin
from wharfinger.framework.status import SUCCESS, Status, unresolvable


class SchedulingGates(Plugin):
    name = "SchedulingGates"
    points = frozenset({"preEnqueue"})
    position = 10

    def pre_enqueue(self, pod: Pod) -> Status:
        if not pod.spec.scheduling_gates:
            return SUCCESS
        gates = " ".join(gate.name for gate in pod.spec.scheduling_gates)
        return unresolvable(f"waiting for scheduling gates: [{gates}]").by(self.name)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        same = WakeUp(
            POD, Action.UPDATE_POD_GATES_ELIMINATED, lambda pod, old, new: pod.metadata.uid == new.metadata.uid
        )
        return (same,)


plugins = (SchedulingGates,)
