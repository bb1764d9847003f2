"""Ctrl-C: real processes that are interrupted in the middle of their work exit with 130, or stop in order, and never
print a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.test_command_line import KUBECONFIG

# A simulation that would go on for hours: a pod ends every minute of virtual time and is made anew.
BUSY = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "400", memory: 800Gi, pods: "1000"}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: endless}
spec:
  completions: 1000000
  parallelism: 50
  template:
    metadata: {annotations: {wharfinger.dev/run-for: 60s}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"""
SCENARIO = """
---
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
steps:
- expect: [{kind: Node, count: 1}]
"""


@contextmanager
def wharf(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "wharfinger.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def interrupted(process: subprocess.Popen[str], *, group: bool) -> tuple[int, str]:
    """Sends SIGINT to the process, or to its group as a terminal does; returns the exit status and all output."""
    if group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output + errors


def wait_until(check: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_simulating(process: subprocess.Popen[str], *, children: int = 0) -> Callable[[], bool]:
    """Whether the process, or so many child processes, have used more time than it takes to start."""

    def seconds(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def check() -> bool:
        if not children:
            return seconds(process.pid) > 1.5
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return len(found) >= children and all(seconds(int(pid)) > 0.5 for pid in found[:children])

    return check


@pytest.mark.parametrize("command", ["simulate -f {busy}", "plan --drain n1 --cluster {busy}", "test {scenario} -j 1"])
def test_a_simulation_ends_at_once(tmp_path: Path, command: str) -> None:
    (tmp_path / "busy.yaml").write_text(BUSY)
    (tmp_path / "scenario.yaml").write_text(BUSY + SCENARIO)
    line = command.format(busy=tmp_path / "busy.yaml", scenario=tmp_path / "scenario.yaml")
    with wharf(*line.split()) as process:
        wait_until(is_simulating(process), process)
        assert interrupted(process, group=True) == (130, "\n")


@pytest.mark.parametrize("group", [False, True])
def test_the_workers_of_wharf_test_end_with_it(tmp_path: Path, group: bool) -> None:
    for number in range(2):
        (tmp_path / f"{number}.yaml").write_text(BUSY + SCENARIO)
    with wharf("test", str(tmp_path), "-j", "2") as process:
        wait_until(is_simulating(process, children=2), process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert interrupted(process, group=group) == (130, "\n")
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []


def test_a_snapshot_leaves_no_file(tmp_path: Path) -> None:
    """The server accepts the connection and never answers."""
    silent = socket.create_server(("127.0.0.1", 0))
    asked = threading.Event()

    def accept() -> None:
        connection, _ = silent.accept()
        connection.recv(1)
        asked.set()
        connection.recv(1 << 16)
        connection.close()

    threading.Thread(target=accept, daemon=True).start()
    config = KUBECONFIG.replace("https://127.0.0.1:1", f"http://127.0.0.1:{silent.getsockname()[1]}")
    (tmp_path / "config").write_text(config)
    with wharf("snapshot", "-o", str(tmp_path / "s.json"), "--kubeconfig", str(tmp_path / "config")) as process:
        wait_until(asked.is_set, process)
        assert interrupted(process, group=False) == (130, "\n")
    silent.close()
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


@pytest.mark.parametrize("early", [True, False])
def test_up_stops_what_it_started(tmp_path: Path, early: bool) -> None:
    with wharf("up", "--data-dir", str(tmp_path / "d"), "--port", "0", "--nodes", "0") as process:
        assert process.stdout is not None
        if early:
            wait_until((tmp_path / "d" / "logs").exists, process)
        else:
            assert any("Ctrl-C stops everything" in line for line in process.stdout)
        status, output = interrupted(process, group=True)
    assert status == (130 if early else 0)
    assert "Traceback" not in output and "Error" not in output, output
