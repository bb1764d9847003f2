"""CapacityBuffers: what is valid, how many chunks there are, what quotas allow, and which give way."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.quantity import NANO
from wharfinger.api.views import Pod, ResourceQuota, view
from wharfinger.systems.reservation.kinds.capacity_buffer import KIND
from wharfinger.systems.reservation.rules.buffer_quotas import allot, room_of
from wharfinger.systems.reservation.rules.buffers import (
    UnclearBuffer,
    chunk_of,
    chunks,
    giving_way,
    reservation_set,
    set_name,
    template_name,
)

Document = dict[str, Any]
TEMPLATE: Document = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
}
REF = {"podTemplateRef": {"name": "t"}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({**REF, "replicas": 1}, ""),
        ({**REF, "limits": {"cpu": "1"}}, ""),
        (REF, "replicas or limits must also be set"),
        ({**REF, "percentage": 10}, "replicas or limits must also be set"),
        ({**REF, "replicas": 1, "scalableRef": {"kind": "Job", "name": "x"}}, "but not both"),
        ({**REF, "replicas": -1}, "greater than or equal to 0"),
        ({"scalableRef": {"kind": "", "name": "x"}, "replicas": 1}, "kind"),
    ],
)
def test_validation(spec: Document, words: str) -> None:
    made = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "b"}}
    document = {**made, "spec": spec}
    assert KIND.default is not None and KIND.validate is not None
    KIND.default(document)
    assert document["spec"]["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"
    faults = [f"{fault.path}: {fault.message}" for fault in KIND.validate(document, None)]
    assert bool(faults) == bool(words) and all(words in fault for fault in faults)


@pytest.mark.parametrize(
    ("spec", "replicas", "expected"),
    [
        ({"replicas": 3}, None, 3),
        ({"percentage": 25}, 10, 2),
        ({"percentage": 5}, 10, 0),
        ({"percentage": 200}, 3, 6),
        ({"limits": {"cpu": "2"}}, None, 4),
        ({"limits": {"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": "1"}}, None, 3),
        ({"replicas": 9, "percentage": 50}, 10, 9),
        ({"replicas": 3, "percentage": 50}, 10, 5),
        ({"replicas": 9, "percentage": 50, "limits": {"cpu": "3500m"}}, 10, 7),
        ({"replicas": 9, "percentage": 50, "limits": {"cpu": "10"}}, 10, 9),
    ],
)
def test_the_greater_counts_within_the_limits(spec: Document, replicas: int | None, expected: int) -> None:
    assert chunks(spec, chunk_of(TEMPLATE), replicas) == expected


@pytest.mark.parametrize("spec", [{}, {"percentage": 10}, {"limits": {"nvidia.com/gpu": "1"}}])
def test_what_says_nothing_about_the_size_is_unclear(spec: Document) -> None:
    with pytest.raises(UnclearBuffer):
        chunks(spec, chunk_of(TEMPLATE), None)


@pytest.mark.parametrize(
    ("needs", "free", "held", "expected"),
    [
        ({"cpu": 3}, {"cpu": 1}, [("a", {"cpu": 1}), ("b", {"cpu": 1}), ("c", {"cpu": 1})], ["a", "b"]),
        ({"cpu": 3}, {"cpu": 1}, [("a", {"cpu": 1}), ("b", {"cpu": 2})], ["b"]),
        ({"cpu": 5}, {"cpu": 1}, [("a", {"cpu": 1}), ("b", {"cpu": 2})], None),
        ({"cpu": 1}, {"cpu": 1}, [("a", {"cpu": 1})], []),
        ({"gpu": 1}, {"cpu": 1}, [("a", {"cpu": 1})], None),
    ],
)
def test_no_more_chunks_give_way_than_needed(
    needs: dict[str, int],
    free: dict[str, int],
    held: list[tuple[str, dict[str, int]]],
    expected: list[str] | None,
) -> None:
    assert giving_way(needs, free, held) == expected


def test_the_set_of_a_buffer_is_for_every_pod_and_comes_last() -> None:
    made = reservation_set("shop", "spare", TEMPLATE, 4)
    spec = made["spec"]
    assert (spec["replicas"], spec["replaceUsed"], spec["owners"]) == (4, True, [{"labelSelector": {}}])
    assert spec["template"]["spec"]["priority"] == -(2**31) and "priority" not in TEMPLATE["spec"]
    assert len(set_name("n" * 63, "b" * 200)) <= 63 and len(template_name("b" * 253)) == 253


def quota(name: str, scopes: list[str] | None = None, **hard: str) -> ResourceQuota:
    spec = {"hard": {key.replace("_", "."): amount for key, amount in hard.items()}, "scopes": scopes or []}
    return view({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, ResourceQuota)


def chunk(requests: Document | None = None, **more: Any) -> Pod:
    resources = {"requests": requests} if requests else {}
    return chunk_of({"spec": {"containers": [{"name": "c", "image": "x", "resources": resources}], **more}})


@pytest.mark.parametrize(
    ("limits", "used", "pod", "allowed", "blocking"),
    [
        ([quota("q", requests_cpu="10")], {}, chunk({"cpu": "2"}), 4, ()),
        ([quota("q", requests_cpu="7")], {}, chunk({"cpu": "2"}), 3, ("q",)),
        ([quota("q", cpu="7")], {"cpu": 4}, chunk({"cpu": "2"}), 1, ("q",)),
        ([quota("q", cpu="7")], {"cpu": 9}, chunk({"cpu": "2"}), 0, ("q",)),
        ([quota("b", cpu="6"), quota("a", memory="2Gi")], {}, chunk({"cpu": "2", "memory": "1Gi"}), 2, ("a", "b")),
        ([quota("q", limits_cpu="1", pods="1", memory="1")], {}, chunk({"cpu": "2"}), 4, ()),  # not what chunks request
        ([quota("q", ["BestEffort"], cpu="2")], {}, chunk({"cpu": "2"}), 4, ()),
        ([quota("q", ["NotBestEffort"], cpu="2")], {}, chunk({"cpu": "2"}), 1, ("q",)),
        ([quota("q", ["Terminating"], cpu="2")], {}, chunk({"cpu": "2"}, activeDeadlineSeconds=9), 4, ()),
        ([quota("q", ["NotTerminating"], cpu="2")], {}, chunk({"cpu": "2"}, activeDeadlineSeconds=9), 1, ("q",)),
        ([quota("q", ["PriorityClass"], cpu="2")], {}, chunk({"cpu": "2"}, priorityClassName="high"), 1, ("q",)),
        ([quota("q", cpu="1")], {}, chunk(), 4, ()),
    ],
)
def test_quotas_limit_the_chunks(
    limits: list[ResourceQuota], used: dict[str, int], pod: Pod, allowed: int, blocking: tuple[str, ...]
) -> None:
    taken = {name: amount * NANO for name, amount in used.items()}
    found = allot([room_of(each, taken) for each in limits], pod, 4)
    assert (found.allowed, found.quotas) == (allowed, blocking)
    assert found.limited is bool(blocking) and bool(found.message) is found.limited


def test_earlier_buffers_leave_less_to_later_ones() -> None:
    rooms = [room_of(quota("q", requests_cpu="9"), {})]
    assert [allot(rooms, chunk({"cpu": "2"}), wanted).allowed for wanted in (3, 3, 3)] == [3, 1, 0]
    again = [room_of(quota("q", requests_cpu="9"), {})]
    allot(again, chunk({"cpu": "2"}), 3)
    assert allot(again, chunk({"cpu": "2"}), 3).message == "Buffer replicas limited from 3 to 1 due to quotas: q"
