"""What a simulation reads: odd files are named by their place, odd but good ones are read."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wharfinger.api.kinds import registry
from wharfinger.simulate.inputs import BadInput, Inputs, files_of, read_inputs
from wharfinger.simulate.simulation import SimulationOptions, simulate

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: c, image: i}\n"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"""
WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n"


def read(content: str | bytes) -> Inputs:
    return read_inputs([("f", content)], registry())


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(POD.replace("\n", "\r\n").encode(), id="line ends of Windows"),
        pytest.param(b"\xef\xbb\xbf" + POD.encode(), id="byte order mark"),
        pytest.param("# nothing\n---\n# here\n---\n" + POD, id="empty documents around it"),
        pytest.param("%YAML 1.1\n---\n" + POD, id="directive"),
    ],
)
def test_good_files_are_read(content: str | bytes) -> None:
    (manifest,) = read(content).manifests
    assert manifest.document["spec"]["containers"] == [{"name": "c", "image": "i"}]


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        pytest.param("[" * 5000, ["f, document 1, line 1: nested deeper than 200 levels"], id="depth"),
        pytest.param(
            POD.replace("image: i", "image: é").encode("cp1252"),
            ["f, document 1, line 6: not UTF-8 text: invalid continuation byte at byte 86"],
            id="bytes of Windows-1252",
        ),
        pytest.param(
            '{"apiVersion": "v1", "kind": "Pod",\n"metadata": {"name": "a",\n"name": "b"}}',
            ['f, document 1, line 3: metadata.name: key "name" already set in map'],
            id="key twice in JSON",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: [1]\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: 7\n",
            [
                "f, document 1, line 3: metadata: an object is wanted, not [1]",
                "f, document 2, line 8: metadata.name: a string is wanted, not 7",
            ],
            id="metadata of the wrong type",
        ),
        pytest.param(
            f"{WIDGET.replace('example.com/', '')}---\nkind: Pod\n",
            [
                'f, document 1, line 2: kind: no kind "Widget" in version "v1" is known here',
                "f, document 2, line 5: apiVersion: Required value",
            ],
            id="in the order of the documents",
        ),
        pytest.param(
            DEFINITION + "---\n" + WIDGET.replace("/v1", "/v2"),
            [
                'f, document 2, line 16: kind: no kind "Widget" in version "example.com/v2" is known here; '
                "Widget is served as example.com/v1"
            ],
            id="version that no definition serves",
        ),
    ],
)
def test_bad_files_are_named_by_their_place(content: str | bytes, problems: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        read(content)
    assert caught.value.problems == problems


def test_pipes_are_read_and_what_is_missing_is_told(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, POD.encode())
    os.close(writing)
    with os.fdopen(reading, "rb"):
        assert files_of([f"/dev/fd/{reading}"], io.BytesIO()) == [(f"/dev/fd/{reading}", POD.encode())]
    with pytest.raises(BadInput) as caught:
        files_of([str(tmp_path), "/no/such"], io.BytesIO())
    assert caught.value.problems == [
        f"{tmp_path}: no YAML or JSON file in this folder",
        "/no/such: no such file or folder",
    ]


def simulated(text: str) -> dict[str, Any]:
    report = simulate(read(text), SimulationOptions())
    assert isinstance(report, dict)
    return report


def test_objects_of_kinds_that_the_files_define_are_simulated_too() -> None:
    report = simulated(f"{DEFINITION}---\n{WIDGET}")
    assert [each["metadata"]["name"] for each in report["objects"] if each["kind"] == "Widget"] == ["w"]


def test_invalid_objects_of_kinds_that_the_files_define_are_named_by_their_place() -> None:
    with pytest.raises(BadInput) as caught:
        simulated(f"{DEFINITION}---\n{WIDGET}---\n{WIDGET.replace('name: w', 'name: bad').replace('3', 'big')}")
    (problem,) = caught.value.problems
    assert problem.startswith("f, document 3, line 23: spec.size: Invalid value")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            POD.replace("containers", "contianers"),
            "f, document 1, line 5: spec.contianers: unknown field; did you mean containers?",
        ),
        (
            f"{DEFINITION}---\n{WIDGET.replace('size', 'sise')}",
            "f, document 2, line 18: spec.sise: unknown field; did you mean size?",
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  spec:\n    replica: 5\n",
            "f, document 1, line 7: spec.replica: unknown field; did you mean replicas?",
        ),
        (
            "apiVersion: wharfinger.dev/v1alpha1\nkind: Scenario\nsteps:\n- apply:\n  - apiVersion: v1\n    kind: Pod\n"
            "    spec: {node: n}\n",
            "f, document 1, line 7: steps[0].apply[0].spec.node: unknown field; did you mean nodeName?",
        ),
        (
            "apiVersion: wharfinger.dev/v1alpha1\nkind: Scenario\nsteps:\n"
            "- patch: {kind: Node, name: n, merge: {spec: {unschedulabel: true}}}\n",
            "f, document 1, line 4: steps[0].patch.merge.spec.unschedulabel: unknown field; did you mean unschedulable?",
        ),
    ],
)
def test_misspelt_fields_are_named_by_their_place(content: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(content)
    assert caught.value.problems == [problem]


def test_what_is_not_known_here_is_skipped_with_one_line_each_unless_strict() -> None:
    pod = POD.replace("{name: a}", "{name: a, uid: u-1}") + "  newField: {a: 1}\n"
    again = pod.replace("a, uid: u-1", "b, uid: u-2")
    content = f"{pod}---\n{again}---\n{WIDGET}---\n{WIDGET}"
    inputs = read(content)
    assert inputs.notes[:2] == [
        'f, document 3, line 18: kind: no kind "Widget" in version "example.com/v1" is known here; 2 objects are skipped',
        "f, document 1, line 7: spec.newField: unknown field of this kind; it is left out",
    ]
    assert [manifest.name for manifest in inputs.manifests] == ["a", "b"]
    assert all("newField" not in manifest.document["spec"] for manifest in inputs.manifests)
    with pytest.raises(BadInput) as caught:
        read_inputs([("f", content)], registry(), strict=True)
    assert [problem.partition(": ")[2] for problem in caught.value.problems] == [
        "spec.newField: unknown field",
        'kind: no kind "Widget" in version "example.com/v1" is known here',
        'kind: no kind "Widget" in version "example.com/v1" is known here',
    ]


def test_running_pods_of_a_snapshot_stay_as_they_are() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "managedFields": [{"manager": "kubelet"}]}}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:03Z"}
    status = {
        "phase": "Running",
        "startTime": "2026-05-01T00:00:01Z",
        "podIP": "10.1.2.3",
        "conditions": [ready],
        "containerStatuses": [
            {
                "name": "c",
                "image": "registry/i",
                "imageID": "registry/i@sha256:1",
                "containerID": "containerd://1",
                "ready": True,
                "restartCount": 4,
                "state": {"running": {"startedAt": "2026-05-01T00:00:02Z"}},
            }
        ],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-05-01T00:00:00Z"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": status,
    }
    report = simulated(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [node, pod]}).decode())
    (kept,) = [each for each in report["objects"] if each["kind"] == "Pod"]
    assert {name: kept["status"][name] for name in status} == status
    assert (report["time"], report["rejections"]) == ("2026-05-01T00:00:03Z", [])


def test_what_keeps_pods_and_faults_from_happening_is_told() -> None:
    spec = "containers: [{name: c, image: i}]"
    report = simulated(
        f"""
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- fault: {{node: nope, down: true}}
- apply:
  - {{apiVersion: v1, kind: Pod, metadata: {{name: gated}}, spec: {{schedulingGates: [{{name: a/b}}], {spec}}}}}
  - {{apiVersion: v1, kind: Pod, metadata: {{name: foreign}}, spec: {{schedulerName: other, {spec}}}}}
  - {{apiVersion: v1, kind: Pod, metadata: {{name: plain}}, spec: {{{spec}}}}}
  expect: [{{kind: Pod, fields: {{status.phase: Running}}}}]
"""
    )
    pods, fault = report["expectations"]
    assert pods["explanation"].splitlines() == [
        "default/foreign waits for the scheduler other, which does not run here",
        "default/gated is held back by SchedulingGates: waiting for scheduling gates: [a/b]",
        "default/plain waits: there are no nodes",
    ]
    assert (fault["step"], fault["problems"]) == (
        "steps[0]",
        ['the fault cannot be brought about: nodes "nope" not found'],
    )
    assert {each["name"]: each["message"] for each in report["unscheduled"]} == {
        "foreign": "waits for the scheduler other, which does not run here",
        "gated": "Scheduling is blocked due to non-empty scheduling gates",
        "plain": "no nodes available to schedule pods",
    }


@pytest.mark.needs_system("reservation")
def test_every_fault_of_a_configuration_is_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        read(
            "apiVersion: wharfinger.dev/v1alpha1\nkind: WharfingerConfiguration\n"
            "nodes: {count: -1, speed: 3}\nreservation: {chargeQuota: perhaps}\nscheduler: {profilez: []}\n"
        )
    assert [problem.partition(": ")[2] for problem in caught.value.problems] == [
        "nodes.count: Expected `int` >= 0",
        "nodes.speed: unknown field; known here: count, leaseSeconds, startupSeconds",
        "reservation.chargeQuota: Expected `bool`, got `str`",
        "scheduler.profilez: unknown field",
    ]


def test_scenarios_may_define_kinds_and_expect_objects_of_them() -> None:
    widget, definition = (msgspec.json.encode(msgspec.yaml.decode(text)).decode() for text in (WIDGET, DEFINITION))
    report = simulated(
        f"""
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- apply: [{definition}, {widget}]
  expect:
  - {{kind: Widget, apiVersion: example.com/v1, name: w, fields: {{spec.size: 3}}}}
"""
    )
    assert [each["ok"] for each in report["expectations"]] == [True]


def test_manifests_are_let_go_as_they_are_applied_only_where_they_are_not_needed_again() -> None:
    inputs = read(f"{DEFINITION}---\n{WIDGET}")
    first = simulate(inputs, SimulationOptions())
    again = simulate(inputs, SimulationOptions(once=True))
    assert first == again
    assert [each["metadata"]["name"] for each in again["objects"] if each["kind"] == "Widget"] == ["w"]
    assert inputs.manifests == []
