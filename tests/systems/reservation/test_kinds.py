"""The kind Reservation: defaults, what is refused and in which words, when it ends, and the pod that stands for it."""

from typing import Any

import pytest

from wharfinger.api.resources import requests
from wharfinger.api.schema.crds import crd
from wharfinger.api.views import view
from wharfinger.systems.reservation.kinds.reservation import KIND
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import (
    MAX_PRIORITY,
    BadReservation,
    expired,
    expires_at,
    is_reservation,
    order_of,
    stand_in,
    template_of,
    wanted_quantities,
)

CREATED = "2026-01-01T00:00:00Z"
START = 1767225600.0


def reservation(metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "2Gi"}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u-1", "creationTimestamp": CREATED, **(metadata or {})},
        "spec": {"template": {"spec": {"containers": [container]}}, "owners": [{"labelSelector": {}}], **spec},
        "status": status or {},
    }


def seen(*args: Any, **spec: Any) -> Reservation:
    return view(reservation(*args, **spec), Reservation)


def test_defaults_leave_the_ttl_out_where_expires_says_how_long() -> None:
    plain, dated = reservation(), reservation(expires="2026-02-01T00:00:00Z")
    assert KIND.default is not None
    KIND.default(plain)
    KIND.default(dated)
    assert (plain["spec"]["ttl"], plain["spec"]["allocateOnce"]) == ("24h", True)
    assert "ttl" not in dated["spec"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"owners": []}, "spec.owners"),
        ({"owners": [{}]}, "spec.owners[0]"),
        ({"allocatePolicy": ""}, "spec.allocatePolicy"),
        ({"allocatePolicy": "Default"}, "spec.allocatePolicy"),
        ({"ttl": "soon"}, "spec.ttl"),
        ({"ttl": "-1h"}, "spec.ttl"),
        ({"expires": "tomorrow"}, "spec.expires"),
        ({"template": {}}, "spec.template"),
        ({"template": {"spec": {"containers": "none"}}}, "spec.template.spec.containers"),
        (
            {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}}},
            "spec.template.spec.containers[0].resources.requests[cpu]",
        ),
        ({"taints": [{"key": "k"}]}, "spec.taints[0].effect"),
        (
            {"owners": [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]},
            "spec.owners[0].labelSelector.matchExpressions[0].operator",
        ),
        ({"preAllocationPolicy": {"mode": "Other"}}, "spec.preAllocationPolicy.mode"),
    ],
)
def test_what_is_refused_is_named_by_path(change: dict[str, Any], path: str) -> None:
    document = reservation(**change)
    assert KIND.validate is not None
    assert path in [error.path for error in KIND.validate(document, None)]


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("node.koordinator.sh/reservation", "{"),
        ("scheduling.koordinator.sh/reservation-resize-allocatable", '{"resources":{"cpu":"-1"}}'),
        ("scheduling.koordinator.sh/reservation-restricted-options", '{"resources":"cpu"}'),
    ],
)
def test_faulty_annotations_are_refused(annotation: str, text: str) -> None:
    assert KIND.validate is not None
    (error,) = KIND.validate(reservation({"annotations": {annotation: text}}), None)
    assert error.path == f"metadata.annotations[{annotation}]"


def test_a_template_keeps_fields_nobody_knows() -> None:
    document = reservation(template={"spec": {"containers": [], "fromTheFuture": {"a": [1]}}, "alsoNew": True})
    assert KIND.validate is not None
    assert KIND.validate(document, None) == []
    schema = crd(KIND)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["spec"]["properties"]["template"]["x-kubernetes-preserve-unknown-fields"] is True


@pytest.mark.parametrize(
    ("spec", "ends"),
    [
        ({}, START + 24 * 3600),
        ({"ttl": "1m"}, START + 60),
        ({"ttl": "0"}, None),
        ({"ttl": "0s", "expires": "2020-01-01T00:00:00Z"}, None),
        ({"expires": "2026-02-01T00:00:00Z"}, START + 31 * 86400),
        ({"ttl": "1h", "expires": "2026-02-01T00:00:00Z"}, START + 3600),
        ({"ttl": "1h", "expires": "2026-01-01T00:00:10Z"}, START + 10),
    ],
)
def test_when_it_ends(spec: dict[str, Any], ends: float | None) -> None:
    found = seen(**spec)
    assert expires_at(found) == ends
    if ends is not None:
        assert not expired(found, ends)
        assert expired(found, ends + 1)


def test_what_it_asks_for_is_the_template_overlaid_by_the_resize_annotation() -> None:
    assert wanted_quantities(seen()) == {"cpu": "1500m", "memory": "2Gi"}
    resized = seen(
        {"annotations": {"scheduling.koordinator.sh/reservation-resize-allocatable": '{"resources":{"cpu":4}}'}}
    )
    assert wanted_quantities(resized) == {"cpu": "4", "memory": "2Gi"}
    assert requests(stand_in(resized)) == {"cpu": 4000, "memory": 2 << 30}


def test_init_containers_and_overhead_count() -> None:
    spec = {
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3", "memory": "1G"}}}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "overhead": {"cpu": "100m"},
    }
    assert wanted_quantities(seen(template={"spec": spec})) == {"cpu": "3100m", "memory": "1G"}


def test_the_stand_in_is_the_template_under_a_name_no_pod_can_have() -> None:
    template = {
        "metadata": {"namespace": "prod", "labels": {"app": "web", "tier": "a"}, "annotations": {"x": "1"}},
        "spec": {"nodeName": "n7", "priority": 5, "containers": []},
    }
    found = seen({"labels": {"tier": "b"}, "annotations": {"x": "2"}}, template=template)
    item = stand_in(found, scheduler_name="wharfinger")
    assert is_reservation(item)
    assert (item.metadata.namespace, item.metadata.uid) == ("prod", "u-1")
    assert item.metadata.labels == {"app": "web", "tier": "b"}
    assert item.metadata.annotations["x"] == "2"
    assert item.metadata.annotations["scheduling.koordinator.sh/reservation-node"] == "n7"
    assert (item.kind, item.object_name) == ("Reservation", "r")
    assert (item.spec.node_name, item.spec.scheduler_name) == ("", "wharfinger")
    assert (item.spec.priority, item.spec.preemption_policy) == (5, "Never")


@pytest.mark.parametrize(
    ("labels", "priority"),
    [({}, MAX_PRIORITY), ({"koordinator.sh/priority": "9"}, 9), ({"koordinator.sh/priority": "x"}, MAX_PRIORITY)],
)
def test_priority_of_the_stand_in(labels: dict[str, str], priority: int) -> None:
    assert stand_in(seen({"labels": labels})).spec.priority == priority


def test_once_it_has_a_node_the_status_says_how_much_is_reserved() -> None:
    status = {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "7"}}
    item = stand_in(seen(None, status))
    assert (item.spec.node_name, requests(item)) == ("n1", {"cpu": 7000})


@pytest.mark.parametrize(("text", "order"), [("100", 100), ("-3", -3), ("0", 0), ("1.5", 0), ("", 0)])
def test_order_label(text: str, order: int) -> None:
    assert order_of(seen({"labels": {"scheduling.koordinator.sh/reservation-order": text}})) == order


def test_a_template_of_the_wrong_type_says_where() -> None:
    with pytest.raises(BadReservation, match=r"spec\.template\.spec\.nodeName"):
        template_of(seen(template={"spec": {"nodeName": 7}}))
