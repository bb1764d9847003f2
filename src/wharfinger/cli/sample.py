"""The sample of `wharf up --sample`: manifests that ship with the package, loaded once, and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from wharfinger.api.errors import AlreadyExists, ApiError
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.client.connect import connect

NAMESPACE = "sample"
_SECONDS = 15.0  # how long to wait for the sample's pods before showing them as they are

Say = Callable[[str], None]


def manifests() -> list[Document]:
    """All documents of the sample, in the order of the file names."""
    folder = files("wharfinger.cli").joinpath("samples")
    found: list[Document] = []
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".yaml"):
            found += [document for document in yaml.safe_load_all(file.read_text()) if document]
    return found


async def load_sample(kubeconfig: Path, say: Say) -> None:
    """Creates what does not exist yet, waits a little for decisions, and prints them."""
    client = connect(str(kubeconfig))
    try:
        kinds, made = registry(), 0
        for document in manifests():
            resource = kinds.resource_of(document)
            if resource is None:
                continue
            metadata = document["metadata"]
            try:
                await client.create(resource, document, metadata.get("namespace", ""))
                made += 1
            except AlreadyExists:
                continue
            except ApiError as error:
                say(f"The sample's {resource.kind} {metadata['name']} was refused: {error.message}")
        say(f"Loaded the sample ({made} new objects) into the namespace {NAMESPACE}.")
        pods = await _decided(client)
        if pods:
            say("\n".join(_table(pods)) + "\n")
    finally:
        await client.close()


async def _decided(client: Any) -> list[Document]:
    """The sample's pods, once all of them run or it is known why they do not, or the time is up."""
    deadline = asyncio.get_running_loop().time() + _SECONDS
    while True:
        pods = list((await client.list(PODS, NAMESPACE)).items)
        if pods and all((pod.get("status") or {}).get("phase") != "Pending" or _waiting(pod) for pod in pods):
            return pods
        if asyncio.get_running_loop().time() > deadline:
            return pods
        await asyncio.sleep(0.5)


def _table(pods: list[Document]) -> list[str]:
    rows = [("POD", "PHASE", "NODE", "WHY NOT")]
    for pod in pods:
        status = pod.get("status") or {}
        rows.append(
            (pod["metadata"]["name"], status.get("phase", "Pending"), pod["spec"].get("nodeName", "-"), _waiting(pod))
        )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows]


def _waiting(pod: Document) -> str:
    """Why a pod has no node."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""
