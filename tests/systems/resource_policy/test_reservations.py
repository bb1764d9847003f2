"""A reservation takes a place in its unit until a pod of its group uses it."""

from __future__ import annotations

import json
from typing import Any

from tests.systems.reservation.reservations import DOMAIN, Books, node, outsider, pod, reservation


def books(limit: int, *objects: Any, selector: str = "app=web", keys: tuple[str, ...] = (), **more: Any) -> Books:
    key, value = selector.split("=")
    made = Books(node("n1", pool="a"), node("n2", pool="a"), node("n3", pool="b"))
    units = [
        {"name": "a", "priority": 2, "maxCount": limit, "nodeSelector": {"matchLabels": {"pool": "a"}}, **more},
        {"name": "b", "priority": 1, "nodeSelector": {"matchLabels": {"pool": "b"}}},
    ]
    spec = {"podSelector": {"matchLabels": {key: value}}, "matchLabelKeys": list(keys), "units": units}
    made.engine.apply("ResourcePolicy", {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
    made.add(*objects)
    return made


def bound(name: str, on: str, of: str) -> Any:
    note = {f"{DOMAIN}/reservation-allocated": json.dumps({"name": of, "uid": f"uid-{of}"})}
    return pod(name, 1, node_name=on, annotations=note)


def test_a_reservation_takes_a_place() -> None:
    assert books(1, reservation("r", 4)).place(pod("p", 1, labels={"app": "web", "x": "y"}))[0] == "n1", "its own"
    other = books(1, reservation("r", 4, owners=[{"object": {"name": "nobody"}}]))
    assert other.place(pod("p", 1))[0] == "n3"


def test_a_reservation_is_scheduled_by_the_policy_that_matches_its_template() -> None:
    made = books(1)
    assert made.book(reservation("r1", 4, on="", phase="Pending"))[0] in ("n1", "n2")
    assert made.book(reservation("r2", 4, on="", phase="Pending"))[0] == "n3"


def test_its_owner_takes_its_place_and_nobody_elses() -> None:
    made = books(1, reservation("r", 4))
    assert made.place(pod("owner", 1)) == ("n1", "r")
    assert made.place(pod("second", 1, affinity=None, labels={"app": "web", "k": "v"}))[0] == "n3", "the unit is full"
    made.engine.forget(pod("owner", 1))
    assert made.place(outsider("free", 1))[0]
    assert made.place(pod("third", 1)) == ("n1", "r")


def test_a_shared_reservation_lets_in_as_many_as_there_are_places() -> None:
    made = books(2, reservation("r", 8))
    assert [made.place(pod(f"p{index}", 1)) for index in range(3)] == [("n1", "r"), ("n1", "r"), ("n3", "")]


def test_another_reservation_on_the_node_keeps_its_place() -> None:
    """r is in use and shared; the place of s is not for pods that use r."""
    made = books(2, reservation("r", 8), reservation("s", 2, created=1), bound("first", "n1", "r"))
    node_name, used = made.place(pod("second", 4))
    assert (node_name, used) == ("n3", ""), "only s has a place, and four do not fit into it"
    assert made.place(pod("third", 1))[0] == "n1"


def test_an_owner_that_is_not_governed_leaves_the_place_taken() -> None:
    rules = reservation("r", 4, template={"metadata": {"labels": {"app": "web", "tier": "gold"}}})
    made = books(1, rules, selector="tier=gold")
    assert made.place(pod("owner", 1)) == ("n1", "r")
    assert made.place(pod("gold", 1, labels={"tier": "gold"}))[0] == "n3"


def test_the_place_is_the_reservations_again_when_its_user_goes() -> None:
    made = books(1, bound("user", "n1", "r"), reservation("r", 4))
    gold = pod("p", 1, labels={"app": "web"}, affinity=None)
    assert made.place(gold)[0] == "n3"
    made.drop(bound("user", "n1", "r"))
    assert made.place(pod("stranger", 20))[0] == "", (
        "too large for the reservation's node, and others are full or small"
    )
    assert made.place(pod("owner", 1)) == ("n1", "r")
    made.drop(reservation("r", 4))
    made.drop(pod("owner", 1))
    assert made.place(pod("last", 1))[0] in ("n1", "n2")


def test_a_pod_that_is_bound_in_a_reservation_says_so_late() -> None:
    """Bound by someone else: first without the annotation, then with it."""
    made = books(2, reservation("r", 4), pod("user", 1, node_name="n1"))
    assert made.place(pod("p", 1, labels={"app": "web"}, requests={"memory": "1Gi"}))[1] == "r"
    made.drop(pod("p", 1))
    late = pod("late", 1, node_name="n1")
    made.add(late)
    made.add(bound("user", "n1", "r"))
    strange = reservation("q", 1, on="n2", created=3, owners=[{"object": {"name": "nobody"}}])
    made.add(strange)
    assert made.place(pod("x", 1))[0] == "n3"


def of_revision(rev: str) -> dict[str, str]:
    return {"app": "web", "rev": rev}


def test_a_user_of_another_group_leaves_the_place_to_the_reservation() -> None:
    """Else the place could be given away meanwhile, and the unit would hold one too many when that user goes."""
    template = {"metadata": {"labels": of_revision("1")}}
    made = books(1, reservation("r", 4, template=template, allocatePolicy="Restricted"), keys=("rev",))
    user = pod("user", 4, labels=of_revision("2"))
    assert made.place(user) == ("n1", "r"), "it takes a place of its own group"
    assert made.place(pod("p", 1, labels=of_revision("1")))[0] == "n3", "this one is the reservation's"
    assert made.place(pod("q", 1, labels=of_revision("2")))[0] == "n3"
    made.drop(user)
    assert made.place(pod("owner", 4, labels=of_revision("1"))) == ("n1", "r")
    assert made.place(pod("more", 1, labels=of_revision("1")))[0] == "n3"


def test_a_pod_without_the_key_sees_the_user_and_not_the_reservation_too() -> None:
    made = books(2, reservation("r", 4, template={"metadata": {"labels": of_revision("1")}}), keys=("rev",))
    assert made.place(pod("user", 4, labels=of_revision("2"))) == ("n1", "r")
    assert made.place(pod("first", 1))[0] in ("n1", "n2"), "one place of two is taken"
    assert made.place(pod("second", 1))[0] == "n3"


def test_what_its_users_leave_over_of_a_reservations_size_stays_its_own() -> None:
    made = books(9, reservation("r", 4), maxResources={"cpu": "5"})
    user = pod("user", 1)
    assert made.place(user) == ("n1", "r")
    alone = {f"{DOMAIN}/exact-match-reservation": '{"resourceNames":["cpu"]}'}
    assert made.place(pod("large", 2, annotations=alone))[0] == "n3", "four are reserved, and five is the most"
    assert made.place(pod("inside", 3)) == ("n1", "r")
    assert made.place(pod("last", 1, annotations=alone))[0] in ("n1", "n2")
    made.drop(user)
    assert made.place(pod("again", 1)) == ("n1", "r")


def test_a_pod_on_another_node_takes_over_nothing() -> None:
    made = books(2, reservation("r", 4, owners=[{"object": {"name": "nobody"}}]), bound("liar", "n2", "r"))
    assert made.place(pod("p", 1))[0] == "n3", "both count"
