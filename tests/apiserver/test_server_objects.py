"""Objects that the server itself keeps: FlowSchemas, PriorityLevelConfigurations and APIServices."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.running import Api

FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMAS, LEVELS = f"{FLOW}/flowschemas", f"{FLOW}/prioritylevelconfigurations"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
MERGE = "application/merge-patch+json"
RULES = [
    {
        "subjects": [{"kind": "User", "user": {"name": "jane"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
    }
]


def eventually(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 15
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def condition(api: Api, path: str, kind: str) -> tuple[str, str]:
    answer = api.ask("GET", path)
    conditions = answer.json.get("status", {}).get("conditions", []) if answer.status == 200 else []
    return next(((one["status"], one["reason"]) for one in conditions if one["type"] == kind), ("", ""))


def test_every_flow_schema_has_its_priority_level(api: Api) -> None:
    levels = {one["metadata"]["name"] for one in api.get(LEVELS)["items"]}
    schemas = api.get(SCHEMAS)["items"]
    assert len(levels) >= 8 and len(schemas) >= 11
    assert {one["spec"]["priorityLevelConfiguration"]["name"] for one in schemas} <= levels


def test_deleted_and_changed_defaults_come_back(api: Api) -> None:
    assert api.ask("DELETE", f"{SCHEMAS}/catch-all").status == 200
    eventually(lambda: api.ask("GET", f"{SCHEMAS}/catch-all").status == 200)
    changed = {"spec": {"matchingPrecedence": 42}}
    assert api.ask("PATCH", f"{SCHEMAS}/service-accounts", changed, media=MERGE).status == 200
    eventually(lambda: api.get(f"{SCHEMAS}/service-accounts")["spec"]["matchingPrecedence"] == 9000)
    changed = {**changed, "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}}
    assert api.ask("PATCH", f"{SCHEMAS}/probes", changed, media=MERGE).status == 200
    assert api.get(f"{SCHEMAS}/probes")["spec"]["matchingPrecedence"] == 42


def test_a_flow_schema_without_its_priority_level_dangles(api: Api) -> None:
    spec = {"priorityLevelConfiguration": {"name": "mine"}, "rules": RULES}
    assert api.create(SCHEMAS, {"metadata": {"name": "mine"}, "spec": spec})["spec"]["matchingPrecedence"] == 1000
    eventually(lambda: condition(api, f"{SCHEMAS}/mine", "Dangling") == ("True", "NotFound"))
    limited = {"limitResponse": {"type": "Queue", "queuing": {}}}
    level = api.create(LEVELS, {"metadata": {"name": "mine"}, "spec": {"type": "Limited", "limited": limited}})
    assert level["spec"]["limited"] == {
        "nominalConcurrencyShares": 30,
        "lendablePercent": 0,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}},
    }
    eventually(lambda: condition(api, f"{SCHEMAS}/mine", "Dangling") == ("False", "Found"))


@pytest.mark.parametrize(
    ("path", "name", "spec", "said"),
    [
        (SCHEMAS, "x", {"rules": RULES}, "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"),
        (SCHEMAS, "x", {"matchingPrecedence": 1}, "only the schema named 'exempt' may have matchingPrecedence 1"),
        (SCHEMAS, "x", {"rules": [{"subjects": [{"kind": "Dog"}]}]}, 'spec.rules[0].subjects[0].kind: Unsupported value: "Dog"'),
        (SCHEMAS, "x", {"rules": [{}]}, "at least one of resourceRules and nonResourceRules has to be non-empty"),
        (LEVELS, "x", {"type": "Exempt"}, "must be 'Exempt' if and only if `name` is 'exempt'"),
        (LEVELS, "x", {"type": "Limited"}, "spec.limited: Required value: must not be empty when type is Limited"),
        (LEVELS, "x", {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 512, "handSize": 8}}}},
         "required entropy bits of deckSize 512 and handSize 8 should not be greater than 60"),
    ],
)  # fmt: skip
def test_invalid_flow_control_objects_are_refused(
    api: Api, path: str, name: str, spec: dict[str, Any], said: str
) -> None:
    answer = api.ask("POST", path, {"metadata": {"name": name}, "spec": spec})
    assert answer.status == 422 and said in answer.message, answer.message


def test_the_spec_of_mandatory_objects_is_fixed(api: Api) -> None:
    answer = api.ask("PATCH", f"{SCHEMAS}/exempt", {"spec": {"distinguisherMethod": {"type": "ByUser"}}}, media=MERGE)
    assert answer.status == 422 and "spec of 'exempt' must equal the fixed value" in answer.message


def test_every_group_version_has_an_available_api_service(api: Api) -> None:
    served = {"v1."}
    for group in api.get("/apis")["groups"]:
        served |= {f"{one['version']}.{group['name']}" for one in group["versions"]}
    served.remove("v1.apiregistration.k8s.io")
    assert {one["metadata"]["name"] for one in api.get(SERVICES)["items"]} == served
    for name in served:
        assert condition(api, f"{SERVICES}/{name}", "Available") == ("True", "Local")


def test_api_services_follow_custom_resource_definitions(api: Api) -> None:
    definition = {
        "metadata": {"name": "things.services.example.com"},
        "spec": {
            "group": "services.example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing", "listKind": "ManyThings"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }  # fmt: skip
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(definitions, definition)
    eventually(lambda: condition(api, f"{SERVICES}/v1.services.example.com", "Available") == ("True", "Local"))
    assert api.get("/apis/services.example.com/v1/things")["kind"] == "ManyThings"
    assert api.ask("DELETE", f"{definitions}/things.services.example.com").status == 200
    eventually(lambda: api.ask("GET", f"{SERVICES}/v1.services.example.com").status == 404)


def test_a_remote_api_service_is_not_available(api: Api) -> None:
    spec = {"group": "remote.example.com", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10}
    remote = {**spec, "service": {"namespace": "default", "name": "remote"}}
    wrong = api.ask("POST", SERVICES, {"metadata": {"name": "other"}, "spec": remote})
    assert wrong.status == 422 and 'must be `spec.version+"."+spec.group`' in wrong.message
    made = api.create(SERVICES, {"metadata": {"name": "v1.remote.example.com"}, "spec": remote})
    assert made["spec"]["service"]["port"] == 443
    path = f"{SERVICES}/v1.remote.example.com"
    eventually(lambda: condition(api, path, "Available") == ("False", "FailedDiscoveryCheck"))
    assert api.ask("DELETE", path).status == 200
