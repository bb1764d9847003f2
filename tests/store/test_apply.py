"""Server-side apply: who owns which field, what is merged, what goes, and what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.store.support import APPLY, MERGE

from wharfinger.api.errors import ApiError, BadRequest, Conflict
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SERVICES
from wharfinger.api.registry import Resource
from wharfinger.store import field_sets
from wharfinger.store.store import Store
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES


class Cluster:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def apply(
        self, resource: Resource, manager: str, *, force: bool = False, dry_run: bool = False, **body: Any
    ) -> dict[str, Any]:
        config = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "x"}, **body}
        config["metadata"] = {"name": "x", **config["metadata"]}
        written = await self.store.patch(
            resource, "x", config, "n", type=APPLY, field_manager=manager, force=force, dry_run=dry_run
        )
        return written.document

    async def merge(self, resource: Resource, manager: str, patch: Any, subresource: str = "") -> dict[str, Any]:
        written = await self.store.patch(
            resource, "x", patch, "n", type=MERGE, field_manager=manager, subresource=subresource
        )
        return written.document


def run(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = Store(registry())
        await store.create(NAMESPACES, {"metadata": {"name": "n"}})
        await scenario(Cluster(store))

    asyncio.run(main())


def owned(document: dict[str, Any]) -> dict[str, set[str]]:
    """Manager to the fields it owns, as messages write them."""
    return {
        f"{entry['manager']}:{entry['operation']}": {
            field_sets.describe(path) for path in field_sets.decode(entry["fieldsV1"])
        }
        for entry in document["metadata"].get("managedFields") or []
    }


def test_the_first_apply_creates_and_owns() -> None:
    async def scenario(cluster: Cluster) -> None:
        made = await cluster.apply(CONFIG_MAPS, "a", data={"k": "v"}, metadata={"labels": {"l": "1"}})
        assert owned(made) == {"a:Apply": {".data.k", ".metadata.labels.l"}}
        again = await cluster.apply(CONFIG_MAPS, "a", data={"k": "v"}, metadata={"labels": {"l": "1"}})
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    run(scenario)


def test_fields_of_others_stay_and_equal_values_are_shared() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.apply(CONFIG_MAPS, "a", data={"k": "v", "both": "1"})
        found = await cluster.apply(CONFIG_MAPS, "b", data={"mine": "x", "both": "1"})
        assert found["data"] == {"k": "v", "both": "1", "mine": "x"}
        assert owned(found) == {"a:Apply": {".data.k", ".data.both"}, "b:Apply": {".data.mine", ".data.both"}}
        # What one no longer wants goes only where nobody else wants it.
        found = await cluster.apply(CONFIG_MAPS, "a", data={})
        assert found["data"] == {"both": "1", "mine": "x"}

    run(scenario)


def test_a_field_of_another_is_a_conflict_unless_forced() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.apply(CONFIG_MAPS, "a", data={"k": "v", "m": "1"})
        with pytest.raises(Conflict) as caught:
            await cluster.apply(CONFIG_MAPS, "b", data={"k": "w"})
        assert caught.value.message == 'Apply failed with 1 conflict: conflict with "a": .data.k'
        assert caught.value.details["causes"] == [
            {"reason": "FieldManagerConflict", "message": 'conflict with "a"', "field": ".data.k"}
        ]
        with pytest.raises(Conflict) as caught:
            await cluster.apply(CONFIG_MAPS, "b", data={"k": "w", "m": "2"})
        assert caught.value.message == 'Apply failed with 2 conflicts: conflicts with "a":\n- .data.k\n- .data.m'
        found = await cluster.apply(CONFIG_MAPS, "b", data={"k": "w"}, force=True)
        assert found["data"] == {"k": "w", "m": "1"}
        assert owned(found) == {"a:Apply": {".data.m"}, "b:Apply": {".data.k"}}

    run(scenario)


def test_other_writes_take_fields_over() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.apply(CONFIG_MAPS, "a", data={"k": "v", "m": "1"})
        found = await cluster.merge(CONFIG_MAPS, "kubectl-edit", {"data": {"k": "w"}})
        assert owned(found) == {"a:Apply": {".data.m"}, "kubectl-edit:Update": {".data.k"}}
        with pytest.raises(Conflict, match='conflict with "kubectl-edit" using v1 at '):
            await cluster.apply(CONFIG_MAPS, "a", data={"k": "v", "m": "1"})
        found = await cluster.merge(CONFIG_MAPS, "kubectl-edit", {"data": {"k": None}})
        assert owned(found) == {"a:Apply": {".data.m"}}

    run(scenario)


def test_what_was_there_before_belongs_to_nobody_in_particular() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.store.create(CONFIG_MAPS, {"metadata": {"name": "x"}, "data": {"k": "v", "o": "1"}}, "n")
        with pytest.raises(Conflict, match='conflict with "before-first-apply" using v1'):
            await cluster.apply(CONFIG_MAPS, "a", data={"k": "w"})
        found = await cluster.apply(CONFIG_MAPS, "a", data={"k": "v"})
        assert owned(found) == {"a:Apply": {".data.k"}, "before-first-apply:Update": {".data.k", ".data.o"}}

    run(scenario)


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": list(containers)}}
    return {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec}


def test_lists_by_key_are_merged_item_by_item() -> None:
    async def scenario(cluster: Cluster) -> None:
        main = {"name": "main", "image": "a", "ports": [{"containerPort": 80}]}
        await cluster.apply(DEPLOYMENTS, "a", spec=deployment(main, replicas=2))
        side = {"template": {"spec": {"containers": [{"name": "side", "image": "s"}, {"name": "main", "tty": True}]}}}
        found = await cluster.apply(DEPLOYMENTS, "b", spec=side)
        containers = {one["name"]: one for one in found["spec"]["template"]["spec"]["containers"]}
        assert containers["main"]["image"] == "a"
        assert containers["main"]["tty"] is True
        assert containers["side"]["image"] == "s"
        # The item goes with its last owner, and takes along what the server filled in.
        found = await cluster.apply(DEPLOYMENTS, "b", spec={})
        containers = found["spec"]["template"]["spec"]["containers"]
        assert [one["name"] for one in containers] == ["main"]
        assert "tty" not in containers[0]
        assert containers[0]["ports"][0]["containerPort"] == 80

    run(scenario)


def test_a_field_given_up_returns_to_its_default_or_to_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        main = {"name": "main", "image": "a"}
        await cluster.apply(DEPLOYMENTS, "a", spec=deployment(main, replicas=5))
        await cluster.merge(DEPLOYMENTS, "hpa", {"spec": {"replicas": 7}}, "scale")
        with pytest.raises(Conflict, match='"hpa" with subresource "scale" using apps/v1'):
            await cluster.apply(DEPLOYMENTS, "a", spec=deployment(main, replicas=5))
        found = await cluster.apply(DEPLOYMENTS, "a", spec=deployment(main))
        assert found["spec"]["replicas"] == 7

    run(scenario)


def test_status_is_applied_apart() -> None:
    async def scenario(cluster: Cluster) -> None:
        main = {"name": "main", "image": "a"}
        await cluster.apply(DEPLOYMENTS, "a", spec=deployment(main), status={"replicas": 3})
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "status": {"replicas": 3}}
        written = await cluster.store.patch(
            DEPLOYMENTS, "x", body, "n", type=APPLY, subresource="status", field_manager="c"
        )
        assert written.document["status"]["replicas"] == 3
        entries = written.document["metadata"]["managedFields"]
        assert {(entry["manager"], entry.get("subresource", "")) for entry in entries} == {("a", ""), ("c", "status")}
        assert ".status.replicas" not in owned(written.document)["a:Apply"]

    run(scenario)


def test_keys_that_may_be_left_out_count_as_their_default() -> None:
    async def scenario(cluster: Cluster) -> None:
        ports = [{"port": 80}, {"port": 80, "protocol": "UDP", "name": "u"}]
        ports[0]["name"] = "t"  # type: ignore[assignment]
        await cluster.apply(SERVICES, "a", spec={"ports": ports, "selector": {"a": "b"}})
        found = await cluster.apply(
            SERVICES, "b", spec={"ports": [{"port": 80, "protocol": "TCP", "name": "t", "appProtocol": "http"}]}
        )
        assert len(found["spec"]["ports"]) == 2
        assert found["spec"]["ports"][0]["appProtocol"] == "http"

    run(scenario)


@pytest.mark.needs_system("resource_policy")
def test_our_kinds_are_applied_by_their_schema() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.apply(RESOURCE_POLICIES, "a", spec={"units": [{"name": "u"}], "matchLabelKeys": ["k"]})
        found = await cluster.apply(RESOURCE_POLICIES, "b", spec={"strategy": "required"})
        assert [unit["name"] for unit in found["spec"]["units"]] == ["u"]
        assert ".spec.units" in owned(found)["a:Apply"]
        for spec, why in (
            ({"nosuch": 1}, ".spec.nosuch: field not declared in schema"),
            ({"units": [{"nosuch": 1}]}, ".spec.units[0].nosuch: field not declared in schema"),
            ({"strategy": 1}, ".spec.strategy: expected string, got &value.valueUnstructured{Value:1}"),
        ):
            with pytest.raises(ApiError) as refused:
                await cluster.apply(RESOURCE_POLICIES, "b", spec=spec)
            kind = "scheduling.sigs.x-k8s.io/v1alpha1, Kind=ResourcePolicy"
            assert refused.value.message == f"failed to create typed patch object (/x; {kind}): {why}"

    run(scenario)


def test_an_item_that_stands_there_twice_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        containers = [{"name": "c", "image": "a"}, {"name": "c", "image": "b"}]
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
        with pytest.raises(ApiError) as refused:
            await cluster.apply(DEPLOYMENTS, "a", spec={"selector": {"matchLabels": {"a": "b"}}, "template": template})
        assert refused.value.message == (
            "failed to create typed patch object (/x; apps/v1, Kind=Deployment): .spec.template.spec.containers: "
            'duplicate entries for key [name="c"]'
        )

    run(scenario)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("an unknown field", {"foo": 1}, ".foo: field not declared in schema"),
    ("an unknown field of metadata", {"metadata": {"foo": 1}}, ".metadata.foo: field not declared in schema"),
    ("a number for text", {"data": {"x": 5}}, ".data.x: expected string, got &value.valueUnstructured{Value:5}"),
    ("a map for text", {"data": {"x": {"a": [None, 1.5]}}}, '.data.x: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"a":[]interface {}{interface {}(nil), 1.5}}}'),
    ("text for a map", {"data": "x"}, ".data: expected map, got &{x}"),
    ("text for a flag", {"immutable": "x"}, ".immutable: expected boolean, got &{x}"),
    ("a map for a list", {"metadata": {"finalizers": {"b": 1, "a": [2]}}}, ".metadata.finalizers: expected list, got &{map[a:[2] b:1]}"),
    ("a map in a set", {"metadata": {"finalizers": [{"a": 1}]}}, ".metadata.finalizers: element 0: associative list without keys has an element that's a map type"),
    ("text in a list by keys", {"metadata": {"ownerReferences": ["x"]}}, ".metadata.ownerReferences: element 0: associative list with keys may not have non-map elements"),
    ("an item without its key", {"metadata": {"ownerReferences": [{"a": 1}]}}, '.metadata.ownerReferences[uid=""].a: field not declared in schema'),
    ("a map for a time", {"metadata": {"creationTimestamp": {}}}, ".metadata.creationTimestamp: expected any scalar, got &{map[]}"),
    ("several", {"data": {"x": True}, "immutable": 1000000.0}, 'errors:\n  .data.x: expected string, got &value.valueUnstructured{Value:true}\n  .immutable: expected boolean, got &{1e+06}'),
]  # fmt: skip


@pytest.mark.parametrize(("config", "text"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_is_no_object_of_its_type_is_refused(config: dict[str, Any], text: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        document = {"apiVersion": "v1", "kind": "ConfigMap", **config}
        with pytest.raises(ApiError) as refused:
            await cluster.store.patch(CONFIG_MAPS, "x", document, "n", type=APPLY, field_manager="a")
        assert (refused.value.code, refused.value.reason) == (500, "")
        assert refused.value.message == f"failed to create typed patch object (/x; /v1, Kind=ConfigMap): {text}"

    run(scenario)


def test_a_dry_run_stores_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        made = await cluster.apply(CONFIG_MAPS, "a", data={"k": "v"}, dry_run=True)
        assert owned(made) == {"a:Apply": {".data.k"}}
        assert cluster.store.peek(CONFIG_MAPS, "x", "n") is None

    run(scenario)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "ConfigMap", "metadata": {"name": "x"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "managedFields": [{}]}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": "x"},
        [],
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(body: Any) -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(BadRequest):
            await cluster.store.patch(CONFIG_MAPS, "x", body, "n", type=APPLY, field_manager="a")

    run(scenario)


def test_the_wire_form_of_a_set_reads_back() -> None:
    fields = frozenset(
        {
            ("f:spec", "f:containers", 'k:{"name":"c"}'),
            ("f:spec", "f:containers", 'k:{"name":"c"}', "f:image"),
            ("f:metadata", "f:finalizers", 'v:"x"'),
        }
    )
    tree = field_sets.encode(fields)
    assert tree["f:spec"]["f:containers"] == {'k:{"name":"c"}': {".": {}, "f:image": {}}}
    assert field_sets.decode(tree) == fields
    assert field_sets.decode({"f:a": 7}) == {("f:a",)}


def test_writers_with_a_name_own_what_they_create_and_change() -> None:
    async def scenario(cluster: Cluster) -> None:
        main = {"name": "main", "image": "a", "ports": [{"containerPort": 80}]}
        body = {"metadata": {"name": "x", "labels": {"l": "1"}}, "spec": deployment(main)}
        made = (await cluster.store.create(DEPLOYMENTS, body, "n", field_manager="creator")).document
        container = '.spec.template.spec.containers[name="main"]'
        mine = owned(made)["creator:Update"]
        assert {".metadata.labels", ".metadata.labels.l", container, f"{container}.image", f"{container}.ports"} <= mine
        assert ".spec.template.spec.containers" not in mine
        found = await cluster.merge(
            DEPLOYMENTS, "other", {"spec": {"replicas": 4}, "metadata": {"labels": {"l": None}}}
        )
        assert owned(found)["other:Update"] == {".spec.replicas"}
        assert owned(found)["creator:Update"] == mine - {".spec.replicas", ".metadata.labels", ".metadata.labels.l"}
        again = await cluster.merge(DEPLOYMENTS, "third", {"spec": {"replicas": 4}})
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]

    run(scenario)


def test_writers_without_a_name_are_recorded_only_where_they_change_what_others_own() -> None:
    async def scenario(cluster: Cluster) -> None:
        body = {"metadata": {"name": "x"}, "spec": deployment({"name": "main", "image": "a"})}
        made = (await cluster.store.create(DEPLOYMENTS, body, "n")).document
        assert "managedFields" not in made["metadata"]
        found = await cluster.merge(DEPLOYMENTS, "named", {"metadata": {"labels": {"l": "1"}}})
        assert owned(found)["named:Update"] == {".metadata.labels", ".metadata.labels.l"}
        assert ".spec.replicas" in owned(found)["before-first-apply:Update"]
        owners = found["metadata"]["managedFields"]
        found = await cluster.merge(DEPLOYMENTS, "", {"status": {"replicas": 1}}, "status")
        assert found["metadata"]["managedFields"] == owners
        found = await cluster.merge(DEPLOYMENTS, "", {"metadata": {"labels": {"l": "2"}}})
        assert owned(found)["wharfinger:Update"] == {".metadata.labels.l"}
        assert owned(found)["named:Update"] == {".metadata.labels"}

    run(scenario)


def test_a_client_may_rewrite_the_owners_or_have_them_forgotten() -> None:
    async def scenario(cluster: Cluster) -> None:
        body = {"metadata": {"name": "x"}, "data": {"k": "v"}}
        made = (await cluster.store.create(CONFIG_MAPS, body, "n", field_manager="before")).document
        moved = [{**made["metadata"]["managedFields"][0], "manager": "after", "operation": "Apply"}]
        found = await cluster.merge(CONFIG_MAPS, "mover", {"metadata": {"managedFields": moved}})
        assert owned(found) == {"after:Apply": {".data", ".data.k"}}
        kept = await cluster.merge(CONFIG_MAPS, "mover", {"metadata": {"managedFields": [{"manager": 7}]}})
        assert owned(kept) == owned(found)
        gone = await cluster.merge(CONFIG_MAPS, "mover", {"metadata": {"managedFields": [{}]}})
        assert "managedFields" not in gone["metadata"]

    run(scenario)


def test_many_writers_become_one_of_old() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.store.create(
            CONFIG_MAPS, {"metadata": {"name": "x"}, "data": {"a": "0"}}, "n", field_manager="m0"
        )
        for number in range(1, 14):
            found = await cluster.merge(CONFIG_MAPS, f"m{number}", {"data": {f"k{number}": "v"}})
        assert len(owned(found)) == 10
        assert {".data", ".data.a", ".data.k1"} <= owned(found)["ancient-changes:Update"]
        assert owned(found)["m13:Update"] == {".data.k13"}

    run(scenario)


def test_kubectl_keeps_the_annotation_of_client_side_apply_and_may_take_over_what_that_set() -> None:
    note = "kubectl.kubernetes.io/last-applied-configuration"
    last = '{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"x"}}'

    async def scenario(cluster: Cluster) -> None:
        made = {"metadata": {"name": "x", "annotations": {note: last}}, "data": {"a": "1", "b": "1"}}
        await cluster.store.create(CONFIG_MAPS, made, "n", field_manager="kubectl-client-side-apply")
        with pytest.raises(Conflict):
            await cluster.apply(CONFIG_MAPS, "other", data={"a": "<2>"})
        document = await cluster.apply(CONFIG_MAPS, "kubectl", data={"a": "<2>"})
        kept = document["metadata"]["annotations"][note]
        assert kept == last.replace('"1"', '"\\u003c2\\u003e"') + "\n"
        with pytest.raises(Conflict):  # which client-side apply did not set
            await cluster.apply(CONFIG_MAPS, "kubectl", data={"b": "3"})

    run(scenario)


def test_who_merely_agrees_has_no_time_and_those_who_apply_stand_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        made = {"metadata": {"name": "x"}, "data": {"a": "1"}}
        await cluster.store.create(CONFIG_MAPS, made, "n", field_manager="creator")
        document = await cluster.apply(CONFIG_MAPS, "agrees", data={"a": "1"})
        owners = document["metadata"]["managedFields"]
        assert [(owner["manager"], "time" in owner) for owner in owners] == [("agrees", False), ("creator", True)]

    run(scenario)


def test_the_time_of_an_apply_grows_with_the_lists_only() -> None:
    """Searching a list for each field that conflicts or is removed would take minutes."""

    def template(value: str, count: int) -> dict[str, Any]:
        variables = [{"name": f"e{number}", "value": value} for number in range(count)]
        container = {"name": "c", "image": "i", "env": variables}
        labels = {"app": "x"}
        return {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        }

    async def scenario(cluster: Cluster) -> None:
        await cluster.apply(DEPLOYMENTS, "me", metadata={}, spec=template("1", 6000))
        started = time.process_time()
        with pytest.raises(Conflict, match="6000 conflicts"):
            await cluster.apply(DEPLOYMENTS, "you", metadata={}, spec=template("2", 6000))
        left = await cluster.apply(DEPLOYMENTS, "me", metadata={}, spec=template("1", 1))
        assert time.process_time() - started < 3
        assert left["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "e0", "value": "1"}]

    run(scenario)
