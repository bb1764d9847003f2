"""The exit status of every command, as the table in `docs/commands.md` says: 0 good, 1 the answer is no or the operation
failed, 2 the input cannot be used; `wharf plan` alone has 2 for changes and 1 for any error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.cli.test_command_line import KUBECONFIG, every_command

from wharfinger.cli.main import wharf

POD = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: CPU}}}]}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
SCENARIO = """
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- expect: [{kind: Pod, count: COUNT}]
"""
GROUP = """
apiVersion: wharfinger.dev/v1alpha1
kind: NodeGroup
metadata: {name: small}
spec: {template: {capacity: {cpu: "2", memory: 4Gi, pods: "10"}}}
"""
SCORES = """
apiVersion: wharfinger.dev/v1alpha1
kind: PrometheusScores
server: http://127.0.0.1:1
resourceName: r
scores: [{name: s, query: up, normalise: {worst: 1, best: 100}}]
"""
RESERVATION = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Reservation
metadata: {name: r}
spec:
  template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
  owners: [{labelSelector: {matchLabels: {app: web}}}]
  ttl: 1h
"""
PLACEMENT = """
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: all, namespace: hub}
spec: {}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: PlacementDecision
metadata:
  name: all-decision-1
  namespace: hub
  labels: {cluster.open-cluster-management.io/placement: all}
status: {decisions: [{clusterName: lisbon, reason: ""}]}
"""
POLICY = """
apiVersion: scheduling.sigs.x-k8s.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: p}
spec: {allowed: {nodeSelectors: {a: [b]}}}
"""
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
"""
UNITS = """
apiVersion: scheduling.sigs.x-k8s.io/v1alpha1
kind: ResourcePolicy
metadata: {name: units}
spec: {units: [{name: u, nodeSelector: {matchLabels: {pool: a}}}]}
"""

TRACE = """
apiVersion: wharfinger.dev/v1alpha1
kind: Trace
tables: {nodes: {files: nodes.csv}, work: {files: work.csv}}
"""
SWEEP = "{apiVersion: wharfinger.dev/v1alpha1, kind: Sweep, traces: [.]}"

FILES = {
    "trace.yaml": TRACE,
    "nodes.csv": "name,allocatable.cpu\na,4\n",
    "work.csv": "name,arrival,run_time,requests.cpu\nx,5,60,1\n",
    "sweep.yaml": SWEEP,
    "dead.conf": KUBECONFIG,
    "broken.yaml": "kind: [",
    "pod.yaml": POD.replace("CPU", "1"),
    "big.yaml": POD.replace("CPU", "9"),
    "node.yaml": NODE,
    "scenario.yaml": SCENARIO.replace("COUNT", "0"),
    "failing.yaml": SCENARIO.replace("COUNT", "1"),
    "group.yaml": GROUP,
    "scores.yaml": SCORES,
    "workload.yaml": WORKLOAD,
    "units.yaml": UNITS,
    "reservation.yaml": RESERVATION,
    "placement.yaml": PLACEMENT,
    "policy.yaml": POLICY,
}

# What a command needs besides the options that are tried.
NEEDED = {
    "explain pod": "a/b",
    "explain placement": "a/b",
    "explain reservation": "a",
    "explain admission": "-f {pod.yaml}",
    "explain policy": "a/b",
    "explain workload": "deployment a/b",
    "ask": "-f {pod.yaml}",
    "repack": "--free-nodes 1",
    "record": "-o {new}",
    "replay": "{.}",
    "sweep": "{sweep.yaml}",
    "policy check": "-f {pod.yaml}",
    "policy who-can": "-f {pod.yaml}",
    "policy suggest": "-n a",
    "policy effective": "-n a",
    "rollout": "a/b",
    "reserve": "deployment/web",
    "migrate": "pod a/b",
    "snapshot": "-o {new.json}",
    "plan": "--drain n1",
    "install": "--components all",
    "capacity": "--node-group {group.yaml}",
    "score capacity": "--template {pod.yaml}",
    "score agent": "--cluster-name c --hub-kubeconfig {dead.conf} --once",
    "score prometheus": "-f {scores.yaml} --once",
    "score set": "c r n=1",
    "test": "{scenario.yaml}",
    "device-agent": "--node n",
    "simulate": "-f {pod.yaml}",
}
# These wait for their cluster, or for a signal.
WAITING = {
    "bench live",
    "controllers",
    "device-agent",
    "nodes",
    "placement",
    "scheduler",
    "score prometheus",
    "test",
    "webhook",
}


def command_of(name: str) -> click.Command:
    found: click.Command = wharf
    for word in name.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), word)
        assert inner is not None
        found = inner
    return found


COMMANDS = [
    name
    for names in every_command(wharf)
    if not isinstance(command_of(name := " ".join(names)), click.Group) or name == "bench"
]


def with_option(option: str) -> list[str]:
    return [name for name in COMMANDS if any(option in parameter.opts for parameter in command_of(name).params)]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Result]:
    """Runs a command line in which `{name}` is one of the FILES."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> Result:
        words = [word.replace("{", f"{tmp_path}/").replace("}", "") for word in line.split()]
        result = CliRunner().invoke(wharf, words)
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), (line, result.exception)
        return result

    return run


def line_of(name: str, more: str) -> str:
    return f"{name} {NEEDED.get(name, '')} {more}"


def for_bad_input(name: str) -> int:
    return 1 if name == "plan" else 2


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option(name: str, ask: Callable[[str], Result]) -> None:
    assert ask(f"{name} --nonsense").exit_code == for_bad_input(name)


@pytest.mark.parametrize("name", with_option("--kubeconfig"))
def test_a_missing_kubeconfig(name: str, ask: Callable[[str], Result]) -> None:
    result = ask(line_of(name, "--kubeconfig {nowhere.conf}"))
    assert (result.exit_code, "nowhere.conf: no such file" in result.output) == (for_bad_input(name), True)


@pytest.mark.parametrize("name", [name for name in with_option("--kubeconfig") if name not in WAITING])
def test_a_server_that_does_not_answer(name: str, ask: Callable[[str], Result]) -> None:
    result = ask(line_of(name, "--kubeconfig {dead.conf}"))
    assert (result.exit_code, "cannot connect to https://127.0.0.1:1" in result.output) == (1, True)


@pytest.mark.parametrize("name", with_option("--config"))
@pytest.mark.parametrize("file", ["nowhere.yaml", "broken.yaml"])
def test_a_configuration_that_cannot_be_read(name: str, file: str, ask: Callable[[str], Result]) -> None:
    more = "--kubeconfig {dead.conf} " if name in ("test", "install") else ""
    result = ask(line_of(name, f"{more}--config {{{file}}}"))
    assert (result.exit_code, file in result.output) == (for_bad_input(name), True), result.output


@pytest.mark.parametrize("name", with_option("--filename"))
@pytest.mark.parametrize("file", ["nowhere.yaml", "broken.yaml"])
def test_a_file_that_cannot_be_read(name: str, file: str, ask: Callable[[str], Result]) -> None:
    result = ask(line_of(name, f"-f {{{file}}}"))
    assert (result.exit_code, file in result.output) == (for_bad_input(name), True), result.output


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("simulate -f {node.yaml} -f {big.yaml}", 0),  # a pod that waits is an outcome, not a failure
        ("simulate -f {node.yaml} -f {failing.yaml}", 1),
        ("simulate -f {node.yaml} --for never", 2),
        ("simulate -f {node.yaml} --for 1h --until-idle", 2),
        ("test {scenario.yaml}", 0),
        ("test {failing.yaml}", 1),
        ("test {broken.yaml}", 2),
        ("test {failing.yaml} {broken.yaml}", 2),
        ("test {nowhere.yaml}", 2),
        ("plan", 1),
        ("plan --drain n1 --cluster {node.yaml} --fail-on nonsense", 1),
        ("plan --drain n2 --cluster {node.yaml}", 1),
        ("plan -f {node.yaml} --cluster {node.yaml}", 0),
        ("plan -f {pod.yaml} --cluster {node.yaml}", 2),
        ("plan -f {failing.yaml} --cluster {node.yaml}", 1),
        ("explain pod a -f {node.yaml} -f {pod.yaml}", 0),
        ("explain pod b -f {node.yaml} -f {pod.yaml}", 2),
        ("capacity -f {big.yaml} --node-group {group.yaml}", 1),
        ("capacity -f {big.yaml} --node-group {nowhere.yaml}", 2),
        ("capacity -f {big.yaml} --node-group {broken.yaml}", 2),
        ("capacity -f {node.yaml} --node-group {group.yaml}", 0),
        ("classes -f {node.yaml}", 0),
        ("classes gold -f {node.yaml}", 1),
        ("score capacity --template {pod.yaml} -f {node.yaml}", 0),
        ("score capacity --template {big.yaml} -f {node.yaml}", 1),
        ("score capacity --template {nowhere.yaml} -f {node.yaml}", 2),
        ("status --data-dir {nothing}", 1),
        ("node-token --data-dir {nothing}", 1),
        ("snapshot -o {nothing/new.json}", 2),
        ("snapshot -o {new.txt}", 2),
        ("crds", 0),
        ("crds things", 2),
        ("version", 0),
        ("nonsense", 2),
    ],
)
def test_answers(line: str, status: int, ask: Callable[[str], Result]) -> None:
    result = ask(line)
    assert result.exit_code == status, result.output
