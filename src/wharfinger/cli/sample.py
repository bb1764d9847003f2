"""The sample of `wharf up --sample`: manifests that ship with the package, loaded once, and a summary of the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import yaml

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import counted
from wharfinger.cli.report_text import render
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient
from wharfinger.contributions import Sample
from wharfinger.system import ordered_systems

NAMESPACE = "sample"
_SECONDS = 15.0  # to wait for the sample's pods before the summary is shown
_WORKLOADS = Sample(files("wharfinger.cli").joinpath("samples"))

Say = Callable[[str], None]


def samples() -> list[Sample]:
    """The sample of the core and those of the enabled systems."""
    found = (system.report().sample for system in ordered_systems())
    return [_WORKLOADS, *(sample for sample in found if sample is not None)]


def manifests() -> list[Document]:
    """All documents of all samples, in the order of the file names."""
    found = [file for sample in samples() for file in sample.folder.iterdir() if file.name.endswith(".yaml")]
    documents = (yaml.safe_load_all(file.read_text()) for file in sorted(found, key=lambda file: file.name))
    return [document for each in documents for document in each if document]


async def load_sample(kubeconfig: Path, say: Say) -> None:
    """Creates what does not exist yet, waits a little for decisions, and prints them with their reasons."""
    client = connect(str(kubeconfig))
    try:
        refused, made = await _create(client)
        say(f"Loaded the sample ({counted(made, 'new object')}) into the namespace {NAMESPACE}. What was decided:\n")
        await _wait(client, _expected_pods(refused))
        say(render(await _report(client, refused)) + "\n")
        if hints := [hint for sample in samples() for hint in sample.hints]:
            say("Why? In the other terminal:")
            say("\n".join(f"  {hint}" for hint in hints) + "\n")
    finally:
        await client.close()


async def _create(client: HttpClient) -> tuple[list[Document], int]:
    """What the API server refused, and the number of new objects."""
    kinds, made = registry(), 0
    ready = {kind: is_ready for sample in samples() for kind, is_ready in sample.ready.items()}
    refused: list[Document] = []
    for document in manifests():
        resource = kinds.resource_of(document)
        if resource is None:
            continue
        metadata = document["metadata"]
        try:
            await client.create(resource, document, metadata.get("namespace", ""))
            made += 1
            if resource.kind in ready:
                await _until_ready(client, resource, document, ready[resource.kind])
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


async def _until_ready(
    client: HttpClient, resource: Resource, document: Document, is_ready: Callable[[Document], bool]
) -> None:
    """Waits, because what is created next depends on it."""
    metadata = document["metadata"]
    for _ in range(120):  # half a minute: on a busy machine, the scheduler is still starting
        if is_ready(await client.get(resource, metadata["name"], metadata.get("namespace", ""))):
            return
        await asyncio.sleep(0.25)


def _expected_pods(refused: list[Document]) -> int:
    """How many pods the sample has, less those that were refused."""
    count = 0
    for document in manifests():
        if document["kind"] in ("Deployment", "StatefulSet"):
            count += int(document["spec"].get("replicas", 1))
        elif document["kind"] == "Pod":
            count += 1
    return count - sum(1 for each in refused if each["kind"] == "Pod")


async def _wait(client: HttpClient, expected: int) -> None:
    """Waits until all pods run or have a reason why not, and the awaited objects exist; at most `_SECONDS`."""
    awaited = [resource for sample in samples() for resource in sample.awaited]
    deadline = asyncio.get_running_loop().time() + _SECONDS
    while asyncio.get_running_loop().time() < deadline:
        pods = (await client.list(PODS, NAMESPACE)).items
        there = [(await client.list(resource, NAMESPACE)).items for resource in awaited]
        settled = all((pod.get("status") or {}).get("phase") != "Pending" or _waiting(pod) for pod in pods)
        if len(pods) >= expected and all(there) and settled:
            return
        await asyncio.sleep(0.5)


async def _report(client: HttpClient, refused: list[Document]) -> Document:
    """What `wharf simulate` would report of these objects."""
    objects: list[Document] = []
    for resource in (NODES, PODS, *(kind for system in ordered_systems() for kind in system.report().kinds)):
        try:
            items = (await client.list(resource, NAMESPACE if resource.namespaced else "")).items
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
