"""Counters that find pods by their labels count the same as a look at every pod."""

from __future__ import annotations

import random

from tests.engine.builders import node, pod

from wharfinger.api.selectors import LabelSelector, SelectorExpression
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.framework.counters import Counting, PodCounter
from wharfinger.framework.label_index import PodSelection
from wharfinger.framework.pod_selectors import NOTHING, PodSelector

ZONE = "topology.kubernetes.io/zone"
NODES = {f"n{number}": f"z{number % 3}" for number in range(6)}


def any_selector(choice: random.Random) -> PodSelector:
    expressions = [
        SelectorExpression("app", "In", tuple(choice.sample(("a", "b", "c"), choice.randint(1, 2)))),
        SelectorExpression("app", "NotIn", ("a",)),
        SelectorExpression("tier", "Exists"),
        SelectorExpression("tier", "DoesNotExist"),
        SelectorExpression("tier", "In", ("x",)),
    ]
    chosen = choice.sample(expressions, choice.randint(0, 2))
    return NOTHING if choice.random() < 0.05 else PodSelector(LabelSelector(match_expressions=tuple(chosen)).compile())


def any_selection(choice: random.Random) -> PodSelection:
    parts = tuple(
        (None if choice.random() < 0.3 else frozenset(choice.sample(("one", "two"), choice.randint(1, 2))), selector)
        for selector in (any_selector(choice) for _ in range(choice.randint(1, 2)))
    )
    return PodSelection(parts, ignore_terminating=choice.random() < 0.5)


def any_pod(choice: random.Random, name: str) -> Pod:
    labels = {"app": choice.choice("abc")} if choice.random() < 0.9 else {}
    if choice.random() < 0.5:
        labels["tier"] = choice.choice("xy")
    on, namespace = choice.choice((*NODES, "unknown")), choice.choice(("one", "two"))
    return pod(name, on, namespace=namespace, labels=labels, deleted=choice.random() < 0.2)


def counted(counter: Counting, engine: Engine) -> dict[str, int]:
    """What a counter says of each node."""
    if isinstance(counter, PodCounter):
        return {name: counter.at(engine.tables.row_of[name]) for name in NODES}
    return {name: int(counter.counts[engine.tables.row_of[name]]) for name in NODES}


def expected(counter: Counting, pods: list[Pod]) -> dict[str, int]:
    def on(chosen: Pod, name: str) -> bool:
        where = chosen.spec.node_name
        return NODES.get(where) == NODES[name] if isinstance(counter, PodCounter) else where == name

    chosen = [
        each
        for each in pods
        if counter.selection.matches(each.metadata.namespace, each.metadata.labels)
        and not (each.terminating and counter.selection.ignore_terminating)
    ]
    return {name: sum(on(each, name) for each in chosen) for name in NODES}


def test_counts_are_those_of_a_look_at_every_pod() -> None:
    compared = 0
    for seed in range(40):
        choice = random.Random(seed)
        engine = Engine()
        for name, zone in NODES.items():
            engine.set_node(node(name, labels={ZONE: zone}))
        counters, pods, held = engine.tables.counters, dict[tuple[str, str], Pod](), list[Counting]()
        for number in range(60):
            what = choice.random()
            if what < 0.5:
                made = any_pod(choice, f"p{choice.randint(0, 20)}")
                pods[made.metadata.namespace, made.metadata.name] = made
                engine.set_pod(made)
            elif what < 0.65 and pods:
                key = choice.choice(sorted(pods))
                del pods[key]
                engine.remove_pod(*key)
            elif what < 0.9:
                selection = any_selection(choice)
                by_zone = choice.random() < 0.5
                held.append(counters.pod_counter(ZONE, selection) if by_zone else counters.row_counter(selection))
            elif held:
                counters.release(held.pop(choice.randrange(len(held))))
            for counter in held:
                assert counted(counter, engine) == expected(counter, list(pods.values())), (seed, number)
                compared += sum(counted(counter, engine).values()) > 0
    assert compared > 1000
