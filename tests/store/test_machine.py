"""Random histories on both back ends and on a small model: the same results, objects, lists and watches."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.store.support import MERGE, START, config, registry

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES
from wharfinger.api.selectors import parse_label_selector
from wharfinger.store import Store

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.sampled_from(["x", "y"])


class Model:
    """The expected config maps: data, labels, finalizers, whether they are being deleted, and versions."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.objects: dict[str, dict[str, Any]] = {}

    def written(self, name: str, **parts: Any) -> str:
        self.version += 1
        self.objects[name] = {**self.objects.get(name, {"going": False}), **parts, "version": self.version}
        return "written"

    def removed(self, name: str) -> str:
        self.version += 1
        del self.objects[name]
        return "removed"


class Histories(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._path = Path(self._directory.name) / "data.db"
        self._loop = asyncio.new_event_loop()
        self.memory = Store(registry(), now=lambda: START, source=random.Random(3))
        self.disk = self._open()
        for store in self._stores():
            self._do(store.create(NAMESPACES, {"metadata": {"name": "default"}}))
        self.model = Model(self.memory.version)
        self._watches = [store.watch(CONFIG_MAPS, after=store.version) for store in self._stores()]
        self._seen: dict[str, bytes] = {}

    def _open(self) -> Store:
        return Store.open(self._path, registry(), now=lambda: START, source=random.Random(3))

    def _stores(self) -> tuple[Store, Store]:
        return self.memory, self.disk

    def _do(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(work)

    def _both(self, act: Any, expected: str) -> None:
        """Runs the same operation on both stores; the results must equal the model's and each other."""
        answers = []
        for store in self._stores():
            try:
                written = self._do(act(store))
                answers.append(("removed" if written.deleted else "written", _comparable(written.document)))
            except ApiError as error:
                answers.append((f"{error.code}", error.message))
        assert answers[0] == answers[1]
        assert answers[0][0] == expected

    @rule(name=NAMES, value=VALUES, finalizer=st.booleans())
    def create(self, name: str, value: str, finalizer: bool) -> None:
        finalizers = ["a.example/x"] if finalizer else []
        if name in self.model.objects:
            expected = "409"
        else:
            expected = self.model.written(name, value=value, label="", finalizers=finalizers, going=False)
        document = config(name, data={"v": value}, finalizers=finalizers)
        self._both(lambda store: store.create(CONFIG_MAPS, document, "default"), expected)

    @rule(name=NAMES, value=VALUES, age=st.integers(0, 2))
    def update(self, name: str, value: str, age: int) -> None:
        """An update based on the current version, or on one that is `age` versions old."""
        present = self.model.objects.get(name)
        version = str(present["version"] - age) if present else "1"
        if present is None:
            expected = "404"
        elif age:
            expected = "409"
        elif present["value"] == value and present["label"] == "":
            expected = "written"
        else:
            expected = self.model.written(name, value=value, label="")
        finalizers = present["finalizers"] if present else []
        document = config(name, data={"v": value}, finalizers=finalizers, resourceVersion=version)
        self._both(lambda store: store.update(CONFIG_MAPS, document, "default"), expected)

    @rule(name=NAMES, label=VALUES)
    def relabel(self, name: str, label: str) -> None:
        present = self.model.objects.get(name)
        expected = "404" if present is None else "written"
        if present is not None and present["label"] != label:
            self.model.written(name, label=label)
        patch = {"metadata": {"labels": {"l": label}}}
        self._both(lambda store: store.patch(CONFIG_MAPS, name, patch, "default", type=MERGE), expected)

    @rule(name=NAMES, fitting=st.booleans())
    def delete(self, name: str, fitting: bool) -> None:
        present = self.model.objects.get(name)
        if present is None:
            expected = "404"
        elif not fitting:
            expected = "409"
        elif not present["finalizers"]:
            expected = self.model.removed(name)
        else:
            expected = "written" if present["going"] else self.model.written(name, going=True)
        version = str(present["version"] if present and fitting else 1)
        self._both(lambda store: store.delete(CONFIG_MAPS, name, "default", resource_version=version), expected)

    @rule(name=NAMES)
    def finalize(self, name: str) -> None:
        present = self.model.objects.get(name)
        if present is None:
            expected = "404"
        elif present["going"]:
            expected = self.model.removed(name)
        elif present["finalizers"]:
            expected = self.model.written(name, finalizers=[])
        else:
            expected = "written"
        patch = {"metadata": {"finalizers": None}}
        self._both(lambda store: store.patch(CONFIG_MAPS, name, patch, "default", type=MERGE), expected)

    @rule()
    def restart(self) -> None:
        self._follow()
        self._do(self.disk.close())
        self.disk = self._open()
        self._watches[1] = self.disk.watch(CONFIG_MAPS, after=self.disk.version)

    def _follow(self) -> None:
        """Both watches report the same changes, and applying them gives the content of the store."""
        shown = []
        for watch in self._watches:
            events = []
            while (event := watch._ready()) is not None:
                assert event.object is not None
                events.append((event.type, event.object.name, event.version, event.object.data))
            shown.append(events)
        assert [_event(event) for event in shown[0]] == [_event(event) for event in shown[1]]
        for kind, name, _, data in shown[0]:
            if kind == "DELETED":
                del self._seen[name]
            else:
                self._seen[name] = data

    @invariant()
    def all_agree(self) -> None:
        if not hasattr(self, "memory"):
            return
        self._follow()
        for store in self._stores():
            assert store.version == self.model.version
            listed = self._do(store.list(CONFIG_MAPS, "default")).items
            assert [(stored.name, stored.version) for stored in listed] == [
                (name, state["version"]) for name, state in sorted(self.model.objects.items())
            ]
            labelled = self._do(store.list(CONFIG_MAPS, labels=parse_label_selector("l=x"))).items
            assert {stored.name for stored in labelled} == {
                name for name, state in self.model.objects.items() if state["label"] == "x"
            }
            for stored in listed:
                document, state = stored.document(), self.model.objects[stored.name]
                assert document["data"] == {"v": state["value"]}
                assert bool(document["metadata"].get("deletionTimestamp")) is state["going"]
        memory = self._do(self.memory.list(CONFIG_MAPS)).items
        assert {stored.name: stored.data for stored in memory} == self._seen

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            for store in self._stores():
                self._do(store.close())
            self._loop.close()
            self._directory.cleanup()


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    # Uids differ once the store on disk was reopened with a new random source.
    return {**document, "metadata": {**document["metadata"], "uid": ""}}


def _event(event: tuple[str, str, int, bytes]) -> tuple[str, str, int]:
    return event[:3]


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
