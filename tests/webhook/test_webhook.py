"""The webhook application: reviews and responses; requests that cannot be decided are denied."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import jsonpatch
import pytest
from prometheus_client import CollectorRegistry
from tests.systems.scheduling_policy.policies import allowing_all, grant, pod, policy

from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import User, service_account
from wharfinger.admission.stored_rbac import StoredRbac
from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    ROLE_BINDINGS,
    SUBJECT_ACCESS_REVIEWS,
)
from wharfinger.api.registry import Document, Resource
from wharfinger.api.requests import ApiRequest
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.client.metrics_access import MetricsAccess
from wharfinger.store.store import Store
from wharfinger.systems.scheduling_policy.admission.access import PolicyAccess
from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import provision
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings
from wharfinger.webhook.application import BODY_LIMIT, WebhookApplication
from wharfinger.webhook.configurations import WebhookEndpoint, configurations
from wharfinger.webhook.handler import Answer, Rule, WebhookContext, WebhookHandler, find_handlers

pytestmark = pytest.mark.needs_system("scheduling_policy")

RBAC = {"ClusterRole": CLUSTER_ROLES, "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS, "RoleBinding": ROLE_BINDINGS}


class Reviewing(LocalClient):
    """A client that answers SubjectAccessReviews from the store's RBAC, as an API server would."""

    failing = False
    denying = False
    slow = 0.0  # seconds that an answer takes
    asked = 0

    async def send(self, request: ApiRequest[Any]) -> Any:
        if request.resource != SUBJECT_ACCESS_REVIEWS:
            return await super().send(request)
        self.asked += 1
        await asyncio.sleep(self.slow)
        if self.failing:
            raise ServiceUnavailable("the API server is away")
        spec = request.body["spec"]
        what = spec["resourceAttributes"]
        user = User(spec["user"], tuple(spec.get("groups") or ()))
        question = Attributes(
            user, what["verb"], what["group"], what["resource"], name=what["name"], namespace=what["namespace"]
        )
        allowed = not self.denying and StoredRbac(self.store).index().allowed(question).allowed
        return {**request.body, "status": {"allowed": allowed}}


class Server:
    """The application with a client beside it, and a way to post to it without sockets."""

    def __init__(
        self, application: WebhookApplication, client: Reviewing, handlers: Sequence[WebhookHandler] = ()
    ) -> None:
        self.application = application
        self.handlers = handlers
        self.client = client

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        kind: bytes = b"application/json",
        length: int | None = None,
        headers: Any = (),
    ) -> tuple[int, bytes]:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        own = [(b"content-type", kind), (b"content-length", str(len(body) if length is None else length).encode())]
        headers = [*own, *headers]
        scope = {"type": "http", "method": method, "path": path, "headers": headers}
        await self.application(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    async def review(self, path: str, **request: Any) -> dict[str, Any]:
        status, body = await self.call("POST", path, json.dumps(question(**request)).encode())
        assert status == 200, body
        answer: dict[str, Any] = json.loads(body)
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        response: dict[str, Any] = answer["response"]
        assert response["uid"] == "u1"
        return response


def question(
    document: Document | None = None,
    resource: tuple[str, str, str] = ("", "v1", "pods"),
    user: str = "ann",
    operation: str = "CREATE",
    old: Document | None = None,
    namespace: str = "default",
    **more: Any,
) -> dict[str, Any]:
    group, version, plural = resource
    request = {
        "uid": "u1",
        "operation": operation,
        "resource": {"group": group, "version": version, "resource": plural},
        "kind": {"group": group, "version": version, "kind": "Any"},
        "namespace": namespace,
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": document,
        "oldObject": old,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@asynccontextmanager
async def serving(mode: Any = "enforce") -> AsyncIterator[Server]:
    store = Store(registry())
    client = Reviewing(store)
    for name in ("default", "kube-system"):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await provision(client)
    informers = InformerSet(client)
    metrics = CollectorRegistry()
    configuration = Configuration().having(SchedulingPolicySettings(mode=mode))
    context = WebhookContext(client, informers, registry(), configuration, metrics, "wharfinger-system")
    handlers = find_handlers(context)
    application = WebhookApplication(handlers, context.registry, metrics, lambda: "" if informers.synced else "waiting")
    informers.start()
    await informers.wait_synced()
    try:
        yield Server(application, client, handlers)
    finally:
        await informers.stop()
        await store.close()


def run(check: Callable[[Server], Awaitable[None]], mode: Any = "enforce") -> None:
    async def main() -> None:
        async with serving(mode) as server:
            await check(server)

    asyncio.run(main())


async def allow_everyone(server: Server, name: str, spec: Document) -> None:
    await server.client.create(SCHEDULING_POLICIES, policy(name, spec))
    for item in grant(name):
        await server.client.create(RBAC[item["kind"]], {**item, "apiVersion": "rbac.authorization.k8s.io/v1"})
    await asyncio.sleep(0.05)  # the informers hear of it


TOLERATING = {"tolerations": [{"key": "a", "operator": "Exists"}]}


def test_a_denial_has_paths_and_causes() -> None:
    async def check(server: Server) -> None:
        for path in ("/mutate", "/validate"):
            response = await server.review(path, document=pod(TOLERATING))
            assert response["allowed"] is False
            assert response["status"]["code"] == 403
            assert response["status"]["details"]["causes"][0]["field"] == "spec.tolerations[0]"
            assert "restricted" in response["auditAnnotations"]["policies"]

    run(check)


def test_defaults_are_returned_as_a_patch() -> None:
    async def check(server: Server) -> None:
        spec = {**allowing_all(), "default": {"nodeSelector": {"a/b": "c"}, "priorityClasseName": "gold"}}
        await allow_everyone(server, "own", spec)
        before = pod({"priority": 0, "nodeSelector": {"x": "y"}})
        response = await server.review("/mutate", document=before)
        assert response["allowed"] and response["patchType"] == "JSONPatch"
        after = jsonpatch.apply_patch(before, json.loads(b64decode(response["patch"])))
        assert after["spec"]["nodeSelector"] == {"x": "y", "a/b": "c"}
        assert after["spec"]["priorityClassName"] == "gold" and "priority" not in after["spec"]
        assert (await server.review("/validate", document=after))["allowed"]

    run(check)


def test_warnings_in_mode_warn() -> None:
    async def check(server: Server) -> None:
        response = await server.review("/validate", document=pod(TOLERATING))
        assert response["allowed"] and "spec.tolerations[0]" in response["warnings"][0]
        assert "patch" not in await server.review("/mutate", document=pod(TOLERATING))

    run(check, "warn")


def test_direct_bindings_are_denied_in_both_forms() -> None:
    async def check(server: Server) -> None:
        target = {"metadata": {"name": "p"}, "target": {"name": "n"}}
        for more in ({"subResource": "binding"}, {"resource": ("", "v1", "bindings")}):
            assert not (await server.review("/validate", document=target, **more))["allowed"]  # type: ignore[arg-type]
        response = await server.review(
            "/validate", document=target, user="system:kube-scheduler", subResource="binding"
        )
        assert response["allowed"]

    run(check)


def test_our_kinds_are_validated() -> None:
    async def check(server: Server) -> None:
        kind = (SCHEDULING_POLICIES.group, "v1alpha1", "schedulingpolicies")
        bad = policy("p", {"required": {"schedulerNames": []}})
        response = await server.review("/validate", document=bad, resource=kind, namespace="")
        assert response["status"]["code"] == 422
        assert "spec.required.schedulerNames" in response["status"]["message"]
        assert (await server.review("/validate", document=policy("p", {}), resource=kind, namespace=""))["allowed"]

    run(check)


def test_other_requests_pass() -> None:
    async def check(server: Server) -> None:
        response = await server.review(
            "/validate", document={"metadata": {"name": "c"}}, resource=("", "v1", "configmaps")
        )
        assert response == {"uid": "u1", "allowed": True}

    run(check)


def test_access_reviews_are_cached_for_seconds() -> None:
    async def check(server: Server) -> None:
        await server.review("/mutate", document=pod())
        asked = server.client.asked
        assert asked == 1
        for _ in range(5):
            await server.review("/validate", document=pod())
        assert server.client.asked == asked
        await server.review("/validate", document=pod({"serviceAccountName": "other"}))
        assert server.client.asked == asked + 1

    run(check)


def test_concurrent_reviews_share_one_access_review() -> None:
    async def check(server: Server) -> None:
        server.client.slow = 0.05
        answers = await asyncio.gather(*(server.review("/validate", document=pod()) for _ in range(20)))
        assert all(answer["allowed"] for answer in answers)
        assert server.client.asked == 1
        server.client.failing = True
        other = pod({"serviceAccountName": "other"})
        answers = await asyncio.gather(*(server.review("/validate", document=other) for _ in range(20)))
        assert not any(answer["allowed"] for answer in answers)
        server.client.failing = False
        assert (await server.review("/validate", document=other))["allowed"] is True

    run(check)


@pytest.mark.parametrize("failure", ["failing", "denying"])
def test_nothing_is_allowed_when_access_reviews_fail(failure: str) -> None:
    async def check(server: Server) -> None:
        setattr(server.client, failure, True)
        for path in ("/mutate", "/validate"):
            response = await server.review(path, document=pod())
            assert response["allowed"] is False
            assert response["status"]["code"] == (500 if failure == "failing" else 403)

    run(check)


def test_a_revoked_grant_takes_effect_immediately() -> None:
    async def main() -> None:
        async with serving() as server:
            informers = InformerSet(server.client)
            access = PolicyAccess(server.client, informers, holds=0.1, refresh=10)
            informers.start()
            await informers.wait_synced()
            user = service_account("default", "default")
            await access.confirm(user, "default", ["restricted"])
            assert access.usable(user, "default", ["restricted"]) == {"restricted"}
            await asyncio.sleep(0.15)
            with pytest.raises(Exception, match="may use policies"):
                access.usable(user, "default", ["restricted"])
            await server.client.delete(CLUSTER_ROLE_BINDINGS, "sp:restricted")
            await asyncio.sleep(0.05)
            assert access.usable(user, "default", ["restricted"]) == frozenset()
            await informers.stop()

    asyncio.run(main())


def test_a_denial_by_an_api_server_with_stale_roles_is_retried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wharfinger.systems.scheduling_policy.admission.access.DENIAL_HOLDS", 0.1)

    async def check(server: Server) -> None:
        server.client.denying = True
        assert (await server.review("/validate", document=pod()))["allowed"] is False
        server.client.denying = False
        assert (await server.review("/validate", document=pod()))["allowed"] is False
        await asyncio.sleep(0.15)
        assert (await server.review("/validate", document=pod()))["allowed"] is True

    run(check)


def test_nothing_is_allowed_until_the_informers_have_synced() -> None:
    async def main() -> None:
        application = WebhookApplication([], registry(), CollectorRegistry(), lambda: "waiting for roles")
        server = Server(application, None)  # type: ignore[arg-type]
        response = await server.review("/validate", document=pod())
        assert not response["allowed"] and "waiting for roles" in response["status"]["message"]
        assert (await server.call("GET", "/readyz"))[0] == 500
        assert (await server.call("GET", "/healthz"))[0] == 200

    asyncio.run(main())


def broken(**changes: Any) -> bytes:
    review = question(document=pod())
    review.update({key: value for key, value in changes.items() if key in ("apiVersion", "kind")})
    if "request" in changes:
        review["request"] = changes["request"]
    return json.dumps(review).encode()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not a review"),
        (b"[]", 400, "not a review"),
        (b"\xff", 400, "not a review"),
        (broken(apiVersion="admission.k8s.io/v1beta1"), 400, "expected admission.k8s.io/v1, AdmissionReview"),
        (broken(kind="Pod"), 400, "expected admission.k8s.io/v1, AdmissionReview"),
        (broken(request=None), 400, "has no request"),
        (broken(request={"uid": "u"}), 400, "missing required field"),
        (broken(request={"uid": "u", "operation": "LOOK", "resource": {}}), 400, '"LOOK" is not one of'),
        (broken(request={"uid": "", "operation": "CREATE", "resource": {}}), 400, "request.uid"),
        (broken(request={"uid": "u", "operation": "CREATE", "resource": {}, "object": 5}), 400, "object"),
    ],
)
def test_malformed_reviews_get_a_clear_error(body: bytes, status: int, words: str) -> None:
    async def main() -> None:
        server = Server(WebhookApplication([], registry(), CollectorRegistry()), None)  # type: ignore[arg-type]
        answer = await server.call("POST", "/validate", body)
        assert answer[0] == status
        assert words in answer[1].decode()

    asyncio.run(main())


def test_large_bodies_other_media_types_and_unknown_paths_are_rejected() -> None:
    async def main() -> None:
        server = Server(WebhookApplication([], registry(), CollectorRegistry()), None)  # type: ignore[arg-type]
        assert (await server.call("POST", "/validate", b"{}", length=BODY_LIMIT + 1))[0] == 413
        assert (await server.call("POST", "/validate", b"x" * (BODY_LIMIT + 1), length=5))[0] == 413
        assert (await server.call("POST", "/validate", b"{}", kind=b"text/plain"))[0] == 415
        assert (await server.call("POST", "/other", b"{}"))[0] == 404
        assert (await server.call("PUT", "/validate", b"{}"))[0] == 404

    asyncio.run(main())


class Failing(WebhookHandler):
    rules = (Rule("", ("pods",)),)

    def __init__(self, error: Exception, fails_open: bool | None = None) -> None:
        self._error = error
        self.fails_open = fails_open

    async def review(self, request: Any, *, mutating: bool) -> Answer:
        raise self._error


@pytest.mark.parametrize("error", [KeyError("oops"), ServiceUnavailable("the API server is away")])
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_modes_that_only_report_stop_nothing(path: str, error: Exception) -> None:
    async def main() -> None:
        handlers: list[WebhookHandler] = [Failing(error, True), Failing(error)]
        for handler in handlers:
            handler.rules = (Rule("", ("pods",), mutating=True),)
        server = Server(WebhookApplication(handlers, registry(), CollectorRegistry()), None)  # type: ignore[arg-type]
        response = await server.review(path, document=pod())
        assert response["allowed"] and "did not review this request" in response["warnings"][0]
        assert "KeyError" not in response["warnings"][0]
        late = WebhookApplication(handlers, registry(), CollectorRegistry(), lambda: "waiting for pods")
        assert (await Server(late, None).review(path, document=pod()))["allowed"]  # type: ignore[arg-type]

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["enforce", "warn", "audit", "auto"])
def test_the_mode_decides_what_becomes_of_requests_without_review(mode: Any) -> None:
    async def main() -> None:
        async with serving(mode) as server:
            made = configurations(server.handlers, WebhookEndpoint(service="s", namespace="own"), b"")
            for _, document in made:
                (webhook,) = document["webhooks"]
                assert webhook["failurePolicy"] == ("Ignore" if mode in ("warn", "audit") else "Fail")
                (expression,) = webhook["namespaceSelector"]["matchExpressions"]
                assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "own"])

    asyncio.run(main())


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"", 401),
        (b"Basic abc", 401),
        (b"Bearer ", 401),
        (b"Bearer wrong", 401),
        (b"Bearer tenant", 403),
        (b"bearer monitor", 200),
        (b"Bearer broken", 500),
    ],
)
def test_metrics_need_a_token_with_the_right_to_read_them(header: bytes, status: int) -> None:
    questions: list[str] = []

    class Api:
        async def create(self, resource: Resource, document: Document, namespace: str = "") -> Document:
            questions.append(resource.plural)
            spec = document["spec"]
            if resource.plural == "tokenreviews":
                if spec["token"] == "broken":
                    raise ServiceUnavailable("the API server is away")
                return {"status": {"authenticated": spec["token"] != "wrong", "user": {"username": spec["token"]}}}
            assert spec["nonResourceAttributes"] == {"verb": "get", "path": "/metrics"}
            return {"status": {"allowed": spec["user"] == "monitor"}}

    async def main() -> None:
        access = MetricsAccess(Api())  # type: ignore[arg-type]  # it needs no more
        application = WebhookApplication([], registry(), CollectorRegistry(), may_read_metrics=access.check)
        server = Server(application, None)  # type: ignore[arg-type]
        for _ in range(3):
            answer = await server.call("GET", "/metrics", headers=[(b"authorization", header)])
            assert answer[0] == status and (b"wharfinger_" in answer[1]) == (status == 200)
        assert len(questions) == {401: int(header == b"Bearer wrong"), 500: 3}.get(status, 2)  # answers are cached
        assert (await server.call("GET", "/healthz"))[0] == 200

    asyncio.run(main())


def test_a_failing_handler_denies() -> None:
    async def main() -> None:
        server = Server(WebhookApplication([Failing(KeyError("oops"))], registry(), CollectorRegistry()), None)  # type: ignore[arg-type]
        response = await server.review("/validate", document=pod())
        assert not response["allowed"] and "cannot decide: an internal error" in response["status"]["message"]
        assert b'answer="undecided"' in (await server.call("GET", "/metrics"))[1]

    asyncio.run(main())


def test_conversion_converts_all_objects_or_fails() -> None:
    async def main() -> None:
        server = Server(WebhookApplication([], registry(), CollectorRegistry()), None)  # type: ignore[arg-type]

        async def convert(version: str, *objects: Document) -> dict[str, Any]:
            request = {"uid": "c", "desiredAPIVersion": version, "objects": list(objects)}
            review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
            status, body = await server.call("POST", "/convert", json.dumps(review).encode())
            assert status == 200
            answer: dict[str, Any] = json.loads(body)["response"]
            return answer

        same = policy("p", {})
        answer = await convert(same["apiVersion"], same)
        assert answer["result"]["status"] == "Success" and answer["convertedObjects"] == [same]
        answer = await convert("scheduling.sigs.x-k8s.io/v9", same)
        assert answer["result"]["status"] == "Failure" and "cannot be converted" in answer["result"]["message"]
        assert (await server.call("POST", "/convert", b"{}"))[0] == 400

    asyncio.run(main())
