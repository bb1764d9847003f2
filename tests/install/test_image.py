"""The Dockerfile agrees with the tree it copies from and with the Deployments that run the image."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path

from wharfinger.api.kinds import registry
from wharfinger.install.components import chosen
from wharfinger.install.manifests import InstallOptions, manifests

ROOT = Path(__file__).resolve().parents[2]
STEPS = [
    (word, rest)
    for word, _, rest in (
        line.partition(" ")
        for line in re.sub(r"\\\n", "", (ROOT / "Dockerfile").read_text()).splitlines()
        if line and not line.startswith("#")
    )
]


def the(word: str) -> str:
    """What the last instruction of that word says."""
    return [rest for each, rest in STEPS if each == word][-1]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [name for word, rest in STEPS if word == "COPY" and "--from" not in rest for name in rest.split()[:-1]]
    assert sources
    for name in sources:
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, each) for each in kept), name


def test_the_command_and_the_python_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert json.loads(the("ENTRYPOINT"))[0] in project["scripts"]
    version = re.fullmatch(r"python:(3\.\d+)-slim", the("FROM"))
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]


def test_deployments_run_it_as_its_user() -> None:
    made = manifests(InstallOptions(chosen(["all"])), registry())
    users = {
        each["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        for each in made
        if each["kind"] == "Deployment"
    }
    assert users == {int(the("USER").partition(":")[0])}
