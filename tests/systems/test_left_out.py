"""The product works without each of the systems: disabled, and with its code gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.apiserver.running import ROOT, environment
from tests.support import require

from wharfinger.api.kinds.builtin import DEPLOYMENTS, PODS
from wharfinger.client.connect import connect
from wharfinger.system import DISABLED, ENABLED, GROUP, System

WHARF = [sys.executable, "-m", "wharfinger.cli.main"]
SCENARIO = ROOT / "scenarios" / "basics" / "deployment-on-two-nodes.yaml"
SYSTEMS: dict[str, System] = {
    point.name: point.load() for point in entry_points(group=GROUP) if point.value.startswith("wharfinger.systems.")
}
CORE_TESTS = (
    "api/test_columns.py",
    "api/schema",
    "engine",
    "plugins",
    "scheduler/test_live.py",
    "scheduler/test_state.py",
    "store/test_create.py",
    "store/test_pods.py",
)
# Python runs this module at the start of every process: importing the system fails, as if its folder were deleted.
GONE = """
import sys

class Gone:
    def find_spec(self, module, path=None, target=None):
        if f"{module}.".startswith("wharfinger.systems.NAME."):
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)

sys.meta_path.insert(0, Gone())
"""


@pytest.fixture(scope="module", params=sorted(SYSTEMS))
def system(request: pytest.FixtureRequest) -> System:
    return SYSTEMS[request.param]


@pytest.fixture(scope="module")
def without(system: System, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that do not have the system."""
    folder = tmp_path_factory.mktemp("gone")
    (folder / "sitecustomize.py").write_text(GONE.replace("NAME", system.name))
    env = environment()
    paths = [str(folder), *filter(None, [env.get("PYTHONPATH", "")])]
    return env | {DISABLED: system.name, "PYTHONPATH": os.pathsep.join(paths)}


def wharf(env: dict[str, str], *arguments: str) -> str:
    ran = subprocess.run([*WHARF, *arguments], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_cluster_is_simulated(without: dict[str, str]) -> None:
    assert wharf(without, "simulate", "-f", str(SCENARIO)).endswith("All 3 expectations hold.\n")


def test_its_kinds_commands_and_component_are_gone(system: System, without: dict[str, str]) -> None:
    others = [each for each in SYSTEMS.values() if each is not system]
    names = {crd["metadata"]["name"] for crd in yaml.safe_load_all(wharf(without, "crds"))}
    assert names == {f"{kind.plural}.{kind.group}" for other in others for kind in other.kinds()}
    shown = {line.split()[0] for line in wharf(without, "--help").splitlines() if line.startswith("  ")}
    assert shown.isdisjoint(system.commands())
    assert shown.issuperset(name for other in others for name in other.commands())
    component = system.installation().component
    assert component is not None
    installed = list(yaml.safe_load_all(wharf(without, "install", "--offline", "--components", "all")))
    kinds = {
        (each["spec"]["group"], each["spec"]["names"]["plural"])
        for each in installed
        if each["kind"] == "CustomResourceDefinition"
    }
    assert kinds and kinds.isdisjoint(component.kinds)


@pytest.fixture(scope="module")
def running(without: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a `wharf up`."""
    folder = tmp_path_factory.mktemp("up")
    data, out = folder / "data", folder / "out"
    with out.open("w") as file:
        command = [*WHARF, "up", "--data-dir", str(data), "--port", "0", "--no-dashboard", "--nodes", "2"]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=without, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while "Ctrl-C stops everything" not in out.read_text():
            assert process.poll() is None and time.monotonic() < deadline, out.read_text()
            time.sleep(0.1)
        yield data / "kubeconfig"
        assert "ended" not in out.read_text()  # no component had to be started again
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def test_pods_of_a_deployment_run_on_a_control_plane(running: Path) -> None:
    async def body() -> None:
        client = connect(str(running))
        try:
            await client.create(DEPLOYMENTS, deployment("web"), "default")
            async with asyncio.timeout(90):
                while True:
                    pods = (await client.list(PODS, "default", label_selector="app=web")).items
                    if [pod["status"].get("phase") for pod in pods] == ["Running", "Running"]:
                        return
                    await asyncio.sleep(0.2)
        finally:
            await client.close()

    asyncio.run(body())


def test_kubectl_works(running: Path) -> None:
    kubectl = [require("kubectl"), "--kubeconfig", str(running)]
    document = json.dumps(deployment("shop"))
    subprocess.run([*kubectl, "apply", "-f", "-"], input=document, text=True, check=True, capture_output=True)
    subprocess.run([*kubectl, "rollout", "status", "deployment/shop", "--timeout=90s"], check=True, capture_output=True)
    pods = subprocess.run([*kubectl, "get", "pods", "-l", "app=shop"], check=True, capture_output=True, text=True)
    assert pods.stdout.count(" Running ") == 2


def test_the_tests_of_the_core_pass(system: System) -> None:
    """Some of them; `make test-without-systems` runs all. Tests may import a system that is disabled."""
    command = [sys.executable, "-m", "pytest", "-q", *(f"tests/{each}" for each in CORE_TESTS)]
    env = environment() | {DISABLED: system.name}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]


@pytest.mark.parametrize("variable", [DISABLED, ENABLED])
def test_an_unknown_system_is_an_error(variable: str) -> None:
    done = subprocess.run(
        [*WHARF, "version"], capture_output=True, text=True, env={**os.environ, variable: "nonsense"}, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {variable}: there is no system nonsense; installed are placement,")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({ENABLED: ""}, []),
        ({ENABLED: "placement, reservation"}, ["placement", "reservation"]),
        ({ENABLED: "placement,reservation", DISABLED: "placement"}, ["reservation"]),
    ],
)
def test_only_named_systems_are_used_and_settings_of_others_ignored(given: dict[str, str], used: list[str]) -> None:
    script = (
        "from wharfinger.api.configuration import load_configuration\n"
        "from wharfinger.system import systems\n"
        "assert not load_configuration({'schedulingPolicy': {'mode': 'enforce'}}).blocks\n"
        "print(*(system.name for system in systems()))\n"
    )
    env = {**os.environ, **given}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == used
