"""Deletion: immediate, graceful, with finalizers and with preconditions; termination of namespaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import MERGE, Clock, bind, config, pod, set_status

from wharfinger.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from wharfinger.api.kinds.builtin import CONFIG_MAPS, JOBS, NAMESPACES, PODS
from wharfinger.api.selectors import parse_field_selector, parse_label_selector
from wharfinger.store import Store

Run = Callable[..., Any]


def test_most_objects_are_removed_at_once(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        written = await store.delete(CONFIG_MAPS, "c", "default", grace_period=30)
        assert written.deleted
        assert written.document["metadata"]["name"] == "c"
        with pytest.raises(NotFound, match='configmaps "c" not found'):
            await store.delete(CONFIG_MAPS, "c", "default")

    run(scenario)


PODS_END: list[tuple[str, bool, str, int | None, int | None, int | None]] = [
    # bound, phase, the pod's own period, the requested period -> the resulting period; None: removed at once
    ("not bound", False, "Pending", 30, 10, None),
    ("bound, own period", True, "Running", 25, None, 25),
    ("bound, asked period", True, "Running", 25, 10, 10),
    ("bound, no grace asked", True, "Running", 25, 0, None),
    ("bound, negative period", True, "Running", 25, -1, 1),
    ("finished", True, "Succeeded", 25, 10, None),
    ("failed", True, "Failed", 25, None, None),
]


@pytest.mark.parametrize(
    ("bound", "phase", "own", "asked", "given"), [c[1:] for c in PODS_END], ids=[c[0] for c in PODS_END]
)
def test_grace_of_pods(
    run: Run, bound: bool, phase: str, own: int | None, asked: int | None, given: int | None
) -> None:
    async def scenario(store: Store) -> None:
        document = pod()
        document["spec"]["terminationGracePeriodSeconds"] = own
        await store.create(PODS, document, "default")
        if bound:
            await bind(store)
        await set_status(store, phase=phase)
        written = await store.delete(PODS, "p", "default", grace_period=asked)
        assert written.deleted is (given is None)
        if given is not None:
            assert written.document["metadata"]["deletionGracePeriodSeconds"] == given
            assert written.document["metadata"]["generation"] == 2

    run(scenario)


def test_a_grace_period_can_only_be_shortened(run: Run, clock: Clock) -> None:
    async def scenario(store: Store) -> None:
        await store.create(PODS, pod(), "default")
        await bind(store)

        async def delete(period: int | None) -> dict[str, Any]:
            written = await store.delete(PODS, "p", "default", grace_period=period)
            return dict(written.document["metadata"])

        first = await delete(100)
        assert (first["deletionTimestamp"], first["deletionGracePeriodSeconds"]) == ("2027-01-15T08:01:40Z", 100)
        assert await delete(None) == first
        assert await delete(200) == first
        clock.time += 10
        shorter = await delete(20)
        assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == ("2027-01-15T08:00:20Z", 20)
        assert shorter["generation"] == first["generation"]
        over = await delete(5)
        assert (over["deletionTimestamp"], over["deletionGracePeriodSeconds"]) == ("2027-01-15T08:00:10Z", 1)
        assert (await store.delete(PODS, "p", "default", grace_period=0)).deleted

    run(scenario)


def test_the_name_of_a_deleted_pod_is_free_only_after_removal(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(PODS, pod(), "default")
        await bind(store)
        await store.delete(PODS, "p", "default", grace_period=30)
        with pytest.raises(AlreadyExists, match=r'^object is being deleted: pods "p" already exists$'):
            await store.create(PODS, pod(), "default")

    run(scenario)


def test_preconditions_on_uid_and_version(run: Run) -> None:
    async def scenario(store: Store) -> None:
        first = (await store.create(CONFIG_MAPS, config(), "default")).document["metadata"]
        with pytest.raises(Conflict, match=r"the UID in the precondition .* does not match the UID in record"):
            await store.delete(CONFIG_MAPS, "c", "default", uid="other")
        with pytest.raises(Conflict, match=r"the ResourceVersion in the precondition .* does not match"):
            await store.delete(CONFIG_MAPS, "c", "default", resource_version="1")
        right = {"uid": first["uid"], "resource_version": first["resourceVersion"]}
        assert (await store.delete(CONFIG_MAPS, "c", "default", **right)).deleted

    run(scenario)


PROPAGATION: list[tuple[list[str], str, list[str] | None]] = [
    ([], "", None),
    ([], "Background", None),
    ([], "Orphan", ["orphan"]),
    ([], "Foreground", ["foregroundDeletion"]),
    (["orphan"], "", ["orphan"]),
    (["orphan"], "Background", None),
    (["orphan", "a.example/x"], "Foreground", ["a.example/x", "foregroundDeletion"]),
]


@pytest.mark.parametrize(("before", "policy", "after"), PROPAGATION)
def test_propagation_sets_finalizers(run: Run, before: list[str], policy: str, after: list[str] | None) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(finalizers=before), "default")
        written = await store.delete(CONFIG_MAPS, "c", "default", propagation=policy)
        assert written.deleted is (after is None)
        if after is not None:
            assert written.document["metadata"]["finalizers"] == after
            assert written.document["metadata"]["deletionTimestamp"]

    run(scenario)


def test_an_unknown_propagation_policy_is_rejected(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        with pytest.raises(ApiError, match="propagationPolicy: Unsupported value"):
            await store.delete(CONFIG_MAPS, "c", "default", propagation="Sideways")

    run(scenario)


def test_a_dry_run_deletes_nothing(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        assert (await store.delete(CONFIG_MAPS, "c", "default", dry_run=True)).deleted
        await store.get(CONFIG_MAPS, "c", "default")

    run(scenario)


def test_a_collection_is_deleted_by_selectors(run: Run) -> None:
    async def scenario(store: Store) -> list[str]:
        for name in ("a", "b", "c", "d"):
            await store.create(CONFIG_MAPS, config(name, labels={"odd": str(name in "ac")}), "default")
        gone = await store.delete_collection(
            CONFIG_MAPS,
            "default",
            labels=parse_label_selector("odd=True"),
            fields=parse_field_selector("metadata.name!=c"),
        )
        assert [stored.name for stored in gone] == ["a"]
        return [stored.name for stored in (await store.list(CONFIG_MAPS)).items]

    assert run(scenario) == ["b", "c", "d"]


def test_a_namespace_is_removed_when_it_is_finalized(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(NAMESPACES, {"metadata": {"name": "team"}})
        await store.create(CONFIG_MAPS, config(), "team")
        going = await store.delete(NAMESPACES, "team")
        assert not going.deleted
        assert going.document["status"]["phase"] == "Terminating"
        assert going.document["metadata"]["deletionTimestamp"]
        assert (await store.delete(NAMESPACES, "team")).document == going.document
        with pytest.raises(Forbidden) as caught:
            await store.create(CONFIG_MAPS, config("late"), "team")
        assert caught.value.message == (
            'configmaps "late" is forbidden: unable to create new content in namespace team '
            "because it is being terminated"
        )
        assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"
        await store.patch(CONFIG_MAPS, "c", {"data": {"a": "1"}}, "team", type=MERGE)
        kept = await store.update(NAMESPACES, {**going.document, "spec": {}}, name="team")
        assert kept.document["spec"] == {"finalizers": ["kubernetes"]}, "only finalize may release it"
        document = {**going.document, "spec": {"finalizers": []}, "metadata": {"name": "team"}}
        released = await store.update(NAMESPACES, document, name="team", subresource="finalize")
        assert released.deleted
        with pytest.raises(NotFound):
            await store.get(NAMESPACES, "team")

    run(scenario)


def test_some_namespaces_cannot_be_deleted(run: Run) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(Forbidden, match='namespaces "default" is forbidden: this namespace may not be deleted'):
            await store.delete(NAMESPACES, "default")

    run(scenario)


def test_jobs_leave_their_pods_behind_unless_told_otherwise(run: Run) -> None:
    job = {
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    }

    async def scenario(store: Store) -> None:
        await store.create(JOBS, job, "default")
        written = await store.delete(JOBS, "j", "default")
        assert written.document["metadata"]["finalizers"] == ["orphan"]
        assert written.warnings[0].startswith("child pods are preserved by default when jobs are deleted; ")
        again = await store.delete(JOBS, "j", "default", propagation="Background")
        assert again.deleted and not again.warnings

    run(scenario)
