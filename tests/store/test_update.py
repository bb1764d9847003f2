"""Updates: optimistic locking, subresources, generation, and removal with the last finalizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import WIDGETS, bind, config, pod, widget

from wharfinger.api.errors import ApiError, Conflict, Invalid, NotFound
from wharfinger.api.kinds.builtin import CONFIG_MAPS, LEASES, NODES, PODS, REPLICA_SETS
from wharfinger.api.requests import PatchType
from wharfinger.store import Store

Run = Callable[..., Any]


def test_the_second_of_two_updates_of_one_version_conflicts(run: Run) -> None:
    async def scenario(store: Store) -> None:
        first = (await store.create(CONFIG_MAPS, config(), "default")).document
        await store.update(CONFIG_MAPS, {**first, "data": {"a": "1"}}, "default")
        with pytest.raises(Conflict) as caught:
            await store.update(CONFIG_MAPS, {**first, "data": {"a": "2"}}, "default")
        assert caught.value.message == (
            'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        assert (await store.get(CONFIG_MAPS, "c", "default")).document()["data"] == {"a": "1"}

    run(scenario)


def test_an_update_without_version_overwrites_built_in_kinds_only(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        await store.update(CONFIG_MAPS, config(data={"a": "1"}), "default")
        await store.create(WIDGETS, widget(), "default")
        with pytest.raises(
            Invalid, match=r"metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        ):
            await store.update(WIDGETS, widget(spec={"size": 1}), "default")

    run(scenario)


def test_an_unchanged_object_is_not_written(run: Run) -> None:
    async def scenario(store: Store) -> None:
        first = await store.create(CONFIG_MAPS, config(data={"a": "1", "b": "2"}), "default")
        before = store.version
        again = await store.update(CONFIG_MAPS, config(data={"b": "2", "a": "1"}), "default")
        assert store.version == before
        assert again.document == first.document

    run(scenario)


def test_identity_cannot_be_changed(run: Run) -> None:
    async def scenario(store: Store) -> None:
        first = (await store.create(CONFIG_MAPS, config(), "default")).document
        changed = {**first, "metadata": {**first["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}}
        changed["data"] = {"a": "1"}
        written = (await store.update(CONFIG_MAPS, changed, "default")).document
        assert written["metadata"]["creationTimestamp"] == first["metadata"]["creationTimestamp"]
        going = {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}
        with pytest.raises(Invalid, match=r"metadata.deletionTimestamp: .* field is immutable"):
            await store.patch(CONFIG_MAPS, "c", going, "default", type=PatchType.MERGE)
        with pytest.raises(Conflict, match="Precondition failed: UID in precondition: other, UID in object meta"):
            await store.update(CONFIG_MAPS, config(uid="other"), "default")
        with pytest.raises(ApiError, match=r"the name of the object \(c\) does not match the name on the URL \(d\)"):
            await store.update(CONFIG_MAPS, config(), "default", name="d")
        with pytest.raises(Invalid, match=r"metadata.uid: Invalid value: \"x\": field is immutable"):
            await store.patch(CONFIG_MAPS, "c", {"metadata": {"uid": "x"}}, "default", type=PatchType.MERGE)
        with pytest.raises(NotFound, match='configmaps "none" not found'):
            await store.update(CONFIG_MAPS, config("none"), "default")

    run(scenario)


def test_status_is_written_only_through_its_subresource(run: Run) -> None:
    async def scenario(store: Store) -> None:
        first = (await store.create(WIDGETS, widget(spec={"size": 1}), "default")).document
        both = {**first, "spec": {"size": 2}, "status": {"ready": 1}}
        outside = (await store.update(WIDGETS, both, "default")).document
        assert outside["spec"] == {"size": 2} and "status" not in outside
        both = {**outside, "spec": {"size": 3}, "status": {"ready": 1}}
        both["metadata"] = {**outside["metadata"], "labels": {"a": "b"}}
        inside = (await store.update(WIDGETS, both, "default", subresource="status")).document
        assert inside["spec"] == {"size": 2} and inside["status"] == {"ready": 1}
        assert "labels" not in inside["metadata"], "a custom resource's status subresource changes no metadata"
        stale = {**both, "status": {"ready": 2}}
        with pytest.raises(Conflict):
            await store.update(WIDGETS, stale, "default", subresource="status")

    run(scenario)


def test_a_nodes_status_subresource_may_change_labels(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(NODES, {"metadata": {"name": "n"}, "spec": {"unschedulable": True}})
        patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": None}, "status": {"phase": "x"}}
        written = await store.patch(NODES, "n", patch, type=PatchType.MERGE, subresource="status")
        assert written.document["metadata"]["labels"]["a"] == "b"
        assert written.document["spec"]["unschedulable"] is True

    run(scenario)


def test_generation_counts_what_is_neither_metadata_nor_status(run: Run) -> None:
    async def scenario(store: Store) -> list[int]:
        merge = PatchType.MERGE
        seen = [(await store.create(WIDGETS, widget(), "default")).document["metadata"]["generation"]]
        for patch, part in (
            ({"metadata": {"labels": {"a": "b"}, "generation": 40}}, ""),
            ({"status": {"x": 1}}, "status"),
            ({"spec": {"size": 2}}, ""),
            ({"spec": {"size": 2}}, ""),
            ({"other": 1}, ""),
        ):
            written = await store.patch(WIDGETS, "w", patch, "default", type=merge, subresource=part)
            seen.append(written.document["metadata"]["generation"])
        return seen

    assert run(scenario) == [1, 1, 1, 2, 2, 3]


def test_kinds_without_generation_have_none(run: Run) -> None:
    async def scenario(store: Store) -> None:
        written = await store.create(CONFIG_MAPS, config(), "default")
        assert "generation" not in written.document["metadata"]

    run(scenario)


def test_leases_can_be_created_by_an_update_and_config_maps_cannot(run: Run) -> None:
    async def scenario(store: Store) -> None:
        lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
        written = await store.update(LEASES, lease, "default")
        assert written.created
        with pytest.raises(NotFound):
            await store.update(CONFIG_MAPS, config(), "default")

    run(scenario)


def test_removing_the_last_finalizer_removes_the_object(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(finalizers=["a.example/x"]), "default")
        deleted = await store.delete(CONFIG_MAPS, "c", "default")
        assert not deleted.deleted
        assert deleted.document["metadata"]["deletionGracePeriodSeconds"] == 0
        with pytest.raises(
            Invalid,
            match=r"no new finalizers can be added if the object is being deleted, "
            r'found new finalizers \[\]string{"b.example/x"}',
        ):
            await store.update(CONFIG_MAPS, config(finalizers=["a.example/x", "b.example/x"]), "default")
        gone = await store.update(CONFIG_MAPS, config(finalizers=[]), "default")
        assert gone.deleted
        with pytest.raises(NotFound):
            await store.get(CONFIG_MAPS, "c", "default")

    run(scenario)


def test_removing_finalizers_does_not_end_the_grace_period_of_a_pod(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(PODS, pod(finalizers=["a.example/x"]), "default")
        await bind(store)
        await store.delete(PODS, "p", "default", grace_period=30)
        patch = {"metadata": {"finalizers": None}}
        written = await store.patch(PODS, "p", patch, "default", type=PatchType.MERGE)
        assert not written.deleted
        assert (await store.delete(PODS, "p", "default", grace_period=0)).deleted

    run(scenario)


def test_replicas_are_read_and_set_through_scale(run: Run) -> None:
    async def scenario(store: Store) -> None:
        spec = {"replicas": 2, "selector": {"matchLabels": {"b": "c", "a": "b"}}}
        first = (await store.create(WIDGETS, widget(spec=spec), "default")).document
        scale = await store.get_subresource(WIDGETS, "w", "default", "scale")
        assert scale["kind"] == "Scale" and scale["spec"] == {"replicas": 2}
        assert scale["status"] == {"replicas": 0, "selector": "a=b,b=c"}
        scale["spec"]["replicas"] = 5
        written = await store.update(WIDGETS, scale, "default", name="w", subresource="scale")
        assert written.document["kind"] == "Scale" and written.document["spec"] == {"replicas": 5}
        with pytest.raises(Conflict):
            await store.update(WIDGETS, scale, "default", name="w", subresource="scale")
        patched = await store.patch(
            WIDGETS, "w", {"spec": {"replicas": 7}}, "default", type=PatchType.MERGE, subresource="scale"
        )
        assert patched.document["spec"] == {"replicas": 7}
        now = (await store.get(WIDGETS, "w", "default")).document()
        assert now["spec"] == {**spec, "replicas": 7}
        assert now["metadata"]["generation"] == first["metadata"]["generation"] + 2
        with pytest.raises(Invalid, match="must be greater than or equal to 0"):
            await store.patch(
                WIDGETS, "w", {"spec": {"replicas": -1}}, "default", type=PatchType.MERGE, subresource="scale"
            )

    run(scenario)


def test_unknown_subresources_are_not_found(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        for part in ("status", "scale", "binding"):
            with pytest.raises(NotFound):
                await store.update(CONFIG_MAPS, config(), "default", subresource=part)

    run(scenario)


def test_a_write_to_the_status_of_a_workload_checks_the_status_alone(run: Run) -> None:
    async def scenario(store: Store) -> None:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        created = await store.create(REPLICA_SETS, {"metadata": {"name": "r"}, "spec": spec}, "default")
        before = created.document["spec"]
        change = {"spec": {"replicas": -1, "template": None}, "status": {"replicas": 1, "readyReplicas": None}}
        written = await store.patch(REPLICA_SETS, "r", change, "default", type=PatchType.MERGE, subresource="status")
        assert (written.document["spec"], written.document["status"]) == (before, {"replicas": 1})
        assert written.document["metadata"]["generation"] == 1
        with pytest.raises(Invalid, match=r"replicas"):
            await store.patch(REPLICA_SETS, "r", {"status": {"replicas": "one"}}, "default", subresource="status")

    run(scenario)
