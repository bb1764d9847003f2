"""A system of another package, the shipped example: found by its entry point, it takes part everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest
import yaml
from tests.apiserver.running import ROOT, environment

from wharfinger.system import DISABLED, GROUP

EXAMPLE = ROOT / "examples" / "system"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment after `pip install ./examples/system`, as far as Python sees it."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = folder / "wharfinger_racks-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    entries = [f"{name} = {value}" for name, value in project["entry-points"][GROUP].items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *entries, ""]))
    env = environment()
    return env | {"PYTHONPATH": os.pathsep.join([str(folder), str(EXAMPLE), env["PYTHONPATH"]])}


def wharf(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wharfinger.cli.main", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_kind_plugin_reviewer_and_controller_work_together(installed: dict[str, str]) -> None:
    played = wharf(installed, "test", str(EXAMPLE / "scenario.yaml"))
    assert played.returncode == 0, played.stdout + played.stderr
    assert "1 passed, 0 failed" in played.stdout
    report = wharf(installed, "simulate", "-f", str(EXAMPLE / "scenario.yaml")).stdout
    assert "Racks\nRACK   CLOSED   NODES\na1     false    1\na2     false    0\n" in report


def test_command_and_definition(installed: dict[str, str]) -> None:
    listed = wharf(installed, "racks", "-f", str(EXAMPLE / "racks.yaml"))
    assert listed.stdout == "RACK   CLOSED   NODES\na1     true     0\na2     false    0\n", listed.stderr
    (definition,) = yaml.safe_load_all(wharf(installed, "crds", "racks").stdout)
    assert definition["metadata"]["name"] == "racks.example.com"


def test_it_can_be_left_out(installed: dict[str, str]) -> None:
    without = installed | {DISABLED: "racks"}
    assert wharf(without, "racks").returncode == 2
    assert "racks.example.com" not in wharf(without, "crds").stdout


def test_the_scheduler_of_an_embedded_server_may_read_racks(installed: dict[str, str]) -> None:
    code = (
        "from wharfinger.apiserver.default_roles import cluster_roles\n"
        "(role,) = [each for each in cluster_roles() if each['metadata']['name'] == 'system:wharfinger:scheduler']\n"
        "assert {'apiGroups': ['example.com'], 'resources': ['racks'], 'verbs': ['get', 'list', 'watch']} in role['rules']\n"
    )
    subprocess.run([sys.executable, "-c", code], env=installed, check=True)
