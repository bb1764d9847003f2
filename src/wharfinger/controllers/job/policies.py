"""The policies of a job: podFailurePolicy for failed pods, successPolicy for completed indexes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.api.views import Pod
from wharfinger.api.views.pods import ContainerStatus
from wharfinger.controllers.job.indexes import Indexes

PolicyDocument = Mapping[str, Any]


def failure_action(policy: PolicyDocument | None, pod: Pod) -> tuple[str, str]:
    """The action of the first rule that matches a failed pod, and for FailJob the message. `Count` if none does."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        action = rule.get("action", "")
        if rule.get("onExitCodes"):
            container = _matching_container(rule["onExitCodes"], pod)
            if container is None or container.state.terminated is None:
                continue
            code = container.state.terminated.exit_code
            what = f"Container {container.name} for pod {_name(pod)} failed with exit code {code}"
        else:
            condition = _matching_condition(rule.get("onPodConditions") or (), pod)
            if condition is None:
                continue
            what = f"Pod {_name(pod)} has condition {condition}"
        return action, f"{what} matching {action} rule at index {number}" if action == "FailJob" else ""
    return "Count", ""


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _matching_condition(patterns: Any, pod: Pod) -> str | None:
    wanted = {(pattern.get("type"), pattern.get("status", "True")) for pattern in patterns}
    return next((each.type for each in pod.status.conditions if (each.type, each.status) in wanted), None)


def _matching_container(wanted: PolicyDocument, pod: Pod) -> ContainerStatus | None:
    values = wanted.get("values") or ()
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        ended = status.state.terminated
        if ended is None or ended.exit_code == 0 or wanted.get("containerName", status.name) != status.name:
            continue
        if (ended.exit_code in values) is (wanted.get("operator") == "In"):
            return status
    return None


def success_rule(policy: PolicyDocument | None, succeeded: Indexes, completions: int) -> str | None:
    """The message of the first rule that the succeeded indexes meet; None if they meet none."""
    if not succeeded:
        return None
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        count = rule.get("succeededCount")
        if rule.get("succeededIndexes") is None:
            met = count is not None and len(succeeded) >= count
        else:
            required = Indexes.parse(rule["succeededIndexes"], completions)
            done = required.overlap(succeeded)
            met = bool(required) and (done == len(required) or (count is not None and done >= count))
        if met:
            return f"Matched rules at index {number}"
    return None
