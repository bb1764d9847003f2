"""All scenarios on a running `wharf up`, each with the configuration that it needs: `make test-scenarios-embedded`.

    python -m tests.scenarios.embedded [PATH...]

Prints a line for each scenario, and why some cannot be played. It ends with 1 if one fails. Those that need the same
configuration share a control plane.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from wharfinger.api.configuration import API_VERSION, KIND, Configuration, settings_by_key
from wharfinger.api.kinds import registry
from wharfinger.cli.run_state import read_run
from wharfinger.cli.scenario_runs import collect
from wharfinger.scenario.running.rules import why_not
from wharfinger.simulate.inputs import read_inputs

ROOT = Path(__file__).resolve().parents[2]
WHARF = [sys.executable, "-m", "wharfinger.cli.main"]
START = 120.0  # seconds for a control plane to start, or a component to come back
PATIENCE = "60"  # seconds for an expectation
UNPLAYABLE = {
    "scheduling-policy/restored-at-start.yaml": "here the API server restores what is shipped, when it starts itself",
}
"""Scenarios that `wharf test` would play, and why they mean something else here."""


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--restart"]:
        return restart(Path(arguments[1]), arguments[2])
    groups: dict[str, list[Path]] = {}
    for file in collect(arguments or [str(ROOT / "scenarios")]):
        inputs = read_inputs([(str(file), file.read_bytes())], registry())
        known = UNPLAYABLE.get("/".join(file.parts[-2:]), "")
        reasons = [known or why_not(scenario, restarts=True, webhook=True) for scenario, _ in inputs.scenarios]
        if all(reasons):
            print(f"SKIP {file}: {reasons[0]}", flush=True)
            continue
        document = as_document(inputs.configuration)
        document["nodes"]["startupSeconds"] = 0.2
        groups.setdefault(json.dumps(document, sort_keys=True), []).append(file)
    failed = sum(play(json.loads(text), files) for text, files in groups.items())
    print(f"{failed} of {len(groups)} configurations with failures", flush=True)
    return 1 if failed else 0


def as_document(configuration: Configuration) -> dict[str, Any]:
    """The configuration document, with every block in full."""
    blocks = {key: msgspec.to_builtins(configuration.of(block)) for key, block in settings_by_key().items()}
    nodes = msgspec.to_builtins(configuration.nodes)
    return {"apiVersion": API_VERSION, "kind": KIND, "scheduler": configuration.scheduler, "nodes": nodes, **blocks}


def play(configuration: dict[str, Any], files: list[Path]) -> bool:
    """Plays the files on a control plane of their own. True if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(configuration))
        with control_plane(Path(folder) / "data", config) as data:
            command = [*WHARF, "test", *map(str, files), "-v", "--kubeconfig", str(data / "kubeconfig")]
            command += ["--config", str(config), "--patience", PATIENCE, "--webhook", f"127.0.0.1:{free_port()}"]
            command += ["--restart", f"{sys.executable} -m tests.scenarios.embedded --restart {data}"]
            return subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode != 0


@contextmanager
def control_plane(data: Path, config: Path) -> Iterator[Path]:
    command = [
        *WHARF,
        "up",
        "--data-dir",
        str(data),
        "--port",
        "0",
        "--no-dashboard",
        "--nodes",
        "0",
        "--config",
        str(config),
    ]
    log = data.parent / "up.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment(), start_new_session=True)
    try:
        deadline = time.monotonic() + START
        while "Ctrl-C stops everything" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"`wharf up` did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield data
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def restart(data: Path, component: str) -> int:
    """Kills a component and returns when the supervisor has started it again."""
    before = pid_of(data, component)
    if not before:
        print(f"there is no {component} in {data}", file=sys.stderr)
        return 1
    os.kill(before, signal.SIGKILL)
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        if pid_of(data, component) not in (0, before):
            return 0
        time.sleep(0.1)
    return 1


def pid_of(data: Path, component: str) -> int:
    """The process of a running component; 0 if it does not run."""
    state = read_run(data)
    for each in state.components if state is not None else ():
        if each.name == component and each.state == "running":
            return each.pid
    return 0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
