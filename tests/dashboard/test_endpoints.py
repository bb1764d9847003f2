"""The endpoints: what they answer about the sample, and to whom."""

from __future__ import annotations

import http.client
import json

import pytest
import yaml
from tests.dashboard.conftest import Caller, Up, until
from tests.support import wharf_here as wharf

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: sample}\nspec:\n  containers: [{name: c, image: pause%s}]\n"


@pytest.fixture(scope="module")
def admin(up: Up) -> Caller:
    return up.open()


# -- who may call


def test_a_link_works_once_and_the_next_one_is_written(up: Up) -> None:
    link = up.link()
    caller = up.open()
    assert caller.get("/api/session")["user"] == "system:admin"
    assert up.link() != link
    again = Caller(up.address).ask(link.removeprefix(up.address))
    assert (again.status, again.headers["location"]) == (303, "/login?used")
    assert "set-cookie" not in again.headers


def test_a_session_ends_when_one_logs_out(up: Up) -> None:
    caller = up.open()
    assert caller.ask("/logout", {}).status == 204
    assert caller.ask("/api/session").status == 401


@pytest.mark.parametrize(
    "path", ["/api/session", "/api/overview", "/api/nodes", "/api/changes", "/api/explain/sample/web"]
)
def test_nothing_is_told_without_credentials(up: Up, path: str) -> None:
    assert Caller(up.address).ask(path).status == 401
    assert Caller(up.address, cookie="made-up").ask(path).status == 401
    assert Caller(up.address, token="made-up").ask(path).status == 401


def test_writes_need_our_own_header_and_origin(admin: Caller) -> None:
    def status(**headers: str) -> int:
        connection = http.client.HTTPConnection(admin.address.removeprefix("http://"))
        try:
            sent = {"cookie": f"wharf-session={admin.cookie}", "content-type": "application/json"}
            connection.request("POST", "/api/check", "{}", sent | {k.replace("_", "-"): v for k, v in headers.items()})
            return connection.getresponse().status
        finally:
            connection.close()

    assert status() == 403
    assert status(x_wharf_request="1", sec_fetch_site="cross-site") == 403
    assert status(x_wharf_request="1", host="evil.example") == 403  # a name that was made to point here
    assert status(x_wharf_request="1") == 200


def test_every_response_forbids_foreign_content(up: Up, admin: Caller) -> None:
    for path in ("/", "/api/session", "/api/none", "/login", "/healthz"):
        headers = admin.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"


def test_a_user_of_one_namespace_sees_nothing_of_another(up: Up) -> None:
    stranger = up.caller("elsewhere", "view")
    own = {"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    up.api.ask("POST", "/api/v1/namespaces/elsewhere/pods", own)
    until(lambda: stranger.get("/api/pods")["pods"], "its own pod is known")
    for path in ("overview", "waiting", "pods", "nodes", "promises", "units", "fleet", "policy", "objects?kind=pods"):
        told = json.dumps(stranger.get(f"/api/{path}"))
        assert "sample" not in told, path
    assert [pod["name"] for pod in stranger.get("/api/pods")["pods"]] == ["mine"]
    for path in ("explain/sample/report", "objects/pod/report?namespace=sample", "nodes/node-1"):
        assert stranger.ask(f"/api/{path}").status == 404, path
    for path, body in (
        ("explain/elsewhere/mine", None),
        ("timeline", None),
        ("waiting/starts", None),
        ("plan", {"drains": ["node-1"]}),
    ):
        refused = stranger.ask(f"/api/{path}", body)
        assert (refused.status == 403 and "may not list" in refused.json["message"]) or "right" in refused.json[
            "message"
        ], path
    applied = stranger.ask("/api/apply", {"yaml": POD % ("intruder", ""), "dryRun": False}).json
    assert not applied["ok"] and "forbidden" in applied["results"][0]["message"]
    assert stranger.ask("/api/objects/pod/report?namespace=sample", method="DELETE").status == 403


# -- what is told


def node_of(admin: Caller, reservation: str) -> str:
    found = admin.get("/api/promises")["reservations"]
    return next(str(row["node"]) for row in found if row["name"] == reservation)


def test_the_overview_groups_waiting_pods_by_cause(admin: Caller) -> None:
    found = admin.get("/api/overview")
    causes = {each["because"]: each for each in found["causes"]}
    assert {each["verdict"] for each in causes.values()} == {"never", "waiting"}
    selector = next(each for because, each in causes.items() if "node affinity" in because)
    assert selector["pods"] == [{"namespace": "sample", "name": "report"}]
    assert next(each for because, each in causes.items() if "Insufficient cpu" in because)["count"] == 1
    assert {row["kind"] for row in found["promises"]} == {"Reservation", "Unit", "Quota"}
    assert any(row["name"].endswith(": static") and row["used"] == 100 for row in found["promises"])
    assert any("this toleration is not allowed" in event["message"] for event in found["events"])
    assert any(event["message"].startswith("Preempted by pod sample/inference on") for event in found["events"])
    assert next(row["text"] for row in found["promises"] if row["name"] == "sample/team: requests.cpu") == "21.6 of 32"
    (device,) = (each for because, each in causes.items() if "sample-large-memory" in because)
    assert device["because"].count("Insufficient") == 1, "what several nodes lack is told once"


def test_a_pod_is_explained_on_every_node(admin: Caller) -> None:
    report = admin.get("/api/explain/sample/report")
    assert report["choice"] is None and report["nodeCount"] == 3
    assert [(each["plugin"], each["count"], each["final"]) for each in report["refused"]] == [("NodeAffinity", 3, True)]
    assert report["spec"]["nodeSelector"] == {"disk": "ssd"}
    held = node_of(admin, "sample-checkout")
    other = next(name for name in ("node-1", "node-2") if name != held)
    checkout = admin.get(f"/api/explain/sample/checkout?compare={held},{other}")
    assert checkout["choice"] == held and "it would use reservation sample-checkout" in checkout["notes"]
    assert "node(s) no reservations match reservation affinity" in str(checkout["compared"][other])
    assert checkout["compared"][held]["scores"]["Reservation"] > 0
    web = next(each["name"] for each in admin.get("/api/pods?search=sample/web-")["pods"])
    compared = admin.get(f"/api/explain/sample/{web}?compare=node-1,node-3")["compared"]
    assert compared["node-1"]["scores"].keys() == compared["node-3"]["scores"].keys() > {"NodeResourcesFit"}
    assert admin.get("/api/explain/sample/checkout")["choice"] == held, "the question changed nothing"


def test_an_explanation_of_what_is_not_there(admin: Caller) -> None:
    assert admin.ask("/api/explain/sample/none").status == 404
    assert admin.ask("/api/nodes/none").status == 404
    assert admin.ask("/api/nothing").status == 404


def test_screens_of_the_systems(admin: Caller) -> None:
    promises = {row["name"]: row for row in admin.get("/api/promises")["reservations"]}
    assert promises["sample-checkout"]["owners"] == ["sample/checkout"]
    assert promises["sample-nightly"]["usedPercent"] == 0 and promises["sample-nightly"]["end"] > 0
    policy = admin.get("/api/units")["policies"][0]
    assert [(unit["name"], unit["full"]) for unit in policy["units"]] == [("static", True), ("spot", False)]
    fleet = admin.get("/api/fleet")
    assert len(fleet["clusters"]) == 3
    assert sorted(fleet["placements"][0]["selected"]) == ["sample-lisbon", "sample-oslo"]
    subjects = admin.get("/api/policy")["subjects"]
    group = {"subject": "group system:serviceaccounts:sample", "namespace": "sample"}
    assert any(group.items() <= row.items() and "sample-spot" in row["policies"] for row in subjects)


def test_nodes_are_told_in_columns(admin: Caller) -> None:
    found = admin.get("/api/nodes")
    assert found["names"] == ["node-1", "node-2", "node-3"]
    assert all(len(found[name]) == 3 for name in ("ready", "cpu", "memory", "reserved", "devices", "unit", "pods"))
    assert found["labels"]["topology.kubernetes.io/zone"]["values"] == ["zone-a", "zone-b", "zone-c"]
    node = admin.get(f"/api/nodes/{node_of(admin, 'sample-checkout')}")
    assert {"sample/checkout"} <= {f"{pod['namespace']}/{pod['name']}" for pod in node["pods"]}
    assert sum(group["count"] for group in admin.get("/api/nodes/node-2")["devices"]) == 3


def test_an_unchanged_answer_is_not_sent_again(admin: Caller) -> None:
    first = admin.ask("/api/fleet")
    assert admin.ask("/api/fleet", if_none_match=first.headers["etag"]).status == 304


def test_changes_are_told_as_they_happen(up: Up, admin: Caller) -> None:
    connection = http.client.HTTPConnection(admin.address.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", "/api/changes", headers={"cookie": f"wharf-session={admin.cookie}"})
        stream = connection.getresponse()
        assert stream.getheader("content-type", "").startswith("text/event-stream")
        up.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "told"}})
        until(lambda: b'"namespaces"' in stream.readline(), "the new namespace is told", 30)
    finally:
        connection.close()


# -- what if


def test_a_plan_tells_what_a_change_would_do_and_changes_nothing(admin: Caller) -> None:
    plan = admin.ask("/api/plan", {"nodes": [{"like": "node-1", "count": 1}]}).json
    started = [each for each in plan["changes"] if each["change"] == "scheduled"]
    assert [each["name"].startswith("batch-") for each in started] == [True]
    assert len(admin.get("/api/nodes")["names"]) == 3
    label = "apiVersion: v1\nkind: Node\nmetadata: {name: node-3, labels: {disk: ssd}}\n"
    plan = admin.ask("/api/plan", {"yaml": label}).json
    assert [(each["name"], each["after"]["node"]) for each in plan["changes"] if each["kind"] == "Pod"] == [
        ("report", "node-3")
    ]
    drained = admin.ask("/api/plan", {"drains": ["node-2"]}).json
    assert drained["numbers"]["gone"] >= 2


def test_what_would_help_is_tried_and_can_be_tried_again(admin: Caller) -> None:
    found = admin.get("/api/remedies/sample/report")["remedies"]
    label = next(each for each in found if each["kind"] == "label")
    assert "disk" in label["text"] and label["node"].startswith("node-")
    plan = admin.ask("/api/plan", label["change"]).json
    assert [each["after"]["node"] for each in plan["changes"] if each["name"] == "report"] == [label["node"]]
    assert admin.get("/api/remedies/sample/checkout")["remedies"] == []
    assert admin.ask("/api/remedies/sample/none").status == 404


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ({"yaml": POD % ("tiny", ", resources: {requests: {cpu: 1m, memory: 1Mi}}")}, "now"),
        ({"yaml": POD % ("huge", ", resources: {requests: {cpu: 900, memory: 1Mi}}")}, "never"),
    ],
)
def test_asking_answers_before_anything_is_created(admin: Caller, asked: dict[str, object], verdict: str) -> None:
    answer = admin.ask("/api/ask", asked).json
    assert answer["verdict"] == verdict and answer["because"]
    assert len(admin.get("/api/waiting")["pods"]) == 3


def test_the_start_of_waiting_pods_is_told(admin: Caller) -> None:
    found = admin.get("/api/waiting/starts")["pods"]
    assert {each["name"] for each in found} == {each["name"] for each in admin.get("/api/waiting")["pods"]}
    assert all(each["verdict"] == "never" and each["because"] for each in found)  # nothing there has a known end


def test_a_policy_is_suggested_for_what_runs_in_a_namespace(up: Up, admin: Caller) -> None:
    text = admin.get("/api/policy/suggestion?namespace=sample")["yaml"]
    assert [each["kind"] for each in yaml.safe_load_all(text)] == ["SchedulingPolicy", "ClusterRole", "RoleBinding"]
    made = wharf("policy", "suggest", "-n", "sample", "--kubeconfig", str(up.directory / "kubeconfig")).stdout
    assert list(yaml.safe_load_all(made)) == list(yaml.safe_load_all(text))
    assert admin.ask("/api/policy/suggestion?namespace=nowhere").status == 404


@pytest.mark.parametrize("asked", [{}, {"yaml": "kind: ["}, {"objects": [{"kind": "Nothing"}]}, {"objects": 3}])
def test_a_question_that_cannot_be_answered_is_refused(admin: Caller, asked: dict[str, object]) -> None:
    assert admin.ask("/api/ask", asked).status == 400


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "say what changes"),
        ({"drains": ["none"]}, "none"),
        ({"deletions": ["pod/none/none"]}, "not found"),
        ({"deletions": ["nothing/x"]}, "no kind is called"),
        ({"nodes": [{"like": "none"}]}, "no node none"),
        ({"scale": [{"kind": "deployment", "name": "none", "replicas": 1}]}, "no Deployment default/none"),
        ({"yaml": "kind: [}"}, "line 1"),
        ({"yaml": 3}, "cannot be used"),
    ],
)
def test_a_change_that_cannot_be_tried_is_refused(admin: Caller, change: dict[str, object], said: str) -> None:
    refused = admin.ask("/api/plan", change)
    assert refused.status == 400 and said in refused.json["message"]


def test_faults_have_lines_and_fields_are_completed(admin: Caller) -> None:
    faults = admin.ask("/api/check", {"yaml": (POD % ("x", "")).replace("spec:", "spec:\n  replica: 1")}).json["faults"]
    assert [(each["line"], "unknown field" in each["message"]) for each in faults] == [(5, True)]
    assert admin.ask("/api/check", {"yaml": POD % ("x", "")}).json == {"faults": [], "objects": 1}
    fields = admin.get("/api/fields?apiVersion=apps/v1&kind=Deployment&path=spec.template.spec.containers")["fields"]
    assert {"name", "image", "resources"} <= {each["name"] for each in fields}
    assert "apps/v1 Deployment" in admin.get("/api/fields")["kinds"]


def test_apply_is_a_dry_run_unless_told_otherwise(up: Up, admin: Caller) -> None:
    wanted = POD % ("applied", ", resources: {requests: {cpu: 1m, memory: 1Mi}}")
    pods = "/api/v1/namespaces/sample/pods/applied"
    assert admin.ask("/api/apply", {"yaml": wanted}).json["ok"]
    assert up.api.ask("GET", pods).status == 404
    assert admin.ask("/api/apply", {"yaml": wanted, "dryRun": False}).json["ok"]
    assert up.api.ask("GET", pods).status == 200
    assert admin.ask("/api/objects/pod/applied?namespace=sample", method="DELETE").status == 200


def test_a_scenario_is_played_in_virtual_time(admin: Caller) -> None:
    node = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}}"
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 3}}}]}}"
    scenario = (
        "apiVersion: wharfinger.dev/v1alpha1\nkind: Scenario\nmetadata: {name: s}\nsteps:\n"
        f"- apply: [{node}]\n- at: 30s\n  apply: [{pod}]\n- expect: [{{kind: Pod, name: p, fields: {{spec.nodeName: n1}}}}]\n"
    )
    played = admin.ask("/api/play", {"yaml": scenario, "alone": True, "seconds": 5}).json
    assert [each["ok"] for each in played["expectations"]] == [True]
    assert played["frames"][0]["running"] == 0 and played["frames"][-1]["fill"] == {"n1": 75}


def test_the_time_line_has_samples_and_events(admin: Caller) -> None:
    found = admin.get("/api/timeline")
    assert len(found["time"]) == len(found["waiting"]) == len(found["cpu"]) > 1
    assert found["time"] == sorted(found["time"]) and found["events"]


def test_the_endpoints_are_described(admin: Caller) -> None:
    described = admin.get("/api/openapi.json")
    assert described["openapi"] == "3.1.0"
    for path in ("/api/explain/{namespace}/{name}", "/api/plan", "/api/waiting", "/api/apply"):
        assert path in described["paths"]
    ids = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))
