"""The sample of `wharf up --sample`: manifests that ship with the package, loaded once, and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import yaml

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.wording import counted
from wharfinger.cli.report_text import render
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient
from wharfinger.systems.placement.kinds.names import PLACEMENT_DECISIONS, PLACEMENTS
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES

NAMESPACE = "sample"
_SECONDS = 15.0  # how long to wait for the sample's pods before showing them as they are
_PODS = 9  # that the sample brings
_SHOWN = (
    (NODES, ""),
    (PODS, NAMESPACE),
    (RESERVATIONS, ""),
    (RESOURCE_POLICIES, NAMESPACE),
    (PLACEMENTS, NAMESPACE),
    (PLACEMENT_DECISIONS, NAMESPACE),
)

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
    """Creates what does not exist yet, waits a little for decisions, and prints them with their reasons."""
    client = connect(str(kubeconfig))
    try:
        refused, made = await _create(client)
        say(f"Loaded the sample ({counted(made, 'new object')}) into the namespace {NAMESPACE}. What was decided:\n")
        await _wait(client)
        say(render(await _report(client, refused)) + "\n")
        say("Why? In the other terminal:")
        say(f"  wharf explain pod {NAMESPACE}/checkout")
        say("  wharf classes")
        say(f"  wharf explain placement {NAMESPACE}/roomiest\n")
    finally:
        await client.close()


async def _create(client: HttpClient) -> tuple[list[Document], int]:
    """What the API server refused, and the number of new objects."""
    kinds, made = registry(), 0
    refused: list[Document] = []
    for document in manifests():
        resource = kinds.resource_of(document)
        if resource is None:
            continue
        metadata = document["metadata"]
        try:
            await client.create(resource, document, metadata.get("namespace", ""))
            made += 1
            if resource == RESERVATIONS:
                await _available(client, metadata["name"])
            if "status" in document:
                status = {"status": document["status"]}
                await client.patch(
                    resource, metadata["name"], status, metadata.get("namespace", ""), subresource="status"
                )
        except AlreadyExists:
            continue
        except ApiError as error:
            place = {"namespace": metadata.get("namespace", ""), "name": metadata["name"]}
            refused.append({"kind": resource.kind, **place, "user": "you", "message": error.message})
    return refused, made


async def _available(client: HttpClient, reservation: str) -> None:
    """Its owner comes next, and is to find it ready."""
    for _ in range(20):
        found = await client.get(RESERVATIONS, reservation)
        if (found.get("status") or {}).get("phase") == "Available":
            return
        await asyncio.sleep(0.25)


async def _wait(client: HttpClient) -> None:
    """Until the sample's pods all run or it is known why they do not, or the time is up."""
    deadline = asyncio.get_running_loop().time() + _SECONDS
    while asyncio.get_running_loop().time() < deadline:
        pods = (await client.list(PODS, NAMESPACE)).items
        placed = (await client.list(PLACEMENT_DECISIONS, NAMESPACE)).items
        settled = all((pod.get("status") or {}).get("phase") != "Pending" or _waiting(pod) for pod in pods)
        if len(pods) >= _PODS and placed and settled:
            return
        await asyncio.sleep(0.5)


async def _report(client: HttpClient, refused: list[Document]) -> Document:
    """What `wharf simulate` would report of these objects."""
    objects: list[Document] = []
    for resource, namespace in _SHOWN:
        try:
            items = (await client.list(resource, namespace)).items
        except NotFound:
            continue
        objects += [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
    waiting = [
        {"namespace": NAMESPACE, "name": pod["metadata"]["name"], "message": _waiting(pod), "reasons": {}}
        for pod in objects
        if pod["kind"] == "Pod" and not (pod.get("spec") or {}).get("nodeName")
    ]
    return {"objects": objects, "unscheduled": waiting, "rejections": refused, "expectations": []}


def _waiting(pod: Document) -> str:
    """Why a pod has no node."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""
