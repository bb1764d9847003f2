"""What a scenario means on a real cluster, as far as the scenario alone tells: whether it can be played there, what must
hold for a while, and in which order its objects go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from wharfinger.api.kinds.builtin import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from wharfinger.api.registry import Resource
from wharfinger.scenario.document import Expectation, Scenario
from wharfinger.scenario.running.times import of_day_elsewhere
from wharfinger.systems.placement.controllers.sets import DEFAULT_SETS
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTER_SETS
from wharfinger.systems.scheduling_policy.rules import shipped

LONGEST = 60.0  # seconds of virtual time that a scenario may need
LATEST = 25.0  # seconds that a binding may be delayed: API servers wait for 30 at most
_OTHERS, _OF_THE_CLUSTER = "others", "of the cluster"
LEAVING: Sequence[Resource | str] = (_OTHERS, PODS, PERSISTENT_VOLUME_CLAIMS, _OF_THE_CLUSTER, NODES)


def why_not(scenario: Scenario, *, restarts: bool = False, webhook: bool = False) -> str:
    """Why a scenario cannot be played on a real cluster; empty if it can. `restarts`: whether components there can be;
    `webhook`: whether its API server can ask us about bindings."""
    if part := of_day_elsewhere(scenario):
        return f"it speaks of times of day with {part}, which cannot be moved to now"
    for step in scenario.steps:
        if (step.at or 0.0) > LONGEST:
            return "it needs more than a minute of virtual time"
        if any((expectation.within or 0.0) > LONGEST for expectation in step.expect):
            return "an expectation waits for more than a minute"
        for fault in step.faults:
            if fault.bind and not webhook:
                return "it lets bindings fail or be slow (see --webhook)"
            if fault.delay > LATEST:
                return f"a binding is to be slower than {LATEST:.0f} seconds"
            if fault.restart and not restarts:
                return f"it restarts {fault.restart} (see --restart)"
    return ""


def leaving(resource: Resource) -> int:
    """When objects of a kind go. Owners of pods go with them, claims when no pod uses them, nodes when all pods are gone."""
    if resource in LEAVING:
        return LEAVING.index(resource)
    return LEAVING.index(_OTHERS if resource.namespaced else _OF_THE_CLUSTER)


def is_shipped(resource: Resource, namespace: str, name: str) -> bool:
    """Whether an object is one that our programs bring and restore by themselves, so that a scenario may take it away."""
    return (resource.kind, namespace, name) in _shipped()


@cache
def _shipped() -> frozenset[tuple[str, str, str]]:
    documents = (*shipped.roles(), *shipped.bindings(), *shipped.policies())
    found = {
        (each["kind"], str(each["metadata"].get("namespace") or ""), each["metadata"]["name"]) for each in documents
    }
    return frozenset(found | {(MANAGED_CLUSTER_SETS.kind, "", name) for name in DEFAULT_SETS})


def is_negative(expectation: Expectation) -> bool:
    """Whether it says that something does not happen, so that being true at once proves nothing."""
    if expectation.absent or expectation.count == 0:
        return True
    for field in expectation.fields:
        wanted = field.wanted
        if wanted is None or (isinstance(wanted, dict) and (wanted.get("exists") is False or "not" in wanted)):
            return True
        if field.path.text == "status.phase" and wanted == "Pending":
            return True
    return False
