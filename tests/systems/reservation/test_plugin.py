"""The Reservation plugin over the engine: what owners and outsiders see, policies, nomination, and reservations themselves."""

import json
from typing import Any

import pytest
from tests.systems.reservation.reservations import DOMAIN, Books, node, outsider, pod, reservation


def test_outsiders_see_what_is_reserved_as_taken_and_owners_see_their_own() -> None:
    books = Books(node("n1", 32), outsider("o", 12, node_name="n1"))
    books.add(
        reservation("r1", 12, owners=[{"object": {"name": "first"}}]),
        reservation("r2", 8, owners=[{"object": {"name": "second"}}]),
    )
    assert books.place(pod("first", 4)) == ("n1", "r1")
    assert books.free() == 0
    assert books.place(outsider("x", 1))[0] == ""
    assert books.place(pod("second", 9))[0] == ""
    assert books.place(pod("second", 8)) == ("n1", "r2")
    assert books.free() == 0


def test_a_reservation_used_up_once_is_closed_but_still_counts_until_it_is_seen_to_have_succeeded() -> None:
    books = Books(node("n1", 8), reservation("r", 6, allocateOnce=True))
    assert books.place(pod("a", 2)) == ("n1", "r")
    assert books.free() == 2000
    assert books.place(pod("b", 4))[0] == ""
    books.add(reservation("r", 6, allocateOnce=True, phase="Succeeded"))
    assert books.free() == 6000
    assert books.place(pod("b", 4)) == ("n1", "")


def test_consumers_that_leave_give_back_to_the_reservation_and_not_to_the_node() -> None:
    books = Books(node("n1", 8), reservation("r", 6))
    consumer = pod("a", 4)
    assert books.place(consumer) == ("n1", "r")
    assert (books.free(), books.holding("r").allocated[0]) == (2000, 4000)
    books.drop(consumer)
    assert (books.free(), books.holding("r").allocated[0]) == (2000, 0)


def test_a_full_reservation_leaves_room_for_another_beside_it() -> None:
    books = Books(node("n1", 1000), reservation("r", 500), node("n2", 100))
    assert books.place(pod("a", 500)) == ("n1", "r")
    assert books.book(reservation("s", 500, phase="Pending")) == ("n1", "Available")


def test_aligned_reservations_are_not_joined() -> None:
    books = Books(node("n1", 1000), *(reservation(f"r{i}", 200, allocatePolicy="Aligned") for i in range(5)))
    assert books.place(pod("a", 300))[0] == ""


@pytest.mark.parametrize("policy", [{}, {"allocatePolicy": "Aligned"}])
def test_the_rest_comes_from_the_node(policy: dict[str, str]) -> None:
    books = Books(node("n1", 350), reservation("r", 200, **policy))
    assert books.place(pod("a", 300)) == ("n1", "r")
    assert books.holding("r").allocated[0] == 300_000
    assert books.free() == 50_000


@pytest.mark.parametrize(("cpu", "placed"), [(9, True), (10, True), (11, False)])
def test_the_default_policy_takes_the_reservation_first(cpu: int, placed: bool) -> None:
    books = Books(node("n1", 16), outsider("o", 6, node_name="n1"), reservation("r", 8))
    assert (books.place(pod("a", cpu))[0] == "n1") is placed


def restricted(**more: Any) -> Books:
    requests = {"cpu": 4, "memory": "8Gi"}
    books = Books(node("n1", 16, "64Gi"), reservation("r", requests=requests, allocatePolicy="Restricted", **more))
    for name in ("a", "b"):
        assert books.place(pod(name, requests={"cpu": 2, "memory": "2Gi"})) == ("n1", "r")
    return books


def test_restricted_must_suffice_where_affinity_demands_it() -> None:
    books = restricted()
    assert books.place(pod("c", requests={"memory": "3Gi"}, affinity={})) == ("n1", "r")
    found, message = books.place(pod("d", requests={"memory": "2Gi"}, affinity={}))
    assert found == ""
    assert "1 Reservation(s) Insufficient memory" in message


def test_without_affinity_what_does_not_fit_inside_runs_outside() -> None:
    books = restricted()
    assert books.place(pod("c", requests={"memory": "5Gi"})) == ("n1", "")
    assert books.holding("r").allocated[1] == 4 << 30


def test_a_reservation_that_shares_no_resource_is_skipped() -> None:
    books = Books(node("n1", 8, more={"example.com/gpu": "2"}), reservation("r", 6, allocatePolicy="Restricted"))
    assert books.place(pod("a", requests={"example.com/gpu": 1})) == ("n1", "")


def test_other_resources_of_a_restricted_consumer_come_from_the_node() -> None:
    books = Books(node("n1", 8, more={"example.com/gpu": "1"}), reservation("r", 8, allocatePolicy="Restricted"))
    assert books.place(pod("a", requests={"cpu": 8, "example.com/gpu": 1})) == ("n1", "r")


def test_restricted_pods_limit_the_number_of_consumers() -> None:
    books = Books(node("n1", 16), reservation("r", requests={"cpu": 8, "pods": 2}, allocatePolicy="Restricted"))
    for name in ("a", "b"):
        assert books.place(pod(name, 1, affinity={})) == ("n1", "r")
    placed, message = books.place(pod("c", 1, affinity={}))
    assert placed == ""
    assert "Reservation(s) Too many pods" in message


def test_what_is_carved_out_inside_is_for_nobody() -> None:
    inner = {"node.koordinator.sh/reservation": json.dumps({"resources": {"cpu": "2"}})}
    books = Books(node("n1", 6), reservation("r", 6, allocatePolicy="Restricted", annotations=inner))
    assert books.place(pod("a", 6, affinity={}))[0] == ""
    assert books.place(pod("b", 4, affinity={})) == ("n1", "r")
    assert books.free() == 0


def test_restricted_options_limit_what_is_restricted() -> None:
    options = {f"{DOMAIN}/reservation-restricted-options": json.dumps({"resources": ["cpu"]})}
    requests = {"cpu": 4, "memory": "4Gi"}
    books = Books(
        node("n1", 16, "16Gi"),
        reservation("r", requests=requests, allocatePolicy="Restricted", annotations=options),
    )
    assert books.place(pod("a", requests={"cpu": 4, "memory": "6Gi"}, affinity={})) == ("n1", "r")


@pytest.mark.parametrize(
    ("there", "coming", "placed"),
    [
        ("", "Aligned", False),
        ("", "Restricted", False),
        ("", "", True),
        ("Aligned", "Restricted", True),
        ("Restricted", "", False),
    ],
)
def test_default_reservations_do_not_share_a_node_with_the_others(there: str, coming: str, placed: bool) -> None:
    def policy(name: str) -> dict[str, str]:
        return {"allocatePolicy": name} if name else {}

    books = Books(node("n1", 16), reservation("r", 1, **policy(there)))
    found, message = books.book(reservation("s", 1, phase="Pending", **policy(coming)))
    assert (found == "n1") is placed
    assert placed or "node(s) reservation allocate policy conflict" in message


def test_a_pinned_reservation_goes_nowhere_else() -> None:
    books = Books(node("n1", 2), node("n2", 16))

    def pinned(name: str, cpu: int) -> Any:
        spec = {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}
        return reservation(name, phase="Pending", template={"spec": spec})

    assert books.book(pinned("r", 2)) == ("n1", "Available")
    assert not books.engine.tables.work.rebuilt  # only the row of the node was evaluated
    found, message = books.book(pinned("s", 4))
    assert found == ""
    assert message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match the nodeName specified by reservation."
    )


def two_sizes() -> list[Any]:
    return [
        reservation("big", requests={"cpu": 4, "memory": "8Gi"}),
        reservation("small", requests={"cpu": 2, "memory": "4Gi"}),
    ]


def test_the_one_that_is_filled_best_is_nominated_and_when_full_the_other() -> None:
    books = Books(node("n1", 16), *two_sizes())
    asked = {"cpu": 2, "memory": "4Gi"}
    assert books.place(pod("a", requests=asked)) == ("n1", "small")
    assert books.place(pod("b", requests=asked)) == ("n1", "big")


def test_the_smallest_order_that_is_not_zero_comes_first() -> None:
    def ordered(name: str, order: str) -> Any:
        return reservation(name, 4, labels={f"{DOMAIN}/reservation-order": order})

    books = Books(node("n1", 32), reservation("tight", 1), ordered("hundred", "100"), ordered("zero", "0"))
    assert books.place(pod("a", 1)) == ("n1", "hundred")
    books.add(ordered("below", "-5"))
    assert books.place(pod("b", 1)) == ("n1", "below")


def test_ties_go_to_the_oldest_and_then_by_name() -> None:
    books = Books(
        node("n1", 32), reservation("b", 4, created=5), reservation("c", 4, created=2), reservation("a", 4, created=5)
    )
    assert [books.place(pod(f"p{i}", 4))[1] for i in range(3)] == ["c", "a", "b"]


def test_owners_go_to_the_node_with_their_reservation_whatever_else_it_scores() -> None:
    books = Books(node("n1", 8), node("n2", 800, "640Gi"), reservation("r", 4), outsider("o", 3, node_name="n1"))
    assert books.place(pod("a", 4)) == ("n1", "r")


def test_raw_scores_are_scaled_to_the_largest_and_an_order_outranks_them() -> None:
    books = Books(
        *(node(f"n{i}", 16) for i in range(1, 5)),
        reservation("r1", 4, on="n1", labels={f"{DOMAIN}/reservation-order": "7"}),
        reservation("r2", 1, on="n2"),
        reservation("r3", 1, on="n3"),
    )
    scores = books.explain(pod("a", 1)).scores
    assert [scores[f"n{i}"]["Reservation"] // 5000 for i in range(1, 5)] == [100, 10, 10, 0]


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        ("", "r"),
        ({"reservationSelector": {"tier": "gold"}}, "r"),
        ({"reservationSelector": {"zone": "a"}}, "r"),
        ({"reservationSelector": {"tier": "tin"}}, None),
        ({"name": "r"}, "r"),
        ({"name": "other"}, None),
        (
            {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "reservationSelectorTerms": [
                        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]},
                    ]
                }
            },
            "r",
        ),
        (
            {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "reservationSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}
                    ]
                }
            },
            None,
        ),
    ],
)
def test_reservation_affinity(affinity: Any, expected: str | None) -> None:
    # The reservation's labels stand above the node's.
    books = Books(node("n1", 8, zone="a", tier="tin"), reservation("r", 4, labels={"tier": "gold"}))
    found, what = books.place(pod("a", 1, affinity=affinity))
    if expected is not None:
        assert (found, what) == ("n1", expected)
    else:
        assert found == ""
        assert "node(s) no reservations match reservation affinity" in what


def test_affinity_that_is_not_json_is_an_error() -> None:
    books = Books(node("n1", 8), reservation("r", 4))
    assert "scheduling.koordinator.sh/reservation-affinity" in books.place(pod("a", 1, affinity="{"))[1]


TOLERATION = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "affinity", "used"),
    [
        ({"unschedulable": True}, {}, False),
        ({"unschedulable": True}, {"tolerations": [TOLERATION]}, True),
        ({"unschedulable": True, "taints": [TAINT]}, {"name": "r"}, True),
        ({"taints": [TAINT]}, {}, False),
        ({"taints": [TAINT]}, None, False),
        ({"taints": [TAINT]}, {"tolerations": [{"key": "k", "operator": "Exists"}]}, True),
        ({"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, None, True),
        ({"taints": [{**TAINT, "effect": "NoExecute"}]}, None, False),
        ({"deleting": True}, {}, False),
        ({"deleting": True}, {"tolerations": [TOLERATION]}, False),
    ],
)
def test_unschedulable_and_tainted_reservations(spec: Any, affinity: Any, used: bool) -> None:
    books = Books(node("n1", 8), reservation("r", 4, **spec))
    found, what = books.place(pod("a", 1, affinity=affinity))
    if used:
        assert (found, what) == ("n1", "r")
    else:
        assert (found, what) == ("n1", "") if affinity is None else found == ""


@pytest.mark.parametrize(
    ("reserved", "asked", "names", "used"),
    [
        ({"cpu": 8}, {"cpu": 4}, ["cpu"], False),
        ({"cpu": 4}, {"cpu": 4}, ["cpu"], True),
        ({"cpu": 4}, {"cpu": 4, "memory": "1Gi"}, ["memory"], False),
        ({"cpu": 4, "memory": "1Gi"}, {"cpu": 4}, ["memory"], False),
        ({"cpu": 4}, {"cpu": 2}, ["memory"], True),
    ],
)
@pytest.mark.parametrize("affinity", [None, {"name": "r"}])
def test_exact_match(reserved: Any, asked: Any, names: list[str], used: bool, affinity: Any) -> None:
    exact = {f"{DOMAIN}/exact-match-reservation": json.dumps({"resourceNames": names})}
    books = Books(node("n1", 16), reservation("r", requests=reserved))
    assert (books.place(pod("a", requests=asked, annotations=exact, affinity=affinity))[1] == "r") is used


def test_ports_of_a_reservation() -> None:
    held = reservation("r", 4, ports=(7777, 8888))
    books = Books(node("n1", 8), held)
    assert books.place(pod("a", 1, ports=(7777,))) == ("n1", "r")
    assert books.place(outsider("x", 1, ports=(8888,)))[0] == ""
    assert books.place(pod("b", 1, ports=(7777,)))[0] == ""
    books.drop(held)
    assert books.place(outsider("x", 1, ports=(8888,)))[0] == "n1"
    assert books.place(outsider("y", 1, ports=(7777,)))[0] == ""


ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def test_anti_affinity_of_the_template_does_not_keep_its_owners_away() -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}], "affinity": ANTI}
    held = reservation(
        "r",
        template={"spec": spec},
        allocatable={"cpu": 4},
        owners=[{"labelSelector": {"matchLabels": {"role": "owner"}}}],
    )
    books = Books(node("n1", 8), held)
    assert books.place(pod("x", 1, labels={"app": "web"}))[0] == ""
    owner = pod("a", 4, labels={"app": "web", "role": "owner"})
    assert books.place(owner) == ("n1", "r")


def test_the_last_place_for_a_pod_is_kept_too() -> None:
    books = Books(node("n1", 8, pods=1), reservation("r", 1))
    assert "Too many pods" in books.place(outsider("x"))[1]
    assert books.place(pod("a", 1)) == ("n1", "r")


def test_pre_allocation_waits_where_resources_are_short_and_takes_the_node_that_is_least_so() -> None:
    books = Books(node("n1", 8), node("n2", 8), outsider("o", 6, node_name="n1"), outsider("p", 7, node_name="n2"))
    assert books.book(reservation("r", 4, phase="Pending", preAllocation=True)) == ("n1", "Waiting")
    assert books.free() == -2000
    assert books.place(outsider("x", 1))[0] == "n2"
    assert books.book(reservation("s", 5, phase="Pending", preAllocation=True))[0] == "n2"
    assert books.book(reservation("t", 5, phase="Pending", preAllocation=True))[0] == ""


def test_pre_allocation_is_available_at_once_where_there_is_room() -> None:
    books = Books(node("n1", 8), node("n2", 8), outsider("o", 6, node_name="n1"))
    assert books.book(reservation("r", 4, phase="Pending", preAllocation=True)) == ("n2", "Available")


def waiting(name: str, cpu: int, **more: Any) -> Any:
    return reservation(name, cpu, phase="Waiting", preAllocation=True, **more)


def test_those_that_wait_become_ready_in_order_as_room_is_made() -> None:
    pods = [outsider(f"o{i}", 1, node_name="n1") for i in range(6)]
    books = Books(node("n1", 8), *pods, waiting("late", 1, created=9), waiting("early", 4, created=1))
    assert books.ledger.ready() == []
    books.drop(pods[0])
    assert books.ledger.ready() == []
    books.drop(pods[1])
    assert [holding.name for holding in books.ledger.ready()] == ["early"]
    books.add(reservation("early", 4, created=1))
    books.ledger.ready()
    books.drop(pods[2])
    assert [holding.name for holding in books.ledger.ready()] == ["late"]


def test_a_node_that_grows_makes_room_for_one_that_waits() -> None:
    books = Books(node("n1", 4), outsider("o", 4, node_name="n1"), waiting("w", 2))
    assert books.ledger.ready() == []
    books.add(node("n1", 6))
    assert [holding.name for holding in books.ledger.ready()] == ["w"]


def test_nobody_uses_one_that_waits() -> None:
    books = Books(node("n1", 8), waiting("w", 2), node("n2", 1))
    assert books.place(pod("a", 1, affinity={}))[0] == ""
    assert books.place(pod("a", 1))[1] == ""


def test_a_failed_binding_gives_back_to_the_reservation() -> None:
    books = Books(node("n1", 8), reservation("r", 6))
    consumer = pod("a", 4)
    assert books.place(consumer) == ("n1", "r")
    books.engine.forget(consumer)
    assert (books.holding("r").allocated[0], books.holding("r").consumers, books.free()) == (0, {}, 2000)


def annotated(name: str, cpu: int, uid: str, node_name: str = "n1") -> Any:
    note = {f"{DOMAIN}/reservation-allocated": json.dumps({"name": "r", "uid": uid})}
    return pod(name, cpu, annotations=note, node_name=node_name)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (2, 0, 1)])
def test_a_restart_finds_the_same_books_in_whatever_order_it_loads(order: tuple[int, int, int]) -> None:
    objects = [node("n1", 8), reservation("r", 6), annotated("a", 4, "uid-r")]
    books = Books(*(objects[index] for index in order))
    assert (books.holding("r").allocated[0], books.free()) == (4000, 2000)


def test_records_of_another_reservation_of_the_same_name_count_for_nothing() -> None:
    books = Books(node("n1", 16), reservation("r", 6), annotated("a", 4, "uid-of-an-older-one"))
    assert (books.holding("r").allocated[0], books.free()) == (0, 6000)


def test_a_record_that_came_with_the_pod_is_voided_when_it_lands_outside() -> None:
    books = Books(node("n1", 16), reservation("r", 6))
    forged = outsider("x", 1, annotations={f"{DOMAIN}/reservation-allocated": '{"name":"r","uid":"uid-r"}'})
    assert books.engine.schedule(forged).node == "n1"
    assert books.engine.assume(forged, "n1").ok
    assert books.engine.annotations(forged, "n1") == {f"{DOMAIN}/reservation-allocated": ""}
    assert books.holding("r").consumers == {}


def test_adopting_a_running_pod_moves_it_into_the_reservation() -> None:
    books = Books(node("n1", 8), reservation("r", 4), pod("a", 3, node_name="n1"))
    assert books.free() == 1000
    books.add(annotated("a", 3, "uid-r"))
    assert (books.holding("r").allocated[0], books.free()) == (3000, 4000)


def test_outsiders_gain_nothing_by_evicting_a_consumer() -> None:
    books = Books(node("n1", 8), reservation("r", 8, allocatePolicy="Restricted"))
    assert books.place(pod("low", 8)) == ("n1", "r")
    high = outsider("high", 8, priority=100)
    decision = books.engine.schedule(high)
    assert books.engine.preempt(high, decision.diagnosis).node is None


@pytest.mark.parametrize("enabled", [True, False])
def test_owners_may_preempt_inside_where_that_is_enabled(enabled: bool) -> None:
    books = Books(node("n1", 8), reservation("r", 8, allocatePolicy="Restricted"), enablePreemption=enabled)
    assert books.place(pod("low", 8)) == ("n1", "r")
    high = pod("high", 8, priority=100)
    decision = books.engine.schedule(high)
    result = books.engine.preempt(high, decision.diagnosis)
    assert [victim.metadata.name for victim in result.victims] == (["low"] if enabled else [])


def test_reservations_are_never_victims() -> None:
    spec = {"priority": -5, "containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]}
    books = Books(node("n1", 8), reservation("r", template={"spec": spec}, allocatable={"cpu": 8}))
    high = outsider("high", 8, priority=100)
    decision = books.engine.schedule(high)
    assert books.engine.preempt(high, decision.diagnosis).node is None


@pytest.mark.parametrize("honoured", [True, False])
def test_pods_that_ignore_reservations_where_that_is_honoured(honoured: bool) -> None:
    books = Books(node("n1", 8), reservation("r", 8), honourIgnoredLabel=honoured)
    ignoring = pod("a", 4, labels={"app": "other", f"{DOMAIN}/reservation-ignored": "true"})
    assert (books.place(ignoring) == ("n1", "")) is honoured


def test_a_reservation_of_a_node_that_comes_later_is_kept_for_it() -> None:
    books = Books(reservation("r", 6))
    books.add(node("n1", 8))
    assert books.free() == 2000
    assert books.place(pod("a", 6)) == ("n1", "r")


def test_a_pod_that_was_refused_finds_the_reservation_that_came_since() -> None:
    books = Books(node("n1", 8), outsider("o", 6, node_name="n1"))
    waiting_pod = pod("a", 4)
    assert books.place(waiting_pod)[0] == ""
    books.add(node("n2", 4), reservation("r", 4, on="n2"))
    assert books.place(waiting_pod) == ("n2", "r")


def test_a_thousand_reservations_on_one_node() -> None:
    books = Books(node("n1", 2000, pods=3000), *(reservation(f"r{i}", 1, allocateOnce=True) for i in range(1000)))
    assert books.free() == 1_000_000
    used = {books.place(pod(f"p{i}", 1))[1] for i in range(50)}
    assert len(used) == 50
    assert books.free() == 1_000_000


def test_a_size_that_is_being_written_binds_consumers_at_once_and_frees_nothing_yet() -> None:
    made = Books(node("n1", 8), reservation("r", 6, allocatePolicy="Restricted"))
    made.ledger.promise("uid-r", smaller := {"cpu": "2"})
    assert made.free() == 2000, "others see it as it was"
    assert made.place(pod("large", 4, affinity="{}"))[0] == "", "owners as it will be"
    assert made.place(pod("small", 2, affinity="{}")) == ("n1", "r")
    made.ledger.forget_promise("uid-r", {"cpu": "9"})
    assert made.place(pod("next", 2, affinity="{}"))[0] == "", "that was another promise"
    made.ledger.forget_promise("uid-r", smaller)
    assert made.place(pod("next", 4, affinity="{}")) == ("n1", "r")


def test_a_growth_counts_until_its_size_is_known() -> None:
    made = Books(node("n1", 8), reservation("r", 2, allocatePolicy="Restricted"))
    made.ledger.promise("uid-r", {"cpu": "6"})
    assert made.free() == 2000
    assert made.place(pod("early", 4, affinity="{}"))[0] == "", "the growth may yet fail to be written"
    made.add(reservation("r", 6, allocatePolicy="Restricted"))
    assert made.free() == 2000
    assert made.place(pod("early", 4, affinity="{}")) == ("n1", "r")
    made.drop(pod("early", 4))
    made.add(reservation("r", 3, allocatePolicy="Restricted"))
    assert made.free() == 5000, "the promise is kept, and done with"
