"""The rules of Deployments: sizes during a rollout, proportional scaling, progress and history."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.times import format_time
from wharfinger.api.views import view
from wharfinger.api.views.workloads import Deployment, ReplicaSet
from wharfinger.controllers.deployment import rules
from wharfinger.controllers.int_or_percent import scaled, surge_and_unavailable
from wharfinger.controllers.template_hashes import same_template, template_hash


def deployment(
    replicas: int,
    surge: Any = 0,
    unavailable: Any = 0,
    *,
    status: int = 0,
    strategy: str = "RollingUpdate",
    **spec: Any,
) -> Deployment:
    return view(
        {
            "metadata": {"name": "d", "generation": 1},
            "spec": {
                "replicas": replicas,
                "strategy": {
                    "type": strategy,
                    "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
                },
                **spec,
            },
            "status": {"replicas": status},
        },
        Deployment,
    )


def replica_set(
    name: str,
    size: int,
    available: int | None = None,
    *,
    age: int = 0,
    most: int | None = None,
    desired: int | None = None,
    **metadata: Any,
) -> ReplicaSet:
    annotations = dict(metadata.pop("annotations", {}))
    if most is not None:
        annotations[rules.MAX_REPLICAS] = str(most)
    if desired is not None:
        annotations[rules.DESIRED_REPLICAS] = str(desired)
    return view(
        {
            "metadata": {
                "name": name,
                "uid": name,
                "creationTimestamp": format_time(1_000_000_000 - age),
                "annotations": annotations,
                **metadata,
            },
            "spec": {"replicas": size},
            "status": {"availableReplicas": size if available is None else available, "replicas": size},
        },
        ReplicaSet,
    )


@pytest.mark.parametrize(
    ("value", "total", "up", "expected"),
    [(3, 10, True, 3), ("25%", 10, True, 3), ("25%", 10, False, 2), ("0%", 7, True, 0), ("150%", 4, True, 6)],
)
def test_percentages_round_up_or_down(value: Any, total: int, up: bool, expected: int) -> None:
    assert scaled(value, total, round_up=up) == expected


def test_an_invalid_percentage_is_refused() -> None:
    with pytest.raises(ValueError, match="not a percentage"):
        scaled("3", 10, round_up=True)


@pytest.mark.parametrize(
    ("surge", "unavailable", "desired", "expected"),
    [
        ("25%", "25%", 10, (3, 2)),
        ("25%", "25%", 1, (1, 0)),
        ("0%", "10%", 5, (0, 1)),
        (0, 0, 5, (0, 1)),
        (1, 0, 5, (1, 0)),
    ],
)
def test_surge_and_unavailability_are_never_both_zero(
    surge: Any, unavailable: Any, desired: int, expected: tuple[int, int]
) -> None:
    assert surge_and_unavailable(surge, unavailable, desired) == expected


@pytest.mark.parametrize(
    ("surge", "old", "new", "expected"),
    [
        (0, 10, 0, 0),
        (2, 10, 0, 2),
        (2, 5, 0, 7),
        (2, 10, 2, 2),
        ("25%", 10, 0, 3),
        (20, 10, 0, 10),
    ],
)
def test_the_new_set_grows_into_the_surge(surge: Any, old: int, new: int, expected: int) -> None:
    sets = [replica_set("old", old), replica_set("new", new)]
    assert rules.new_size(deployment(10, surge), sets, new) == expected


OLD_CASES = [
    ("nothing may go while all are needed", 0, [("o", 10, 10)], (0, 0), {}),
    ("unavailability lets some go", 2, [("o", 10, 10)], (0, 0), {"o": 8}),
    ("what is not available goes first", 2, [("o", 10, 8)], (0, 0), {"o": 8}),
    ("new pods that are not available hold the old ones", 2, [("o", 8, 8)], (5, 0), {}),
    ("new pods that are available release old ones", 0, [("o", 10, 10)], (3, 3), {"o": 7}),
    ("the oldest set first", 3, [("young", 5, 5), ("older", 5, 5)], (0, 0), {"older": 2}),
    (
        "unavailable ones of all sets, then available ones",
        3,
        [("young", 5, 4), ("older", 5, 5)],
        (0, 0),
        {"young": 4, "older": 3},
    ),
]


@pytest.mark.parametrize(
    ("unavailable", "old", "new", "expected"), [c[1:] for c in OLD_CASES], ids=[c[0] for c in OLD_CASES]
)
def test_old_sets_shrink(
    unavailable: int, old: list[tuple[str, int, int]], new: tuple[int, int], expected: dict[str, int]
) -> None:
    sets = [replica_set(name, size, ready, age=index) for index, (name, size, ready) in enumerate(old)]
    assert rules.old_sizes(deployment(10, 3, unavailable), sets, replica_set("new", *new)) == expected


def test_scaling_is_proportional_and_the_largest_set_gets_the_rest() -> None:
    # The example of upstream's documentation: 10 to 15 in the middle of a rollout with surge 3, unavailable 2.
    old, new = replica_set("old", 8, most=13, age=10), replica_set("new", 5, 0, most=13)
    sizes, tell = rules.scaled_sizes(deployment(15, 3, 2), new, [old])
    assert (sizes, tell) == ({"old": 11, "new": 7}, True)
    down, _ = rules.scaled_sizes(deployment(5, 3, 2), new, [old])
    assert (down, sum(down.values())) == ({"old": 5, "new": 3}, 8)
    nothing, _ = rules.scaled_sizes(deployment(0, 3, 2), new, [old])
    assert nothing == {"old": 0, "new": 0}


def test_equal_sets_grow_from_the_newest_and_shrink_from_the_oldest() -> None:
    old, new = replica_set("old", 5, most=10, age=10), replica_set("new", 5, 0, most=10)
    assert rules.scaled_sizes(deployment(11), new, [old])[0] == {"old": 5, "new": 6}
    assert rules.scaled_sizes(deployment(9), new, [old])[0] == {"old": 4, "new": 5}


def test_a_sole_active_set_is_scaled_alone_and_a_saturated_one_ends_the_others() -> None:
    assert rules.scaled_sizes(deployment(7), replica_set("new", 5), [replica_set("old", 0)])[0] == {"new": 7}
    assert rules.scaled_sizes(deployment(7), None, [replica_set("a", 0, age=5), replica_set("b", 0)])[0] == {"b": 7}
    saturated = replica_set("new", 5, desired=5)
    assert rules.scaled_sizes(deployment(5), saturated, [replica_set("old", 2)])[0] == {"old": 0}


def test_history_keeps_the_latest_revisions_that_have_no_pods() -> None:
    sets = [replica_set(f"r{n}", 1 if n == 1 else 0, annotations={rules.REVISION: str(n)}) for n in (3, 1, 2, 10)]
    limited = deployment(1, revisionHistoryLimit=1)
    assert [each.metadata.name for each in rules.superfluous(limited, sets)] == ["r2", "r3"]
    assert rules.superfluous(deployment(1), sets) == []


def test_annotations_and_revision_history_of_the_new_set() -> None:
    source = view(
        {"metadata": {"annotations": {"note": "x", rules.REVISION: "1", rules.DESIRED_REPLICAS: "9"}}}, Deployment
    )
    assert rules.new_set_annotations(source, {}, 1) == {"note": "x", rules.REVISION: "1"}
    again = rules.new_set_annotations(source, {rules.REVISION: "1", rules.REVISION_HISTORY: ""}, 3)
    assert again == {"note": "x", rules.REVISION: "3", rules.REVISION_HISTORY: "1"}
    third = rules.new_set_annotations(source, again, 5)
    assert third[rules.REVISION_HISTORY] == "1,3"
    assert rules.new_set_annotations(source, third, 4) == third


def test_templates_are_compared_without_hash_and_empty_members() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    hashed = {
        "metadata": {"labels": {"a": "b", "pod-template-hash": "x"}, "creationTimestamp": None},
        "spec": {"containers": [{"name": "c", "resources": {}}]},
    }
    assert same_template(template, hashed)
    assert not same_template(template, {**template, "spec": {"containers": [{"name": "d"}]}})
    assert template_hash(template) == template_hash(hashed | {"metadata": {"labels": {"a": "b"}}})
    assert template_hash(template) != template_hash(template, 1)


@pytest.mark.parametrize(
    ("reason", "updated", "expected"),
    [
        ("ReplicaSetUpdated", 1000.0, True),
        ("ReplicaSetUpdated", 1900.0, False),
        ("NewReplicaSetAvailable", 1000.0, False),
        ("ProgressDeadlineExceeded", 1999.0, True),
    ],
)
def test_a_rollout_without_progress_times_out(reason: str, updated: float, expected: bool) -> None:
    condition = {"reason": reason, "lastUpdateTime": format_time(updated)}
    assert rules.has_timed_out(deployment(1, progressDeadlineSeconds=600), condition, 2000.0) is expected
