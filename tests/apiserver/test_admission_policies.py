"""ValidatingAdmissionPolicies: matching, evaluation and enforcement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, pod

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{REGISTRATION}/validatingadmissionpolicies", f"{REGISTRATION}/validatingadmissionpolicybindings"
RULE = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
MERGE = "application/merge-patch+json"

Enforce = Callable[..., None]


@pytest.fixture
def enforce(api: Api, namespace: str) -> Iterator[Enforce]:
    """A policy over config maps of the test's namespace, and a binding of it."""

    def enforce(*validations: Any, binding: dict[str, Any] | None = None, **spec: Any) -> None:
        listed = [{"expression": one} if isinstance(one, str) else one for one in validations]
        policy = {"matchConstraints": {"resourceRules": [RULE]}, "validations": listed, **spec}
        api.create(POLICIES, {"metadata": {"name": namespace}, "spec": policy})
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
        bound = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": here, **(binding or {})}
        api.create(BINDINGS, {"metadata": {"name": f"{namespace}-b"}, "spec": bound})

    yield enforce
    api.ask("DELETE", f"{BINDINGS}/{namespace}-b")
    api.ask("DELETE", f"{POLICIES}/{namespace}")


HOLDS = [
    ("object.data.size == 'small'", True),
    ("object.data.size == 'large'", False),
    ("has(object.data.missing)", False),
    ("!has(object.metadata.labels)", True),
    ("oldObject == null && request.operation == 'CREATE'", True),
    ("request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap'", True),
    ("request.namespace == object.metadata.namespace", True),
    ("namespaceObject.metadata.name == request.namespace", True),
    ("'system:masters' in request.userInfo.groups", True),
    ("object.apiVersion == 'v1' && object.kind == 'ConfigMap'", True),
    ("object.data.all(key, key.matches('^[a-z]+$'))", True),
    ("quantity(object.data.amount).isLessThan(quantity('1Gi'))", True),
    ("isURL(object.data.size)", False),
    ("authorizer.group('').resource('nodes').check('delete').allowed()", True),
    ("authorizer.path('/healthz').check('get').allowed()", True),
    ("authorizer.requestResource.check('create').allowed()", True),
    ("authorizer.serviceAccount('default', 'nobody').group('').resource('nodes').check('get').allowed()", False),
    (
        "authorizer.serviceAccount('default', 'x').group('apps').resource('deployments').subresource('scale')"
        ".namespace('default').name('web').labelSelector('a=b').check('update').allowed()",
        False,
    ),
    ("authorizer.serviceAccount('default', 'x').path('/version').check('get').errored()", False),
]


@pytest.mark.parametrize(("expression", "holds"), HOLDS)
def test_expressions_see_the_request(api: Api, base: str, enforce: Enforce, expression: str, holds: bool) -> None:
    enforce(expression)
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", size="small", amount="512Mi"))
    assert answer.status == (201 if holds else 422), answer.data


def test_denials_have_the_message_of_kubernetes(api: Api, base: str, enforce: Enforce, namespace: str) -> None:
    enforce("object.data.n == '1' || false ")
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", n="2"))
    by = f"ValidatingAdmissionPolicy '{namespace}' with binding '{namespace}-b' denied request"
    why = f"{by}: failed expression: object.data.n == '1' || false"
    assert answer.message == f'configmaps "c" is forbidden: {why}'
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert answer.json["details"] == {"name": "c", "kind": "configmaps", "causes": [{"message": why}]}
    assert api.ask("GET", f"{base}/configmaps/c").status == 404


MESSAGES: list[tuple[dict[str, str], int, str]] = [
    ({"message": " too big "}, 422, "too big"),
    ({"messageExpression": "'n is ' + object.data.n", "message": "plain"}, 422, "n is 2"),
    ({"messageExpression": "object.data.missing", "message": "plain"}, 422, "plain"),
    ({"messageExpression": "'two\\nlines'", "message": "plain"}, 422, "plain"),
    ({"message": "no", "reason": "Forbidden"}, 403, "no"),
    ({"message": "no", "reason": "Unauthorized"}, 401, "no"),
    ({"message": "no", "reason": "RequestEntityTooLarge"}, 413, "no"),
]


@pytest.mark.parametrize(("more", "status", "message"), MESSAGES)
def test_messages_and_reasons(
    api: Api, base: str, enforce: Enforce, more: dict[str, str], status: int, message: str
) -> None:
    if "object.data.missing" in more.get("messageExpression", ""):
        more = {**more, "messageExpression": "string(object.data.missing)"}
    enforce({"expression": "object.data.n == '1'", **more})
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", n="2"))
    assert answer.status == status
    assert answer.message.endswith(f"denied request: {message}")


@pytest.mark.parametrize(("policy", "status"), [("Fail", 422), ("Ignore", 201)])
def test_errors_are_handled_by_the_failure_policy(
    api: Api, base: str, enforce: Enforce, policy: str, status: int
) -> None:
    enforce("object.data.missing == '1'", failurePolicy=policy)
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", n="2"))
    assert answer.status == status
    if status == 422:
        assert answer.message.endswith(
            "expression 'object.data.missing == '1'' resulted in error: no such key: missing"
        )


def test_commands_in_containers_can_be_restricted(api: Api, base: str, enforce: Enforce) -> None:
    rule = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"]}
    enforce("object.command[0] != 'sh'", matchConstraints={"resourceRules": [rule]})
    api.create(f"{base}/pods", pod("web"))
    refused = api.ask("POST", f"{base}/pods/web/exec?command=sh&command=-c")
    assert refused.status == 422
    assert refused.message.endswith("denied request: failed expression: object.command[0] != 'sh'")
    assert "does not have a host assigned" in api.ask("POST", f"{base}/pods/web/exec?command=ls").message


def test_warnings_let_the_write_pass(api: Api, base: str, enforce: Enforce, namespace: str) -> None:
    enforce({"expression": "false", "message": "careful"}, binding={"validationActions": ["Warn", "Audit"]})
    answer = api.ask("POST", f"{base}/configmaps", config_map())
    assert answer.status == 201
    expected = f"Validation failed for ValidatingAdmissionPolicy '{namespace}' with binding '{namespace}-b': careful"
    assert answer.warnings == [f'299 - "{expected}"']


def test_updates_show_both_states(api: Api, base: str, enforce: Enforce) -> None:
    enforce({"expression": "oldObject == null || object.data.n == oldObject.data.n", "message": "n stays"})
    api.create(f"{base}/configmaps", config_map("c", n="1"))
    assert api.ask("PATCH", f"{base}/configmaps/c", {"data": {"m": "1"}}, media=MERGE).status == 200
    answer = api.ask("PATCH", f"{base}/configmaps/c", {"data": {"n": "2"}}, media=MERGE)
    assert (answer.status, answer.message.endswith("n stays")) == (422, True)
    assert api.get(f"{base}/configmaps/c")["data"] == {"n": "1", "m": "1"}


def test_deletions_are_reviewed_too(api: Api, base: str, enforce: Enforce) -> None:
    rule = {**RULE, "operations": ["DELETE"]}
    enforce(
        {"expression": "oldObject.metadata.name != 'keep'", "message": "kept"},
        matchConstraints={"resourceRules": [rule]},
    )
    for name in ("keep", "other"):
        api.create(f"{base}/configmaps", config_map(name))
    assert api.ask("DELETE", f"{base}/configmaps/keep").status == 422
    assert api.ask("DELETE", f"{base}/configmaps/other").status == 200


def test_variables_are_evaluated_where_they_are_used(api: Api, base: str, enforce: Enforce) -> None:
    variables = [
        {"name": "n", "expression": "int(object.data.n)"},
        {"name": "twice", "expression": "variables.n * 2"},
        {"name": "broken", "expression": "object.data.missing.size()"},
    ]
    enforce(
        {"expression": "variables.twice < 10", "messageExpression": "'twice is ' + string(variables.twice)"},
        {"expression": "!has(object.data.missing) || variables.broken > 0"},
        variables=variables,
    )
    assert api.ask("POST", f"{base}/configmaps", config_map("a", n="4")).status == 201
    assert api.ask("POST", f"{base}/configmaps", config_map("b", n="5")).message.endswith("twice is 10")
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", n="x"))
    assert 'composited variable "twice" fails to evaluate: composited variable "n" fails to evaluate' in answer.message


PARAMS: list[tuple[dict[str, Any], str, int]] = [
    ({"name": "limits", "parameterNotFoundAction": "Deny"}, "3", 201),
    ({"name": "limits", "parameterNotFoundAction": "Deny"}, "9", 422),
    ({"name": "nothing", "parameterNotFoundAction": "Deny"}, "3", 422),
    ({"name": "nothing", "parameterNotFoundAction": "Allow"}, "9", 201),
    ({"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}, "3", 201),
    ({"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}, "4", 422),
    ({"selector": {"matchLabels": {"limits": "no"}}, "parameterNotFoundAction": "Deny"}, "3", 422),
    ({"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}, "3", 422),
]


@pytest.mark.parametrize(("ref", "n", "status"), PARAMS)
def test_parameters_come_from_other_objects(
    api: Api, base: str, enforce: Enforce, ref: dict[str, Any], n: str, status: int
) -> None:
    for name, most in (("limits", "5"), ("stricter", "3")):
        made = config_map(name, most=most, n="0")
        api.create(f"{base}/configmaps", {**made, "metadata": {"name": name, "labels": {"limits": "yes"}}})
    enforce(
        "int(object.data.n) <= int(params.data.most)",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        binding={"paramRef": ref},
    )
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", n=n))
    assert answer.status == status, answer.data
    if status == 422 and not int(n) > 3:
        assert "failed to configure binding: no params found for policy binding with `Deny`" in answer.message


MATCHES: list[tuple[dict[str, Any], int]] = [
    ({"matchConditions": [{"name": "a", "expression": "object.data.n == '2'"}]}, 422),
    ({"matchConditions": [{"name": "a", "expression": "object.data.n == '1'"}]}, 201),
    ({"matchConditions": [{"name": "a", "expression": "object.data.missing == '1'"}]}, 422),
    ({"matchConditions": [{"name": "a", "expression": "object.data.missing == '1'"}], "failurePolicy": "Ignore"}, 201),
    ({"matchConstraints": {"resourceRules": [{**RULE, "resourceNames": ["c"]}]}}, 422),
    ({"matchConstraints": {"resourceRules": [{**RULE, "resourceNames": ["d"]}]}}, 201),
    ({"matchConstraints": {"resourceRules": [{**RULE, "operations": ["UPDATE"]}]}}, 201),
    ({"matchConstraints": {"resourceRules": [{**RULE, "scope": "Cluster"}]}}, 201),
    ({"matchConstraints": {"resourceRules": [RULE], "excludeResourceRules": [{**RULE, "resourceNames": ["c"]}]}}, 201),
    ({"matchConstraints": {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"a": "b"}}}}, 201),
    ({"matchConstraints": {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"app": "x"}}}}, 422),
]


@pytest.mark.parametrize(("spec", "status"), MATCHES)
def test_constraints_and_conditions_select_requests(
    api: Api, base: str, enforce: Enforce, spec: dict[str, Any], status: int
) -> None:
    enforce("false", **spec)
    body = {**config_map("c", n="2"), "metadata": {"name": "c", "labels": {"app": "x"}}}
    assert api.ask("POST", f"{base}/configmaps", body).status == status


def test_a_policy_without_a_binding_does_nothing(api: Api, base: str, namespace: str) -> None:
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "false"}]}
    made = api.create(POLICIES, {"metadata": {"name": namespace}, "spec": spec})
    assert made["spec"]["failurePolicy"] == "Fail"
    assert made["spec"]["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert api.ask("POST", f"{base}/configmaps", config_map()).status == 201
    api.ask("DELETE", f"{POLICIES}/{namespace}")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"validations": []}, "spec.validations: Required value"),
    ({"validations": [{"expression": "object."}]}, "spec.validations[0].expression: Invalid value"),
    ({"validations": [{"expression": "1 + 1"}]}, "must evaluate to bool but got int"),
    ({"validations": [{"expression": "params.x == 1"}]}, "undeclared reference to 'params"),
    ({"validations": [{"expression": "variables.x == 1"}]}, "undeclared reference to 'variables"),
    ({"validations": [{"expression": "true", "messageExpression": "1"}]}, "must evaluate to string but got int"),
    ({"validations": [{"expression": "true", "reason": "Because"}]}, 'Unsupported value: "Because"'),
    ({"variables": [{"name": "a-b", "expression": "1"}]}, "must be a valid CEL identifier"),
    ({"variables": [{"name": "a", "expression": "variables.a"}]}, "spec.variables[0].expression"),
    ({"matchConstraints": {}}, "spec.matchConstraints.resourceRules: Required value"),
    ({"matchConditions": [{"name": "a", "expression": "'x'"}]}, "must evaluate to bool but got string"),
    ({"failurePolicy": "Maybe"}, 'Unsupported value: "Maybe"'),
]


@pytest.mark.parametrize(("spec", "fault"), BAD)
def test_invalid_policies_are_rejected(api: Api, spec: dict[str, Any], fault: str) -> None:
    good = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
    answer = api.ask("POST", POLICIES, {"metadata": {"name": "bad"}, "spec": {**good, **spec}})
    assert answer.status == 422
    assert fault in answer.message


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"validationActions": []}, "spec.validationActions: Required value"),
        ({"validationActions": ["Deny", "Warn"]}, "must not contain both Deny and Warn"),
        ({"policyName": ""}, "spec.policyName: Required value"),
        ({"paramRef": {"parameterNotFoundAction": "Deny"}}, "one of name or selector must be specified"),
        ({"paramRef": {"name": "a"}}, "spec.paramRef.parameterNotFoundAction: Required value"),
    ],
)
def test_invalid_bindings_are_rejected(api: Api, spec: dict[str, Any], fault: str) -> None:
    good = {"policyName": "p", "validationActions": ["Deny"]}
    answer = api.ask("POST", BINDINGS, {"metadata": {"name": "bad"}, "spec": {**good, **spec}})
    assert answer.status == 422
    assert fault in answer.message


def test_the_cost_limit_stops_expensive_expressions(api: Api, base: str, enforce: Enforce) -> None:
    """Nothing that a policy asks can hold the server up for long."""
    nested = "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a != 'x'))))"
    enforce(nested)
    answer = api.ask("POST", f"{base}/configmaps", config_map("c", **{f"k{i}": "v" for i in range(200)}))
    assert answer.status == 422
    assert "running out of cost budget" in answer.message


def test_policies_do_not_apply_to_policies(api: Api, namespace: str) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    constraints = {"resourceRules": [{**rule, "scope": "Cluster"}]}
    spec = {"matchConstraints": constraints, "validations": [{"expression": "false"}]}
    api.create(POLICIES, {"metadata": {"name": namespace}, "spec": spec})
    bound = {"policyName": namespace, "validationActions": ["Deny"]}
    api.create(BINDINGS, {"metadata": {"name": namespace}, "spec": bound})
    refused = api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": f"{namespace}-x"}})
    assert api.ask("DELETE", f"{BINDINGS}/{namespace}").status == 200
    assert api.ask("DELETE", f"{POLICIES}/{namespace}").status == 200
    assert refused.status == 422


def test_scaling_is_reviewed_as_a_scale(api: Api, base: str, namespace: str, enforce: Enforce) -> None:
    rule = {"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}
    check = "object.kind == 'Scale' && oldObject.spec.replicas == 1 && request.kind.kind == 'Scale'"
    small = {"expression": f"{check} && object.spec.replicas <= 3", "messageExpression": "string(object.spec.replicas)"}
    enforce(small, matchConstraints={"resourceRules": [rule]})
    apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    labels = {"app": "web"}
    spec = {"containers": [{"name": "c", "image": "nginx"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    api.create(apps, {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": template}})
    refused = api.ask("PATCH", f"{apps}/web/scale", {"spec": {"replicas": 4}}, media=MERGE)
    assert refused.message.endswith("denied request: 4"), refused.message
    assert api.ask("PATCH", f"{apps}/web/scale", {"spec": {"replicas": 3}}, media=MERGE).status == 200


TYPED = [
    ("object.spec.replicas > 1", ""),
    ("object.spec.replicas > '1'", "1:22: found no matching overload for '_>_' applied to '(int, string)'"),
    ("object.spec.replica > 1", "1:12: undefined field 'replica'\n | object.spec.replica > 1\n | ...........^"),
    ("variables.count == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
    ("object.spec.template.spec.containers.all(c, c.imag == 'x')", "undefined field 'imag'"),
    ("object.metadata.labels['a'] == 'b' && object.metadata.creationTimestamp < timestamp(params.data.then)", ""),
    ("object.spec.strategy.rollingUpdate.maxSurge == 1 || oldObject == null", ""),
    ("quantity(object.spec.template.spec.containers[0].resources.limits['cpu']).isLessThan(quantity('2'))", ""),
    ("params.data.size == 'x' && params.dat.size == 'x'", "undefined field 'dat'"),
    ("request.anything.goes == namespaceObject.metadata.name", ""),
]


@pytest.mark.parametrize(("expression", "said"), TYPED)
def test_type_checking(api: Api, namespace: str, expression: str, said: str) -> None:
    rule = {**RULE, "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale", "unknown"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule, {**RULE, "apiVersions": ["*"]}]},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "count", "expression": "object.spec.replicas"}],
        "validations": [{"expression": "true", "messageExpression": f"string({expression})"}],
    }
    path = f"{POLICIES}/{namespace}"
    api.create(POLICIES, {"metadata": {"name": namespace}, "spec": spec})
    try:
        status = checked(api, path, 1)
        if not said:
            assert status["typeChecking"] == {}
            return
        (warning,) = status["typeChecking"]["expressionWarnings"]
        assert warning["fieldRef"] == "spec.validations[0].messageExpression"
        assert warning["warning"].startswith("apps/v1, Kind=Deployment: compilation failed: ERROR: <input>:")
        assert said.rpartition(": ")[2].partition("\n")[0] in warning["warning"]
        mended = {"spec": {"validations": [{"expression": "true"}]}}
        assert api.ask("PATCH", path, mended, media=MERGE).status == 200
        assert checked(api, path, 2)["typeChecking"] == {}
    finally:
        api.ask("DELETE", path)


def checked(api: Api, path: str, generation: int) -> Any:
    deadline = time.monotonic() + 15
    while (status := api.get(path).get("status", {})).get("observedGeneration") != generation:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return status
