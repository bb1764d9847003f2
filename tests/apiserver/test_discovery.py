"""Discovery, OpenAPI, tables, health and metrics."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, pod

from wharfinger.api.kubernetes_version import REFERENCE, RELEASES

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


def test_groups_versions_and_resources_are_listed(api: Api) -> None:
    assert api.get("/api")["versions"] == ["v1"]
    groups = {group["name"]: group for group in api.get("/apis")["groups"]}
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert api.get("/apis/apps")["name"] == "apps"
    resources = {resource["name"]: resource for resource in api.get("/api/v1")["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert "deletecollection" in resources["pods"]["verbs"]
    assert resources["pods/eviction"]["kind"] == "Eviction"
    assert resources["pods/eviction"]["group"] == "policy"
    scale = {entry["name"]: entry for entry in api.get("/apis/apps/v1")["resources"]}["deployments/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


def test_aggregated_discovery_has_the_same_contents(api: Api) -> None:
    for path in ("/api", "/apis"):
        answer = api.ask("GET", path, headers={"Accept": AGGREGATED})
        assert "as=APIGroupDiscoveryList" in answer.headers["content-type"]
        for item in answer.json["items"]:
            name = item["metadata"].get("name", "")
            for version in item["versions"]:
                older = api.get(f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}")
                plain = {entry["name"] for entry in older["resources"]}
                found = {entry["resource"] for entry in version["resources"]}
                found |= {
                    f"{entry['resource']}/{part['subresource']}"
                    for entry in version["resources"]
                    for part in entry.get("subresources", ())
                }
                assert found == plain


def test_every_listed_resource_can_be_listed(api: Api) -> None:
    groups = ["api/v1", *(f"apis/{v['groupVersion']}" for g in api.get("/apis")["groups"] for v in g["versions"])]
    for path in groups:
        for resource in api.get(f"/{path}")["resources"]:
            if "list" in resource["verbs"] and "/" not in resource["name"]:
                listing = api.get(f"/{path}/{resource['name']}?limit=1")
                assert listing["kind"] == f"{resource['kind']}List"


def walk(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


def test_openapi_v3_has_every_group_and_no_dangling_references(api: Api) -> None:
    index = api.get("/openapi/v3")["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/scheduling.sigs.x-k8s.io/v1alpha1"} <= set(index)
    for entry in index.values():
        document = api.get(entry["serverRelativeURL"])
        schemas = document["components"]["schemas"]
        for reference in walk(document):
            assert reference.removeprefix("#/components/schemas/") in schemas, reference
    pods = api.get("/openapi/v3/api/v1")
    patch = pods["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert {"dryRun", "fieldValidation", "fieldManager", "force"} <= {entry["name"] for entry in patch["parameters"]}
    containers = pods["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"


def test_openapi_v2_is_complete_and_has_an_etag(api: Api) -> None:
    answer = api.ask("GET", "/openapi/v2")
    document = answer.json
    assert document["swagger"] == "2.0"
    for reference in walk(document):
        assert reference.removeprefix("#/definitions/") in document["definitions"]
    again = api.ask("GET", "/openapi/v2", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status == 304
    protobuf = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    packed = api.ask("GET", "/openapi/v2", headers=protobuf)
    assert packed.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert packed.data.startswith(b"\x0a\x032.0")  # the first field is the version
    assert len(packed.data) > 500_000


def test_lists_can_be_tables(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", config_map("c", a="1", b="2"))
    for path in (f"{base}/configmaps", f"{base}/configmaps/c"):
        table = api.get(path, Accept=TABLE)
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        names = [column["name"] for column in table["columnDefinitions"]]
        assert (names[0], names[-1]) == ("Name", "Age")
        row = next(row for row in table["rows"] if row["cells"][0] == "c")
        assert len(row["cells"]) == len(names)
        assert row["object"]["metadata"]["name"] == "c"
    assert "object" not in api.get(f"{base}/configmaps?includeObject=None", Accept=TABLE)["rows"][0]
    assert api.get(f"{base}/configmaps?includeObject=Object", Accept=TABLE)["rows"][-1]["object"]["kind"] == "ConfigMap"


def test_lists_can_be_metadata_only(api: Api, base: str) -> None:
    api.create(f"{base}/pods", pod())
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listing = api.get(f"{base}/pods", Accept=accept)
    assert listing["kind"] == "PartialObjectMetadataList"
    assert set(listing["items"][0]) == {"kind", "apiVersion", "metadata"}


def test_an_unknown_media_type_is_not_acceptable(api: Api, base: str) -> None:
    assert (
        api.ask("GET", f"{base}/pods", headers={"Accept": "application/json;as=Poem;g=meta.k8s.io;v=v1"}).status == 406
    )
    assert api.ask("GET", f"{base}/pods", headers={"Accept": "text/html"}).status == 406


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_endpoints_are_brief_or_verbose(api: Api, path: str) -> None:
    assert api.ask("GET", path).data == b"ok"
    verbose = api.ask("GET", f"{path}?verbose").data.decode()
    assert verbose.startswith("[+]ping ok\n")
    assert verbose.endswith(f"{path[1:]} check passed\n")
    assert api.ask("GET", f"{path}/ping").data == b"ok"
    assert api.ask("GET", f"{path}/nosuch").status == 404


def test_metrics_count_requests(api: Api, base: str) -> None:
    api.get(f"{base}/pods")
    text = api.ask("GET", "/metrics").data.decode()
    assert (
        'apiserver_request_total{verb="LIST",group="",version="v1",resource="pods",subresource="",code="200"}' in text
    )
    assert 'apiserver_request_duration_seconds_count{verb="LIST",group="",resource="pods"}' in text
    assert "apiserver_current_inflight_requests 1\n" in text


def test_the_version_is_kubernetes(api: Api) -> None:
    version = api.get("/version")
    assert f"{version['major']}.{version['minor']}" == str(REFERENCE)
    assert version["gitVersion"].startswith(f"v{RELEASES[REFERENCE]}+wharfinger")


def test_openid_configuration_and_keys_are_served(api: Api) -> None:
    configuration = api.get("/.well-known/openid-configuration")
    path = configuration["jwks_uri"].removeprefix(configuration["issuer"])
    assert api.get(path)["keys"][0]["alg"] == "ES256"


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/nope", True),
        ("/apis/nope.example.com", True),
        ("/apis/nope.example.com/v1/things", True),
        ("/healthz/nope", True),
        ("/api/v2", False),
        ("/api/v1/things", False),
        ("/apis/apps/v9", False),
        ("/apis/apps/v1/namespaces/default/things/x", False),
    ],
)
def test_unknown_paths_are_answered_like_kubernetes(api: Api, path: str, plain: bool) -> None:
    answer = api.ask("GET", path)
    assert answer.status == 404
    if plain:
        assert (answer.data, answer.headers["content-type"]) == (b"404 page not found\n", "text/plain; charset=utf-8")
    else:
        assert answer.message == "the server could not find the requested resource"
