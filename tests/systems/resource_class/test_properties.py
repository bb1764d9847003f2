"""Whatever happens, no device is given twice and none is given that is not there; and assignments are complete."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.systems.resource_class.device_objects import (
    GPU,
    Document,
    as_node,
    as_pod,
    expression,
    klass,
    machine,
    pod,
    resource,
)

from wharfinger.engine import Engine
from wharfinger.systems.resource_class.rules.assigning import Demand, assign, fits
from wharfinger.systems.resource_class.rules.compute_resources import RECORD

KINDS = ("a", "b", "c")
NAMES = ("any", "ab", "bc", "only-c", GPU)
SELECTORS = {"any": KINDS, "ab": ("a", "b"), "bc": ("b", "c"), "only-c": ("c",)}


def classes(selectors: dict[str, tuple[str, ...]]) -> list[Document]:
    return [klass(name, expression("t", "In", *kinds)) for name, kinds in selectors.items()]


def node(name: str, amounts: tuple[int, int, int], *, classic: bool) -> Document:
    if classic:
        return machine(name, classic=sum(amounts))
    return machine(name, *(resource(f"{name}-{t}", n, t=t) for t, n in zip(KINDS, amounts, strict=True)))


@st.composite
def actions(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    requests = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 4), min_size=1, max_size=3)
    amounts = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
    kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True).map(tuple)
    action = st.one_of(
        st.tuples(st.just("pod"), requests),
        st.tuples(st.just("pod"), requests),
        st.tuples(st.just("delete"), st.integers(0, 20)),
        st.tuples(st.just("class"), st.sampled_from(sorted(SELECTORS)), kinds),
        st.tuples(st.just("node"), st.integers(0, 2), amounts, st.booleans()),
        st.tuples(st.just("restart")),
    )
    return draw(st.lists(action, max_size=30))


class Replay:
    """An engine fed by actions, and what must hold of the pods it placed."""

    def __init__(self) -> None:
        self.nodes = {f"n{i}": node(f"n{i}", (2, 1, 3), classic=i == 2) for i in range(3)}
        self.selectors = dict(SELECTORS)
        self.placed: dict[str, Document] = {}
        self.number = 0
        self.restart()

    def restart(self) -> None:
        self.engine = Engine()
        for each in (*self.placed.values(), *self.nodes.values(), *classes(self.selectors)):
            self.feed(each)

    def feed(self, document: Document) -> None:
        if document["kind"] == "Node":
            self.engine.set_node(as_node(document))
        elif document["kind"] == "Pod":
            self.engine.set_pod(as_pod(document))
        else:
            self.engine.apply(document["kind"], document)

    def act(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("pod", requests):
                self.place(requests)
            case ("delete", index) if self.placed:
                name = sorted(self.placed)[index % len(self.placed)]
                del self.placed[name]
                self.engine.remove_pod("default", name)
            case ("class", name, kinds):
                self.selectors[name] = kinds
                self.feed(classes({name: kinds})[0])
            case ("node", index, amounts, classic):
                name = f"n{index}"
                if not any(each["spec"]["nodeName"] == name for each in self.placed.values()):
                    # Properties change after a drain only; here so do capacities.
                    self.nodes[name] = node(name, amounts, classic=classic)
                    self.feed(self.nodes[name])
            case ("restart",):
                self.restart()

    def place(self, requests: dict[str, int]) -> None:
        self.number += 1
        document = pod(f"p{self.number:02}", requests)
        wanted = as_pod(document)
        decision = self.engine.schedule(wanted)
        assert (decision.node is not None) == any(self.could(name, requests) for name in self.nodes)
        if decision.node is None:
            return
        assert self.engine.assume(wanted, decision.node).ok
        annotations = self.engine.annotations(wanted, decision.node)
        document["spec"]["nodeName"] = decision.node
        document["metadata"]["annotations"] = dict(annotations)
        self.placed[document["metadata"]["name"]] = document
        self.engine.set_pod(as_pod(document))
        self.check_record(decision.node, requests, json.loads(annotations[RECORD])["c"])

    def capacities(self, name: str) -> dict[str, tuple[str, int]]:
        status = self.nodes[name]["status"]
        if status["computeResources"]:
            return {r["name"]: (r["properties"]["t"], len(r["devices"])) for r in status["computeResources"]}
        return {"classic": ("", int(status["allocatable"].get(GPU, 0)))}

    def taken(self, name: str) -> Counter[str]:
        taken: Counter[str] = Counter()
        for document in self.placed.values():
            if document["spec"]["nodeName"] == name:
                for entries in json.loads(document["metadata"]["annotations"][RECORD])["c"].values():
                    for entry in entries:
                        resource_name = entry["computeResourceName"]
                        known = self.capacities(name)
                        taken[resource_name if resource_name in known else "classic"] += entry["count"]
        return taken

    def matches(self, name: str, kind: str) -> bool:
        return name == GPU or kind in self.selectors[name]

    def could(self, node_name: str, requests: dict[str, int]) -> bool:
        """The plain truth: every combination of requests finds as many devices as it asks for (Hall's condition)."""
        taken = self.taken(node_name)
        free = [(kind, n - taken[name]) for name, (kind, n) in self.capacities(node_name).items()]
        return all(
            sum(n for kind, n in free if any(self.matches(name, kind) for name in some))
            >= sum(requests[n] for n in some)
            for size in range(1, len(requests) + 1)
            for some in itertools.combinations(requests, size)
        )

    def check_record(self, node_name: str, requests: dict[str, int], record: dict[str, list[Document]]) -> None:
        known = self.capacities(node_name)
        assert {name: sum(e["count"] for e in entries) for name, entries in record.items()} == requests
        for name, entries in record.items():
            for entry in entries:
                assert self.matches(name, known.get(entry["computeResourceName"], ("", 0))[0])
        for name, count in self.taken(node_name).items():
            assert count <= known[name][1], f"{name} is over-allocated"


@settings(max_examples=60, deadline=None)
@given(actions())
def test_no_device_is_given_twice(history: list[tuple[Any, ...]]) -> None:
    replay = Replay()
    for action in history:
        replay.act(action)


DEMANDS = st.lists(
    st.tuples(st.integers(1, 5), st.sets(st.integers(0, 4), max_size=5), st.sampled_from((1, 1, 1, 2))),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(
    DEMANDS,
    st.lists(st.integers(0, 5), min_size=5, max_size=5),
    st.lists(st.sampled_from("xyz"), min_size=5, max_size=5),
)
def test_assignments_are_exact(given_demands: list[Any], free: list[int], values: list[str]) -> None:
    demands = [
        Demand(
            f"d{i}", amount, tuple(sorted(places)), size, tuple(values[p] for p in sorted(places)) if size > 1 else ()
        )
        for i, (amount, places, size) in enumerate(given_demands)
    ]
    given_devices = assign(demands, free)
    assert (given_devices is not None) == fits(demands, free) == possible(demands, free)
    if given_devices is None:
        return
    total: Counter[int] = Counter()
    for each, counts in zip(demands, given_devices, strict=True):
        assert sum(counts.values()) == each.amount * each.size
        assert set(counts) <= set(each.places)
        by_value: Counter[str] = Counter()
        for place, count in counts.items():
            by_value[values[place]] += count
        assert each.size == 1 or all(count % each.size == 0 for count in by_value.values())
        total.update(counts)
    assert all(count <= free[place] for place, count in total.items())


def possible(demands: list[Demand], free: list[int]) -> bool:
    """Tries everything, a unit at a time."""
    seen: set[tuple[int, int, tuple[int, ...]]] = set()

    def search(index: int, units: int, left: tuple[int, ...]) -> bool:
        if index == len(demands):
            return True
        each = demands[index]
        if units == each.amount:
            return search(index + 1, 0, left)
        if (index, units, left) in seen:
            return False
        seen.add((index, units, left))
        return any(search(index, units + 1, after) for after in takes(each, left))

    def takes(each: Demand, left: tuple[int, ...]) -> Any:
        for places in itertools.combinations_with_replacement(range(len(each.places)), each.size):
            if each.size > 1 and len({each.values[p] for p in places}) > 1:
                continue
            after = list(left)
            for p in places:
                after[each.places[p]] -= 1
            if min(after, default=0) >= 0:
                yield tuple(after)

    return search(0, 0, tuple(free))
