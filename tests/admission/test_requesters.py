"""Who is noted as the requester of an object that controllers act for, and who may say so."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from wharfinger.admission.request import SYSTEM, Request, User
from wharfinger.admission.requesters import (
    CONTROLLERS,
    REQUESTER,
    RequesterReviewer,
    controllers_in,
    format_requester,
    requester_of,
)
from wharfinger.api.kinds import registry
from wharfinger.api.registry import Resource

pytestmark = pytest.mark.needs_system("reservation")

ANN, BOB = User("ann", ("team",), "1", {"scope": ("x",)}), User("bob")
CONTROLLER = User("system:kube-controller-manager")


def resource(kind: str) -> Resource:
    found = registry().find(kind)
    assert found is not None
    return found.storage


def document(requester: str | User | None = None, image: str = "x", **spec: Any) -> dict[str, Any]:
    if isinstance(requester, User):
        requester = format_requester(requester)
    annotations = {} if requester is None else {"annotations": {REQUESTER: requester}}
    template = {"spec": {"containers": [{"image": image}]}}
    return {"metadata": {"name": "o", **annotations}, "spec": {"template": template, **spec}}


@pytest.mark.parametrize(
    ("kind", "user", "new", "old", "noted"),
    [
        ("ReservationSet", ANN, document(), None, ANN),
        ("ReservationSet", ANN, document(SYSTEM), None, ANN),
        ("PodMigrationJob", ANN, document(SYSTEM), None, ANN),
        ("ReservationSet", SYSTEM, document(), None, SYSTEM),
        ("ReservationSet", SYSTEM, document(ANN), None, ANN),  # restored
        ("ReservationSet", SYSTEM, document("nonsense"), None, SYSTEM),
        ("Reservation", ANN, document(), None, None),
        ("Reservation", ANN, document(SYSTEM), None, None),
        ("Reservation", CONTROLLER, document(ANN), None, ANN),
        ("Reservation", CONTROLLER, document(), None, None),
        ("ReservationSet", BOB, document(ANN, replicas=3), document(ANN), ANN),
        ("ReservationSet", BOB, document(BOB, replicas=3), document(ANN), ANN),
        ("ReservationSet", BOB, document(None, replicas=3), document(ANN), ANN),
        ("ReservationSet", BOB, document(ANN, "other"), document(ANN), BOB),
        ("ReservationSet", SYSTEM, document(ANN, "other"), document(ANN), SYSTEM),
        ("Reservation", CONTROLLER, document(BOB, "other"), document(ANN), BOB),
        ("Reservation", BOB, document(ANN, "other"), document(ANN), None),
        ("PodMigrationJob", BOB, document(ANN, paused=True), document(ANN), BOB),
    ],
)
def test_the_requester_is_noted(kind: str, user: User, new: Any, old: Any, noted: User | None) -> None:
    new = deepcopy(new)
    request = Request("CREATE" if old is None else "UPDATE", resource(kind), "", "o", user, new, old)
    checking = RequesterReviewer(CONTROLLERS, mutating=False)
    sent = requester_of(new)
    refused = checking.review(request).denied is not None
    assert RequesterReviewer(CONTROLLERS, mutating=True).review(request).denied is None
    assert requester_of(request.object) == noted
    assert checking.review(request).denied is None  # what mutation wrote is right
    assert refused or sent == noted


def test_other_requests_are_left_alone() -> None:
    reviewer = RequesterReviewer(CONTROLLERS, mutating=True)
    assert not reviewer.concerns("", "pods", "")
    assert not reviewer.concerns("wharfinger.dev", "reservationsets", "status")
    assert reviewer.concerns("wharfinger.dev", "reservationsets", "")


def test_controllers_are_known_by_the_namespace_in_which_they_are_installed() -> None:
    assert "system:serviceaccount:mine:wharfinger-controllers" in controllers_in("mine")
    assert controllers_in("") == CONTROLLERS
