"""What a run that was killed leaves behind is removed by the next one; what others have stays."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.real_node.leftovers import CGROUPS, NETWORK, cgroup_of, remove_leftovers, started_at
from tests.real_node.machine import lacking
from tests.support import missing


class Pod:
    """The network of a pod as the CNI library leaves it: a namespace, two interfaces, a route, and notes."""

    def __init__(self, connected: Path, cgroup: str, address: str) -> None:
        self.identity = uuid.uuid4().hex
        self.interface = f"wt{self.identity[:8]}"
        self.address = address
        self.namespace = f"wharfinger-{self.identity[:8]}"
        self.path = Path("/run/netns", self.namespace)
        ip("netns", "add", self.namespace)
        ip("link", "add", self.interface, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        ip("link", "set", self.interface, "up")
        ip("route", "add", f"{address}/32", "dev", self.interface)
        mac = Path("/sys/class/net", self.interface, "address").read_text().strip()
        interfaces = [{"name": self.interface, "mac": mac}, {"name": "eth0", "mac": "", "sandbox": str(self.path)}]
        configuration = {"name": NETWORK, "plugins": [{"type": "ptp", "ipam": {"dataDir": "/nowhere/addresses"}}]}
        self.notes = connected / f"{NETWORK}-{self.identity}-eth0"
        self.write(
            networkName=NETWORK,
            netns=str(self.path),
            config=base64.b64encode(json.dumps(configuration).encode()).decode(),
            capabilityArgs={"cgroupPath": f"/{cgroup}/kubepods/pod{self.identity}"},
            result={"interfaces": interfaces},
        )

    def write(self, **notes: Any) -> None:
        self.notes.write_text(json.dumps(notes))

    @property
    def exists(self) -> bool:
        there = [Path("/sys/class/net", self.interface).exists(), self.path.exists(), self.notes.exists()]
        there.append(self.interface in ip("route", "show", f"{self.address}/32"))
        assert len(set(there)) == 1, there
        return there[0]

    def clean(self) -> None:
        subprocess.run(["ip", "link", "delete", self.interface], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False, capture_output=True)


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True)
def able() -> None:
    if why := lacking():
        missing("containerd", why)


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def pods() -> Iterator[list[Pod]]:
    made: list[Pod] = []
    yield made
    for pod in made:
        pod.clean()


def test_interfaces_of_a_killed_run_go_and_those_of_others_stay(tmp_path: Path, gone: int, pods: list[Pod]) -> None:
    cgroups = (cgroup_of(gone), cgroup_of(os.getpid()), "kubelet", f"other-wharfinger-test-{gone}")
    for number, cgroup in enumerate(cgroups, 1):
        pods.append(Pod(tmp_path, cgroup, f"10.87.255.{number}"))
    (tmp_path / "unreadable").write_text("{")
    remove_leftovers(tmp_path)
    assert [pod.exists for pod in pods] == [False, True, True, True]


def test_another_process_may_have_the_number_of_the_killed_run(tmp_path: Path, pods: list[Pod]) -> None:
    pods += [Pod(tmp_path, cgroup_of(os.getpid()), f"10.87.255.{number}") for number in (1, 2)]
    before = started_at(os.getpid()) or 0
    os.utime(pods[0].notes, (before - 60, before - 60))
    remove_leftovers(tmp_path)
    assert [pod.exists for pod in pods] == [False, True]


def test_an_interface_that_got_the_name_of_an_old_one_stays(tmp_path: Path, gone: int, pods: list[Pod]) -> None:
    pods += [Pod(tmp_path, cgroup_of(gone), "10.87.255.1"), Pod(tmp_path, "kubelet", "10.87.255.2")]
    notes = json.loads(pods[0].notes.read_text())
    notes["result"]["interfaces"][0]["name"] = pods[1].interface
    pods[0].write(**notes)
    remove_leftovers(tmp_path)
    assert not pods[0].notes.exists()
    assert pods[1].exists


def test_containers_of_a_killed_run_end_and_their_cgroups_go(tmp_path: Path, gone: int) -> None:
    hierarchy = CGROUPS if (CGROUPS / "cgroup.controllers").exists() else CGROUPS / "pids"
    cgroups = [hierarchy / cgroup_of(process) / "kubepods" for process in (gone, os.getpid())]
    containers = [subprocess.Popen(["sleep", "1000"]) for _ in cgroups]
    try:
        for cgroup, container in zip(cgroups, containers, strict=True):
            cgroup.mkdir(parents=True)
            (cgroup / "cgroup.procs").write_text(str(container.pid))
        remove_leftovers(tmp_path)
        assert containers[0].wait(10) < 0 and containers[1].poll() is None
        assert not cgroups[0].parent.exists() and cgroups[1].exists()
    finally:
        for container in containers:
            container.kill()
            container.wait()
        for cgroup in reversed(cgroups):
            for folder in (cgroup, cgroup.parent):
                if folder.exists():
                    folder.rmdir()
