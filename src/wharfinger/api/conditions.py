"""Status conditions as documents: making one, finding one, and setting one in a list.

The rule for `lastTransitionTime` is apimachinery's meta.SetStatusCondition: it moves only when `status` changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.views.meta import Condition

_WIRE_NAMES = {
    "type": "type",
    "status": "status",
    "reason": "reason",
    "message": "message",
    "observed_generation": "observedGeneration",
    "last_probe_time": "lastProbeTime",
    "last_heartbeat_time": "lastHeartbeatTime",
    "last_transition_time": "lastTransitionTime",
}


def new_condition(type: str, status: bool | str, reason: str, message: str, now: float) -> Document:
    """A condition that became so `now`; `status` is a boolean or one of True, False and Unknown as text."""
    return {
        "type": type,
        "status": status if isinstance(status, str) else "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now),
    }


def condition_document(condition: Condition) -> Document:
    """The document of a condition view, without its empty members."""
    return {wire: value for name, wire in _WIRE_NAMES.items() if (value := getattr(condition, name))}


def find_condition(conditions: Iterable[Document], type: str) -> Document | None:
    return next((condition for condition in conditions if condition.get("type") == type), None)


def statuses(conditions: Iterable[Document]) -> dict[str, str]:
    """The status of each condition by type, such as `{"Ready": "True"}`."""
    return {str(each.get("type")): str(each.get("status")) for each in conditions}


def is_true(conditions: Iterable[Document], type: str) -> bool:
    """Whether the condition is there with status True."""
    condition = find_condition(conditions, type)
    return condition is not None and condition.get("status") == "True"


def without_condition(conditions: Iterable[Document], type: str) -> list[Document]:
    return [condition for condition in conditions if condition.get("type") != type]


def transition_time(previous: Document | Condition | None, status: str, now: str) -> str:
    """The `lastTransitionTime` of a condition that replaces `previous`: that of `previous` while the status is the same."""
    if previous is None:
        return now
    if isinstance(previous, Condition):
        return (previous.last_transition_time if previous.status == status else "") or now
    return (previous.get("lastTransitionTime") if previous.get("status") == status else "") or now


def set_condition(
    conditions: Iterable[Document],
    condition: Document,
    *,
    append: bool = False,
    keep_if_same_reason: bool = False,
    reason_is_transition: bool = False,
) -> list[Document]:
    """The list with `condition` in place of the one of its type. Its `lastTransitionTime` says when it was observed, and
    becomes that of the replaced condition while the status is the same.

    append: the condition moves to the end of the list, as in upstream's SetDeploymentCondition.
    keep_if_same_reason: a condition of the same status and reason stays as it is, whatever its message (the same function).
    reason_is_transition: a new reason counts as a transition too.
    """
    present = list(conditions)
    previous = find_condition(present, condition["type"])
    if previous is None:
        return [*present, condition]
    same_status = previous.get("status") == condition["status"]
    same_reason = previous.get("reason", "") == condition.get("reason", "")
    if keep_if_same_reason and same_status and same_reason:
        return present
    if same_reason or not reason_is_transition:
        moment = transition_time(previous, condition["status"], condition["lastTransitionTime"])
        condition = {**condition, "lastTransitionTime": moment}
    if append:
        return [*without_condition(present, condition["type"]), condition]
    return [condition if each is previous else each for each in present]
