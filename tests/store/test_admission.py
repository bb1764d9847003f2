"""The admission chain: order, what reviewers see and change, warnings, dry runs, remote reviewers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import MERGE, WIDGETS, bind, config, pod, widget

from wharfinger.admission.request import PASS, SYSTEM, Request, Review, User
from wharfinger.api.errors import Conflict, Forbidden, Invalid, NotFound
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES, PODS
from wharfinger.api.requests import ApiRequest
from wharfinger.store import Chain, Store

Run = Callable[..., Any]


class Reviewer:
    """Calls a function for config maps and widgets, and records the requests it saw."""

    def __init__(self, act: Callable[[Request], Review | None] = lambda request: None) -> None:
        self._act = act
        self.seen: list[Request] = []

    def review(self, request: Request) -> Review:
        if request.resource == NAMESPACES:
            return PASS
        self.seen.append(request)
        return self._act(request) or PASS


def refuse(request: Request) -> Review:
    return Review(Forbidden("no"), warnings=("think again",))


def test_reviewers_run_in_order_around_validation(run: Run) -> None:
    order: list[str] = []

    def note(name: str) -> Reviewer:
        return Reviewer(lambda request: order.append(name))  # type: ignore[func-returns-value]

    class Remote:
        def __init__(self, name: str) -> None:
            self._name = name

        async def review(self, request: Request, repeat: Callable[[], None] = lambda: None) -> Review:
            if request.resource != NAMESPACES:
                order.append(self._name)
                await asyncio.sleep(0)
            return PASS

    chain = Chain(
        mutating=[note("mutating")],
        remote_mutating=[Remote("remote mutating")],
        validating=[note("validating")],
        remote_validating=[Remote("remote validating")],
        final=[note("final")],
    )

    async def scenario(store: Store) -> None:
        everything = ["mutating", "remote mutating", "validating", "remote validating", "final"]
        await store.create(CONFIG_MAPS, config(), "default")
        assert order == everything
        order.clear()
        with pytest.raises(Invalid):
            await store.create(CONFIG_MAPS, config("Bad Name"), "default")
        assert order == everything[:2]
        for write in (
            lambda: store.patch(CONFIG_MAPS, "c", {"data": {"a": "1"}}, "default", type=MERGE),
            lambda: store.delete(CONFIG_MAPS, "c", "default"),
        ):
            order.clear()
            await write()
            assert order == everything

    run(scenario, chain=chain)


def test_changes_of_a_mutating_reviewer_are_written(run: Run) -> None:
    def change(request: Request) -> None:
        if request.object is not None:
            request.object["metadata"].setdefault("labels", {})["by"] = request.user.name

    async def scenario(store: Store) -> None:
        request = ApiRequest("create", CONFIG_MAPS, "default", body=config())
        written = await store.send(request, user=User("me"))
        assert written.document["metadata"]["labels"] == {"by": "me"}

    run(scenario, chain=Chain(mutating=[Reviewer(change)]))


def test_reviewers_see_the_whole_request(run: Run) -> None:
    reviewer = Reviewer()

    async def scenario(store: Store) -> None:
        document = widget(spec={"size": 1})
        request = ApiRequest("create", WIDGETS, "default", body=document, field_manager="tool")
        await store.send(request, user=User("me"))
        await store.patch(WIDGETS, "w", {"status": {"x": 1}}, "default", type=MERGE, subresource="status", dry_run=True)
        await store.delete(WIDGETS, "w", "default")
        create, update, delete = reviewer.seen
        assert (create.operation, create.name, create.namespace, create.user.name) == ("CREATE", "w", "default", "me")
        assert create.old is None and create.object is not None and create.options == {"fieldManager": "tool"}
        assert (update.operation, update.subresource, update.dry_run, update.user) == ("UPDATE", "status", True, SYSTEM)
        assert update.object is not None and update.object["status"] == {"x": 1}
        assert update.old is not None and "status" not in update.old
        assert delete.operation == "DELETE" and delete.object is None and delete.old is not None

    run(scenario, chain=Chain(validating=[reviewer]))


@pytest.mark.parametrize("place", ["mutating", "validating", "final"])
def test_a_rejection_in_any_phase_writes_nothing(run: Run, place: str) -> None:
    async def scenario(store: Store) -> None:
        before = store.version
        with pytest.raises(Forbidden, match="no"):
            await store.create(CONFIG_MAPS, config(), "default")
        assert store.version == before
        assert store.peek(CONFIG_MAPS, "c", "default") is None

    run(scenario, chain=Chain(**{place: [Reviewer(refuse)]}))


def test_warnings_are_collected(run: Run) -> None:
    def warn(text: str) -> Reviewer:
        return Reviewer(lambda request: Review(warnings=(text,)))

    async def scenario(store: Store) -> None:
        written = await store.create(CONFIG_MAPS, config(), "default")
        assert written.warnings == ("one", "two", "three")
        deleted = await store.delete(CONFIG_MAPS, "c", "default")
        assert deleted.warnings == ("one", "two", "three")

    run(scenario, chain=Chain([warn("one")], [], [warn("two")], [], [warn("three")]))


def test_bindings_and_evictions_are_reviewed_too(run: Run) -> None:
    reviewer = Reviewer()

    async def scenario(store: Store) -> None:
        await store.create(PODS, pod(), "default")
        await bind(store)
        await store.create(PODS, {"metadata": {"name": "p"}}, "default", name="p", subresource="eviction")
        kinds = [(request.subresource, (request.object or {}).get("kind")) for request in reviewer.seen]
        assert kinds == [("", "Pod"), ("binding", "Binding"), ("eviction", "Eviction")]

    run(scenario, chain=Chain(validating=[reviewer]))


def test_the_count_of_a_final_reviewer_is_exact(run: Run) -> None:
    """Many concurrent requests compete for a limited count, which is never exceeded."""
    known: list[Store] = []

    def quota(request: Request) -> Review | None:
        taken = sum(1 for _ in known[0].scan(CONFIG_MAPS, "default"))
        return Review(Forbidden("quota")) if taken >= 3 else None

    class Slow:
        async def review(self, request: Request) -> Review:
            await asyncio.sleep(0)
            return PASS

    async def scenario(store: Store) -> None:
        known.append(store)
        creations = [store.create(CONFIG_MAPS, config(f"c{n}"), "default") for n in range(10)]
        outcomes = await asyncio.gather(*creations, return_exceptions=True)
        assert sum(isinstance(outcome, Forbidden) for outcome in outcomes) == 7
        assert len((await store.list(CONFIG_MAPS)).items) == 3

    run(scenario, chain=Chain(remote_validating=[Slow()], final=[Reviewer(quota)]))


class Meddler:
    """A remote reviewer during whose first review another write happens."""

    def __init__(self) -> None:
        self.meddle: Callable[[], Any] | None = None

    async def review(self, request: Request) -> Review:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            await meddle()
        return PASS


def test_a_patch_is_applied_to_concurrent_changes(run: Run) -> None:
    meddler = Meddler()

    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(data={"n": "0"}), "default")
        meddler.meddle = lambda: store.patch(CONFIG_MAPS, "c", {"data": {"other": "1"}}, "default", type=MERGE)
        await store.patch(CONFIG_MAPS, "c", {"data": {"n": "1"}}, "default", type=MERGE)
        assert (await store.get(CONFIG_MAPS, "c", "default")).document()["data"] == {"n": "1", "other": "1"}

    run(scenario, chain=Chain(remote_validating=[meddler]))


def test_an_update_with_a_version_conflicts_with_concurrent_changes(run: Run) -> None:
    meddler = Meddler()

    async def scenario(store: Store) -> None:
        first = (await store.create(CONFIG_MAPS, config(), "default")).document
        meddler.meddle = lambda: store.patch(CONFIG_MAPS, "c", {"data": {"other": "1"}}, "default", type=MERGE)
        with pytest.raises(Conflict):
            await store.update(CONFIG_MAPS, {**first, "data": {"n": "1"}}, "default")

    run(scenario, chain=Chain(remote_validating=[meddler]))


def test_nothing_is_created_in_a_namespace_deleted_meanwhile(run: Run) -> None:
    meddler = Meddler()

    async def scenario(store: Store) -> None:
        await store.create(NAMESPACES, {"metadata": {"name": "team"}})
        meddler.meddle = lambda: store.delete(NAMESPACES, "team")
        with pytest.raises(Forbidden, match="because it is being terminated"):
            await store.create(CONFIG_MAPS, config(), "team")

    run(scenario, chain=Chain(remote_validating=[meddler]))


def test_an_object_deleted_meanwhile_is_not_found(run: Run) -> None:
    meddler = Meddler()

    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        meddler.meddle = lambda: store.delete(CONFIG_MAPS, "c", "default")
        with pytest.raises(NotFound):
            await store.delete(CONFIG_MAPS, "c", "default")

    run(scenario, chain=Chain(remote_validating=[meddler]))


def test_a_reviewer_sees_only_writes_that_concern_it(run: Run) -> None:
    class OfPods(Reviewer):
        def concerns(self, group: str, plural: str, subresource: str) -> bool:
            return (group, plural, subresource) == ("", "pods", "")

    picky, late = OfPods(), OfPods()
    chain = Chain(validating=[picky])

    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        await store.create(PODS, pod("a"), "default")
        await bind(store, "a", "n1")
        assert [(seen.resource, seen.subresource) for seen in picky.seen] == [(PODS, "")]
        chain.validating.append(late)
        await store.create(PODS, pod("b"), "default")
        assert [seen.name for seen in late.seen] == ["b"]

    run(scenario, chain=chain)
