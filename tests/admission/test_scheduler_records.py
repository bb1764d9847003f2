"""Who may write the records of a pod's devices and of its reservation, in whichever way they reach the pod."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.admission.request import SYSTEM, Request, User
from wharfinger.admission.scheduler_records import SchedulerRecordReviewer, scheduler_records
from wharfinger.api.kinds.builtin import PODS
from wharfinger.systems.reservation.rules.reservations import ALLOCATED
from wharfinger.systems.resource_class.rules.compute_resources import RECORD

pytestmark = pytest.mark.needs_system("reservation", "resource_class")

SCHEDULER = "system:kube-scheduler"


def document(*records: str, **others: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "annotations": {**dict.fromkeys(records, "{}"), **others}}}


@pytest.mark.parametrize(
    ("user", "operation", "subresource", "new", "old", "refused"),
    [
        ("tenant", "CREATE", "", document(RECORD, ALLOCATED), None, ""),
        ("tenant", "UPDATE", "", document(RECORD, other="x"), document(RECORD), ""),
        ("tenant", "UPDATE", "", document(RECORD), document(), RECORD),
        ("tenant", "UPDATE", "", document(), document(ALLOCATED), ALLOCATED),
        ("tenant", "UPDATE", "status", document(ALLOCATED), document(), ALLOCATED),
        (SCHEDULER, "UPDATE", "", document(ALLOCATED), document(), ""),
        ("tenant", "CREATE", "binding", document(other="x"), None, ""),
        ("tenant", "CREATE", "binding", {"metadata": {"name": "p"}}, None, ""),
        ("tenant", "CREATE", "binding", document(RECORD), None, RECORD),
        ("tenant", "CREATE", "binding", document(ALLOCATED), None, ALLOCATED),
        (SCHEDULER, "CREATE", "binding", document(RECORD, ALLOCATED), None, ""),
        ("tenant", "CREATE", "eviction", document(ALLOCATED), None, ""),
    ],
)
def test_only_schedulers_write_records(
    user: str, operation: str, subresource: str, new: Any, old: Any, refused: str
) -> None:
    reviewer = SchedulerRecordReviewer({SCHEDULER}, scheduler_records())
    assert reviewer.concerns("", "pods", subresource)
    request = Request(operation, PODS, "default", "p", User(user, ()), new, old, subresource)
    denied = reviewer.review(request).denied
    assert (str(denied) if denied is not None else "") == (
        f'pods "p" is forbidden: only schedulers may change annotation {refused}' if refused else ""
    )


@pytest.mark.parametrize(
    ("user", "records", "node", "refused"),
    [
        (User("tenant", ()), (ALLOCATED,), "n1", True),
        (User("tenant", ()), (ALLOCATED,), "", False),
        (User("tenant", ()), (RECORD,), "n1", False),
        (User(SCHEDULER, ()), (ALLOCATED,), "n1", False),
        (SYSTEM, (ALLOCATED,), "n1", False),
    ],
)
def test_a_pod_that_comes_with_its_node_names_no_reservation(
    user: User, records: tuple[str, ...], node: str, refused: bool
) -> None:
    """No scheduler handles it, so none would replace the annotation."""
    new = {**document(*records), "spec": {"nodeName": node}}
    denied = (
        SchedulerRecordReviewer({SCHEDULER}, scheduler_records())
        .review(Request("CREATE", PODS, "default", "p", user, new))
        .denied
    )
    assert (denied is not None) == refused
