"""The verbs over HTTP: bodies, status codes and headers of responses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, pod


def test_an_object_lives_from_create_to_delete(api: Api, base: str, namespace: str) -> None:
    created = api.ask("POST", f"{base}/configmaps", config_map("c", a="1"))
    assert created.status == 201
    assert created.json["metadata"]["namespace"] == namespace
    assert api.get(f"{base}/configmaps/c") == created.json

    changed = {**created.json, "data": {"a": "2"}}
    updated = api.ask("PUT", f"{base}/configmaps/c", changed)
    assert (updated.status, updated.json["data"]) == (200, {"a": "2"})
    stale = api.ask("PUT", f"{base}/configmaps/c", changed)
    assert (stale.status, stale.json["reason"]) == (409, "Conflict")
    assert stale.message.endswith("please apply your changes to the latest version and try again")

    deleted = api.ask("DELETE", f"{base}/configmaps/c")
    assert deleted.status == 200
    assert deleted.json["status"] == "Success"
    assert deleted.json["details"]["kind"] == "configmaps"
    gone = api.ask("GET", f"{base}/configmaps/c")
    assert (gone.status, gone.message) == (404, 'configmaps "c" not found')


def test_a_second_create_conflicts(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", config_map())
    again = api.ask("POST", f"{base}/configmaps", config_map())
    assert (again.status, again.json["reason"], again.message) == (
        409,
        "AlreadyExists",
        'configmaps "c" already exists',
    )


def test_lists_come_in_chunks_of_one_version(api: Api, base: str) -> None:
    for number in range(5):
        api.create(f"{base}/configmaps", config_map(f"c{number}"))
    first = api.get(f"{base}/configmaps?limit=2")
    assert [item["metadata"]["name"] for item in first["items"]] == ["c0", "c1"]
    assert first["kind"] == "ConfigMapList"
    assert first["metadata"]["remainingItemCount"] == 3
    api.create(f"{base}/configmaps", config_map("c9"))
    names, token = [], first["metadata"]["continue"]
    while token:
        page = api.get(f"{base}/configmaps?limit=2&continue={token}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
    assert names == ["c2", "c3", "c4"]


def test_selectors(api: Api, base: str) -> None:
    api.create(f"{base}/pods", pod("a"))
    other = pod("b")
    other["metadata"]["labels"] = {"app": "other"}
    api.create(f"{base}/pods", other)

    def names(query: str) -> list[str]:
        return [item["metadata"]["name"] for item in api.get(f"{base}/pods?{query}")["items"]]

    assert names("labelSelector=app%3Dtest") == ["a"]
    assert names("labelSelector=app+notin+(test)") == ["b"]
    assert names("fieldSelector=metadata.name%3Db") == ["b"]
    assert names("fieldSelector=spec.nodeName%3Dn1") == []
    refused = api.ask("GET", f"{base}/pods?labelSelector=a%3D%3D%3Db")
    assert refused.status == 400
    refused = api.ask("GET", f"{base}/pods?fieldSelector=spec.nosuch%3Db")
    assert (refused.status, refused.message) == (400, "field label not supported: spec.nosuch")


def test_deletecollection_returns_the_deleted_objects(api: Api, base: str) -> None:
    for name in ("a", "b"):
        api.create(f"{base}/configmaps", config_map(name))
    gone = api.ask("DELETE", f"{base}/configmaps?fieldSelector=metadata.name%3Da")
    assert [item["metadata"]["name"] for item in gone.json["items"]] == ["a"]
    assert "a" not in [item["metadata"]["name"] for item in api.get(f"{base}/configmaps")["items"]]


PATCHES: list[tuple[str, Any]] = [
    ("application/merge-patch+json", {"metadata": {"labels": {"x": "y"}}}),
    ("application/strategic-merge-patch+json", {"metadata": {"labels": {"x": "y"}}}),
    ("application/json-patch+json", [{"op": "add", "path": "/metadata/labels/x", "value": "y"}]),
]


@pytest.mark.parametrize(("media", "patch"), PATCHES, ids=[media for media, _ in PATCHES])
def test_patches_of_every_kind_change_an_object(api: Api, base: str, media: str, patch: Any) -> None:
    api.create(f"{base}/pods", pod())
    answer = api.ask("PATCH", f"{base}/pods/p", patch, media=media)
    assert answer.status == 200
    assert answer.json["metadata"]["labels"] == {"app": "test", "x": "y"}


def test_an_unknown_patch_type_is_reported(api: Api, base: str) -> None:
    answer = api.ask("PATCH", f"{base}/pods/p", {}, media="application/json")
    assert answer.status == 415
    assert "application/merge-patch+json" in answer.message


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        ("application/merge-patch+json", {"spec": {"containers": "none"}}),
        ("application/strategic-merge-patch+json", {"spec": {"tolerations": [1]}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/containers", "value": 7}]),
        ("application/json-patch+json", {"op": "replace"}),
        ("application/merge-patch+json", [1]),
        ("application/json-patch+json", [{"op": "test", "path": "/metadata/name", "value": "q"}]),
        ("application/json-patch+json", [{"op": "nonsense", "path": "/x"}]),
    ],
)
def test_an_invalid_patch_changes_nothing(api: Api, base: str, media: str, patch: Any) -> None:
    before = api.create(f"{base}/pods", pod())
    answer = api.ask("PATCH", f"{base}/pods/p", patch, media=media)
    assert answer.status in (400, 422), answer.data
    assert answer.message
    assert api.get(f"{base}/pods/p") == before


def test_dry_run_validates_but_stores_nothing(api: Api, base: str) -> None:
    answer = api.ask("POST", f"{base}/pods?dryRun=All", pod())
    assert (answer.status, answer.json["spec"]["serviceAccountName"]) == (201, "default")
    assert api.ask("GET", f"{base}/pods/p").status == 404
    refused = api.ask("POST", f"{base}/pods?dryRun=Some", pod())
    assert refused.status == 422
    assert refused.message == (
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"'
    )
    api.create(f"{base}/pods", pod())
    assert api.ask("DELETE", f"{base}/pods/p?dryRun=All").status == 200
    assert api.ask("DELETE", f"{base}/pods/p", {"dryRun": ["All"]}).status == 200
    assert api.ask("GET", f"{base}/pods/p").status == 200


def test_delete_options_in_body_and_query(api: Api, base: str) -> None:
    created = api.create(f"{base}/pods", pod(nodeName="n1"))
    wrong = api.ask("DELETE", f"{base}/pods/p", {"preconditions": {"uid": "other"}})
    assert wrong.status == 409
    going = api.ask("DELETE", f"{base}/pods/p?gracePeriodSeconds=7")
    assert going.json["metadata"]["deletionGracePeriodSeconds"] == 7
    gone = api.ask(
        "DELETE", f"{base}/pods/p", {"gracePeriodSeconds": 0, "preconditions": {"uid": created["metadata"]["uid"]}}
    )
    assert gone.status == 200
    assert api.ask("GET", f"{base}/pods/p").status == 404
    api.create(f"{base}/configmaps", config_map())
    refused = api.ask("DELETE", f"{base}/configmaps/c?propagationPolicy=Sideways")
    assert refused.status == 422
    assert 'propagationPolicy: Unsupported value: "Sideways"' in refused.message


def test_a_pod_is_bound_once(api: Api, base: str) -> None:
    api.create(f"{base}/pods", pod())
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n1"},
    }
    bound = api.ask("POST", f"{base}/pods/p/binding", binding)
    assert (bound.status, bound.json["status"]) == (201, "Success")
    assert api.get(f"{base}/pods/p")["spec"]["nodeName"] == "n1"
    again = api.ask("POST", f"{base}/pods/p/binding", binding)
    assert again.status == 409
    assert "already assigned to node" in again.message


def test_status_and_spec_are_written_separately(api: Api, base: str) -> None:
    created = api.create(f"{base}/pods", {**pod(), "status": {"phase": "Running"}})
    assert (created.get("status") or {}).get("phase") != "Running"
    patched = api.ask(
        "PATCH",
        f"{base}/pods/p/status",
        {"status": {"phase": "Running"}, "metadata": {"labels": {"app": "changed"}}},
        media="application/merge-patch+json",
    )
    assert patched.json["status"]["phase"] == "Running"
    read = api.get(f"{base}/pods/p/status")
    assert read["status"]["phase"] == "Running"


def test_the_scale_subresource(api: Api, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    api.create(path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    scale = api.get(f"{path}/d/scale")
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == ("Scale", 2, "a=b")
    answer = api.ask("PATCH", f"{path}/d/scale", {"spec": {"replicas": 5}}, media="application/merge-patch+json")
    assert answer.json["spec"]["replicas"] == 5
    assert api.get(f"{path}/d")["spec"]["replicas"] == 5
    for bad in ({"spec": {"replicas": "many"}}, {"spec": {"replicas": -1}}):
        assert api.ask("PATCH", f"{path}/d/scale", bad, media="application/merge-patch+json").status in (400, 422)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/nosuch", 404),
        ("GET", "/apis/apps/v9/deployments", 404),
        ("GET", "/api/v1/pods/p", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/namespaces/default/pods/p/nosuch", 404),
        ("POST", "/api/v1/pods", 405),
        ("POST", "/api/v1/namespaces/default/pods/p", 405),
        ("PUT", "/api/v1/namespaces/default/pods", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews", 405),
        ("OPTIONS", "/api/v1/namespaces/default/pods", 405),
        ("POST", "/version", 405),
        ("DELETE", "/api/v1/namespaces/default/pods/p/status", 405),
    ],
)
def test_unknown_resources_get_a_status(api: Api, method: str, path: str, code: int) -> None:
    answer = api.ask(method, path, {} if method in ("POST", "PUT") else None)
    assert answer.status == code, answer.data
    assert answer.message


def test_head_has_no_body(api: Api, base: str) -> None:
    answer = api.ask("HEAD", f"{base}/pods")
    assert (answer.status, answer.data) == (200, b"")


def test_yaml_requests_and_responses(api: Api, base: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  when: '2026-01-01'\n"
    answer = api.ask("POST", f"{base}/configmaps", text, media="application/yaml")
    assert (answer.status, answer.json["data"]) == (201, {"when": "2026-01-01"})
    shown = api.ask("GET", f"{base}/configmaps/c", headers={"Accept": "application/yaml"})
    assert shown.headers["content-type"] == "application/yaml"
    assert shown.data.startswith(b"apiVersion: v1\nkind: ConfigMap\n")


def test_pretty_printed_responses(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", config_map())
    plain = api.ask("GET", f"{base}/configmaps/c").data
    pretty = api.ask("GET", f"{base}/configmaps/c?pretty=true").data
    assert b"\n" not in plain
    assert pretty.startswith(b'{\n  "apiVersion": "v1",\n')
    assert json.loads(plain) == json.loads(pretty)


def test_large_responses_are_compressed_on_request(api: Api, base: str) -> None:
    import gzip

    api.create(f"{base}/configmaps", config_map("big", text="x" * 200_000))
    packed = api.ask("GET", f"{base}/configmaps/big", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.data))["data"]["text"] == "x" * 200_000
    assert "content-encoding" not in api.ask("GET", f"{base}/configmaps/big").headers


def test_protobuf_alone_is_not_acceptable(api: Api, base: str) -> None:
    answer = api.ask("GET", f"{base}/pods", headers={"Accept": "application/vnd.kubernetes.protobuf"})
    assert answer.status == 406
    assert answer.message == "only the following media types are accepted: application/json, application/yaml"
    both = api.ask("GET", f"{base}/pods", headers={"Accept": "application/vnd.kubernetes.protobuf,application/json"})
    assert both.status == 200


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("resourceVersionMatch=Exact", "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=Sometimes&resourceVersion=1", 'Unsupported value: "Sometimes"'),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        ("sendInitialEvents=true", "sendInitialEvents is forbidden for list"),
        ("watch=1&sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ("watch=1&resourceVersionMatch=Exact", "resourceVersionMatch is forbidden for watch unless sendInitialEvents"),
        ("watch=1&resourceVersion=abc", 'parsing \\"abc\\": invalid syntax'),
    ],
)
def test_list_options_are_checked(api: Api, base: str, query: str, fault: str) -> None:
    answer = api.ask("GET", f"{base}/pods?{query}")
    assert answer.status == 422
    assert answer.message.startswith('ListOptions.meta.k8s.io "" is invalid: ')
    assert fault.replace("\\", "") in answer.message.replace("\\", "")


def test_a_list_at_a_version_that_is_no_number(api: Api, base: str) -> None:
    answer = api.ask("GET", f"{base}/pods?resourceVersion=abc")
    assert answer.status == 400
    assert answer.message == (
        'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    )


def test_a_list_at_an_exact_resource_version(api: Api, base: str) -> None:
    first = api.create(f"{base}/configmaps", config_map("a"))
    api.create(f"{base}/configmaps", config_map("b"))
    version = first["metadata"]["resourceVersion"]
    then = api.get(f"{base}/configmaps?resourceVersion={version}&resourceVersionMatch=Exact")
    assert [item["metadata"]["name"] for item in then["items"] if item["metadata"]["name"] in "ab"] == ["a"]
