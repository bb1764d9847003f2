"""The rules of reservations apart from any engine: owners, demands of pods, scores, resizing."""

from typing import Any

import pytest
from tests.systems.reservation.reservations import pod

from wharfinger.api.selectors import BadSelector
from wharfinger.api.views import Pod, view
from wharfinger.systems.reservation.kinds.views import ReservationOwner
from wharfinger.systems.reservation.plugin.demands import BadDemand, demands_of
from wharfinger.systems.reservation.plugin.use import score_of
from wharfinger.systems.reservation.rules.owners import OwnerClasses, compile_owners, owned_by
from wharfinger.systems.reservation.rules.resizing import plan


def owners(*written: dict[str, Any]) -> tuple[ReservationOwner, ...]:
    return tuple(view(each, ReservationOwner) for each in written)


def controlled(namespace: str = "default", **reference: Any) -> Pod:
    made = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "rs",
        "uid": "rs-uid",
        "controller": True,
        **reference,
    }
    metadata = {
        "name": "a",
        "namespace": namespace,
        "uid": "uid-a",
        "labels": {"app": "web"},
        "ownerReferences": [made],
    }
    return view({"metadata": metadata}, Pod)


LABELS = {"labelSelector": {"matchLabels": {"app": "web"}}}
WRONG = {"labelSelector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    ("written", "matches"),
    [
        ([], False),
        ([{"labelSelector": {}}], True),
        ([{"object": {"name": "a"}, **WRONG}], False),
        ([{"object": {"name": "a"}, **LABELS}], True),
        ([WRONG, {"object": {"name": "a"}}], True),
        ([{"object": {"name": "a", "namespace": "other"}}], False),
        ([{"object": {"uid": "uid-a"}}], True),
        ([{"object": {"uid": "uid-b", "name": "a"}}], False),
        ([{"object": {"name": "a", "apiVersion": "v1", "kind": "Anything"}}], True),
        ([{"object": {"name": "a", "apiVersion": "v2"}}], False),
        ([{"controller": {"name": "rs"}}], True),
        ([{"controller": {"name": "rs", "namespace": "default"}}], True),
        ([{"controller": {"name": "rs", "namespace": "other"}}], False),
        ([{"controller": {"name": "rs", "kind": "StatefulSet"}}], False),
        ([{"controller": {"uid": "rs-uid", "controller": True}}], True),
        ([{"controller": {"uid": "rs-uid", "controller": False}}], False),
        ([{"controller": {"kind": "ReplicaSet"}}], True),
        ([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}}], True),
        ([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}], True),
        ([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}}], True),
        ([{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}], False),
    ],
)
def test_owners_match_and_the_index_finds_the_same(written: list[dict[str, Any]], matches: bool) -> None:
    compiled = owners(*written)
    assert owned_by(compile_owners(compiled), controlled()) is matches
    classes = OwnerClasses()
    number = classes.enter(compiled)
    classes.enter(owners({"object": {"name": "nobody"}}))
    assert (number in classes.of(controlled())) is matches


def test_pods_without_a_controller_match_no_controller() -> None:
    assert not owned_by(compile_owners(owners({"controller": {"kind": "ReplicaSet"}})), pod("a"))


def test_equal_owners_are_one_class_until_the_last_of_them_leaves() -> None:
    classes = OwnerClasses()
    first, second = classes.enter(owners(LABELS)), classes.enter(owners(LABELS))
    assert first is not None and first == second
    classes.leave(first)
    assert classes.of(pod("a")) == (first,)
    classes.leave(first)
    assert classes.of(pod("a")) == () and not classes


def test_owners_with_a_bad_selector_match_nobody() -> None:
    bad = owners({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, {"labelSelector": {}})
    with pytest.raises(BadSelector):
        compile_owners(bad)
    assert OwnerClasses().enter(bad) is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"name": 7}',
        '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": '
        '[{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["x"]}]}]}}',
    ],
)
def test_demands_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadDemand, match="reservation-affinity"):
        demands_of(pod("a", affinity=text).metadata)


def test_absent_and_empty_affinity_differ() -> None:
    assert not demands_of(pod("a").metadata).required
    assert demands_of(pod("a", affinity="").metadata).required
    assert demands_of(pod("a", affinity="{}").metadata).required


GI = 1 << 30


@pytest.mark.parametrize(
    ("reserved", "allocated", "asked", "score"),
    [
        ({"cpu": 2000, "memory": 4 * GI}, {}, {"cpu": 2000, "memory": 4 * GI}, 100),
        ({"cpu": 4000, "memory": 8 * GI}, {}, {"cpu": 2000, "memory": 4 * GI}, 50),
        ({"cpu": 4000, "memory": 8 * GI}, {"cpu": 1000, "memory": 2 * GI}, {"cpu": 1000, "memory": 4 * GI}, 62),
        ({"cpu": 2000, "memory": 4 * GI}, {"cpu": 2000, "memory": 3 * GI}, {"cpu": 2000, "memory": 4 * GI}, 0),
        ({"cpu": 0, "memory": 4 * GI}, {}, {"memory": GI}, 25),
        ({}, {}, {"cpu": 1}, 0),
    ],
)
def test_scores(reserved: dict[str, int], allocated: dict[str, int], asked: dict[str, int], score: int) -> None:
    assert score_of(reserved, allocated, asked) == score


@pytest.mark.parametrize(
    ("now", "wanted", "used", "free", "becomes", "reason"),
    [
        ({"cpu": "4"}, {"cpu": "6"}, {}, {"cpu": 2000}, {"cpu": "6"}, "Resized"),
        ({"cpu": "4"}, {"cpu": "6"}, {}, {"cpu": 1000}, {"cpu": "4"}, "InsufficientResources"),
        ({"cpu": "4"}, {"cpu": "1"}, {"cpu": 2500}, {}, {"cpu": "2500m"}, "InUse"),
        ({"cpu": "4"}, {"cpu": "1"}, {}, {}, {"cpu": "1"}, "Resized"),
        ({"cpu": "2"}, {"cpu": "4"}, {"cpu": 5000}, {"cpu": 0}, {"cpu": "4"}, "InUse"),
        ({"cpu": "4"}, {"cpu": "6", "memory": "1Gi"}, {}, {"cpu": 9000}, {"cpu": "4"}, "InsufficientResources"),
        ({"cpu": "4", "memory": "1Gi"}, {"cpu": "6"}, {}, {"cpu": 9000}, {"cpu": "6"}, "Resized"),
        (
            {"cpu": "4", "memory": "2Gi"},
            {"cpu": "9", "memory": "1Gi"},
            {},
            {},
            {"cpu": "4", "memory": "1Gi"},
            "InsufficientResources",
        ),
        ({"cpu": "4"}, {"cpu": "6"}, {}, {"cpu": -3000}, {"cpu": "4"}, "InsufficientResources"),
    ],
)
def test_resizing(now: Any, wanted: Any, used: Any, free: Any, becomes: Any, reason: str) -> None:
    found = plan(now, wanted, used, free)
    assert (found.allocatable, found.reason) == (becomes, reason)
    assert found.changes is (becomes != now)
    assert bool(found.message) is (reason != "Resized")
