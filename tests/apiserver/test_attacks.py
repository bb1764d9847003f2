"""Small requests that used to cost much: of an account without rights, or with rights in one namespace only.

Each is refused with a 4xx. Times are not asserted; that the limits hold is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from tests.apiserver.running import Api, config_map
from tests.apiserver.test_fairness import raw

from wharfinger.api.yaml_reader import MAX_REQUEST_NODES, BadYaml, read_request
from wharfinger.store.ledger import MAX_OBJECT
from wharfinger.store.patches import MAX_COPIED

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"  # every account may create these
YAML = "application/yaml"


@pytest.fixture
def tenant(api: Api, namespace: str) -> Api:
    """A service account without rights."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(path, {"metadata": {"name": "tenant"}})
    made = api.create(f"{path}/tenant/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    return Api(api.kubeconfig, made["status"]["token"])


def review(rest: str) -> bytes:
    return f"apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\n{rest}".encode()


def expanding(separator: Callable[[str], str]) -> str:
    """Seven levels, each of which refers nine times to the one before."""
    levels = ["b0: &b0 {" + ", ".join(f"k{n}: x" for n in range(9)) + "}"]
    levels += [f"b{n}: &b{n} " + separator(", ".join([f"*b{n - 1}"] * 9)) for n in range(1, 8)]
    return "\n".join(levels)


EXPANSIONS = {
    "merged, distinct": "\n".join(
        ["b0: &b0 {k: x}"]
        + [
            f"b{n}: &b{n} {{<<: *b{n - 1}, " + ", ".join(f"a{n}_{m}: *b{n - 1}" for m in range(9)) + "}"
            for n in range(1, 8)
        ]
    ),
    "aliases": expanding(lambda names: f"[{names}]"),
    "aliases in mappings": expanding(
        lambda names: "{" + ", ".join(f"a{n}: {name}" for n, name in enumerate(names.split(", "))) + "}"
    ),
    "aliases one by one": "a: &a x\nb:\n" + "- *a\n" * (MAX_REQUEST_NODES + 1),
    "nested aliases": "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000)),
    "lists": "[" + "[]," * 500_000 + "]",
    "mappings": "[" + "{}," * 500_000 + "]",
    "scalars": "- 1\n" * 500_000,
    "keys": "".join(f"k{n}: 1\n" for n in range(100_000)),
    "anchors": "".join(f"- &a{n} x\n" for n in range(100_000)),
    "tags": "- !!int 1\n" * 100_000,
    "depth": "[" * 100_000,
    "keys in keys": "? " * 100_000 + "a",
}


@pytest.mark.parametrize("case", EXPANSIONS)
def test_yaml_that_expands_is_refused(tenant: Api, case: str) -> None:
    with pytest.raises(BadYaml):
        read_request(EXPANSIONS[case].encode())
    answer = tenant.ask("POST", REVIEW, EXPANSIONS[case].encode(), media=YAML)
    assert answer.status == 400
    assert "yaml: " in answer.message


@pytest.mark.parametrize(
    "value", ["1:" * 200_000 + "1", "9" * 1_000_000, "0x" + "f" * 1_000_000, "1_" * 500_000, "1." + "1" * 1_000_000]
)
def test_long_scalars_are_not_converted_to_long_numbers(tenant: Api, value: str) -> None:
    """Sexagesimal integers are strings in Go's reader, and so are numbers that no type holds."""
    found = read_request(f"a: {value}".encode()).value["a"]
    assert isinstance(found, str | float)
    answer = tenant.ask(
        "POST", REVIEW, review(f"spec: {{resourceAttributes: {{verb: {value}, name: []}}}}"), media=YAML
    )
    assert answer.status == 400


def test_merge_keys_are_read_as_in_manifests(tenant: Api) -> None:
    body = review("x: &x {verb: get}\nspec: {resourceAttributes: {<<: *x, resource: pods, verb: list}}")
    answer = tenant.ask("POST", f"{REVIEW}?fieldValidation=Ignore", body, media=YAML)
    assert answer.status == 201, answer.data
    assert answer.json["spec"]["resourceAttributes"] == {"verb": "list", "resource": "pods"}


def test_a_json_body_declared_as_yaml_reads_numbers_as_yaml_does(api: Api, base: str) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"priority": 0, "containers": []}}
    text = json.dumps(body).replace('"priority": 0', '"activeDeadlineSeconds": 30.0')
    text = text.replace('"containers": []', '"containers": [{"name": "c", "image": "i"}]')
    answer = api.ask("POST", f"{base}/pods?dryRun=All", text.encode(), media=YAML)
    assert (answer.status, answer.json["spec"]["activeDeadlineSeconds"]) == (201, 30)


@pytest.mark.parametrize(
    ("start", "operations"),
    [
        ({"a": "x" * 200_000}, [{"op": "copy", "from": "/data/a", "path": f"/data/b{n}"} for n in range(20)]),
        ({"a": "x"}, [{"op": "copy", "from": "/data", "path": f"/data/b{n}"} for n in range(30)]),
        ({"a": "x"}, [{"op": "copy", "from": "", "path": f"/data/b{n}"} for n in range(30)]),
    ],
    ids=["one value", "doubling", "the whole object"],
)
def test_copies_of_a_json_patch_are_limited(
    api: Api, base: str, start: dict[str, str], operations: list[dict[str, str]]
) -> None:
    before = api.create(f"{base}/configmaps", config_map("c", **start))
    answer = api.ask("PATCH", f"{base}/configmaps/c", operations, media="application/json-patch+json")
    assert answer.status == 422
    assert answer.message == "the server rejected our request due to an error in our request"
    assert api.get(f"{base}/configmaps/c") == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/data/a/0"},
        {"op": "add", "path": "/data/a/0", "value": 0},
        {"op": "move", "from": "/data/a/0", "path": "/data/a/1"},
    ],
    ids=["remove", "add", "move"],
)
def test_a_json_patch_does_not_move_long_lists_again_and_again(
    api: Api, base: str, operation: dict[str, object]
) -> None:
    before = api.create(f"{base}/configmaps", config_map("c", a="x"))
    start = {"op": "replace", "path": "/data/a", "value": [0] * 100_000}
    end = {"op": "replace", "path": "/data/a", "value": "y"}
    answer = api.ask(
        "PATCH", f"{base}/configmaps/c", [start, *[operation] * 9000, end], media="application/json-patch+json"
    )
    assert answer.status == 422
    assert api.get(f"{base}/configmaps/c") == before
    few = [start, *[operation] * 20, end]
    answer = api.ask("PATCH", f"{base}/configmaps/c", few, media="application/json-patch+json")
    assert answer.status == 200, answer.data[:300]


def test_copies_within_the_limit_are_made(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", config_map("c", a="x" * (MAX_COPIED // 40)))
    copies = [{"op": "copy", "from": "/data/a", "path": f"/data/b{n}"} for n in range(10)]
    answer = api.ask("PATCH", f"{base}/configmaps/c", copies, media="application/json-patch+json")
    assert answer.status == 200, answer.data[:300]
    assert len(answer.json["data"]) == 11


FOO = "/apis/size.example.com/v1/namespaces"


@pytest.fixture(scope="module")
def foos(api: Api) -> None:
    names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "size.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    body = {"metadata": {"name": "foos.size.example.com"}, "spec": spec}
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)


@pytest.mark.usefixtures("foos")
def test_a_stored_object_has_a_size_limit(api: Api, namespace: str) -> None:
    path = f"{FOO}/{namespace}/foos"

    def foo(name: str, size: int) -> dict[str, object]:
        return {
            "apiVersion": "size.example.com/v1",
            "kind": "Foo",
            "metadata": {"name": name},
            "data": "x" * size,
        }

    created = api.ask("POST", path, foo("small", MAX_OBJECT - 2000))
    assert created.status == 201
    for size in (MAX_OBJECT, 2 * MAX_OBJECT - 2000):
        answer = api.ask("POST", path, foo("large", size))
        assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
        assert answer.message == "etcdserver: request is too large"
    assert api.ask("GET", f"{path}/large").status == 404
    for patch in ({"more": "x" * 3000}, {"metadata": {"annotations": {"a": "x" * 3000}}}):
        answer = api.ask("PATCH", f"{path}/small", patch, media="application/merge-patch+json")
        assert (answer.status, answer.message) == (413, "etcdserver: request is too large")
    assert api.get(f"{path}/small") == created.json
    assert api.ask("POST", path, foo("other", 10)).status == 201  # the refusals left nothing behind


@pytest.mark.parametrize("body", [b"[" + b"[]," * 500_000 + b"[]]", b"[" + b"{}," * 500_000 + b"x"])
def test_json_of_brackets_is_refused(tenant: Api, body: bytes) -> None:
    answer = tenant.ask("POST", REVIEW, body)
    assert (answer.status, answer.message) == (413, "Request entity too large: too many lists and objects")


BULK: dict[str, tuple[str, bytes, int, str]] = {
    "large numbers": ("application/json", b'{"x":[' + b"1e308," * 400_000 + b"1]}", 413, "too many large numbers"),
    "small numbers": ("application/json", b'{"x":[' + b"1.5E-307," * 300_000 + b"1]}", 413, "too many large numbers"),
    "numbers of YAML": (YAML, b'{"x":[' + b"1.5," * 600_000 + b"1]}", 413, "too many numbers"),
    "repeated fields": ("application/json", b'{"spec":{' + b'"a":1,' * 400_000 + b'"b":1}}', 413, "repeated fields"),
    "empty fields": (
        "application/vnd.kubernetes.protobuf",
        b"k8s\x00" + b"\x0a\x00" * 1_400_000,
        413,
        "too many fields",
    ),
    "unknown fields": (
        "application/json",
        json.dumps({"spec": {f"u{n}": 1 for n in range(150_000)}}).encode(),
        400,
        'unknown field "spec.u99"',
    ),
}


@pytest.mark.parametrize("case", BULK)
def test_bodies_of_nothing_but_one_thing_take_no_time(tenant: Api, case: str) -> None:
    """Each would take the server from a tenth of a second to seconds."""
    media, body, status, message = BULK[case]
    answer = tenant.ask("POST", f"{REVIEW}?fieldValidation=Strict", body, media=media)
    assert answer.status == status
    assert message in answer.message
    assert len(answer.message) < 5000, "as upstream, a hundred fields are named"


def test_numbers_in_text_are_not_counted(api: Api, base: str) -> None:
    assert api.ask("POST", f"{base}/configmaps", config_map("c", text="1e10 " * 10_000)).status == 201


def test_long_selectors_of_reviews_are_not_read(tenant: Api) -> None:
    selector = {"rawSelector": ",".join(f"a{n}=b" for n in range(250_000))}
    spec = {"resourceAttributes": {"verb": "list", "resource": "pods", "fieldSelector": selector}}
    answer = tenant.ask("POST", REVIEW, {"spec": spec})
    assert (answer.status, answer.json["status"]["allowed"]) == (201, False)


def test_responses_that_are_not_read_are_not_copied(api: Api, tenant: Api) -> None:
    """The published schema has megabytes; a client that asks on many connections and reads none must not multiply it."""
    asked = f"GET /openapi/v2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.token}\r\n\r\n".encode()
    whole = tenant.ask("GET", "/openapi/v2")
    with ExitStack() as stack:
        connections = [stack.enter_context(raw(tenant, asked)) for _ in range(30)]
        assert api.ask("GET", "/livez").status == 200
        chosen = connections[7]
        data = b""
        while len(data) < len(whole.data):
            part = chosen.recv(1 << 20)
            assert part
            data += part
        assert data.endswith(whole.data)


def test_brackets_in_text_are_not_counted(api: Api, base: str) -> None:
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", text='[{"a"}]' * 100_000))
    assert answer.status == 201


@pytest.mark.parametrize(
    "body",
    [b'"' + b"x" * 2_000_000, b"\n" * 2_000_000 + b"x", b'"' + b"\\u0041" * 300_000, b"[" + b"1," * 1_000_000 + b"]"],
)
def test_errors_at_the_end_of_large_bodies_are_reported(tenant: Api, body: bytes) -> None:
    """Only so many values are read in search of the words of Go's decoder."""
    answer = tenant.ask("POST", REVIEW, body)
    assert answer.status == 400
    assert "json parse error: " in answer.message


def test_patterns_of_schemas_never_backtrack(api: Api, namespace: str) -> None:
    names = {"plural": "bars", "singular": "bar", "kind": "Bar", "listKind": "BarList"}
    pattern = {"type": "string", "pattern": "^(a|aa)+$"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"a": pattern}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "pattern.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    body = {"metadata": {"name": "bars.pattern.example.com"}, "spec": spec}
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    path = f"/apis/pattern.example.com/v1/namespaces/{namespace}/bars"
    head = {"apiVersion": "pattern.example.com/v1", "kind": "Bar"}
    answer = api.ask("POST", path, {**head, "metadata": {"name": "a"}, "a": "a" * 100_000 + "!"})
    assert answer.status == 422
    assert "should match '^(a|aa)+$'" in answer.message
    assert api.ask("POST", path, {**head, "metadata": {"name": "b"}, "a": "a" * 100_000}).status == 201


def test_rules_of_one_object_have_a_budget(api: Api, namespace: str) -> None:
    """A rule on every item of a long list; each is cheap, all of them are not."""
    names = {"plural": "bazs", "singular": "baz", "kind": "Baz", "listKind": "BazList"}
    rule = {"rule": "self.matches('^[a-z]{0,200}$') && self.matches('^[b-z]{0,200}$')"}
    item = {"type": "string", "x-kubernetes-validations": [rule]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "array", "items": item}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "rule.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {"metadata": {"name": "bazs.rule.example.com"}, "spec": spec},
    )
    path = f"/apis/rule.example.com/v1/namespaces/{namespace}/bazs"
    head = {"apiVersion": "rule.example.com/v1", "kind": "Baz"}
    assert api.ask("POST", path, {**head, "metadata": {"name": "a"}, "a": ["b"] * 10}).status == 201
    answer = api.ask("POST", path, {**head, "metadata": {"name": "b"}, "a": ["b"] * 100_000})
    assert answer.status == 422
    assert "running out of cost budget, no further validation rules will be run" in answer.message
