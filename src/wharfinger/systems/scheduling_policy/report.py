"""What reports tell about scheduling policies: whether they are enforced, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    PODS,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.client.interface import Client
from wharfinger.contributions import Sample, StatusPart, SystemReport
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.shipped import switches_on
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings


class SchedulingPolicyReport(SystemReport):
    status_key = "schedulingPolicies"
    screen = "policy"
    screen_kinds = (SCHEDULING_POLICIES, CLUSTER_ROLES, ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS, PRIORITY_CLASSES)
    sample = Sample(files("wharfinger.systems.scheduling_policy").joinpath("samples"))

    def screen_view(self, objects: Callable[[Resource], Sequence[Document]], now: float) -> dict[str, list[Document]]:
        from wharfinger.systems.scheduling_policy.screen import policy_view

        return policy_view(objects, now)

    def suggestion(self, objects: Callable[[Resource], Sequence[Document]], namespace: str) -> list[Document]:
        from wharfinger.systems.scheduling_policy.rules.suggest import default_class, manifests_for

        pods = [each for each in objects(PODS) if each["metadata"].get("namespace") == namespace]
        return manifests_for(namespace, pods, global_class=default_class(objects(PRIORITY_CLASSES)))

    async def status(self, client: Client, configuration: Configuration) -> StatusPart:
        policies = (await client.list(SCHEDULING_POLICIES)).items
        mode = configuration.of(SchedulingPolicySettings).mode
        own = sorted(policy["metadata"]["name"] for policy in policies if switches_on(policy))
        enforced = mode == "enforce" or (mode == "auto" and bool(own))
        because = f", since there is {', '.join(own)}" if mode == "auto" and own else ""
        line = f"scheduling policies: {'enforced' if enforced else 'not enforced'} (mode {mode}{because})"
        counts = {
            policy["metadata"]["name"]: violations
            for policy in policies
            if (violations := (policy.get("status") or {}).get("violations"))
        }
        if counts:
            listed = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
            line += f"; violations since the policies changed: {listed}"
        return StatusPart({"mode": mode, "enforced": enforced, "own": own, "violations": counts}, line)

    def startup_note(self, configuration: Configuration) -> str:
        return f"scheduling policies: {configuration.of(SchedulingPolicySettings).mode}"
