"""What a scenario means on a running cluster, as far as the scenario alone tells: whether it can be played there, which
expectations must hold for a while, and in which order its objects are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from wharfinger.api.kinds.builtin import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from wharfinger.api.registry import Resource
from wharfinger.scenario.document import Expectation, Scenario
from wharfinger.scenario.extension import Extensions

LONGEST = 100.0  # seconds of virtual time that a scenario, or one of its expectations, may need
LATEST = 25.0  # seconds that a binding may be delayed: API servers wait for 30 at most
_OTHERS, _OF_THE_CLUSTER = "others", "of the cluster"
LEAVING: Sequence[Resource | str] = (_OTHERS, PODS, PERSISTENT_VOLUME_CLAIMS, _OF_THE_CLUSTER, NODES)


def why_not(scenario: Scenario, *, restarts: bool = False, webhook: bool = False) -> str:
    """Why a scenario cannot be played on a running cluster; empty if it can. `restarts`: whether components can be
    restarted there; `webhook`: whether its API server can reach a webhook of ours."""
    if reason := Extensions().why_not(scenario):
        return reason
    if scenario.invariants:
        return "it checks invariants, which needs a simulation"
    for step in scenario.steps:
        if (step.at or 0.0) > LONGEST:
            return f"it needs more than {LONGEST:.0f} seconds of virtual time"
        if any((expectation.within or 0.0) > LONGEST for expectation in step.expect):
            return f"an expectation waits for more than {LONGEST:.0f} seconds"
        for fault in step.faults:
            if fault.bind and not webhook:
                return "it lets bindings fail or be slow (see --webhook)"
            if fault.request or fault.watch or fault.crash or fault.pause or fault.skew or fault.standby:
                return "it has faults of requests, watches or processes, which only a simulation can cause"
            if fault.delay > LATEST:
                return f"a binding is to be slower than {LATEST:.0f} seconds"
            if fault.restart and not restarts:
                return f"it restarts {fault.restart} (see --restart)"
    return ""


def leaving(resource: Resource) -> int:
    """The rank of a kind in the order of deletion: owners go with their pods, claims when no pod uses them, nodes last."""
    if resource in LEAVING:
        return LEAVING.index(resource)
    return LEAVING.index(_OTHERS if resource.namespaced else _OF_THE_CLUSTER)


def is_shipped(resource: Resource, namespace: str, name: str) -> bool:
    """Whether our programs create and restore an object by themselves, so that a scenario may delete it."""
    return (resource.kind, namespace, name) in _shipped()


@cache
def _shipped() -> frozenset[tuple[str, str, str]]:
    return frozenset(Extensions().shipped())


def is_negative(expectation: Expectation) -> bool:
    """Whether it says that something does not happen, so that being true once proves nothing."""
    if expectation.absent or expectation.count == 0:
        return True
    for field in expectation.fields:
        wanted = field.wanted
        if wanted is None or (isinstance(wanted, dict) and (wanted.get("exists") is False or "not" in wanted)):
            return True
        if field.path.text == "status.phase" and wanted == "Pending":
            return True
    return False
