"""Random histories of classes, nodes and pods: what the engine says at every step is what a fresh one would say."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
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

from wharfinger.api.views import Pod
from wharfinger.engine import Engine

RAWS = (GPU, "fpga.example/card")
EXPRESSIONS = (
    ("In", "a", "b"),
    ("NotIn", "a"),
    ("Exists",),
    ("DoesNotExist",),
    ("Gt", "5G"),
    ("Lt", "2"),
)
NAMES = (*RAWS, "k0", "k1", "k2", "resourceclass.scheduling.sigs.x-k8s.io/k1", "alias.example/k2")
ORDER = ("ResourceClass", "NodeComputeResources", "Node", "Pod")


class History:
    """What is in the cluster, and the pods that wait: always the same objects, as a queue keeps them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state: dict[tuple[str, str], Document] = {}
        self.waiting: dict[str, tuple[Document, Pod]] = {}
        self.engine = Engine()

    def step(self, number: int) -> None:
        kind = self.random.choice(("class", "class", "node", "node", "inventory", "pod", "place", "place", "go"))
        if kind == "class":
            self._put_or_remove(self._class(f"k{self.random.randrange(3)}"))
        elif kind == "node":
            name = f"n{self.random.randrange(2)}"
            self._put(machine(name, *self._resources(name), classic=self.random.choice((0, 3))))
        elif kind == "inventory":
            name = f"n{self.random.randrange(2)}"
            spec = {"computeResources": self._resources(f"{name}-own")}
            self._put_or_remove({"kind": "NodeComputeResources", "metadata": {"name": name}, "spec": spec})
        elif kind == "pod":
            name = f"p{number}"
            asked = {self.random.choice(NAMES): self.random.randint(1, 3) for _ in range(self.random.randint(1, 3))}
            made = pod(name, asked)
            self.waiting[name] = (made, as_pod(made))
        elif kind == "place" and self.waiting:
            self._place(self.random.choice(sorted(self.waiting)))
        elif kind == "go" and (bound := [name for what, name in self.state if what == "Pod"]):
            name = self.random.choice(bound)
            del self.state["Pod", name]
            self.engine.remove_pod("default", name)

    def _class(self, name: str) -> Document:
        chosen = [self.random.choice(EXPRESSIONS) for _ in range(self.random.randint(0, 2))]
        wanted = [expression(self.random.choice(("t", "m")), *each) for each in chosen]
        more: Document = self.random.choice(({}, {}, {}, {"groupBy": "t", "groupSize": 2}, {"scope": "Cluster"}))
        known = self.state.get(("ResourceClass", name))
        raw = self.random.choice(RAWS) if known is None else known["spec"]["resourceName"]
        return klass(name, *wanted, raw=raw, alias=f"alias.example/{name}" if name == "k2" else None, **more)

    def _resources(self, node: str) -> list[Document]:
        found: dict[str, Document] = {}
        for index in range(self.random.choice((0, 0, 1, 3))):
            properties = {}
            if self.random.random() < 0.7:
                properties["t"] = self.random.choice("abc")
            if self.random.random() < 0.5:
                properties["m"] = self.random.choice(("1", "4G", "6G", "10Gi"))
            raw, count = self.random.choice(RAWS), self.random.randint(0, 3)
            made = resource(f"{node}-{index}", count, raw, self.random.randint(0, count), **properties)
            found[f"{raw} {sorted(properties.items())}"] = made
        return list(found.values())

    def _put(self, document: Document) -> None:
        self.state[document["kind"], document["metadata"]["name"]] = document
        _apply(self.engine, document)

    def _put_or_remove(self, document: Document) -> None:
        key = (document["kind"], document["metadata"]["name"])
        if key in self.state and self.random.random() < 0.4:
            self.engine.apply(key[0], self.state.pop(key), deleted=True)
        else:
            self._put(document)

    def _place(self, name: str) -> None:
        document, waiting = self.waiting[name]
        node = self.engine.schedule(waiting).node
        if node is None:
            return
        assert self.engine.assume(waiting, node).ok
        bound = json.loads(json.dumps(document))
        bound["spec"]["nodeName"] = node
        bound["metadata"]["annotations"] = dict(self.engine.annotations(waiting, node))
        self._put(bound)
        del self.waiting[name]

    def check(self) -> None:
        fresh = Engine()
        for document in sorted(self.state.values(), key=lambda each: ORDER.index(each["kind"])):
            _apply(fresh, document)
        for document, waiting in self.waiting.values():
            assert _answer(self.engine, waiting) == _answer(fresh, as_pod(document))


def _apply(engine: Engine, document: Document) -> None:
    if document["kind"] == "Node":
        engine.set_node(as_node(document))
    elif document["kind"] == "Pod":
        engine.set_pod(as_pod(document))
    else:
        engine.apply(document["kind"], document)


def _answer(engine: Engine, waiting: Pod) -> Any:
    explained = engine.explain(waiting)
    refused = {name: status.reasons for name, status in explained.refused.items()}
    return engine.schedule(waiting).message, refused, explained.scores


@pytest.mark.parametrize("seed", range(16))
def test_a_restart_would_change_no_answer(seed: int) -> None:
    history = History(seed)
    for number in range(30):
        history.step(number)
        history.check()
