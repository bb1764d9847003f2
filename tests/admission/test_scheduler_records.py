"""Who may write the records of a pod's devices and of its reservation, in whichever way they reach the pod."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import SYSTEM, Request, User
from wharfinger.admission.scheduler_records import (
    NODE_OF_TOKEN,
    RecordRules,
    SchedulerRecordReviewer,
    scheduler_records,
)
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Resource
from wharfinger.systems.reservation.rules.reservations import ALLOCATED
from wharfinger.systems.resource_class.rules.compute_resources import DEVICE_IDS, RECORD, RECORD_FIELD

pytestmark = pytest.mark.needs_system("reservation", "resource_class")

GPU = "nvidia.com/gpu"
SCHEDULER = "system:kube-scheduler"


def document(*records: str, **others: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "annotations": {**dict.fromkeys(records, "{}"), **others}}}


def reviewer(*rights: str, pod: dict[str, Any] | None = None) -> SchedulerRecordReviewer:
    """`rights` are users that may update the NodeComputeResources of node n1."""

    def authorized(asked: Attributes) -> bool:
        return asked.user.name in rights and (asked.verb, asked.resource, asked.name) == (
            "update",
            "nodecomputeresources",
            "n1",
        )

    return SchedulerRecordReviewer(
        RecordRules({SCHEDULER, "schedulers"}, scheduler_records()), authorized, lambda *_: pod
    )


def placed(pod: dict[str, Any], node: str = "n1") -> dict[str, Any]:
    return {**pod, "spec": {**pod.get("spec", {}), "nodeName": node}}


def with_field(value: str = "cr1") -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", RECORD_FIELD: {GPU: value}}]}}


@pytest.mark.parametrize(
    ("user", "operation", "subresource", "new", "old", "refused"),
    [
        ("tenant", "CREATE", "", document(RECORD, ALLOCATED), None, ""),
        ("tenant", "UPDATE", "", document(RECORD, other="x"), document(RECORD), ""),
        ("tenant", "UPDATE", "", document(RECORD), document(), RECORD),
        ("tenant", "UPDATE", "", document(), document(ALLOCATED), ALLOCATED),
        ("tenant", "UPDATE", "status", document(ALLOCATED), document(), ALLOCATED),
        ("tenant", "UPDATE", "ephemeralcontainers", document(RECORD), document(), RECORD),
        ("tenant", "UPDATE", "resize", document(RECORD), document(), RECORD),
        ("tenant", "UPDATE", "", with_field("cr2"), with_field("cr1"), RECORD),
        ("tenant", "UPDATE", "", with_field(), document(), RECORD),
        ("tenant", "UPDATE", "", {"metadata": {"name": "p"}}, with_field(), ""),
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
    made = reviewer()
    assert made.concerns("", "pods", subresource)
    request = Request(operation, PODS, "default", "p", User(user, ()), new, old, subresource)
    denied = made.review(request).denied
    assert (str(denied) if denied is not None else "") == (
        f'pods "p" is forbidden: only schedulers may change annotation {refused}' if refused else ""
    )


@pytest.mark.parametrize(
    ("user", "pod", "refused"),
    [
        (User("tenant"), placed(document(ALLOCATED)), True),
        (User("tenant"), document(ALLOCATED), False),
        (User("tenant"), placed(document(RECORD)), True),
        (User("tenant"), placed(with_field()), True),
        (User("tenant"), with_field(), False),
        (User("tenant", ("system:nodes",)), placed(document(RECORD)), True),
        (User("system:serviceaccount:kube-system:replicaset-controller"), placed(document(RECORD)), True),
        (User(SCHEDULER), placed(document(ALLOCATED, RECORD)), False),
        (User("mine", ("schedulers",)), placed(document(RECORD)), False),
        (SYSTEM, placed(document(ALLOCATED, RECORD, DEVICE_IDS)), False),
        (User("tenant"), document(DEVICE_IDS), True),
        (SYSTEM, document(DEVICE_IDS), True),
    ],
)
def test_what_a_new_pod_may_bring_along(user: User, pod: Any, refused: bool) -> None:
    """No scheduler handles a pod that has a node, so none would replace its record; and no new pod has devices."""
    denied = reviewer().review(Request("CREATE", PODS, "default", "p", user, pod)).denied
    assert (denied is not None) == refused


@pytest.mark.parametrize(
    ("user", "node", "allowed"),
    [
        (User("agent"), "n1", True),
        (User("agent"), "n2", False),
        (User("agent"), "", False),
        (User("tenant"), "n1", False),
        (User("system:node:n1", ("system:nodes",)), "n1", True),
        (User("system:node:n2", ("system:nodes",)), "n1", False),
        (User("agent", extra={NODE_OF_TOKEN: ("n1",)}), "n1", True),
        (User("agent", extra={NODE_OF_TOKEN: ("n2",)}), "n1", False),
    ],
)
def test_device_ids_are_written_by_the_agent_of_the_node(user: User, node: str, allowed: bool) -> None:
    rights = ("agent", "system:node:n1", "system:node:n2")
    old = placed(document(), node)
    for subresource in ("", "status"):
        request = Request("UPDATE", PODS, "default", "p", user, placed(document(DEVICE_IDS), node), old, subresource)
        assert (reviewer(*rights).review(request).denied is None) == allowed


def test_the_agent_of_a_node_writes_no_other_record() -> None:
    request = Request("UPDATE", PODS, "default", "p", User("agent"), placed(document(RECORD)), placed(document()))
    assert reviewer("agent").review(request).denied is not None


@pytest.mark.parametrize("resource", [PODS, Resource("", "v1", "bindings", "Binding")])
@pytest.mark.parametrize("user", ["tenant", SCHEDULER])
@pytest.mark.parametrize(
    ("pod", "binding", "refused"),
    [
        (document(RECORD), document(), True),
        (with_field(), document(), True),
        (document(ALLOCATED), document(), True),
        (document(**{ALLOCATED: ""}), document(), False),
        (document(), document(), False),
        (None, document(), False),
    ],
)
def test_a_record_that_a_pod_brought_is_answered_by_the_binding(
    resource: Resource, user: str, pod: Any, binding: Any, refused: bool
) -> None:
    """A scheduler that ignores the record would leave it as the tenant wrote it."""
    sub = "binding" if resource == PODS else ""
    denied = (
        reviewer(pod=pod).review(Request("CREATE", resource, "default", "p", User(user), binding, None, sub)).denied
    )
    assert (denied is not None) == refused


@pytest.mark.parametrize("user", [User(SCHEDULER), SYSTEM])
def test_a_scheduler_answers_with_a_record_of_its_own(user: User) -> None:
    """Also one that runs with an administrator's credentials."""
    binding = document(RECORD, **{ALLOCATED: ""})
    request = Request("CREATE", PODS, "default", "p", user, binding, None, "binding")
    assert reviewer(pod=document(RECORD, ALLOCATED)).review(request).denied is None


def test_the_record_of_a_reservation_is_the_schedulers() -> None:
    resource = registry().find("Reservation")
    assert resource is not None
    for user, refused in (("tenant", True), (SCHEDULER, False)):
        request = Request("UPDATE", resource.storage, "", "r", User(user), document(RECORD), document(), "status")
        assert reviewer().concerns(resource.group, resource.plural, "status")
        assert (reviewer().review(request).denied is not None) == refused
