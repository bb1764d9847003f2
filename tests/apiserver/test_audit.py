"""The audit log: policies, events as kube-apiserver writes them, annotations of reviewers, and rotation."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.apiserver.running import Api, serving
from tests.apiserver.test_access import until

from wharfinger.admission.request import User
from wharfinger.apiserver.audit.log import AuditLog, AuditLogSettings
from wharfinger.apiserver.audit.policy import AuditLevel, BadPolicyFile, default_policy, read_policy
from wharfinger.apiserver.request_info import RequestInfo
from wharfinger.cli.commands.apiserver import command

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
BOB = User("bob", ("devs", "system:authenticated"))


def pods(verb: str = "get", **fields: str) -> RequestInfo:
    return RequestInfo(verb, **{"group": "", "version": "v1", "plural": "pods", **fields})


RULES: list[tuple[str, str, RequestInfo | None, str, bool]] = [
    ("users: [bob]", "get", pods(), "", True),
    ("users: [eve]", "get", pods(), "", False),
    ("userGroups: [devs]", "get", pods(), "", True),
    ("userGroups: [ops]", "get", pods(), "", False),
    ("verbs: [list, get]", "get", pods(), "", True),
    ("verbs: ['*']", "get", pods(), "", False),
    ("namespaces: [a]", "get", pods(namespace="a"), "", True),
    ("namespaces: [a]", "get", pods(namespace="b"), "", False),
    ("namespaces: ['']", "get", pods(plural="nodes"), "", True),
    ("namespaces: [a]", "get", None, "/version", False),
    ("resources: [{group: ''}]", "get", pods(), "", True),
    ("resources: [{group: apps}]", "get", pods(), "", False),
    ("resources: [{group: '*'}]", "get", pods(group="apps"), "", True),
    ("resources: [{group: '', resources: [pods]}]", "get", pods(), "", True),
    ("resources: [{group: '', resources: [pods]}]", "get", pods(subresource="log"), "", False),
    ("resources: [{group: '', resources: [pods/log]}]", "get", pods(subresource="log"), "", True),
    ("resources: [{group: '', resources: [pods/*]}]", "get", pods(subresource="log"), "", True),
    ("resources: [{group: '', resources: [pods/*]}]", "get", pods(), "", True),
    ("resources: [{group: '', resources: ['*/log']}]", "get", pods(subresource="log"), "", True),
    ("resources: [{group: '', resources: ['*/log']}]", "get", pods(), "", False),
    ("resources: [{group: '', resources: ['*']}]", "get", pods(subresource="log"), "", True),
    ("resources: [{group: '', resources: [pods], resourceNames: [x]}]", "get", pods(name="x"), "", True),
    ("resources: [{group: '', resources: [pods], resourceNames: [x]}]", "get", pods(name="y"), "", False),
    ("resources: [{group: ''}]", "get", None, "/version", False),
    ("nonResourceURLs: [/version]", "get", None, "/version", True),
    ("nonResourceURLs: [/healthz*]", "get", None, "/healthz/ping", True),
    ("nonResourceURLs: [/healthz]", "get", None, "/healthz/ping", False),
    ("nonResourceURLs: ['*']", "get", None, "/x", True),
    ("nonResourceURLs: ['*']", "get", pods(), "", False),
]


@pytest.mark.parametrize(("rule", "verb", "info", "path", "matches"), RULES, ids=[rule[0] for rule in RULES])
def test_a_rule_matches(rule: str, verb: str, info: RequestInfo | None, path: str, matches: bool) -> None:
    policy = read_policy(f"{HEAD}rules:\n- level: Request\n  {rule}\n", "p")
    expected = AuditLevel.REQUEST if matches else AuditLevel.NONE
    assert policy.decide(BOB, verb, info, path).level == expected
    assert policy.decide(BOB, verb, info, path).level == expected  # from the cache
    needs_user = rule.startswith("user")
    without = AuditLevel.NONE if needs_user else expected
    assert policy.decide(None, verb, info, path).level == without


def test_the_first_rule_decides_and_options_are_inherited() -> None:
    policy = read_policy(
        f"{HEAD}omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n"
        "- {level: None, verbs: [watch]}\n"
        "- {level: RequestResponse, verbs: [create], omitStages: [Panic], omitManagedFields: false}\n"
        "- {level: Metadata}\n",
        "p",
    )
    assert policy.decide(BOB, "watch", pods("watch"), "").level == AuditLevel.NONE
    created = policy.decide(BOB, "create", pods("create"), "")
    assert (created.level, created.omit_managed_fields) == (AuditLevel.REQUEST_RESPONSE, False)
    assert created.omitted == {"RequestReceived", "Panic"}
    rest = policy.decide(BOB, "get", pods(), "")
    assert (rest.level, rest.omit_managed_fields, rest.omitted) == (AuditLevel.METADATA, True, {"RequestReceived"})


def test_the_default_policy_leaves_out_what_components_read() -> None:
    policy = default_policy(["system:kube-scheduler"])
    scheduler = User("system:kube-scheduler")
    assert policy.decide(scheduler, "watch", pods("watch"), "").level == AuditLevel.NONE
    assert policy.decide(scheduler, "create", pods("create", subresource="binding"), "").level == AuditLevel.METADATA
    lease = pods("update", group="coordination.k8s.io", plural="leases")
    assert policy.decide(scheduler, "update", lease, "").level == AuditLevel.NONE
    assert policy.decide(BOB, "get", pods(), "").level == AuditLevel.METADATA
    assert policy.decide(None, "get", None, "/livez").level == AuditLevel.NONE


BAD = [
    (f"{HEAD}rules: []\n", "p:3: rules: Required value: a policy without rules records nothing"),
    (f"{HEAD}rules:\n- users: [a]\n", "p:4: rules[0].level: Required value"),
    (
        f"{HEAD}rules:\n- level: Metadata\n- level: Everything\n",
        'p:5: rules[1].level: Unsupported value: "Everything": supported values: "None", "Metadata", "Request", "RequestResponse"',
    ),
    (
        f"{HEAD}rules:\n- level: Metadata\n  user: [a]\n",
        "p:5: rules[0].user: Object contains unknown field `user`",
    ),
    (
        f"{HEAD}rules:\n- level: Metadata\n  resources:\n  - groups: ['']\n",
        "p:6: rules[0].resources[0].groups: Object contains unknown field `groups`",
    ),
    (f"{HEAD}rules:\n- level: Metadata\n  users: bob\n", "p:5: rules[0].users: Expected `array`, got `str`"),
    (
        f"{HEAD}rules:\n- level: Metadata\n  nonResourceURLs: [healthz]\n",
        "p:5: rules[0].nonResourceURLs[0]: Invalid value: \"healthz\": non-resource URL rules must begin with a '/' character",
    ),
    (
        f"{HEAD}rules:\n- level: Metadata\n  nonResourceURLs: [/a*b]\n",
        "p:5: rules[0].nonResourceURLs[0]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final character of the rule",
    ),
    (
        f"{HEAD}rules:\n- level: Metadata\n  nonResourceURLs: [/a]\n  namespaces: [b]\n",
        'p:5: rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs',
    ),
    (
        f"{HEAD}omitStages: [Never]\nrules:\n- level: Metadata\n",
        'p:3: omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic',
    ),
    (
        f"{HEAD}rules:\n- level: Metadata\n  resources: [{{group: '', resourceNames: [a]}}]\n",
        'p:5: rules[0].resources[0].resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource',
    ),
    (f"{HEAD}rules:\n- level: Metadata\n  level: None\n", 'p:5: rules[0].level: key "level" already set in map'),
    ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n", "p: want apiVersion audit.k8s.io/v1 and kind Policy"),
    ("- a\n", "p: an audit policy is a mapping with apiVersion, kind and rules"),
    ("a: [\n", "p:2: "),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message[:60] for _, message in BAD])
def test_a_bad_policy_is_refused_with_line_and_field(text: str, message: str) -> None:
    with pytest.raises(BadPolicyFile) as refused:
        read_policy(text, "p")
    assert str(refused.value).startswith(message)


def test_a_bad_policy_file_ends_the_command(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{HEAD}rules:\n- level: All\n")
    result = CliRunner().invoke(command, ["--data-dir", str(tmp_path), "--audit-policy-file", str(file)])
    assert result.exit_code == 2
    assert f"{file}:4: rules[0].level: Unsupported value" in result.output
    file.write_text(f"{HEAD}rules:\n- level: None\n")
    result = CliRunner().invoke(command, ["--data-dir", str(tmp_path), "--audit-policy-file", str(file)])
    assert (result.exit_code, "--audit-policy-file needs --audit-log-path" in result.output) == (2, True)


# Files


def written(folder: Path, settings: AuditLogSettings, events: list[bytes]) -> list[Path]:
    async def main() -> None:
        log: AuditLog[bytes] = AuditLog(settings, lambda event: event)
        log.start()
        for event in events:
            log.add(event)
        await log.stop()
        assert (log.dropped, log.failed) == (0, 0)

    asyncio.run(main())
    return sorted(folder.iterdir())


def test_the_log_is_rotated_by_size_and_old_files_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    line = b"x" * 399_999 + b"\n"
    files = written(tmp_path, AuditLogSettings(str(path), max_size=1), [line] * 11)
    assert len(files) == 6  # two lines in each
    assert path.read_bytes() == line
    assert all(re.fullmatch(r"audit(-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3,6})?\.log", file.name) for file in files)
    assert sum(file.stat().st_size for file in files) == 11 * len(line)
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o600"}
    files = written(tmp_path, AuditLogSettings(str(path), max_size=1, max_backups=2), [line] * 2)
    assert len(files) == 3
    for file in files:
        if file != path:
            os.utime(file, (time.time() - 3 * 86_400,) * 2)
    files = written(tmp_path, AuditLogSettings(str(path), max_size=1, max_age=2), [line])
    assert files == [path]


def test_an_event_larger_than_the_limit_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    large = b"x" * 2_000_000 + b"\n"
    files = written(tmp_path, AuditLogSettings(str(path), max_size=1), [b"a\n", large, b"b\n"])
    assert [file.stat().st_size for file in files if file != path] == [2, len(large)]
    assert path.read_bytes() == b"b\n"


def test_a_failing_disk_is_counted_and_does_not_stop_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        log: AuditLog[bytes] = AuditLog(AuditLogSettings(str(tmp_path / "audit.log")), lambda event: event[5])  # type: ignore[arg-type,return-value]
        log.start()
        log.add(b"")
        await log.stop()
        assert log.failed == 1

    asyncio.run(main())


# A running server

POLICY = f"""{HEAD}omitManagedFields: true
rules:
- {{level: None, nonResourceURLs: ["/livez*"]}}
- {{level: RequestResponse, resources: [{{group: "", resources: [configmaps]}}]}}
- {{level: Request, resources: [{{group: "", resources: [secrets]}}]}}
- {{level: Metadata, omitStages: [RequestReceived]}}
"""


class Audited:
    def __init__(self, api: Api, log: Path) -> None:
        self.api = api
        self.log = log

    def events(self, answer: Any, stages: int = 2) -> list[dict[str, Any]]:
        """The events of a request, once there are that many."""
        wanted = answer.headers["audit-id"]

        def find() -> list[dict[str, Any]]:
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            return [event for line in lines if (event := json.loads(line))["auditID"] == wanted]

        assert until(lambda: len(find()) >= stages)
        return find()


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("audit")
    (folder / "policy.yaml").write_text(POLICY)
    log = folder / "logs" / "audit.log"
    options = ("--audit-policy-file", str(folder / "policy.yaml"), "--audit-log-path", str(log))
    with serving(folder / "data", *options) as api:
        yield Audited(api, log)


ADMIN = {"username": "system:admin", "groups": ["system:masters", "system:authenticated"]}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_a_write_at_level_request_response(audited: Audited) -> None:
    body = json.dumps({"metadata": {"name": "c"}, "data": {"a": "1"}}, indent=2).encode()
    path = "/api/v1/namespaces/default/configmaps?fieldManager=me"
    answer = audited.api.ask("POST", path, body, {"User-Agent": "curl/8", "Audit-ID": "given-by-the-client"})
    assert (answer.status, answer.headers["audit-id"]) == (201, "given-by-the-client")
    received, complete = audited.events(answer)
    for event in (received, complete):
        assert TIME.fullmatch(event.pop("requestReceivedTimestamp"))
        assert TIME.fullmatch(event.pop("stageTimestamp"))
    reference = {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}
    common = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "given-by-the-client",
        "requestURI": path,
        "verb": "create",
        "user": ADMIN,
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "curl/8",
    }
    assert received == {**common, "stage": "RequestReceived", "objectRef": reference}
    response = answer.json
    assert response["metadata"].pop("managedFields")
    assert complete == {
        **common,
        "stage": "ResponseComplete",
        "objectRef": {**reference, "name": "c"},
        "responseStatus": {"metadata": {}, "code": 201},
        "requestObject": {"metadata": {"name": "c"}, "data": {"a": "1"}},
        "responseObject": response,
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    }


def test_patches_deletions_and_failures(audited: Audited) -> None:
    base = "/api/v1/namespaces/default"
    audited.api.create(f"{base}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "x"}})
    patch = {"metadata": {"labels": {"a": "b"}}}
    answer = audited.api.ask("PATCH", f"{base}/secrets/s", patch, media="application/merge-patch+json")
    event = audited.events(answer)[-1]
    assert (event["level"], event["verb"], event["requestObject"]) == ("Request", "patch", patch)
    assert "responseObject" not in event
    applied = b"apiVersion: v1\nkind: Secret\nmetadata: {name: s, labels: {c: d}}\n"
    path = f"{base}/secrets/s?fieldManager=m"
    answer = audited.api.ask("PATCH", path, applied, media="application/apply-patch+yaml")
    assert audited.events(answer)[-1]["requestObject"]["metadata"] == {"name": "s", "labels": {"c": "d"}}
    answer = audited.api.ask("DELETE", f"{base}/secrets/s")
    event = audited.events(answer)[-1]
    details = {"name": "s", "kind": "secrets", "uid": answer.json["details"]["uid"]}
    assert event["responseStatus"] == {"metadata": {}, "status": "Success", "details": details, "code": 200}
    answer = audited.api.ask("GET", f"{base}/secrets/s")
    event = audited.events(answer)[-1]
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": 'secrets "s" not found',
        "reason": "NotFound",
        "details": {"name": "s", "kind": "secrets"},
        "code": 404,
    }


def test_refusals_by_authentication_and_authorization(audited: Audited) -> None:
    answer = Api(audited.api.kubeconfig, "wrong").ask("GET", "/api/v1/namespaces/default/pods")
    (event,) = audited.events(answer, 1)
    assert (event["stage"], event["user"], event["responseStatus"]["code"]) == ("ResponseStarted", {}, 401)
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "devs"}
    answer = audited.api.ask("GET", "/api/v1/namespaces/default/pods", headers=headers)
    (event,) = audited.events(answer, 1)
    assert event["level"] == "Metadata"
    assert event["user"] == ADMIN
    assert event["impersonatedUser"] == {"username": "bob", "groups": ["devs", "system:authenticated"]}
    assert event["annotations"] == {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
    assert event["responseStatus"]["message"].startswith('pods is forbidden: User "bob" cannot list')


def test_the_grant_is_named(audited: Audited) -> None:
    headers = {"Impersonate-User": "bob"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    (event,) = audited.events(audited.api.ask("POST", path, body, headers), 1)
    reason = event["annotations"]["authorization.k8s.io/reason"]
    assert reason.startswith('RBAC: allowed by ClusterRoleBinding "system:basic-user"')


def test_a_watch_has_an_event_when_it_starts(audited: Audited) -> None:
    path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1"
    answer = audited.api.ask("GET", path)
    events = audited.events(answer, 3)
    assert [event["stage"] for event in events] == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    assert [event.get("responseStatus") for event in events[1:]] == [{"metadata": {}, "code": 200}] * 2
    assert all(event["verb"] == "watch" for event in events)


def test_requests_at_level_none_are_not_recorded(audited: Audited) -> None:
    answer = audited.api.ask("GET", "/livez")
    assert (answer.status, "audit-id" in answer.headers) == (200, False)


POLICIES = "/apis/admissionregistration.k8s.io/v1"


def test_annotations_of_validating_policies_are_recorded(audited: Audited) -> None:
    api = audited.api
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["serviceaccounts"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'odd'", "message": "odd name"}],
        "auditAnnotations": [{"key": "who", "valueExpression": "'by ' + request.userInfo.username"}],
    }
    api.create(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": "names"}, "spec": spec})
    binding = {"policyName": "names", "validationActions": ["Audit"]}
    api.create(f"{POLICIES}/validatingadmissionpolicybindings", {"metadata": {"name": "b"}, "spec": binding})

    def asked() -> Any:
        return api.ask("POST", "/api/v1/namespaces/default/serviceaccounts?dryRun=All", {"metadata": {"name": "odd"}})

    annotations = audited.events(asked(), 1)[0]["annotations"]
    assert annotations["names/who"] == "by system:admin"
    failure = {
        "message": "odd name",
        "policy": "names",
        "binding": "b",
        "expressionIndex": 0,
        "validationActions": ["Audit"],
    }
    assert json.loads(annotations["validation.policy.admission.k8s.io/validation_failure"]) == [failure]


@pytest.mark.needs_system("scheduling_policy")
def test_annotations_of_reviewers_are_recorded(tmp_path: Path) -> None:
    """SchedulingPolicy in mode audit changes nothing and reports in the audit log only."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: wharfinger.dev/v1alpha1\nkind: WharfingerConfiguration\nschedulingPolicy: {mode: audit}\n"
    )
    log = tmp_path / "audit.log"
    with serving(tmp_path / "data", "--config", str(config), "--audit-log-path", str(log)) as api:
        path = "/api/v1/namespaces/default"
        api.create(f"{path}/serviceaccounts", {"metadata": {"name": "default"}})
        body = {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"a": "b"}, "priority": 0},
        }
        answer = api.ask("POST", f"{path}/pods?dryRun=All", body)
        assert answer.status == 201, answer.data
        (event,) = Audited(api, log).events(answer, 1)
        assert any("scheduling" in key and "authorization" not in key for key in event["annotations"]), event
