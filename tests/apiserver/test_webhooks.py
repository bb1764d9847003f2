"""Webhooks that users register: matched, called, obeyed, and survived when they fail."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map

from wharfinger.apiserver.certificates import prepare_certificates

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
Decide = Callable[[dict[str, Any]], dict[str, Any]]


class Hook:
    """A webhook server whose decision a test sets; remembers what it was asked."""

    def __init__(self, directory: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.decide: Decide = lambda request: {"allowed": True}
        certificates = prepare_certificates(directory)
        self.bundle = b64encode(certificates.authority.read_bytes()).decode()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.asked.append(review["request"])
                answer = {"uid": review["request"]["uid"], **hook.decide(review["request"])}
                body = json.dumps(
                    {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": answer}
                ).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate, certificates.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/review"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

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


def test_a_webhook_may_refuse(api: Api, base: str, hook: Hook, register: Callable[..., None], namespace: str) -> None:
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
        403,
        'admission webhook "check.example.com" denied the request without explanation',
    )
    hook.decide = lambda request: {"allowed": True, "warnings": ["careful"]}
    answer = api.ask("POST", f"{base}/configmaps", config_map("c"))
    assert (answer.status, answer.warnings) == (201, ['299 - "careful"'])
    api.ask("DELETE", f"{base}/configmaps/c")
    assert hook.asked[-1]["operation"] == "DELETE"
    assert hook.asked[-1]["object"] is None
    assert hook.asked[-1]["oldObject"]["metadata"]["name"] == "c"


def test_a_webhook_may_change(api: Api, base: str, hook: Hook, register: Callable[..., None]) -> None:
    register("Mutating")
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"added": "yes"}}]

    def patch(request: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": True, "patchType": "JSONPatch", "patch": b64encode(json.dumps(operations).encode()).decode()}

    hook.decide = patch
    assert api.create(f"{base}/configmaps", config_map())["metadata"]["labels"] == {"added": "yes"}
    operations[:] = [{"op": "add", "path": "/metadata/labels", "value": 7}]
    answer = api.ask("POST", f"{base}/configmaps", config_map("d"))
    assert answer.status in (400, 422), answer.data


def test_rules_and_selectors_decide_who_is_asked(
    api: Api, base: str, hook: Hook, register: Callable[..., None]
) -> None:
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
def test_a_webhook_that_fails_is_treated_by_its_policy(
    api: Api, base: str, hook: Hook, register: Callable[..., None], policy: str, status: int
) -> None:
    register(failurePolicy=policy, timeoutSeconds=2)
    hook.close()
    answer = api.ask("POST", f"{base}/configmaps", config_map())
    assert answer.status == status
    if status == 500:
        assert answer.message.startswith('Internal error occurred: failed calling webhook "check.example.com"')


def test_an_answer_to_another_question_is_a_failure(
    api: Api, base: str, hook: Hook, register: Callable[..., None]
) -> None:
    register()
    hook.decide = lambda request: {"uid": "other", "allowed": True}
    assert api.ask("POST", f"{base}/configmaps", config_map()).status == 500


def test_a_dry_run_does_not_reach_webhooks_with_side_effects(
    api: Api, base: str, hook: Hook, register: Callable[..., None]
) -> None:
    register(sideEffects="None")
    assert api.ask("POST", f"{base}/configmaps?dryRun=All", config_map()).status == 201
    assert hook.asked[0]["dryRun"] is True
