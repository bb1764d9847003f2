"""Authentication and authorization: tokens, impersonation, RBAC, reviews, and their error messages."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import jwt
import pytest
from tests.apiserver.running import Api, pod

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def as_user(api: Api, name: str, *groups: str) -> dict[str, str]:
    return {"Impersonate-User": name, **({"Impersonate-Group": groups[0]} if groups else {})}


def until(check: Any) -> Any:
    """Waits for what follows a write a moment later."""
    deadline = time.monotonic() + 10
    while True:
        found = check()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def grant(api: Api, namespace: str, user: str, rules: list[dict[str, Any]], name: str = "r") -> None:
    api.create(f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", body)


@pytest.mark.parametrize("token", ["", "wrong", "a.b.c"])
def test_anonymous_requests_reach_health_and_version_only(api: Api, token: str) -> None:
    stranger = Api(api.kubeconfig, token)
    for path in ("/api", "/api/v1/pods", "/metrics", "/nosuch"):
        answer = stranger.ask("GET", path)
        assert (answer.status, answer.message) == (401, "Unauthorized")
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert stranger.ask("GET", path).status == (401 if token else 200)


REFUSALS = [
    ("GET", "/api/v1/namespaces/default/pods", 'pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"'),
    ("GET", "/api/v1/namespaces/default/pods/x", 'pods "x" is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "default"'),
    ("GET", "/api/v1/nodes?watch=1", 'nodes is forbidden: User "bob" cannot watch resource "nodes" in API group "" at the cluster scope'),
    ("DELETE", "/apis/apps/v1/namespaces/default/deployments", 'deployments.apps is forbidden: User "bob" cannot deletecollection resource "deployments" in API group "apps" in the namespace "default"'),
    ("POST", "/api/v1/namespaces/default/pods/x/binding", 'pods "x" is forbidden: User "bob" cannot create resource "pods/binding" in API group "" in the namespace "default"'),
    ("GET", "/api/v1/namespaces/default", 'namespaces "default" is forbidden: User "bob" cannot get resource "namespaces" in API group "" in the namespace "default"'),
    ("GET", "/metrics", 'forbidden: User "bob" cannot get path "/metrics"'),
    ("GET", "/apis/nosuch.io/v1/things", 'things.nosuch.io is forbidden: User "bob" cannot list resource "things" in API group "nosuch.io" at the cluster scope'),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "message"), REFUSALS)
def test_forbidden_messages_are_those_of_kubernetes(api: Api, method: str, path: str, message: str) -> None:
    answer = api.ask(method, path, headers=as_user(api, "bob"))
    assert (answer.status, answer.json["reason"], answer.message) == (403, "Forbidden", message)


def test_roles_grant_access(api: Api, namespace: str, base: str) -> None:
    grant(api, namespace, "carol", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}])
    assert until(lambda: api.ask("GET", f"{base}/pods", headers=as_user(api, "carol")).status == 200)
    assert api.ask("POST", f"{base}/pods", pod(), as_user(api, "carol")).status == 403
    assert api.ask("GET", "/api/v1/namespaces/default/pods", headers=as_user(api, "carol")).status == 403
    api.ask("DELETE", f"{RBAC}/namespaces/{namespace}/rolebindings/r")
    assert until(lambda: api.ask("GET", f"{base}/pods", headers=as_user(api, "carol")).status == 403)


def test_a_right_to_named_objects_includes_lists_and_watches_of_that_name(api: Api, namespace: str, base: str) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"], "resourceNames": ["mine"]}
    grant(api, namespace, "nina", [rule], "named")
    nina = as_user(api, "nina")
    path = f"{base}/configmaps?fieldSelector=metadata.name"

    def status(query: str) -> int:
        return api.ask("GET", f"{path}{query}", headers=nina).status

    assert until(lambda: status("%3Dmine") == 200)
    assert status("%3Dmine&watch=1&timeoutSeconds=1") == 200
    assert status("%3D%3Dmine&limit=5") == 200
    for other in ("%3Dother", "!%3Dmine", "%3Dmine/x", ""):
        assert status(other) == 403
    assert api.ask("GET", f"{base}/configmaps", headers=nina).status == 403
    assert api.ask("DELETE", f"{path}%3Dmine", headers=nina).status == 403
    refusal = api.ask("GET", f"{path}%3Dother", headers=nina).message
    assert refusal.startswith('configmaps "other" is forbidden: User "nina" cannot list resource "configmaps"')


def test_impersonation_requires_permission(api: Api, namespace: str) -> None:
    grant(api, namespace, "dave", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}])
    token = service_account_token(api, namespace, "bot")
    bot = Api(api.kubeconfig, token)
    answer = bot.ask("GET", "/api/v1/pods", headers={"Impersonate-User": "dave"})
    assert answer.status == 403
    assert answer.message == (
        f'users "dave" is forbidden: User "system:serviceaccount:{namespace}:bot" cannot impersonate resource "users" '
        'in API group "" at the cluster scope'
    )
    assert api.ask("GET", "/api/v1/pods", headers={"Impersonate-Group": "x"}).status == 400


def test_self_subject_review_returns_the_user(api: Api) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    info = api.create(path, body)["status"]["userInfo"]
    assert info == {"username": "system:admin", "groups": ["system:masters", "system:authenticated"]}
    headers = {"Impersonate-User": "u", "Impersonate-Group": "g", "Impersonate-Uid": "7", "Impersonate-Extra-Team": "t"}
    info = api.ask("POST", path, body, headers).json["status"]["userInfo"]
    assert info == {"username": "u", "groups": ["g", "system:authenticated"], "uid": "7", "extra": {"team": ["t"]}}
    info = api.ask("POST", path, body, {"Impersonate-User": "system:serviceaccount:n:s"}).json["status"]["userInfo"]
    assert info["groups"] == ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]


def service_account_token(api: Api, namespace: str, name: str, **spec: Any) -> str:
    base = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if api.ask("GET", f"{base}/{name}").status == 404:
        api.create(base, {"metadata": {"name": name}})
    answer = api.create(f"{base}/{name}/token", {"spec": spec})
    return str(answer["status"]["token"])


def claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


def test_a_service_account_token_authenticates_its_account(api: Api, namespace: str, base: str) -> None:
    token = service_account_token(api, namespace, "bot", expirationSeconds=3600)
    said = claims(token)
    assert said["sub"] == f"system:serviceaccount:{namespace}:bot"
    assert said["exp"] - said["iat"] == 3600
    answer = Api(api.kubeconfig, token).ask("GET", f"{base}/pods")
    assert f'User "system:serviceaccount:{namespace}:bot" cannot list' in answer.message
    tampered = token[:-6] + ("AAAAAA" if not token.endswith("AAAAAA") else "BBBBBB")
    assert Api(api.kubeconfig, tampered).ask("GET", f"{base}/pods").status == 401
    api.ask("DELETE", f"{base}/serviceaccounts/bot")
    assert Api(api.kubeconfig, token).ask("GET", f"{base}/pods").status == 401


def test_a_token_for_another_audience_is_rejected(api: Api, namespace: str) -> None:
    token = service_account_token(api, namespace, "bot", audiences=["vault"])
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 401
    review = {"spec": {"token": token, "audiences": ["vault", "other"]}}
    status = api.create("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
    status = api.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})["status"]
    assert status["authenticated"] is False


def test_a_bound_token_is_invalid_after_its_pod_is_deleted(api: Api, namespace: str, base: str) -> None:
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "bot"}})
    made = api.create(f"{base}/pods", pod("p", serviceAccountName="bot"))
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}
    token = service_account_token(api, namespace, "bot", boundObjectRef=bound)
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 200
    api.ask("DELETE", f"{base}/pods/p?gracePeriodSeconds=0")
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 401
    refused = api.ask("POST", f"{base}/serviceaccounts/bot/token", {"spec": {"boundObjectRef": bound}})
    assert (refused.status, refused.message) == (404, 'pods "p" not found')


def test_a_token_names_the_node_of_its_pod(api: Api, namespace: str, base: str) -> None:
    node = api.create("/api/v1/nodes", {"metadata": {"name": f"node-{namespace}"}})["metadata"]
    made = api.create(f"{base}/pods", pod("p", nodeName=node["name"]))
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "default"}})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}
    token = service_account_token(api, namespace, "default", boundObjectRef=bound)
    said = claims(token)["kubernetes.io"]
    assert said["pod"] == {"name": "p", "uid": made["metadata"]["uid"]}
    assert said["node"] == {"name": node["name"], "uid": node["uid"]}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    extra = Api(api.kubeconfig, token).create(path, review)["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == [node["name"]]
    assert extra["authentication.kubernetes.io/node-uid"] == [node["uid"]]
    api.ask("DELETE", f"/api/v1/nodes/{node['name']}")  # the token is bound to the pod, not to the node
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 200


def test_a_token_bound_to_a_node_ends_with_it(api: Api, namespace: str) -> None:
    node = api.create("/api/v1/nodes", {"metadata": {"name": f"node-{namespace}"}})["metadata"]
    bound = {"kind": "Node", "apiVersion": "v1", "name": node["name"], "uid": node["uid"]}
    token = service_account_token(api, namespace, "bot", boundObjectRef=bound)
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 200
    api.ask("DELETE", f"/api/v1/nodes/{node['name']}")
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 401
    api.create("/api/v1/nodes", {"metadata": {"name": node["name"]}})  # another node of the same name
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 401
    status = api.create("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})["status"]
    assert "does not match service account node ref claim" in status["error"]


@pytest.mark.parametrize(
    ("seconds", "bound", "lifetime"), [(3607, True, 31536000), (3600, True, 3600), (3607, False, 3607)]
)
def test_the_token_of_the_volume_of_a_pod_is_extended(
    api: Api, namespace: str, base: str, seconds: int, bound: bool, lifetime: int
) -> None:
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "default"}})
    api.create(f"{base}/pods", pod("p"))
    spec: dict[str, Any] = {"expirationSeconds": seconds}
    if bound:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    answer = api.create(f"{base}/serviceaccounts/default/token", {"spec": spec})
    said = claims(answer["status"]["token"])
    assert said["exp"] - said["iat"] == lifetime
    assert said["kubernetes.io"].get("warnafter", 0) == (said["iat"] + seconds if lifetime > seconds else 0)
    assert answer["spec"]["expirationSeconds"] == seconds


def test_a_token_request_must_fit_its_account(api: Api, namespace: str, base: str) -> None:
    account = api.create(f"{base}/serviceaccounts", {"metadata": {"name": "bot"}})["metadata"]
    path = f"{base}/serviceaccounts/bot/token"

    def refused(code: int, **body: Any) -> str:
        answer = api.ask("POST", path, body)
        assert answer.status == code, answer.data
        return answer.message

    assert "must match the service account name if specified" in refused(422, metadata={"name": "other"})
    assert "does not match the UID of the service account" in refused(409, metadata={"uid": "x"})
    api.create(f"{base}/pods", pod("p", serviceAccountName="bot"))
    other = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"}
    assert "does not match the UID in record" in refused(409, spec={"boundObjectRef": other})
    wrong = {"kind": "ConfigMap", "apiVersion": "v1", "name": "p"}
    assert refused(400, spec={"boundObjectRef": wrong}) == "cannot bind token to object of type /v1, Kind=ConfigMap"
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "another"}})
    answer = api.ask(
        "POST", f"{base}/serviceaccounts/another/token", {"spec": {"boundObjectRef": {**other, "uid": ""}}}
    )
    assert answer.message == (
        'cannot bind token for serviceaccount "another" to pod running with different serviceaccount name.'
    )
    assert api.create(path, {"metadata": {"uid": account["uid"]}})["metadata"]["uid"] == account["uid"]


def test_a_token_must_be_valid_for_ten_minutes(api: Api, namespace: str, base: str) -> None:
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "bot"}})
    answer = api.ask("POST", f"{base}/serviceaccounts/bot/token", {"spec": {"expirationSeconds": 60}})
    assert answer.status == 422
    assert "may not specify a duration less than 10 minutes" in answer.message


def test_access_can_be_reviewed(api: Api, namespace: str) -> None:
    grant(api, namespace, "erin", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    asked = {"namespace": namespace, "verb": "get", "resource": "pods"}
    path = "/apis/authorization.k8s.io/v1"

    def status(**spec: Any) -> Any:
        return api.create(f"{path}/subjectaccessreviews", {"spec": spec})["status"]

    allowed = until(lambda: status(user="erin", resourceAttributes=asked)["allowed"])
    assert allowed
    assert status(user="erin", resourceAttributes=asked)["reason"] == (
        f'RBAC: allowed by RoleBinding "r/{namespace}" of Role "r" to User "erin"'
    )
    assert status(user="erin", resourceAttributes={**asked, "verb": "delete"}) == {"allowed": False}
    assert status(groups=["system:masters"], nonResourceAttributes={"path": "/x", "verb": "get"})["allowed"]
    local = {"spec": {"user": "erin", "resourceAttributes": {**asked, "namespace": "elsewhere"}}}
    refused = api.ask("POST", f"{path}/namespaces/{namespace}/localsubjectaccessreviews", local)
    assert refused.status == 422
    assert "must match metadata.namespace" in refused.message
    refused = api.ask("POST", f"{path}/subjectaccessreviews", {"spec": {"resourceAttributes": asked}})
    assert "at least one of user or group must be specified" in refused.message
    own = api.ask(
        "POST", f"{path}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": asked}}, as_user(api, "erin")
    )
    assert own.json["status"]["allowed"]
    rules = api.ask("POST", f"{path}/selfsubjectrulesreviews", {"spec": {"namespace": namespace}}, as_user(api, "erin"))
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]} in rules.json["status"]["resourceRules"]


def test_privilege_escalation_is_denied(api: Api, namespace: str) -> None:
    roles = {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings"],
        "verbs": ["create", "update"],
    }
    grant(api, namespace, "frank", [roles, {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    path = f"{RBAC}/namespaces/{namespace}/roles"
    headers = as_user(api, "frank")
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    assert until(lambda: api.ask("POST", path, {"metadata": {"name": "ok"}, "rules": [rule]}, headers).status == 201)
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}
    refused = api.ask("POST", path, {"metadata": {"name": "bad"}, "rules": [rule]}, headers)
    assert refused.status == 403
    assert refused.message == (
        'roles.rbac.authorization.k8s.io "bad" is forbidden: user "frank" (groups=["system:authenticated"]) is attempting '
        'to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "User", "name": "frank", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
    refused = api.ask("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding, headers)
    assert refused.status == 403
    assert "is attempting to grant RBAC permissions not currently held" in refused.message


def test_default_roles_aggregate(api: Api, namespace: str, base: str) -> None:
    for name, rule in (("view", "get"), ("edit", "create"), ("admin", "create")):
        role = api.get(f"{RBAC}/clusterroles/{name}")
        assert any("pods" in part["resources"] and rule in part["verbs"] for part in role["rules"]), name
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rules = [{"apiGroups": ["example.com"], "resources": [namespace], "verbs": ["get"]}]
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": f"more-{namespace}", "labels": labels}, "rules": rules})

    def aggregated() -> bool:
        return rules[0] in api.get(f"{RBAC}/clusterroles/admin")["rules"]

    assert until(aggregated)
    api.ask("DELETE", f"{RBAC}/clusterroles/more-{namespace}")
    assert until(lambda: not aggregated())


def test_components_have_their_own_permissions(api: Api, base: str) -> None:
    scheduler = Api(Path(api.kubeconfig).parent / "kubeconfigs" / "scheduler.kubeconfig")
    assert scheduler.ask("GET", "/api/v1/pods?limit=1").status == 200
    assert scheduler.ask("GET", f"{base}/secrets").status == 403
    api.create(f"{base}/pods", pod())
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert scheduler.ask("POST", f"{base}/pods/p/binding", binding).status == 201


def test_others_can_verify_tokens(api: Api, namespace: str) -> None:
    token = service_account_token(api, namespace, "bot")
    bot = Api(api.kubeconfig, token)
    found = bot.ask("GET", "/.well-known/openid-configuration")
    assert (found.status, found.headers["cache-control"]) == (200, "public, max-age=3600")
    assert found.json["issuer"] == claims(token)["iss"]
    # Under the name that is in the certificate of the server, and that pods resolve.
    assert found.json["jwks_uri"] == "https://kubernetes.default.svc.cluster.local/openid/v1/jwks"
    keys = bot.ask("GET", "/openid/v1/jwks")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    (key,) = keys.json["keys"]
    verified = jwt.decode(token, jwt.PyJWK(key), algorithms=["ES256"], audience=claims(token)["aud"])
    assert verified["sub"] == f"system:serviceaccount:{namespace}:bot"
