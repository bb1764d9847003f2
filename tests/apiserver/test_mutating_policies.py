"""MutatingAdmissionPolicies: what their expressions construct, and how it is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, pod

from wharfinger.cel.constructions import MismatchedTypes, as_maps, constructed_object

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{REGISTRATION}/mutatingadmissionpolicies", f"{REGISTRATION}/mutatingadmissionpolicybindings"
RULE = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps", "pods"],
}

Mutate = Callable[..., None]


def applied(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patched(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


@pytest.fixture
def mutate(api: Api, namespace: str) -> Iterator[Mutate]:
    """A policy over objects of the test's namespace, and a binding of it."""
    made: list[str] = []

    def mutate(*mutations: dict[str, Any], **spec: Any) -> None:
        name = f"{namespace}-{len(made)}"
        policy = {"matchConstraints": {"resourceRules": [RULE]}, "mutations": mutations, "reinvocationPolicy": "Never"}
        api.create(POLICIES, {"metadata": {"name": name}, "spec": {**policy, **spec}})
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        api.create(BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name, "matchResources": here}})
        made.append(name)

    yield mutate
    for name in made:
        api.ask("DELETE", f"{BINDINGS}/{name}")
        api.ask("DELETE", f"{POLICIES}/{name}")


def test_an_apply_configuration_is_merged_into_the_object(api: Api, base: str, mutate: Mutate) -> None:
    mutate(
        applied('Object{metadata: Object.metadata{labels: {"made-by": request.userInfo.username.replace(":", "-")}}}'),
        applied("Object{data: {'size': variables.size, 'again': object.metadata.labels['made-by']}}"),
        variables=[{"name": "size", "expression": "string(size(object.data))"}],
    )
    found = api.create(f"{base}/configmaps", config_map("c", a="1", b="2"))
    assert found["metadata"]["labels"] == {"made-by": "system-admin"}
    assert found["data"] == {"a": "1", "b": "2", "size": "2", "again": "system-admin"}


def test_lists_of_an_apply_configuration_are_merged_by_key_and_defaults_follow(
    api: Api, base: str, mutate: Mutate
) -> None:
    side = 'Object.spec.containers{name: "side", image: "proxy:1"}'
    mutate(applied(f"Object{{spec: Object.spec{{containers: [{side}]}}}}"))
    found = api.create(f"{base}/pods", pod())
    assert [one["name"] for one in found["spec"]["containers"]] == ["c", "side"]
    assert found["spec"]["containers"][1]["imagePullPolicy"] == "IfNotPresent"


def test_a_json_patch_with_a_failed_test_changes_nothing(api: Api, base: str, mutate: Mutate) -> None:
    mutate(
        patched(
            '[JSONPatch{op: "test", path: "/data/a", value: "1"}, '
            'JSONPatch{op: "add", path: "/data/" + jsonpatch.escapeKey("x.y"), value: "z"}]'
        )
    )
    assert api.create(f"{base}/configmaps", config_map("c", a="1"))["data"] == {"a": "1", "x.y": "z"}
    assert api.create(f"{base}/configmaps", config_map("d", a="2"))["data"] == {"a": "2"}


def test_match_conditions_and_conditional_expressions(api: Api, base: str, mutate: Mutate) -> None:
    mutate(
        applied('has(object.data.big) ? Object{data: {"size": "big"}} : Object{}'),
        matchConditions=[{"name": "wanted", "expression": "object.metadata.name != 'skip'"}],
    )
    assert api.create(f"{base}/configmaps", config_map("c", big="1"))["data"] == {"big": "1", "size": "big"}
    assert api.create(f"{base}/configmaps", config_map("d", a="1"))["data"] == {"a": "1"}
    assert api.create(f"{base}/configmaps", config_map("skip", big="1"))["data"] == {"big": "1"}


def test_a_policy_is_invoked_again_if_needed(api: Api, base: str, mutate: Mutate) -> None:
    count = 'Object{data: {"n": string(size(object.data))}}'
    mutate(applied(count), reinvocationPolicy="IfNeeded")
    mutate(applied('Object{data: {"later": "x"}}'))
    assert api.create(f"{base}/configmaps", config_map("c", a="1"))["data"] == {"a": "1", "n": "3", "later": "x"}


@pytest.mark.parametrize(
    ("mutation", "said"),
    [
        (applied('Object{spec: Object.wrong{}}'), 'type mismatch: unexpected type name "Object.wrong", expected "Object.spec"'),
        (applied('Object{data: {"a": object.data.missing}}'), "resulted in error: no such key: missing"),
        (applied('Object{metadata: Object.metadata{finalizer: ["x"]}}'), "field not declared in schema"),
        (patched('[JSONPatch{op: "remove", path: "/data/missing"}]'), "JSON Patch: "),
    ],
)  # fmt: skip
def test_a_mutation_that_fails_denies_the_request_unless_failures_are_ignored(
    api: Api, base: str, mutate: Mutate, namespace: str, mutation: dict[str, Any], said: str
) -> None:
    mutate(mutation)
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", a="1"))
    assert (answer.status, answer.json["reason"]) == (403, "Invalid")
    by = f"policy '{namespace}-0' with binding '{namespace}-0' denied request: "
    assert answer.message.startswith(by) and said in answer.message
    path = f"{POLICIES}/{namespace}-0"
    assert (
        api.ask("PATCH", path, {"spec": {"failurePolicy": "Ignore"}}, media="application/merge-patch+json").status
        == 200
    )
    assert api.create(f"{base}/configmaps", config_map("c", a="1"))["data"] == {"a": "1"}


def test_an_atomic_list_cannot_be_applied(api: Api, base: str, mutate: Mutate) -> None:
    mutate(applied('Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", args: ["x"]}]}}'))
    answer = api.ask("POST", f"{base}/pods", pod())
    assert 'may not mutate atomic arrays, maps or structs: .spec.containers[name="c"].args' in answer.message


@pytest.mark.parametrize(
    ("mutations", "said"),
    [
        ([], "spec.mutations: Required value: mutations must contain at least one item"),
        ([{"patchType": "Merge"}], 'spec.mutations[0].patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch"'),
        ([{"patchType": "JSONPatch"}], "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"),
        ([applied("'text'")], "spec.mutations[0].applyConfiguration.expression: Invalid value: \"'text'\": must evaluate to Object but got string"),
        ([patched("Object{}")], "must evaluate to list(JSONPatch) but got"),
        ([applied("Object{spec: }")], "compilation failed"),
    ],
)  # fmt: skip
def test_invalid_policies_are_refused(api: Api, mutations: list[Any], said: str) -> None:
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "mutations": mutations, "reinvocationPolicy": "Never"}
    answer = api.ask("POST", POLICIES, {"metadata": {"name": "invalid"}, "spec": spec})
    assert answer.status == 422 and said in answer.message, answer.message


def test_policies_do_not_apply_to_deletions(api: Api) -> None:
    rule = {**RULE, "operations": ["DELETE"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "mutations": [applied("Object{}")]}
    answer = api.ask("POST", POLICIES, {"metadata": {"name": "invalid"}, "spec": spec})
    assert 'operations: Unsupported value: "DELETE"' in answer.message
    assert "spec.reinvocationPolicy: Required value" in answer.message


@pytest.mark.parametrize(
    ("text", "map"),
    [
        ("Object{}", r'{"\u0000type": "Object"}'),
        ("Object.a{b: c ? d : e}", r'{"\u0000type": "Object.a", "b": c ? d : e}'),
        ("Object{?a: b}", r'{"\u0000type": "Object", ?"a": b}'),
        ("Object . a { b : 1 }", r' {"\u0000type": "Object.a",  "b" : 1 }'),
        ("Object{`a-b`: 1}", r'{"\u0000type": "Object", "a-b": 1}'),
        ("'Object{a: 1}' + r\"Object{b: 2}\"", "'Object{a: 1}' + r\"Object{b: 2}\""),
        ("{'a': Object}", "{'a': Object}"),
        ("x.Object{a: 1}", "x.Object{a: 1}"),
    ],
)
def test_constructions_become_maps(text: str, map: str) -> None:
    assert as_maps(text) == map


def test_a_map_is_not_an_object() -> None:
    with pytest.raises(MismatchedTypes, match="unsupported return type"):
        constructed_object({"a": 1})
