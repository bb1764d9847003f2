"""Admission webhooks of users: matching, calls, patches and failures."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, pod
from tests.client.certificates import Authority
from tests.support import missing

from wharfinger.apiserver.certificates import prepare_certificates
from wharfinger.apiserver.kubernetes_service import advertised_address

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


class Hook:
    """A webhook server whose decision a test sets; remembers what it was asked."""

    def __init__(self, directory: Path, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.decide: Decide = lambda request: {"allowed": True}
        certificates = prepare_certificates(directory)
        self.bundle = b64encode(certificates.authority.read_bytes()).decode()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.asked.append(review["request"])
                body = json.dumps(hook.answer(review)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.certificate, certificates.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"https://{host}:{self.port}/review"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, review: dict[str, Any]) -> dict[str, Any]:
        response = {"uid": review["request"]["uid"], **self.decide(review["request"])}
        return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def hook(tmp_path: Any) -> Iterator[Hook]:
    made = Hook(tmp_path / "pki")
    yield made
    made.close()


@pytest.fixture
def register(api: Api, namespace: str, hook: Hook) -> Iterator[Callable[..., None]]:
    """Registers the hook for config maps of the test's namespace."""
    paths = []

    def register(kind: str = "Validating", **more: Any) -> None:
        plural = f"{kind.lower()}webhookconfigurations"
        webhook = {
            "name": "check.example.com",
            "clientConfig": {"url": hook.url, "caBundle": hook.bundle},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        api.create(f"{REGISTRATION}/{plural}", {"metadata": {"name": namespace}, "webhooks": [webhook]})
        paths.append(f"{REGISTRATION}/{plural}/{namespace}")

    yield register
    for path in paths:
        api.ask("DELETE", path)


def test_pods_that_equal_earlier_ones_are_reviewed_too(
    api: Api, base: str, hook: Hook, register: Callable[..., None]
) -> None:
    for number in range(4):
        api.create(f"{base}/pods", pod(f"p{number}"))
    assert not hook.asked
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    register(rules=[rule])
    for number in range(4, 8):
        api.create(f"{base}/pods", pod(f"p{number}"))
    assert [asked["name"] for asked in hook.asked] == ["p4", "p5", "p6", "p7"]


def test_a_webhook_can_deny(api: Api, base: str, hook: Hook, register: Callable[..., None], namespace: str) -> None:
    register()
    hook.decide = lambda request: {
        "allowed": False,
        "status": {"message": "not today", "code": 418},
        "warnings": ["careful"],
    }
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", a="b"))
    assert (answer.status, answer.message) == (
        418,
        'admission webhook "check.example.com" denied the request: not today',
    )
    asked = hook.asked[0]
    assert (asked["operation"], asked["name"], asked["namespace"]) == ("CREATE", "c", namespace)
    assert asked["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert asked["object"]["data"] == {"a": "b"}
    assert asked["userInfo"]["username"] == "system:admin"
    hook.decide = lambda request: {"allowed": False}
    answer = api.ask("POST", f"{base}/configmaps", config_map("c"))
    assert (answer.status, answer.message) == (
        400,
        'admission webhook "check.example.com" denied the request without explanation',
    )
    hook.decide = lambda request: {"allowed": True, "warnings": ["careful"]}
    answer = api.ask("POST", f"{base}/configmaps", config_map("c"))
    assert (answer.status, answer.warnings) == (201, ['299 - "careful"'])
    api.ask("DELETE", f"{base}/configmaps/c")
    assert hook.asked[-1]["operation"] == "DELETE"
    assert hook.asked[-1]["object"] is None
    assert hook.asked[-1]["oldObject"]["metadata"]["name"] == "c"


def test_a_webhook_can_mutate(api: Api, base: str, hook: Hook, register: Callable[..., None]) -> None:
    register("Mutating")
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"added": "yes"}}]

    def patch(request: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": True, "patchType": "JSONPatch", "patch": b64encode(json.dumps(operations).encode()).decode()}

    hook.decide = patch
    assert api.create(f"{base}/configmaps", config_map())["metadata"]["labels"] == {"added": "yes"}
    operations[:] = [{"op": "add", "path": "/metadata/labels", "value": 7}]
    answer = api.ask("POST", f"{base}/configmaps", config_map("d"))
    assert answer.status in (400, 422), answer.data


def test_rules_and_selectors_select_webhooks(api: Api, base: str, hook: Hook, register: Callable[..., None]) -> None:
    rule = {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}
    register(rules=[rule], objectSelector={"matchLabels": {"checked": "yes"}})
    api.create(f"{base}/configmaps", config_map())
    assert hook.asked == []
    merge = "application/merge-patch+json"
    api.ask("PATCH", f"{base}/configmaps/c", {"data": {"a": "1"}}, media=merge)
    assert hook.asked == []
    api.ask("PATCH", f"{base}/configmaps/c", {"metadata": {"labels": {"checked": "yes"}}}, media=merge)
    assert len(hook.asked) == 1
    api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "elsewhere-"}})
    assert len(hook.asked) == 1


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
def test_failures_are_handled_by_the_failure_policy(
    api: Api, base: str, hook: Hook, register: Callable[..., None], policy: str, status: int
) -> None:
    register(failurePolicy=policy, timeoutSeconds=2)
    hook.close()
    answer = api.ask("POST", f"{base}/configmaps", config_map())
    assert answer.status == status
    if status == 500:
        assert answer.message.startswith('Internal error occurred: failed calling webhook "check.example.com"')


def test_a_response_with_another_uid_is_a_failure(
    api: Api, base: str, hook: Hook, register: Callable[..., None]
) -> None:
    register()
    hook.decide = lambda request: {"uid": "other", "allowed": True}
    assert api.ask("POST", f"{base}/configmaps", config_map()).status == 500


def test_webhooks_are_called_for_dry_runs(api: Api, base: str, hook: Hook, register: Callable[..., None]) -> None:
    register(sideEffects="NoneOnDryRun")
    assert api.ask("POST", f"{base}/configmaps?dryRun=All", config_map()).status == 201
    assert hook.asked[0]["dryRun"] is True
    assert hook.asked[0]["options"]["dryRun"] == ["All"]
    assert api.ask("GET", f"{base}/configmaps/c").status == 404


@pytest.mark.parametrize("effects", ["Some", "Unknown", None])
def test_webhooks_with_side_effects_are_rejected(api: Api, hook: Hook, namespace: str, effects: str | None) -> None:
    webhook = {"name": "a.example.com", "clientConfig": {"url": hook.url}, "admissionReviewVersions": ["v1"]}
    body = {"metadata": {"name": namespace}, "webhooks": [{**webhook, "sideEffects": effects}]}
    answer = api.ask("POST", f"{REGISTRATION}/validatingwebhookconfigurations", body)
    assert answer.status == 422
    assert "webhooks[0].sideEffects" in answer.message


CONDITIONS = [
    ([{"name": "a", "expression": "object.data.check == 'yes'"}], "Fail", 201, 1),
    ([{"name": "a", "expression": "object.data.check == 'no'"}], "Fail", 201, 0),
    ([{"name": "a", "expression": "object.nothing.here == 1"}], "Fail", 403, 0),
    ([{"name": "a", "expression": "object.nothing.here == 1"}], "Ignore", 201, 0),
    (
        [{"name": "a", "expression": "object.nothing.here == 1"}, {"name": "b", "expression": "request.name == 'x'"}],
        "Fail",
        201,
        0,
    ),
    ([{"name": "a", "expression": "request.userInfo.username.startsWith('system:')"}], "Fail", 201, 1),
    ([{"name": "a", "expression": "request.operation == 'CREATE' && oldObject == null"}], "Fail", 201, 1),
]


@pytest.mark.parametrize(("conditions", "policy", "status", "calls"), CONDITIONS)
def test_match_conditions_select_webhooks(
    api: Api,
    base: str,
    hook: Hook,
    register: Callable[..., None],
    conditions: list[dict[str, str]],
    policy: str,
    status: int,
    calls: int,
) -> None:
    register(matchConditions=conditions, failurePolicy=policy)
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", check="yes"))
    assert (answer.status, len(hook.asked)) == (status, calls)
    if status == 403:
        expected = "configmaps \"c\" is forbidden: expression 'object.nothing.here == 1' resulted in error: no such key"
        assert answer.message.startswith(expected)


def test_match_conditions_that_do_not_compile_are_rejected(api: Api, hook: Hook, namespace: str) -> None:
    webhook = {
        "name": "a.example.com",
        "clientConfig": {"url": hook.url},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchConditions": [{"name": "a", "expression": "object."}, {"name": "b", "expression": "'text'"}],
    }
    body = {"metadata": {"name": namespace}, "webhooks": [webhook]}
    message = api.ask("POST", f"{REGISTRATION}/mutatingwebhookconfigurations", body).message
    assert 'webhooks[0].matchConditions[0].expression: Invalid value: "object.": compilation failed: ERROR' in message
    assert "must evaluate to bool but got string" in message


def json_patch(*operations: dict[str, Any]) -> dict[str, Any]:
    patch = b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@pytest.mark.parametrize(("policy", "calls"), [("Never", 1), ("IfNeeded", 2)])
def test_a_webhook_is_reinvoked_after_a_later_change(
    api: Api, base: str, hook: Hook, namespace: str, policy: str, calls: int
) -> None:
    common = {
        "clientConfig": {"url": hook.url, "caBundle": hook.bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    second = {
        **common,
        "name": "second.example.com",
        "matchConditions": [{"name": "b", "expression": "has(object.data.first)"}],
    }
    first = {**common, "name": "first.example.com", "reinvocationPolicy": policy}
    second["clientConfig"] = {**common["clientConfig"], "url": hook.url + "/second"}  # type: ignore[dict-item]
    path = f"{REGISTRATION}/mutatingwebhookconfigurations"
    api.create(path, {"metadata": {"name": namespace}, "webhooks": [first, second]})

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        data = request["object"].get("data") or {}
        if "first" not in data:
            return json_patch({"op": "add", "path": "/data", "value": {"first": "1"}})
        if "second" not in data:
            return json_patch({"op": "add", "path": "/data/second", "value": "2"})
        return {"allowed": True}

    hook.decide = decide
    made = api.create(f"{base}/configmaps", config_map())
    api.ask("DELETE", f"{path}/{namespace}")
    assert made["data"] == {"first": "1", "second": "2"}
    assert len(hook.asked) == calls + 1


def test_built_in_admission_runs_again_after_webhooks(
    api: Api, base: str, hook: Hook, register: Callable[..., None]
) -> None:
    """A priority class that a webhook sets is resolved as if the user had set it."""
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    register("Mutating", rules=[rule])
    hook.decide = lambda request: json_patch(
        {"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"},
        {"op": "remove", "path": "/spec/priority"},
        {"op": "remove", "path": "/spec/preemptionPolicy"},
    )
    made = api.create(f"{base}/pods", pod())
    assert made["spec"]["priority"] == 2000001000


SERVICES = [
    (None, 'service "hook" not found'),
    ({"ports": [{"port": 443}]}, 'no service port 1 found for service "hook"'),
    ({"ports": [{"port": 1}]}, 'no endpoints available for service "hook"'),
    ({"type": "ExternalName", "externalName": "localhost"}, "Cannot connect to host localhost:1"),
]


@pytest.mark.parametrize(("spec", "said"), SERVICES)
def test_services_of_webhooks_that_cannot_be_called_are_named(
    api: Api,
    base: str,
    namespace: str,
    register: Callable[..., None],
    spec: dict[str, Any] | None,
    said: str,
) -> None:
    if spec is not None:
        api.create(f"{base}/services", {"metadata": {"name": "hook"}, "spec": spec})
    service = {"name": "hook", "namespace": namespace, "port": 1, "path": "/x"}
    register(clientConfig={"service": service}, timeoutSeconds=2)
    answer = api.ask("POST", f"{base}/configmaps", config_map())
    assert answer.status == 500
    assert answer.message.startswith(
        'Internal error occurred: failed calling webhook "check.example.com": failed to call webhook: '
        f'Post "https://hook.{namespace}.svc:1/x?timeout=2s": {said}'
    )


def test_a_service_of_a_webhook_is_called_at_its_endpoint(
    api: Api, base: str, namespace: str, register: Callable[..., None], tmp_path: Path
) -> None:
    """Its certificate is verified against the name of the Service."""
    address = advertised_address("0.0.0.0")
    authority = Authority()
    pair = authority.issue("hook", hosts=(f"hook.{namespace}.svc",))
    try:
        hook = Hook(tmp_path / "pki", address, authority.server_context(tmp_path, pair))
    except OSError:
        missing("network", f"{address} is not an address of this machine")
    api.create(f"{base}/services", {"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443}]}})
    subset = {"addresses": [{"ip": address}], "ports": [{"name": "https", "port": hook.port}]}
    api.create(f"{base}/endpoints", {"metadata": {"name": "hook"}, "subsets": [subset]})
    service = {"name": "hook", "namespace": namespace, "path": "/review"}
    register(clientConfig={"service": service, "caBundle": b64encode(authority.pem).decode()})
    try:
        hook.decide = lambda request: {"allowed": False, "status": {"message": "not today"}}
        assert "not today" in api.ask("POST", f"{base}/configmaps", config_map()).message
        assert len(hook.asked) == 1
    finally:
        hook.close()


def test_a_webhook_in_a_simulated_pod_is_said_to_be_simulated(
    api: Api, base: str, namespace: str, register: Callable[..., None]
) -> None:
    labels = {"wharfinger.dev/simulated": "true"}
    api.create("/api/v1/nodes", {"metadata": {"name": namespace, "labels": labels}})
    api.create(f"{base}/pods", {**pod(), "spec": {**pod()["spec"], "nodeName": namespace}})
    name = pod()["metadata"]["name"]
    api.create(f"{base}/services", {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}})
    target = {"kind": "Pod", "name": name, "namespace": namespace}
    subset = {"addresses": [{"ip": "10.1.2.3", "targetRef": target}], "ports": [{"port": 8443}]}
    api.create(f"{base}/endpoints", {"metadata": {"name": "hook"}, "subsets": [subset]})
    register(clientConfig={"service": {"name": "hook", "namespace": namespace}})
    answer = api.ask("POST", f"{base}/configmaps", config_map())
    assert f"node {namespace} is simulated, so no container of pod {name} runs" in answer.message
    api.ask("DELETE", f"/api/v1/nodes/{namespace}")


@pytest.mark.parametrize(("policy", "calls"), [("Equivalent", 1), ("Exact", 0)])
def test_objects_are_matched_and_converted_to_equivalent_versions(
    api: Api, base: str, hook: Hook, namespace: str, register: Callable[..., None], policy: str, calls: int
) -> None:
    """Events of the core group are the events of events.k8s.io."""
    rule = {"operations": ["CREATE"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"]}
    register("Mutating", rules=[rule], matchPolicy=policy)
    hook.decide = lambda request: json_patch({"op": "add", "path": "/note", "value": "changed"})
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace},
        "message": "first",
        "reason": "Tested",
        "type": "Normal",
    }
    made = api.create(f"{base}/events", event)
    assert len(hook.asked) == calls
    assert made["message"] == ("changed" if calls else "first")
    if calls:
        asked = hook.asked[0]
        assert (asked["kind"]["group"], asked["requestKind"]["group"]) == ("events.k8s.io", "")
        assert (asked["object"]["apiVersion"], asked["object"]["note"]) == ("events.k8s.io/v1", "first")


def test_scaling_is_reviewed_and_mutated_as_a_scale(
    api: Api, hook: Hook, register: Callable[..., None], namespace: str
) -> None:
    rule = {"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}
    register("Mutating", rules=[rule])
    apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    api.create(apps, {"metadata": {"name": "web"}, "spec": spec})
    hook.decide = lambda request: json_patch({"op": "replace", "path": "/spec/replicas", "value": 2})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"}, "spec": {"replicas": 9}}
    answer = api.ask("PUT", f"{apps}/web/scale", scale)
    assert (answer.status, answer.json["spec"]) == (200, {"replicas": 2}), answer.data
    asked = hook.asked[0]
    assert asked["kind"] == asked["requestKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (asked["resource"]["resource"], asked["subResource"]) == ("deployments", "scale")
    assert (asked["object"]["kind"], asked["object"]["spec"]) == ("Scale", {"replicas": 9})
    assert (asked["oldObject"]["kind"], asked["oldObject"]["spec"]) == ("Scale", {"replicas": 1})
    assert api.get(f"{apps}/web")["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx"


CONNECTIONS = ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy"]


@pytest.mark.parametrize(
    ("subresource", "query", "options"),
    [
        ("exec", "command=ls&command=-l&container=main&stdout=true", {"command": ["ls", "-l"], "container": "main"}),
        ("attach", "stdout=true", {}),
        ("portforward", "ports=80&ports=81", {"ports": [80, 81]}),
        ("proxy/metrics", "", {"path": "/metrics"}),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_connections_can_be_denied(
    api: Api,
    base: str,
    hook: Hook,
    register: Callable[..., None],
    method: str,
    subresource: str,
    query: str,
    options: dict[str, Any],
) -> None:
    rule = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": CONNECTIONS}
    api.create(f"{base}/pods", pod("web"))
    register(rules=[rule])
    hook.decide = lambda request: {"allowed": False, "status": {"message": "no visitors"}}
    answer = api.ask(method, f"{base}/pods/web/{subresource}?{query}")
    assert (answer.status, answer.message) == (
        400,
        'admission webhook "check.example.com" denied the request: no visitors',
    )
    (asked,) = hook.asked
    kind = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}.get(
        subresource, "PodProxyOptions"
    )
    assert (asked["operation"], asked["kind"]["kind"], asked["name"]) == ("CONNECT", kind, "web")
    assert asked["subResource"] == subresource.partition("/")[0]
    streams = {"stdout": True} if "stdout" in query else {}
    assert asked["object"] == {"kind": kind, "apiVersion": "v1", **streams, **options}
    hook.decide = lambda request: {"allowed": True}
    assert "no visitors" not in api.ask(method, f"{base}/pods/web/{subresource}?{query}").data.decode()
