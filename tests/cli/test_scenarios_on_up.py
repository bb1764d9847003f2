"""Three ways to run, one code: a few scenarios of each system, played on a running `wharf up` by `wharf test`. All of them
are played in simulation by tests/scenarios, there by `make test-scenarios-embedded`, and on a real cluster by
tests/kubernetes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.apiserver.running import ROOT, environment

WHARF = [sys.executable, "-m", "wharfinger.cli.main"]
FILES = [
    "basics/deployment-on-two-nodes.yaml",
    "placement/spread-and-groups.yaml",
    "reservation/25-order.yaml",
    "resource-class/split-request.yaml",
    "resource-policy/01-limit-then-next-unit.yaml",
    "scheduling-policy/architectures.yaml",
]


def test_scenarios_hold_on_a_running_control_plane(tmp_path: Path) -> None:
    data, out = tmp_path / "d", tmp_path / "out"
    with out.open("w") as file:
        command = [*WHARF, "up", "--data-dir", str(data), "--port", "0", "--no-dashboard", "--nodes", "0"]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(), start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while "Ctrl-C stops everything" not in out.read_text():
            assert process.poll() is None and time.monotonic() < deadline, out.read_text()
            time.sleep(0.1)
        files = [str(ROOT / "scenarios" / name) for name in FILES]
        played = subprocess.run(
            [*WHARF, "test", *files, "-v", "--kubeconfig", str(data / "kubeconfig"), "--patience", "120"],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert played.returncode == 0, played.stdout + played.stderr
        assert played.stdout.splitlines()[-1] == f"{len(FILES)} passed, 0 failed"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
