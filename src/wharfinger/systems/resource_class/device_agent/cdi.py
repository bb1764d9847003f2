"""Container Device Interface: what a container runtime does for the devices of a claim, as a file that it reads."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wharfinger.api.registry import Document

VERSION = "0.5.0"


def cdi_kind(driver: str) -> str:
    return f"{driver}/claim"


def cdi_name(driver: str, claim: str, request: str) -> str:
    """The qualified name of the CDI device for a request of a claim."""
    return f"{cdi_kind(driver)}={_device_name(claim, request)}"


def _device_name(claim: str, request: str) -> str:
    return f"{claim}-{request.replace('/', '-')}"


def container_edits(allocated: Iterable[Any], names: Iterable[str]) -> Document:
    """What plugins answered to Allocate, as edits of a container, and the names of the devices in an environment
    variable."""
    variables = {"WHARFINGER_DEVICES": ",".join(names)}
    mounts: list[Document] = []
    nodes: list[Document] = []
    for each in allocated:
        variables |= dict(each.envs)
        for mount in each.mounts:
            options = ["rbind", "ro" if mount.read_only else "rw"]
            mounts.append({"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options})
        for device in each.devices:
            made = {"path": device.container_path, "hostPath": device.host_path}
            nodes.append({**made, "permissions": device.permissions} if device.permissions else made)
    edits: Document = {"env": [f"{name}={value}" for name, value in sorted(variables.items())]}
    return edits | ({"mounts": mounts} if mounts else {}) | ({"deviceNodes": nodes} if nodes else {})


class CdiFiles:
    """One file for each claim."""

    def __init__(self, folder: Path, driver: str) -> None:
        self._folder = folder
        self._driver = driver

    def _path(self, claim: str) -> Path:
        return self._folder / f"{self._driver}-{claim}.json"

    def write(self, claim: str, edits: Mapping[str, Document]) -> None:
        """Replaces what is there. `edits` are by request."""
        devices = [
            {"name": _device_name(claim, request), "containerEdits": each} for request, each in sorted(edits.items())
        ]
        document = {"cdiVersion": VERSION, "kind": cdi_kind(self._driver), "devices": devices}
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(claim)
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(document))
        unfinished.replace(path)

    def remove(self, claim: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path(claim).unlink()
