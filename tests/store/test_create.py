"""Creation: the fields that the server sets, and what it rejects with which message."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import APPLY, JSON, OLD_WIDGETS, START, WIDGETS, config, pod, registry, widget

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES, NODES, PODS
from wharfinger.api.registry import Resource
from wharfinger.api.requests import PatchType
from wharfinger.store import Store
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES

Run = Callable[..., Any]


def test_the_server_sets_the_identity_and_ignores_that_of_the_client(run: Run) -> None:
    async def scenario(store: Store) -> None:
        given = pod(
            uid="mine", generation=9, creationTimestamp=None, deletionTimestamp="2020-01-01T00:00:00Z", selfLink="x"
        )
        given["status"] = {"phase": "Running"}
        written = await store.create(PODS, given, "default")
        metadata = written.document["metadata"]
        assert written.created
        assert metadata["namespace"] == "default"
        assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
        assert metadata["generation"] == 1
        assert len(metadata["uid"]) == 36 and metadata["uid"][14] == "4"
        assert metadata["resourceVersion"] == str(store.version)
        assert not {"deletionTimestamp", "selfLink"} & metadata.keys()
        assert written.document.get("status", {}).get("phase") != "Running"
        stored = await store.get(PODS, "p", "default")
        assert stored.document() == written.document
        assert stored.data == written.data
        assert given["metadata"]["uid"] == "mine", "the caller's document stays as it is"

    run(scenario)


def test_versions_count_over_all_kinds(run: Run) -> None:
    async def scenario(store: Store) -> list[int]:
        await store.create(CONFIG_MAPS, config(), "default")
        await store.create(WIDGETS, widget(), "default")
        first = (await store.get(CONFIG_MAPS, "c", "default")).version
        return [first, (await store.get(WIDGETS, "w", "default")).version]

    first, second = run(scenario)
    assert second == first + 1


def test_generated_names_differ_and_keep_their_prefix(run: Run) -> None:
    async def scenario(store: Store) -> set[str]:
        names = set()
        for _ in range(50):
            given = config()
            given["metadata"] = {"generateName": "job-"}
            written = await store.create(CONFIG_MAPS, given, "default")
            names.add(written.document["metadata"]["name"])
        return names

    names = run(scenario)
    assert len(names) == 50
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_a_long_name_prefix_is_truncated(run: Run) -> None:
    async def scenario(store: Store) -> str:
        given = {"metadata": {"generateName": "x" * 100}}
        return str((await store.create(CONFIG_MAPS, given, "default")).document["metadata"]["name"])

    assert len(run(scenario)) == 63


def test_a_dry_run_returns_the_object_and_writes_nothing(run: Run) -> None:
    async def scenario(store: Store) -> None:
        before = store.version
        written = await store.create(CONFIG_MAPS, config(), "default", dry_run=True)
        assert written.document["metadata"]["uid"]
        assert store.version == before
        with pytest.raises(NotFound):
            await store.get(CONFIG_MAPS, "c", "default")

    run(scenario)


def test_objects_are_stored_in_the_storage_version_and_returned_in_the_requested_one(run: Run) -> None:
    async def scenario(store: Store) -> None:
        written = await store.create(OLD_WIDGETS, widget(spec={"length": 3}), "default")
        assert written.document["apiVersion"] == "example.com/v1beta1"
        assert written.document["spec"] == {"length": 3}
        new = (await store.get(WIDGETS, "w", "default")).document()
        assert (new["apiVersion"], new["spec"]) == ("example.com/v1", {"size": 3})
        listed = (await store.list(OLD_WIDGETS, "default")).items[0].document()
        assert (listed["apiVersion"], listed["spec"]) == ("example.com/v1beta1", {"length": 3})
        watch = store.watch(OLD_WIDGETS, "default", after=0)
        event = await watch.__anext__()
        assert event.object is not None and event.object.document() == listed
        patched = await store.patch(OLD_WIDGETS, "w", {"spec": {"length": 4}}, "default", type=PatchType.MERGE)
        assert patched.document["spec"] == {"length": 4}
        assert (await store.get(WIDGETS, "w", "default")).document()["spec"] == {"size": 4}

    run(scenario)


def test_nulls_are_absent_fields(run: Run) -> None:
    async def scenario(store: Store) -> None:
        given = {"metadata": {"name": "c", "labels": None}, "data": {"a": "null", "b": None}}
        written = await store.create(CONFIG_MAPS, given, "default")
        assert written.document["data"] == {"a": "null"}
        assert "labels" not in written.document["metadata"]

    run(scenario)


REFUSED: list[tuple[str, Resource, Any, str, int, str]] = [
    ("a name that is taken", NAMESPACES, {"metadata": {"name": "default"}}, "", 409, 'namespaces "default" already exists'),
    ("no name", CONFIG_MAPS, {"metadata": {}}, "default", 422, 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'),
    ("a bad name", CONFIG_MAPS, config("A_b"), "default", 422, 'metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain'),
    ("a bad label", CONFIG_MAPS, config(labels={"a b": "c"}), "default", 422, 'metadata.labels: Invalid value: "a b": name part must consist'),
    ("a bad label value", CONFIG_MAPS, config(labels={"a": "c d"}), "default", 422, 'metadata.labels: Invalid value: "c d": a valid label must be'),
    ("labels of a wrong type", CONFIG_MAPS, config(labels={"a": 1}), "default", 422, "metadata.labels: Invalid value"),
    ("too many annotations", CONFIG_MAPS, config(annotations={"a": "x" * 262_144}), "default", 422, "metadata.annotations: Too long"),
    ("two controllers", CONFIG_MAPS, config(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True} for n in "ab"]), "default", 422, 'Only one reference can have Controller set to true. Found "true" in references for Pod/a and Pod/b'),
    ("an owner without uid", CONFIG_MAPS, config(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "a"}]), "default", 422, 'metadata.ownerReferences.uid: Invalid value: "": must not be empty'),
    ("a finalizer that is no name", CONFIG_MAPS, config(finalizers=["a b"]), "default", 422, 'metadata.finalizers: Invalid value: "a b"'),
    ("a finalizer of nobody", CONFIG_MAPS, config(finalizers=["x"]), "default", 422, 'metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified'),
    ("two ways of collecting garbage", CONFIG_MAPS, config(finalizers=["orphan", "foregroundDeletion"]), "default", 422, "finalizer orphan and foregroundDeletion cannot be both set"),
    ("a version", CONFIG_MAPS, config(resourceVersion="5"), "default", 400, "resourceVersion should not be set on objects to be created"),
    ("another kind", CONFIG_MAPS, pod(), "default", 400, 'Pod in version "v1" cannot be handled as a ConfigMap'),
    ("another version", WIDGETS, {"apiVersion": "example.com/v1beta1", **widget()}, "default", 400, "the API version in the data (example.com/v1beta1) does not match the expected API version (example.com/v1)"),
    ("another namespace", CONFIG_MAPS, config(namespace="other"), "default", 400, "the namespace of the provided object does not match the namespace sent on the request"),
    ("no namespace", CONFIG_MAPS, config(), "", 400, "an empty namespace may not be set during creation"),
    ("a namespace that is not there", CONFIG_MAPS, config(), "nowhere", 404, 'namespaces "nowhere" not found'),
    ("a list", CONFIG_MAPS, [], "default", 400, "the object provided is unrecognized"),
    ("something that is no JSON", CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": object()}}, "default", 400, "cannot be encoded as JSON"),
    ("a kind nobody knows", Resource("x.example", "v1", "things", "Thing"), {}, "default", 404, "the server could not find the requested resource"),
    ("a version nobody serves", Resource("example.com", "v7", "widgets", "Widget"), {}, "default", 404, "the server could not find the requested resource"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "document", "namespace", "code", "text"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refusals(run: Run, resource: Resource, document: Any, namespace: str, code: int, text: str) -> None:
    async def scenario(store: Store) -> ApiError:
        before = store.version
        with pytest.raises(ApiError) as caught:
            await store.create(resource, document, namespace)
        assert store.version == before
        return caught.value

    error = run(scenario)
    assert error.code == code
    assert text in error.message


def test_all_validation_errors_are_reported_together(run: Run) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(ApiError) as caught:
            await store.create(CONFIG_MAPS, config("A", labels={"a b": "c"}), "default")
        causes = caught.value.details["causes"]
        assert [cause["field"] for cause in causes] == ["metadata.name", "metadata.labels"]

    run(scenario)


def test_the_namespace_of_a_cluster_scoped_object_is_dropped(run: Run) -> None:
    async def scenario(store: Store) -> None:
        written = await store.create(NODES, {"metadata": {"name": "n", "namespace": "default"}})
        assert "namespace" not in written.document["metadata"]

    run(scenario)


def test_a_new_namespace_is_active_with_finalizer_and_name_label(run: Run) -> None:
    async def scenario(store: Store) -> None:
        document = (await store.get(NAMESPACES, "default")).document()
        assert document["spec"] == {"finalizers": ["kubernetes"]}
        assert document["status"] == {"phase": "Active"}
        assert document["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}

    run(scenario)


def test_the_same_seed_and_clock_make_the_same_objects() -> None:
    async def history() -> list[bytes]:
        store = Store(registry(), now=lambda: START, source=random.Random(7))
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        for _ in range(5):
            await store.create(CONFIG_MAPS, {"metadata": {"generateName": "x-"}}, "default")
        return [stored.data for stored in (await store.list(CONFIG_MAPS)).items]

    assert asyncio.run(history()) == asyncio.run(history())


def test_no_unique_generated_name(run: Run) -> None:
    class Stuck(random.Random):
        def choices(self, *given: Any, **more: Any) -> list[str]:
            return ["x"] * 5

    async def scenario(store: Store) -> None:
        given = {"metadata": {"generateName": "a-"}}
        await store.create(CONFIG_MAPS, given, "default")
        with pytest.raises(AlreadyExists) as caught:
            await store.create(CONFIG_MAPS, given, "default")
        assert caught.value.message == (
            'configmaps "a-xxxxx" already exists, the server was not able to generate a unique name for the object'
        )

    run(scenario, source=Stuck())


ALIASED = Resource("extensions", "v1alpha1", "schedulingpolicies", "SchedulingPolicy", False)


@pytest.mark.needs_system("scheduling_policy")
def test_an_object_created_in_an_alias_group_is_returned_in_that_group(run: Run) -> None:
    async def scenario(store: Store) -> None:
        written = await store.create(ALIASED, {"metadata": {"name": "p"}, "spec": {}})
        assert written.document["apiVersion"] == ALIASED.api_version
        assert ALIASED.api_version.encode() in written.data
        assert (await store.get(SCHEDULING_POLICIES, "p")).document()["apiVersion"] == SCHEDULING_POLICIES.api_version

    run(scenario)


@pytest.mark.needs_system("scheduling_policy")
@pytest.mark.parametrize("resource", [SCHEDULING_POLICIES, ALIASED])
def test_significant_nulls_reach_validation(run: Run, resource: Resource) -> None:
    async def scenario(store: Store) -> None:
        policy = {"metadata": {"name": "p", "labels": None}, "spec": {"allowed": {"nodeSelectors": {"disk": None}}}}
        with pytest.raises(ApiError, match="nodeSelectors"):
            await store.create(resource, policy)
        good = {"metadata": {"name": "p", "labels": None}, "spec": {"allowed": {"nodeSelectors": None}}}
        written = await store.create(resource, good)
        assert "labels" not in written.document["metadata"]
        with pytest.raises(ApiError, match="nodeSelectors"):
            newer = {"name": "p", "resourceVersion": written.document["metadata"]["resourceVersion"]}
            await store.update(resource, {**policy, "metadata": newer}, name="p")
        with pytest.raises(ApiError, match="nodeSelectors"):
            applied = {**policy, "apiVersion": resource.api_version, "kind": resource.kind}
            await store.patch(resource, "p", applied, type=APPLY, field_manager="m")
        with pytest.raises(ApiError, match="nodeSelectors"):
            operation = {"op": "add", "path": "/spec/allowed", "value": {"nodeSelectors": {"disk": None}}}
            await store.patch(resource, "p", [operation], type=JSON)

    run(scenario)
