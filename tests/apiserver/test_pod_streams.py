"""Logs of pods on simulated nodes, and what is refused there; the Service `kubernetes`."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.running import Api

START = "2026-01-01T00:00:00Z"


def node(api: Api, name: str, **annotations: str) -> None:
    marked = {
        "wharfinger.dev/simulated": "true",
        **{f"wharfinger.dev/{key}": value for key, value in annotations.items()},
    }
    answer = api.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "annotations": marked}})
    assert answer.status in (201, 409), answer.data


@pytest.fixture
def pod(api: Api, base: str) -> str:
    """A running pod of two containers; one was restarted."""
    node(api, "simulated")
    spec = {"nodeName": "simulated", "containers": [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]}
    api.create(f"{base}/pods", {"metadata": {"name": "web"}, "spec": spec})
    ended = {"exitCode": 3, "reason": "Error", "startedAt": START, "finishedAt": "2026-01-01T00:01:00Z"}
    running = {"running": {"startedAt": "2026-01-01T00:02:00Z"}}
    statuses = [
        {"name": "main", "restartCount": 1, "ready": True, "state": running, "lastState": {"terminated": ended}},
        {"name": "side", "restartCount": 0, "ready": False, "state": {"terminated": ended}},
    ]
    for status in statuses:
        status.update(image="a", imageID="a")
    set_status(api, base, {"phase": "Running", "containerStatuses": statuses})
    return f"{base}/pods/web"


def set_status(api: Api, base: str, status: Any) -> None:
    answer = api.ask(
        "PATCH", f"{base}/pods/web/status", {"status": status}, media="application/strategic-merge-patch+json"
    )
    assert answer.status == 200, answer.data


def log(api: Api, path: str, query: str = "") -> list[str]:
    answer = api.ask("GET", f"{path}/log?{query}")
    assert answer.status == 200, answer.data
    assert answer.headers["content-type"] == "text/plain"
    return answer.data.decode().splitlines()


def test_a_log_has_the_states_of_the_container(api: Api, pod: str) -> None:
    assert log(api, pod, "container=main") == [
        "2026-01-01T00:02:00Z container main started (restart 1)",
        "2026-01-01T00:02:00Z container main ready",
    ]
    assert log(api, pod, "container=main&previous=true") == [
        "2026-01-01T00:00:00Z container main started",
        "2026-01-01T00:01:00Z container main finished with exit code 3 (Error)",
    ]
    created, assigned, *rest = log(api, pod, "container=side")
    assert created.endswith("/web created") and assigned.endswith("pod assigned to simulated node simulated")
    assert rest[-1] == "2026-01-01T00:01:00Z container side finished with exit code 3 (Error)"


def test_options_choose_lines(api: Api, pod: str) -> None:
    ready = "2026-01-01T00:02:00Z container main ready"
    assert log(api, pod, "container=main&tailLines=1") == [ready]
    assert log(api, pod, "container=main&tailLines=0") == []
    assert log(api, pod, "container=main&timestamps=true&tailLines=1") == [f"2026-01-01T00:02:00.000000000Z {ready}"]
    assert log(api, pod, "container=main&sinceSeconds=60") == []
    assert len(log(api, pod, "container=side&sinceTime=2026-01-01T00:00:30Z")) == 3
    assert log(api, pod, "container=main&limitBytes=20") == ["2026-01-01T00:02:00Z"[:20]]
    assert log(api, pod, "container=main&stream=Stderr") == []


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("", 400, "a container name must be specified for pod web, choose one of: [main side]"),
        ("container=other", 400, "container other is not valid for pod web"),
        ("container=side&previous=true", 400, 'previous terminated container "side" in pod "web" not found'),
        (
            "container=main&tailLines=-1",
            422,
            'PodLogOptions "web" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
        ),
        (
            "container=main&limitBytes=0",
            422,
            'PodLogOptions "web" is invalid: limitBytes: Invalid value: 0: must be greater than 0',
        ),
        (
            "container=main&sinceSeconds=0",
            422,
            'PodLogOptions "web" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0',
        ),
    ],
)
def test_bad_requests_get_the_words_of_kubernetes(api: Api, pod: str, query: str, code: int, message: str) -> None:
    answer = api.ask("GET", f"{pod}/log?{query}")
    assert (answer.status, answer.message) == (code, message)


def test_a_container_that_has_not_started_has_no_log(api: Api, base: str) -> None:
    node(api, "simulated")
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "a"}]}
    api.create(f"{base}/pods", {"metadata": {"name": "pending"}, "spec": spec})
    assert api.ask("GET", f"{base}/pods/pending/log").status == 204
    assert api.ask("GET", f"{base}/pods/none/log").message == 'pods "none" not found'
    answer = api.ask("POST", f"{base}/pods/pending/exec?command=ls")
    assert (answer.status, answer.message) == (400, "pod pending does not have a host assigned")
    api.create(f"{base}/pods", {"metadata": {"name": "bound"}, "spec": {**spec, "nodeName": "simulated"}})
    answer = api.ask("GET", f"{base}/pods/bound/log")
    assert answer.message == 'container "main" in pod "bound" is waiting to start: ContainerCreating'


def test_a_node_that_is_down_does_not_answer(api: Api, base: str) -> None:
    node(api, "broken", down="true")
    spec = {"nodeName": "broken", "containers": [{"name": "main", "image": "a"}]}
    api.create(f"{base}/pods", {"metadata": {"name": "web"}, "spec": spec})
    answer = api.ask("GET", f"{base}/pods/web/log")
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    assert "marked as down" in answer.message


def follow(api: Api, path: str) -> tuple[list[str], threading.Thread]:
    lines: list[str] = []

    def read() -> None:
        connection = api.connect(timeout=30)
        try:
            connection.request("GET", path, headers=api.head())
            response = connection.getresponse()
            for line in iter(response.readline, b""):
                lines.append(line.decode().strip())
        finally:
            connection.close()

    thread = threading.Thread(target=read)
    thread.start()
    return lines, thread


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_followed_log_ends_with_the_container(api: Api, base: str, pod: str) -> None:
    lines, thread = follow(api, f"{pod}/log?container=main&follow=true")
    until(lambda: len(lines) == 2)
    ended = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "2026-01-01T00:02:00Z",
        "finishedAt": "2026-01-01T00:03:00Z",
    }
    status = {"name": "main", "restartCount": 1, "ready": False, "state": {"terminated": ended, "running": None}}
    set_status(api, base, {"containerStatuses": [{**status, "image": "a", "imageID": "a"}]})
    thread.join(30)
    assert not thread.is_alive()
    assert lines[-1] == "2026-01-01T00:03:00Z container main finished with exit code 0 (Completed)"


@pytest.mark.parametrize("upgrade", ["SPDY/3.1", "websocket", ""])
@pytest.mark.parametrize(
    ("subresource", "words"),
    [
        ("exec?command=ls&container=main", "executing a command in"),
        ("attach?container=main", "attaching to"),
        ("portforward?ports=80", "forwarding ports to"),
    ],
)
def test_the_rest_is_refused_on_a_simulated_node(
    api: Api, pod: str, subresource: str, words: str, upgrade: str
) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": upgrade} if upgrade else {}
    answer = api.ask("GET" if upgrade == "websocket" else "POST", f"{pod}/{subresource}", headers=headers)
    name = "/".join(pod.split("/")[4:7:2])
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert answer.message == (
        f"{words} pod {name} is not possible: node simulated is simulated, so no container of the pod runs"
    )


def test_reading_does_not_allow_to_connect(api: Api, pod: str, base: str) -> None:
    """A WebSocket is opened with GET; it still needs the permission to create."""
    namespace = base.rpartition("/")[2]
    rules = [{"apiGroups": [""], "resources": ["pods/exec", "pods/log"], "verbs": ["get"]}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api.create(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subjects = [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}]
    api.create(f"{rbac}/rolebindings", {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": subjects})
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "reader"}})
    issued = api.create(f"{base}/serviceaccounts/reader/token", {"spec": {}})
    reader = Api(api.kubeconfig, issued["status"]["token"])
    assert reader.ask("GET", f"{pod}/log?container=main").status == 200
    answer = reader.ask("GET", f"{pod}/exec?command=ls&container=main")
    assert answer.status == 403
    assert 'cannot create resource "pods/exec"' in answer.message


def test_a_client_that_leaves_ends_the_stream(api: Api, pod: str) -> None:
    connection = api.connect()
    connection.request("GET", f"{pod}/log?container=main&follow=true", headers=api.head())
    response = connection.getresponse()
    assert isinstance(response, http.client.HTTPResponse)
    assert response.readline().endswith(b"started (restart 1)\n")
    connection.close()
    assert api.ask("GET", "/livez").status == 200


def test_the_service_kubernetes_is_kept(api: Api) -> None:
    base, name = "/api/v1/namespaces/default", "kubernetes"
    until(lambda: api.ask("GET", f"{base}/endpoints/{name}").status == 200)
    service = api.get(f"{base}/services/{name}")
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    port = int(api.server.rpartition(":")[2])
    [subset] = api.get(f"{base}/endpoints/{name}")["subsets"]
    assert subset["ports"] == [{"name": "https", "port": port, "protocol": "TCP"}]
    found = api.get(f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/{name}")
    assert found["endpoints"] == [{"addresses": [subset["addresses"][0]["ip"]], "conditions": {"ready": True}}]
    assert found["metadata"]["labels"] == {"kubernetes.io/service-name": "kubernetes"}
    assert api.ask("DELETE", f"{base}/services/{name}").status == 200
    until(lambda: api.ask("GET", f"{base}/services/{name}").status == 200)
