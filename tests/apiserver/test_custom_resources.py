"""CustomResourceDefinitions: serving, validation, defaulting, pruning, columns, and deletion with their objects."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from tests.apiserver.running import Api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "replicas": {"type": "integer", "default": 1},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    },
}
STATUS = {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}}


def definition(group: str, plural: str = "widgets", kind: str = "Widget", **version: Any) -> dict[str, Any]:
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": STATUS}}
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    one = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": columns,
        **version,
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [one]},
    }


def wait_for(check: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def conditions(api: Api, name: str) -> dict[str, str]:
    status = api.get(f"{CRDS}/{name}").get("status") or {}
    return {one["type"]: one["status"] for one in status.get("conditions") or []}


@pytest.fixture
def widgets(api: Api, namespace: str) -> str:
    """The path of widgets of a group that only this test has."""
    group = f"{namespace}.example.com"
    api.create(CRDS, definition(group))
    wait_for(lambda: conditions(api, f"widgets.{group}").get("Established") == "True")
    return f"/apis/{group}/v1/namespaces/{namespace}/widgets"


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"size": 3, **spec}}


def test_objects_are_defaulted_and_pruned(api: Api, widgets: str) -> None:
    made = api.ask("POST", widgets, widget(free={"any": {"thing": 1}}, extra=1, port="http"))
    assert made.status == 201
    assert made.warnings == ['299 - "unknown field \\"spec.extra\\""']
    assert made.json["spec"] == {
        "size": 3,
        "free": {"any": {"thing": 1}},
        "port": "http",
        "color": "red",
        "replicas": 1,
    }
    assert made.json["kind"] == "Widget"
    assert api.ask("POST", f"{widgets}?fieldValidation=Strict", widget("x", extra=1)).status == 400
    patch = [{"op": "add", "path": "/spec/extra", "value": 1}]
    assert "extra" not in api.ask("PATCH", f"{widgets}/w", patch, media="application/json-patch+json").json["spec"]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"size": 11}, "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ({"size": "x"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"color": "green"}, 'spec.color: Unsupported value: "green": supported values: "red", "blue"'),
        ({"tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
        ({"port": {}}, "spec.port: Invalid value"),
    ],
)
def test_errors_have_paths(api: Api, widgets: str, spec: dict[str, Any], fault: str) -> None:
    answer = api.ask("POST", widgets, widget(**spec))
    assert answer.status == 422
    assert fault in answer.message


def test_required_fields_are_required(api: Api, widgets: str) -> None:
    assert "spec: Required value" in api.ask("POST", widgets, {"metadata": {"name": "w"}}).message
    assert "spec.size: Required value" in api.ask("POST", widgets, {"metadata": {"name": "w"}, "spec": {}}).message


def test_status_and_scale_are_subresources(api: Api, widgets: str) -> None:
    api.create(widgets, {**widget(), "status": {"phase": "New"}})
    merge = "application/merge-patch+json"
    patched = api.ask("PATCH", f"{widgets}/w/status", {"status": {"phase": "Up"}, "spec": {"size": 9}}, media=merge)
    assert (patched.json["status"], patched.json["spec"]["size"]) == ({"phase": "Up"}, 3)
    assert patched.json["metadata"]["generation"] == 1
    assert api.ask("PATCH", f"{widgets}/w/scale", {"spec": {"replicas": 4}}, media=merge).json["spec"]["replicas"] == 4
    changed = api.get(f"{widgets}/w")
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (4, 2)


def test_columns_discovery_and_openapi_show_the_kind(api: Api, widgets: str, namespace: str) -> None:
    api.create(widgets, widget())
    table = api.get(widgets, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Phase", "Born"]
    assert table["rows"][0]["cells"][:2] == ["w", 3]
    group = f"{namespace}.example.com"
    names = [entry["name"] for entry in api.get(f"/apis/{group}/v1")["resources"]]
    assert names == ["widgets", "widgets/scale", "widgets/status"]
    document = api.get(f"/openapi/v3/apis/{group}/v1")
    schema = next(value for name, value in document["components"]["schemas"].items() if name.endswith("v1.Widget"))
    assert schema["properties"]["spec"]["properties"]["size"]["maximum"] == 10


def test_a_changed_definition_takes_effect_immediately(api: Api, widgets: str, namespace: str) -> None:
    name = f"widgets.{namespace}.example.com"
    assert api.ask("POST", widgets, widget(size=20)).status == 422
    change = [
        {
            "op": "replace",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum",
            "value": 50,
        }
    ]
    assert api.ask("PATCH", f"{CRDS}/{name}", change, media="application/json-patch+json").status == 200
    assert wait_for(lambda: api.ask("POST", widgets, widget(size=20)).status == 201)


def selected(api: Api, path: str, fields: str) -> list[str] | str:
    """The names of the selected objects, or why they cannot be selected."""
    answer = api.ask("GET", f"{path}?fieldSelector={quote(fields)}")
    return [item["metadata"]["name"] for item in answer.json["items"]] if answer.status == 200 else answer.message


def test_every_version_has_selectable_fields_of_its_own(api: Api, namespace: str) -> None:
    group = f"{namespace}.example.com"
    made = definition(group, selectableFields=[{"jsonPath": ".spec.size"}])
    (first,) = made["spec"]["versions"]
    second = {**first, "name": "v2", "storage": False, "selectableFields": [{"jsonPath": ".status.phase"}]}
    made["spec"]["versions"] = [first, second, {**second, "name": "v3", "selectableFields": []}]
    api.create(CRDS, made)
    wait_for(lambda: conditions(api, f"widgets.{group}").get("Established") == "True")
    v1, v2, v3 = (f"/apis/{group}/{version}/namespaces/{namespace}/widgets" for version in ("v1", "v2", "v3"))
    for name, size in (("a", 3), ("b", 4)):
        api.create(v1, widget(name, size=size))
    api.ask("PATCH", f"{v1}/b/status", {"status": {"phase": "Up"}}, media="application/merge-patch+json")
    assert selected(api, v1, "spec.size=3") == ["a"]
    assert selected(api, v2, "status.phase=Up") == ["b"]
    assert selected(api, v2, "status.phase!=Up,metadata.name=a") == ["a"]
    assert selected(api, v3, "metadata.name=a") == ["a"]
    for path, field in ((v1, "status.phase"), (v2, "spec.size"), (v3, "spec.size")):
        assert selected(api, path, f"{field}=3") == f"field label not supported: {field}"
    # What is selectable may change, also of objects that were selected before.
    change = [{"op": "replace", "path": "/spec/versions/0/selectableFields/0/jsonPath", "value": ".status.phase"}]
    assert api.ask("PATCH", f"{CRDS}/widgets.{group}", change, media="application/json-patch+json").status == 200
    assert wait_for(lambda: selected(api, v1, "status.phase=Up") == ["b"])
    assert selected(api, v1, "spec.size=3") == "field label not supported: spec.size"


def test_objects_are_deleted_with_their_definition(api: Api, widgets: str, namespace: str) -> None:
    api.create(widgets, widget())
    name = f"widgets.{namespace}.example.com"
    assert api.ask("DELETE", f"{CRDS}/{name}").status == 200
    wait_for(lambda: api.ask("GET", f"{CRDS}/{name}").status == 404)
    wait_for(lambda: api.ask("GET", widgets).status == 404)
    api.create(CRDS, definition(f"{namespace}.example.com"))
    listing = wait_for(lambda: (answer := api.ask("GET", widgets)).status == 200 and answer)
    assert listing.json["items"] == []


def test_a_definition_whose_storage_version_is_not_served_works_and_is_deleted(api: Api, namespace: str) -> None:
    group = f"{namespace}.example.com"
    wanted = definition(group)
    (first,) = wanted["spec"]["versions"]
    wanted["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    api.create(CRDS, wanted)
    wait_for(lambda: conditions(api, f"widgets.{group}").get("Established") == "True")
    old, new = (f"/apis/{group}/{version}/namespaces/{namespace}/widgets" for version in ("v1", "v2"))
    api.create(old, widget())
    patch = [{"op": "replace", "path": "/spec/versions/0/served", "value": False}]
    assert api.ask("PATCH", f"{CRDS}/widgets.{group}", patch, media="application/json-patch+json").status == 200
    wait_for(lambda: api.ask("GET", f"{old}/w").status == 404)
    assert api.get(f"{new}/w")["apiVersion"] == f"{group}/v2"
    assert api.ask("DELETE", f"{CRDS}/widgets.{group}").status == 200
    wait_for(lambda: api.ask("GET", f"{CRDS}/widgets.{group}").status == 404)


def test_a_name_in_use_is_not_accepted(api: Api, widgets: str, namespace: str) -> None:
    group = f"{namespace}.example.com"
    api.create(CRDS, definition(group, plural="gadgets"))
    wait_for(lambda: conditions(api, f"gadgets.{group}").get("NamesAccepted") == "False")
    assert conditions(api, f"gadgets.{group}")["Established"] == "False"
    assert api.ask("GET", f"/apis/{group}/v1/gadgets").status == 404


def test_a_definition_of_a_built_in_kind_has_no_effect(api: Api) -> None:
    ours = definition("scheduling.sigs.x-k8s.io", "resourcepolicies", "ResourcePolicy", name="v1alpha1")
    ours["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, test"}
    api.create(CRDS, ours)
    name = "resourcepolicies.scheduling.sigs.x-k8s.io"
    wait_for(lambda: conditions(api, name).get("Established") == "True")
    path = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies"
    policy = {"metadata": {"name": "kept"}, "spec": {"units": [{"name": "a"}]}}
    assert api.create(path, policy)["spec"]["strategy"] == "required"
    api.ask("DELETE", f"{CRDS}/{name}")
    wait_for(lambda: api.ask("GET", f"{CRDS}/{name}").status == 404)
    assert api.get(f"{path}/kept")


@pytest.mark.parametrize(
    "change",
    [
        {"group": 7},
        {"versions": []},
        {"versions": [{"name": "v1", "served": True, "storage": False}]},
        {"names": {}},
        {
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "nonsense"}}}
            ]
        },
    ],
)
def test_an_invalid_definition_is_rejected(api: Api, namespace: str, change: dict[str, Any]) -> None:
    wrong = definition(f"{namespace}.example.com")
    wrong["spec"].update(change)
    assert api.ask("POST", CRDS, wrong).status in (400, 422)


RULED = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.least <= self.most", "message": "least must not be above most"},
                {
                    "rule": "self.most < 100",
                    "messageExpression": "'most is ' + string(self.most)",
                    "fieldPath": ".most",
                },
                {"rule": "!has(self.items) || self.items.all(i, i.startsWith('a'))"},
            ],
            "properties": {
                "least": {"type": "integer"},
                "most": {"type": "integer"},
                "items": {"type": "array", "items": {"type": "string"}},
                "grows": {
                    "type": "integer",
                    "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "may only grow"}],
                },
            },
        }
    },
}


def test_rules_are_evaluated(api: Api, namespace: str) -> None:
    group = f"{namespace}.example.com"
    api.create(CRDS, definition(group, schema={"openAPIV3Schema": RULED}, subresources={}))
    wait_for(lambda: conditions(api, f"widgets.{group}").get("Established") == "True")
    path = f"/apis/{group}/v1/namespaces/{namespace}/widgets"

    def fault(**spec: Any) -> str:
        answer = api.ask("POST", path, {"metadata": {"name": "w"}, "spec": {"least": 1, "most": 2, **spec}})
        assert answer.status == 422, answer.data
        return answer.message

    assert "spec: Invalid value: least must not be above most" in fault(least=3)
    assert "spec.most: Invalid value: most is 200" in fault(most=200)
    assert "failed rule: !has(self.items)" in fault(items=["a", "b"])
    answer = api.ask("POST", path, {"metadata": {"name": "w"}, "spec": {"least": 1}})
    assert (
        'spec: Invalid value: "object": no such key: most evaluating rule: least must not be above most'
        in answer.message
    )
    api.create(path, {"metadata": {"name": "w"}, "spec": {"least": 1, "most": 2, "items": ["ab"], "grows": 5}})
    merge = "application/merge-patch+json"
    assert api.ask("PATCH", f"{path}/w", {"spec": {"grows": 6}}, media=merge).status == 200
    refused = api.ask("PATCH", f"{path}/w", {"spec": {"grows": 4}}, media=merge)
    assert "spec.grows: Invalid value: 4: may only grow" in refused.message


def test_a_rule_that_does_not_compile_is_rejected(api: Api, namespace: str) -> None:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "self.a +"}]}
    answer = api.ask("POST", CRDS, definition(f"{namespace}.example.com", schema={"openAPIV3Schema": schema}))
    assert answer.status == 422
    assert "spec.versions[0].schema.openAPIV3Schema.x-kubernetes-validations[0].rule" in answer.message
