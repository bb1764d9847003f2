"""Writes that repeat earlier ones have the outcome that they would have in full."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.support import Clock, pod, registry

from wharfinger.admission.request import PASS, Request, Review, User
from wharfinger.api.errors import ApiError, ServiceUnavailable
from wharfinger.api.kinds.builtin import EVENTS, LIMIT_RANGES, NAMESPACES, PODS, RESOURCE_QUOTAS, SERVICE_ACCOUNTS
from wharfinger.api.registry import Document
from wharfinger.api.requests import ApiRequest, PatchType
from wharfinger.store import Store, equal_creates, pods
from wharfinger.store.default_chain import extend_chain
from wharfinger.store.equal_bindings import EqualBindings
from wharfinger.store.equal_creates import EqualCreates
from wharfinger.store.repeats import RepeatedWrites
from wharfinger.store.selection import selectable_fields
from wharfinger.store.versions import kind_of

ALICE = User("alice", ("system:authenticated",), "17", {"scopes": ("a",)})
BOB = User("bob", ("system:masters", "system:authenticated"))


class History:
    """Everything that a store was asked and holds."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        self.answers: list[object] = []

    async def create(
        self, document: Document, subresource: str = "", user: User = BOB, namespace: str = "default", **options: Any
    ) -> None:
        name = document["metadata"]["name"] if subresource else ""
        asked = ApiRequest("create", PODS, namespace, name, subresource, document, **options)
        audit: dict[str, str] = {}
        try:
            written = await self.store.send(asked, user=user, audit=audit)
            self.answers.append((written.data, written.created, written.warnings, audit))
        except ApiError as error:
            self.answers.append((error.code, str(error), audit))

    async def bind(self, name: str, node: str = "n1", **more: Any) -> None:
        options = {key: more.pop(key) for key in ("user", "dry_run", "field_manager") if key in more}
        binding = {"metadata": {"name": name, **more}, "target": {"kind": "Node", "name": node}}
        await self.create(binding, "binding", **options)


async def equal_pods(history: History) -> None:
    for number in range(6):
        await history.create(pod(f"p{number}", labels={"app": "web"}), field_manager="test")
    for number in range(6):
        await history.bind(f"p{number}", f"n{number}")
    for _ in range(4):
        await history.create({**pod(), "metadata": {"generateName": "g-"}})


async def all_sorts_of_names(history: History) -> None:
    for name in ("a", "c", "b-1", "b-2", "b.3", "b.4", "b-5", "B", "", "b-1", 7, "x" * 64, "x" * 254, "app", "Pod"):
        await history.create(pod(name), field_manager="test")
        await history.create(pod(name, namespace="other"))


async def users_managers_and_dry_runs(history: History) -> None:
    for number in range(4):
        for user in (ALICE, BOB):
            for manager in ("", "one", "two"):
                name = f"{user.name}{manager}{number}"
                await history.create(pod(name), user=user, field_manager=manager)
                await history.create(pod(f"{name}d"), user=user, field_manager=manager, dry_run=True)
                await history.bind(name, user=user, field_manager=manager, dry_run=number == 2)


async def a_clock_that_goes_on(history: History) -> None:
    for number in range(9):
        await history.create(pod(f"p{number}"))
        history.clock.time += 0.4
        await history.bind(f"p{number}")


async def settings_that_change(history: History) -> None:
    store = history.store
    for number in range(12):
        await history.create(pod(f"p{number}"), field_manager="test")
        if number == 3:
            defaults = {"type": "Container", "defaultRequest": {"cpu": "1"}}
            await store.create(LIMIT_RANGES, {"metadata": {"name": "l"}, "spec": {"limits": [defaults]}}, "default")
        if number == 5:
            account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
            await store.create(SERVICE_ACCOUNTS, account, "default")
        if number == 7:
            await store.create(
                RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}}, "default"
            )


async def a_namespace_that_ends(history: History) -> None:
    await history.store.create(NAMESPACES, {"metadata": {"name": "short"}})
    for number in range(4):
        await history.create(pod(f"p{number}"), namespace="short")
    await history.store.delete(NAMESPACES, "short")
    await history.create(pod("p4"), namespace="short")
    await history.create(pod("p4"), namespace="none")


async def pods_that_differ(history: History) -> None:
    for number in range(4):
        for key in ("annotations", "labels"):
            await history.create(pod(f"{key}{number}", **{key: {"number": str(number // 2)}}))
        gated = pod(f"gated{number}")
        gated["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
        await history.create(gated)
        null = pod(f"null{number}")
        null["spec"] |= {"nodeSelector": None, "hostname": f"null{number}"}
        await history.create(null)
        wrong = pod(f"wrong{number}")
        wrong["spec"]["restartPolicy"] = "Sometimes"
        await history.create(wrong)
        for name in (f"annotations{number}", f"labels{number}", f"gated{number}", f"null{number}"):
            await history.bind(name)


async def all_sorts_of_bindings(history: History) -> None:
    for number in range(24):
        await history.create(pod(f"p{number}"))
    nodes = ("n", "n.example.com", "N", 'a"b', "", "x" * 64, "é")
    for number, node in enumerate(nodes):
        await history.bind(f"p{number}", node)
    await history.bind("p1", "again")
    for number in range(7, 10):
        uid = history.store.peek(PODS, f"p{number}", "default")
        assert uid is not None
        await history.bind(f"p{number}", uid=uid.uid, namespace="default")
    await history.bind("p10", uid="other")
    await history.bind("p11", resourceVersion="1")
    for number in range(12, 15):
        await history.bind(f"p{number}", labels={"a": "b"})
        await history.bind(f"p{number + 3}", annotations={"a": "b"})
    await history.bind("none")
    for number in range(18, 21):
        status = {"nominatedNodeName": "n9", "conditions": [{"type": "PodScheduled", "status": "False"}]}
        await history.store.patch(PODS, f"p{number}", {"status": status}, "default", subresource="status")
        await history.bind(f"p{number}")
    await history.store.patch(PODS, "p21", {"metadata": {"finalizers": ["a.example/x"]}}, "default")
    await history.store.delete(PODS, "p21", "default")
    await history.bind("p21")


async def bindings_of_pods_that_are_looked_at(history: History) -> None:
    """Only a scheduler may bind a pod with a record, and it has to write the record."""
    record = {"wharfinger.dev/allocated-devices": "[]"}
    for number in range(8):
        await history.create(pod(f"plain{number}", annotations={"a": "b"}))
        await history.create(pod(f"marked{number}", annotations=record))
    for user in (ALICE, BOB):
        for number in range(4):
            name = f"{number if user is ALICE else number + 4}"
            await history.bind(f"plain{name}", user=user)
            await history.bind(f"marked{name}", user=user)
            await history.bind(f"marked{name}", user=user, annotations=record)


async def events(history: History) -> None:
    for number in range(4):
        about = {
            "kind": "Pod",
            "name": f"p{number}",
            "uid": str(number),
            "resourceVersion": "1",
            "namespace": "default",
        }
        event = {"metadata": {"name": f"e{number}", "namespace": "default"}, "involvedObject": about, "message": "m"}
        for manager in ("", "test"):
            try:
                await history.store.create(EVENTS, event, "default", field_manager=manager)
            except ApiError as error:
                history.answers.append(str(error))


async def components_of_a_simulation(history: History) -> None:
    """Without field managers and audit annotations, with generated names, and with uids in all later writes."""
    store = history.store
    made = [await store.create(PODS, {**pod(), "metadata": {"generateName": "g-"}}, "default") for _ in range(5)]
    for number, written in enumerate(made):
        metadata = {field: written.document["metadata"][field] for field in ("name", "namespace", "uid")}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": f"n{number}"}}
        await store.create(PODS, binding, "default", name=metadata["name"], subresource="binding")
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"phase": "Running", "podIP": f"10.0.0.{number}"}}
        await store.patch(PODS, metadata["name"], patch, "default", type=PatchType.STRATEGIC, subresource="status")


SCENARIOS = (
    equal_pods,
    all_sorts_of_names,
    users_managers_and_dry_runs,
    a_clock_that_goes_on,
    settings_that_change,
    a_namespace_that_ends,
    pods_that_differ,
    all_sorts_of_bindings,
    bindings_of_pods_that_are_looked_at,
    events,
    components_of_a_simulation,
)


def outcome(scenario: Callable[[History], Awaitable[None]], path: Path | None, **ways: bool) -> list[object]:
    """All answers and all changes."""

    async def main() -> list[object]:
        clock = Clock()
        options: dict[str, Any] = {"now": clock.now, "source": random.Random(1), **ways}
        store = Store(registry(), **options) if path is None else Store.open(path, registry(), **options)
        extend_chain(store.chain, store)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        store._ledger.collection("", "pods").selected_by_field = True
        history = History(store, clock)
        await scenario(history)
        seen: list[object] = list(history.answers)
        for plural, change in store.changes(0):
            stored = change.event.object
            assert stored is not None
            seen.append((plural, change.event.type, change.version, change.at, stored.data, dict(stored.labels)))
            if stored._fields is not None:
                assert stored._fields == selectable_fields(kind_of(store.registry, PODS), stored.document())
        await store.close()
        return seen

    return asyncio.run(main())


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was written by a short way."""
    found: list[Any] = []
    for way, name, original in (
        (EqualCreates, "create", EqualCreates.create),
        (EqualBindings, "bind", EqualBindings.bind),
        (RepeatedWrites, "create", RepeatedWrites.create),
        (RepeatedWrites, "bind", RepeatedWrites.bind),
        (RepeatedWrites, "patch", RepeatedWrites.patch),
    ):

        def counted(*arguments: Any, write: Any = original) -> Any:
            if result := write(*arguments):
                found.append(result)
            return result

        monkeypatch.setattr(way, name, counted)
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("way", ["short_ways", "equal_writes"])
def test_outcomes_are_those_of_the_full_way(
    scenario: Callable[[History], Awaitable[None]], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = outcome(scenario, tmp_path / "short.db", **{way: True})
    with monkeypatch.context() as patched:
        patched.setattr(pods, "split_pod", lambda kind, stored: None)  # bindings decode the pod
        full = outcome(scenario, None)
    assert short == full


def test_equal_pods_take_short_ways(taken: list[Any]) -> None:
    outcome(equal_pods, None)
    assert not taken
    outcome(equal_pods, None, equal_writes=True)
    assert len(taken) == 6 + 5
    taken.clear()
    outcome(components_of_a_simulation, None, short_ways=True)
    assert len(taken) == 12


class Asked:
    """A reviewer that has to wait, and may change a setting meanwhile."""

    def __init__(self, store: Store, setting: str = "") -> None:
        self.store, self.setting = store, setting
        self.names: list[str] = []

    async def review(self, request: Request) -> Review:
        if request.targets(PODS) or request.subresource == "binding":
            self.names.append(request.name)
            if self.setting:
                document = {"metadata": {"name": f"{self.setting}-{request.name}"}, "spec": {"limits": []}}
                await self.store.create(LIMIT_RANGES, document, "default")
        return PASS


class AskedOnce(Asked):
    def repeats(self, request: Request) -> bool:
        return True


@pytest.mark.parametrize(
    ("reviewer", "setting", "expected"), [(Asked, "", 6), (AskedOnce, "", 2), (AskedOnce, "setting", 6)]
)
def test_reviewers_that_wait_are_asked_unless_they_repeat(
    reviewer: type[Asked], setting: str, expected: int, taken: list[Any]
) -> None:
    async def main() -> None:
        store = Store(registry(), now=Clock().now, equal_writes=True)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        asked = reviewer(store, setting)
        store.chain.remote_validating.append(asked)
        for number in range(6):
            await store.create(PODS, pod(f"p{number}"), "default")
        assert len(asked.names) == expected
        assert len(taken) == 6 - expected
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reviewer", "setting", "expected"), [(Asked, "", 6), (AskedOnce, "", 1), (AskedOnce, "setting", 6)]
)
def test_bindings_are_reviewed_unless_reviewers_repeat(
    reviewer: type[Asked], setting: str, expected: int, taken: list[Any]
) -> None:
    async def main() -> None:
        store = Store(registry(), now=Clock().now, equal_writes=True)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        for number in range(6):
            await store.create(PODS, pod(f"p{number}"), "default")
        asked = reviewer(store, setting)
        store.chain.remote_validating.append(asked)
        taken.clear()
        for number in range(6):
            binding = {"metadata": {"name": f"p{number}"}, "target": {"kind": "Node", "name": f"n{number}"}}
            await store.create(PODS, binding, "default", name=f"p{number}", subresource="binding")
        assert len(asked.names) == expected
        assert len(taken) == 6 - expected
        await store.close()

    asyncio.run(main())


def test_settings_that_get_lost_are_no_longer_followed(tmp_path: Path) -> None:
    """The disk loses the deletion of a LimitRange: pods get its defaults again, also those that equal earlier ones."""

    async def main() -> None:
        store = Store.open(tmp_path / "data.db", registry(), now=Clock().now, equal_writes=True)
        extend_chain(store.chain, store)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
        await store.create(LIMIT_RANGES, {"metadata": {"name": "l"}, "spec": {"limits": limits}}, "default")
        connection = store._ledger._backend._connection  # type: ignore[attr-defined]
        connection.execute("PRAGMA query_only = ON")
        outcomes = await asyncio.gather(
            store.delete(LIMIT_RANGES, "l", "default"),
            *(store.create(PODS, pod(f"p{number}"), "default") for number in range(3)),
            return_exceptions=True,
        )
        connection.execute("PRAGMA query_only = OFF")
        assert all(isinstance(each, ServiceUnavailable) for each in outcomes)
        for number in range(3):
            written = await store.create(PODS, pod(f"q{number}"), "default")
            assert written.document["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
        await store.close()

    asyncio.run(main())


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock = Clock()
        store = Store(registry(), now=clock.now, equal_writes=True)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        creations = store._writer.creations
        assert isinstance(creations, EqualCreates)

        async def create_two(name: str, note: str) -> None:
            for number in range(2):
                await store.create(PODS, pod(f"{name}-{number}", annotations={"note": note}), "default")

        for number in range(20):
            await create_two(f"p{number}", str(number) + "x" * 20_000)
        assert len(creations._known) == 20
        await create_two("long", "x" * 40_000)
        assert len(creations._known) == 20
        monkeypatch.setattr(equal_creates, "_MOST_BYTES", creations._bytes)
        await create_two("more", "")
        assert len(creations._known) == 1
        clock.time += 1
        await store.create(PODS, pod("next"), "default")
        assert not creations._known
        await store.close()

    asyncio.run(main())
