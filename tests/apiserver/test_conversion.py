"""Conversion of custom resources between versions by a webhook."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.apiserver.running import Api
from tests.apiserver.test_custom_resources import CRDS, conditions, wait_for
from tests.apiserver.test_webhooks import REGISTRATION, Hook

Document = dict[str, Any]
Change = Callable[[Document], None]


def _split(document: Document) -> Document:
    host, _, port = document["spec"].pop("hostPort").partition(":")
    return {**document, "spec": {**document["spec"], "host": host, "port": port}}


def _joined(document: Document) -> Document:
    spec = dict(document["spec"])
    spec["hostPort"] = f"{spec.pop('host')}:{spec.pop('port')}"
    return {**document, "spec": spec}


class Converter(Hook):
    """Converts between v1, which has `hostPort`, and v2, which has `host` and `port`; a test may spoil its answers."""

    spoil: Change = staticmethod(lambda review: None)

    def answer(self, review: Document) -> Document:
        request = review["request"]
        wanted = request["desiredAPIVersion"]
        convert = _split if wanted.endswith("/v2") else _joined
        made = [{**convert(document), "apiVersion": wanted} for document in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": made}
        answer = {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}
        self.spoil(answer)
        return answer


@pytest.fixture
def converter(tmp_path: Any) -> Iterator[Converter]:
    made = Converter(tmp_path / "pki")
    yield made
    made.close()


def _version(name: str, *, storage: bool, **spec: Any) -> Document:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "selectableFields": [{"jsonPath": f".spec.{field}"} for field in spec],
    }


TEXT = {"type": "string"}


def definition(namespace: str, conversion: Any, storage: str = "v1") -> Document:
    group = f"{namespace}.example.com"
    port = {"type": "string", "pattern": "^[0-9]+$", "default": "80"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"servers.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Server", "plural": "servers", "singular": "server", "listKind": "ServerList"},
            "conversion": conversion,
            "versions": [
                _version("v1", storage=storage == "v1", hostPort=TEXT),
                _version("v2", storage=storage == "v2", host=TEXT, port=port),
            ],
        },
    }


def webhook(hook: Hook, *versions: str) -> Document:
    client = {"url": hook.url, "caBundle": hook.bundle}
    settings = {"clientConfig": client, "conversionReviewVersions": list(versions or ("v1", "v1beta1"))}
    return {"strategy": "Webhook", "webhook": settings}


class Servers:
    """The paths of a kind that only this test has."""

    def __init__(self, api: Api, namespace: str, converter: Converter, *versions: str) -> None:
        self.name = f"servers.{namespace}.example.com"
        self.v1, self.v2 = (
            f"/apis/{namespace}.example.com/{each}/namespaces/{namespace}/servers" for each in ("v1", "v2")
        )
        self.described = f"{namespace}.example.com"
        self._api = api
        api.create(CRDS, definition(namespace, webhook(converter, *versions)))
        wait_for(lambda: conditions(api, self.name).get("Established") == "True")

    def store_as_v2(self, definition: Document) -> None:
        path = f"{CRDS}/{self.name}"
        version = self._api.get(path)["metadata"]["resourceVersion"]
        changed = {**definition, "metadata": {**definition["metadata"], "resourceVersion": version}}
        wait_for(lambda: self._api.ask("PUT", path, changed).status == 200)
        wait_for(lambda: self._api.get(path)["status"]["storedVersions"] == ["v1", "v2"])

    def close(self) -> None:
        """Removes the kind: other tests list all that there are, and nobody converts it any more."""
        self._api.ask("DELETE", f"{CRDS}/{self.name}")
        wait_for(lambda: self._api.ask("GET", f"{CRDS}/{self.name}").status == 404)


@pytest.fixture
def servers(api: Api, namespace: str, converter: Converter) -> Iterator[Servers]:
    made = Servers(api, namespace, converter)
    yield made
    made.close()


def old(name: str = "s", **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}, "spec": {"hostPort": "localhost:1234"}}


def new(name: str = "s", port: str = "1234") -> Document:
    return {"metadata": {"name": name}, "spec": {"host": "localhost", "port": port}}


def test_objects_are_served_in_every_version(api: Api, servers: Servers, converter: Converter) -> None:
    api.create(servers.v1, old())
    assert not converter.asked
    shown = api.get(f"{servers.v2}/s")
    assert (shown["apiVersion"].rpartition("/")[2], shown["spec"]) == ("v2", {"host": "localhost", "port": "1234"})
    assert shown["metadata"]["uid"] == api.get(f"{servers.v1}/s")["metadata"]["uid"]
    made = api.create(servers.v2, new("t", "99"))
    assert made["spec"] == {"host": "localhost", "port": "99"}
    assert api.get(f"{servers.v1}/t")["spec"] == {"hostPort": "localhost:99"}


def test_an_object_is_converted_once_it_has_its_identity(api: Api, servers: Servers, converter: Converter) -> None:
    api.create(servers.v2, {"metadata": {"generateName": "s-"}, "spec": {"host": "h"}})
    (sent,) = converter.asked[0]["objects"]
    assert sent["spec"] == {"host": "h", "port": "80"}, "defaults of the version in which it was given"
    assert sent["metadata"]["name"].startswith("s-")
    assert sent["metadata"]["uid"]


def test_writes_in_another_version_change_what_is_stored(api: Api, servers: Servers) -> None:
    api.create(servers.v1, old())
    merge = "application/merge-patch+json"
    assert api.ask("PATCH", f"{servers.v2}/s", {"spec": {"port": "8"}}, media=merge).json["spec"]["port"] == "8"
    assert api.get(f"{servers.v1}/s")["spec"] == {"hostPort": "localhost:8"}
    current = api.get(f"{servers.v2}/s")
    answer = api.ask("PUT", f"{servers.v2}/s", {**current, "spec": {"host": "other", "port": "9"}})
    assert (answer.status, answer.json["spec"]) == (200, {"host": "other", "port": "9"})
    assert api.get(f"{servers.v1}/s")["spec"] == {"hostPort": "other:9"}
    assert api.ask("DELETE", f"{servers.v2}/s").status == 200
    assert api.ask("GET", f"{servers.v1}/s").status == 404


def test_a_list_is_converted_in_one_call(api: Api, servers: Servers, converter: Converter) -> None:
    for number in range(3):
        api.create(servers.v1, old(f"s{number}"))
    listed = api.get(servers.v2)
    assert [item["spec"]["port"] for item in listed["items"]] == ["1234"] * 3
    assert [len(asked["objects"]) for asked in converter.asked] == [3]
    assert len(api.get(servers.v1)["items"]) == 3
    assert len(converter.asked) == 1


def test_watchers_get_their_version(api: Api, servers: Servers) -> None:
    api.create(servers.v1, old())
    connection = api.connect()
    connection.request("GET", f"{servers.v2}?watch=1", headers=api.head())
    stream = connection.getresponse()
    seen = [json.loads(stream.readline())]
    api.create(servers.v1, old("t"))
    seen.append(json.loads(stream.readline()))
    api.ask("DELETE", f"{servers.v1}/t")
    seen.append(json.loads(stream.readline()))
    connection.close()
    assert [event["type"] for event in seen] == ["ADDED", "ADDED", "DELETED"]
    assert {event["object"]["spec"]["host"] for event in seen} == {"localhost"}
    assert {event["object"]["apiVersion"].rpartition("/")[2] for event in seen} == {"v2"}


def server_at(name: str, host: str, port: str) -> Document:
    return {"metadata": {"name": name}, "spec": {"host": host, "port": port}}


def names(listed: Document) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def test_fields_are_selected_in_the_version_that_is_asked_for(api: Api, servers: Servers, converter: Converter) -> None:
    for name, host, port in (("a", "one", "80"), ("b", "one", "8080"), ("c", "two", "80")):
        api.create(servers.v2, server_at(name, host, port))
    before = len(converter.asked)
    assert names(api.get(f"{servers.v2}?fieldSelector=spec.host%3Done")) == ["a", "b"]
    assert len(converter.asked) <= before + 1, "all objects are converted together"
    assert names(api.get(f"{servers.v2}?fieldSelector=spec.host%3Done,spec.port%3D80")) == ["a"]
    assert names(api.get(f"{servers.v2}?fieldSelector=spec.host!%3Done")) == ["c"]
    assert names(api.get(f"{servers.v1}?fieldSelector=spec.hostPort%3Done:8080")) == ["b"]
    first = api.get(f"{servers.v2}?fieldSelector=spec.port%3D80&limit=1")
    rest = api.get(f"{servers.v2}?fieldSelector=spec.port%3D80&limit=1&continue={first['metadata']['continue']}")
    assert (names(first), names(rest)) == (["a"], ["c"])
    for path, field in ((servers.v1, "spec.host"), (servers.v2, "spec.hostPort"), (servers.v2, "spec.other")):
        refused = api.ask("GET", f"{path}?fieldSelector={field}%3Done")
        assert (refused.status, refused.json["message"]) == (400, f"field label not supported: {field}")


def test_watchers_select_fields_of_their_version(api: Api, servers: Servers) -> None:
    for name, host in (("a", "one"), ("b", "two")):
        api.create(servers.v2, server_at(name, host, "80"))
    with (
        api.watch(f"{servers.v2}?watch=1&fieldSelector=spec.host%3Done") as of_host,
        api.watch(f"{servers.v1}?watch=1&fieldSelector=spec.hostPort%3Dtwo:80") as of_both,
    ):
        api.create(servers.v1, {"metadata": {"name": "c"}, "spec": {"hostPort": "one:1"}})
        change = {"spec": {"host": "two"}}
        assert api.ask("PATCH", f"{servers.v2}/a", change, media="application/merge-patch+json").status == 200
        assert api.ask("DELETE", f"{servers.v2}?fieldSelector=spec.port%3D80").status == 200
        assert names(api.get(servers.v1)) == ["c"]
        assert api.ask("DELETE", f"{servers.v1}/c").status == 200

        def take(events: Iterator[Document], count: int) -> list[tuple[str, str]]:
            found = [next(events) for _ in range(count)]
            return [(event["type"], event["object"]["metadata"]["name"]) for event in found]

        assert take(of_host, 4) == [("ADDED", "a"), ("ADDED", "c"), ("DELETED", "a"), ("DELETED", "c")]
        assert take(of_both, 4) == [("ADDED", "b"), ("ADDED", "a"), ("DELETED", "a"), ("DELETED", "b")]


def test_only_labels_and_annotations_of_an_answer_count(api: Api, servers: Servers, converter: Converter) -> None:
    def spoil(answer: Document) -> None:
        metadata = answer["response"]["convertedObjects"][0]["metadata"]
        metadata |= {"labels": {"by": "webhook"}, "generation": 77, "finalizers": ["example.com/none"]}

    api.create(servers.v1, old(labels={"by": "user"}, annotations={"a": "b"}))
    converter.spoil = spoil
    metadata = api.get(f"{servers.v2}/s")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"by": "webhook"}, {"a": "b"})
    assert (metadata["generation"], "finalizers" in metadata) == (1, False)


def _first(change: Change) -> Change:
    return lambda answer: change(answer["response"]["convertedObjects"][0])


def _result(**result: str) -> Change:
    return lambda answer: answer["response"].update(result=result)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_result(status="Failure", message="cannot do that"), "failed: cannot do that"),
        (_result(status="Maybe"), "failed: response.result.status was 'Maybe', not 'Success'"),
        (lambda answer: answer.pop("response"), "failed: no response provided"),
        (
            lambda answer: answer.update(kind="Review"),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, "
            "got apiextensions.k8s.io/v1, Kind=Review",
        ),
        (lambda answer: answer["response"].update(convertedObjects=[]), "returned 0 objects, expected 1"),
        (
            _first(lambda found: found.update(apiVersion="example.com/v3")),
            "returned invalid object at index 0: invalid groupVersion (expected {group}/v2, received example.com/v3)",
        ),
        (
            _first(lambda found: found.update(kind="Other")),
            "returned invalid object at index 0: invalid kind (expected Server, received Other)",
        ),
        (
            _first(lambda found: found["metadata"].update(name="other")),
            "returned invalid object: must have the same name: s != other",
        ),
        (
            _first(lambda found: found["metadata"].update(labels={"a": 1})),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            _first(lambda found: found["metadata"].update(annotations=[])),
            "returned invalid metadata: invalid metadata.annotations of type []interface {{}} in converted object",
        ),
    ],
)
def test_invalid_answers_are_refused(
    api: Api, servers: Servers, converter: Converter, spoil: Change, message: str
) -> None:
    api.create(servers.v1, old())
    converter.spoil = spoil
    answer = api.ask("GET", f"{servers.v2}/s")
    whose = f"conversion webhook for {servers.described}/v1, Kind=Server"
    assert (answer.status, answer.message) == (500, f"{whose} {message.format(group=servers.described)}")
    converter.spoil = lambda answer: None
    assert api.get(f"{servers.v2}/s")["spec"]["host"] == "localhost"


def test_an_answer_to_another_request_is_refused(api: Api, servers: Servers, converter: Converter) -> None:
    converter.spoil = lambda answer: answer["response"].update(uid="x")
    answer = api.ask("POST", servers.v2, new())
    assert answer.status == 500
    assert answer.message.endswith(f'failed: expected response.uid="{converter.asked[0]["uid"]}", got "x"')
    assert api.get(servers.v1)["items"] == []


def test_a_webhook_that_is_gone_fails_what_needs_it(api: Api, servers: Servers, converter: Converter) -> None:
    api.create(servers.v1, old())
    api.create(servers.v1, old("t"))
    converter.close()
    answer = api.ask("GET", servers.v2)
    assert answer.status == 500
    whose = f"conversion webhook for {servers.described}/v2, Kind=ServerList"
    assert answer.message.startswith(f'{whose} failed: Post "{converter.url}?timeout=30s": ')
    assert len(api.get(servers.v1)["items"]) == 2


def test_reviews_of_v1beta1_are_not_identified(api: Api, namespace: str, converter: Converter) -> None:
    servers = Servers(api, namespace, converter, "v9", "v1beta1", "v1")
    api.create(servers.v1, old())
    converter.spoil = lambda answer: answer["response"].update(uid="")
    assert api.get(f"{servers.v2}/s")["spec"]["port"] == "1234"
    servers.close()


def test_objects_of_a_former_storage_version_are_converted(
    api: Api, servers: Servers, converter: Converter, namespace: str
) -> None:
    api.create(servers.v1, old())
    servers.store_as_v2(definition(namespace, webhook(converter), storage="v2"))
    assert api.get(f"{servers.v2}/s")["spec"] == {"host": "localhost", "port": "1234"}
    merge = "application/merge-patch+json"
    assert api.ask("PATCH", f"{servers.v1}/s", {"metadata": {"labels": {"a": "b"}}}, media=merge).status == 200
    assert api.get(f"{servers.v1}/s")["spec"] == {"hostPort": "localhost:1234"}
    converter.close()
    shown = api.get(f"{servers.v2}/s")
    assert (shown["spec"]["host"], shown["metadata"]["labels"]) == ("localhost", {"a": "b"})


def test_a_kind_goes_once_its_objects_can_be_converted(
    api: Api, servers: Servers, converter: Converter, namespace: str
) -> None:
    api.create(servers.v1, old())
    servers.store_as_v2(definition(namespace, webhook(converter), storage="v2"))
    sound, converter.spoil = converter.spoil, lambda answer: answer["response"].update(uid="another")
    asked = len(converter.asked)
    api.ask("DELETE", f"{CRDS}/{servers.name}")
    wait_for(lambda: len(converter.asked) > asked)
    assert api.get(f"{CRDS}/{servers.name}")["metadata"]["deletionTimestamp"]
    converter.spoil = sound
    wait_for(lambda: api.ask("GET", f"{CRDS}/{servers.name}").status == 404)


def test_objects_are_validated_in_the_version_in_which_they_are_given(api: Api, servers: Servers) -> None:
    answer = api.ask("POST", servers.v2, new(port="none"))
    assert answer.status == 422
    assert 'spec.port: Invalid value: "none"' in answer.message


def test_policies_see_the_version_that_they_match(api: Api, servers: Servers, namespace: str) -> None:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [servers.described],
        "apiVersions": ["v2"],
        "resources": ["servers"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.port != '13'", "message": "unlucky"}],
    }
    policies, bindings = (f"{REGISTRATION}/validatingadmissionpolic{each}" for each in ("ies", "ybindings"))
    api.create(policies, {"metadata": {"name": namespace}, "spec": spec})
    try:
        bound = {"policyName": namespace, "validationActions": ["Deny"]}
        api.create(bindings, {"metadata": {"name": namespace}, "spec": bound})
        given = {"metadata": {"name": "s"}, "spec": {"hostPort": "localhost:13"}}
        assert "unlucky" in wait_for(lambda: api.ask("POST", f"{servers.v1}?dryRun=All", given).json.get("message"))
        assert "unlucky" in api.ask("POST", servers.v2, new(port="13")).message
        assert api.ask("POST", servers.v2, new(port="14")).status == 201
    finally:
        api.ask("DELETE", f"{bindings}/{namespace}")
        api.ask("DELETE", f"{policies}/{namespace}")


@pytest.mark.parametrize(
    ("conversion", "fault"),
    [
        ({"strategy": "Magic"}, 'spec.conversion.strategy: Unsupported value: "Magic"'),
        (
            {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
        ),
        (
            {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://localhost"}}},
            "spec.conversion.conversionReviewVersions: Required value",
        ),
        (
            {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"url": "https://localhost"}, "conversionReviewVersions": ["v3", "v3"]},
            },
            'spec.conversion.conversionReviewVersions[1]: Invalid value: "v3": duplicate version',
        ),
        (
            {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"url": "https://localhost"}, "conversionReviewVersions": ["v3"]},
            },
            'spec.conversion.conversionReviewVersions: Invalid value: ["v3"]: must include at least one of v1, v1beta1',
        ),
        (
            {"strategy": "None", "webhook": {"clientConfig": {"url": "https://localhost"}}},
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
        ),
    ],
)
def test_an_invalid_conversion_is_refused(api: Api, namespace: str, conversion: Document, fault: str) -> None:
    answer = api.ask("POST", CRDS, definition(namespace, conversion))
    assert answer.status == 422
    assert fault in answer.message
