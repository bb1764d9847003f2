"""Stages: what people do to a cluster, chosen at random from what there is, and carried out through any client. A stage
is plain data, so that it can be recorded with what it did."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Protocol

from tests.predictions.worlds import APPS, DEDICATED, Document, node, requests, workload

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, POD_DISRUPTION_BUDGETS, PODS
from wharfinger.api.object_meta import is_controlled_by
from wharfinger.api.registry import Resource
from wharfinger.client.interface import Client

Stage = dict[str, Any]
"""`title`, and `acts`: each a `create`, `patch`, `delete` or `drain`."""

TOUCHED = "wharfinger.dev/touched"


class Settles(Protocol):
    def __call__(self) -> Awaitable[None]: ...


# Choosing


def openings(random: Random) -> list[Stage]:
    """The first stages: workloads arrive, one after the other."""
    names = random.sample(APPS, random.randint(3, 5))
    return [_arriving(workload(random, name)) for name in names]


def choose(random: Random, objects: Sequence[Document], number: int) -> Stage:
    """The next stage; `number` makes names unique."""
    chances: list[tuple[int, Callable[[], Stage | None]]] = [
        (5, lambda: _scale(random, objects)),
        (4, lambda: _roll_out(random, objects)),
        (4, lambda: _drain(random, objects)),
        (2, lambda: _cordon(random, objects)),
        (2, lambda: _taint(random, objects)),
        (3, lambda: _delete(random, objects)),
        (2, lambda: _delete_pods(random, objects)),
        (3, lambda: _arrive(random, f"urgent-{number}", random.choice(("high", "high", "polite", "normal")))),
        (3, lambda: _arrive(random, f"extra-{number}", None)),
        (2, lambda: _add_node(random, 100 + number)),
        (1, lambda: _label(random, objects)),
        (1, lambda: _change_quota(random, objects)),
        (1, lambda: _pause(random, objects)),
        (1, lambda: _change_budget(random, objects)),
        (1, lambda: _resize_node(random, objects)),
        (1, lambda: _open_gates(random, objects)),
        (1, lambda: _change_job(random, objects)),
    ]
    while True:
        make = random.choices([each for _, each in chances], [weight for weight, _ in chances])[0]
        stage = make()
        if stage is not None:
            return stage


def of_kind(objects: Sequence[Document], *kinds: str) -> list[Document]:
    return [each for each in objects if each["kind"] in kinds]


def _any(random: Random, found: Sequence[Document]) -> Document | None:
    return random.choice(found) if found else None


def _target(document: Document) -> list[str]:
    metadata = document["metadata"]
    return [document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"]]


def _name(document: Document) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def _patch(document: Document, change: Document) -> Document:
    return {"patch": _target(document), "merge": change}


def _scale(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "Deployment", "StatefulSet"))
    if found is None:
        return None
    now = found["spec"]["replicas"]
    wanted = random.choice([n for n in range(10 if found["kind"] == "Deployment" else 6) if n != now])
    return {"title": f"scale {_name(found)} {now} to {wanted}", "acts": [_patch(found, {"spec": {"replicas": wanted}})]}


def _roll_out(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "Deployment", "StatefulSet", "DaemonSet"))
    if found is None:
        return None
    container = dict(found["spec"]["template"]["spec"]["containers"][0])
    if random.random() < 0.5:
        title, container["image"] = "new image", f"example.com/{found['metadata']['name']}:{random.randint(2, 99)}"
    else:
        kept = {key: amounts for key, amounts in container.get("resources", {}).items() if key == "limits"}
        title, container["resources"] = "new requests", {**kept, "requests": requests(random)}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    return {"title": f"roll out {_name(found)}: {title}", "acts": [_patch(found, change)]}


def _drain(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, [each for each in of_kind(objects, "Node") if not each["spec"].get("unschedulable")])
    if found is None:
        return None
    return {"title": f"drain {found['metadata']['name']}", "acts": [{"drain": found["metadata"]["name"]}]}


def _cordon(random: Random, objects: Sequence[Document]) -> Stage | None:
    cordoned = [each for each in of_kind(objects, "Node") if each["spec"].get("unschedulable")]
    found = _any(random, cordoned or of_kind(objects, "Node"))
    if found is None:
        return None
    done = not found["spec"].get("unschedulable")
    title = f"{'cordon' if done else 'uncordon'} {found['metadata']['name']}"
    return {"title": title, "acts": [_patch(found, {"spec": {"unschedulable": done or None}})]}


def _taint(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "Node"))
    if found is None:
        return None
    taints = [each for each in found["spec"].get("taints") or () if each["key"] == DEDICATED["key"]]
    others = [each for each in found["spec"].get("taints") or () if each["key"] != DEDICATED["key"]]
    effect = random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    wanted = others if taints else [*others, {**DEDICATED, "effect": effect}]
    title = (
        f"remove the taint of {found['metadata']['name']}" if taints else f"taint {found['metadata']['name']} {effect}"
    )
    return {"title": title, "acts": [_patch(found, {"spec": {"taints": wanted or None}})]}


def _delete(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job", "PodDisruptionBudget"))
    return None if found is None else {"title": f"delete {_name(found)}", "acts": [{"delete": _target(found)}]}


def _delete_pods(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = of_kind(objects, "Pod")
    if not found:
        return None
    chosen = random.sample(found, min(len(found), random.randint(1, 2)))
    title = f"delete {', '.join(map(_name, chosen))}"
    return {"title": title, "acts": [{"delete": _target(each)} for each in chosen]}


def _arrive(random: Random, name: str, priority: str | None) -> Stage:
    stage = _arriving(workload(random, name, priority=priority))
    return stage | {"title": stage["title"] + (f" with priority {priority}" if priority else "")}


def _arriving(documents: Sequence[Document]) -> Stage:
    title = f"{_name(documents[0])} arrives"
    return {"title": title, "acts": [{"create": document} for document in documents]}


def _add_node(random: Random, number: int) -> Stage:
    return {"title": f"node n{number} joins", "acts": [{"create": node(random, number)}]}


def _label(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "Node"))
    if found is None:
        return None
    pool = "green" if found["metadata"]["labels"].get("pool") == "blue" else "blue"
    title = f"move node {found['metadata']['name']} to pool {pool}"
    return {"title": title, "acts": [_patch(found, {"metadata": {"labels": {"pool": pool}}})]}


def _change_quota(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "ResourceQuota"))
    if found is None:
        return None
    hard = {"requests.cpu": str(random.randint(2, 10)), "pods": str(random.randint(4, 20))}
    return {"title": f"change {_name(found)}", "acts": [_patch(found, {"spec": {"hard": hard}})]}


def _change_job(random: Random, objects: Sequence[Document]) -> Stage | None:
    going = [each for each in of_kind(objects, "Job") if not _finished(each)]
    found = _any(random, going)
    if found is None:
        return None
    if random.random() < 0.5:
        suspended = not found["spec"].get("suspend")
        title = f"{'suspend' if suspended else 'resume'} {_name(found)}"
        return {"title": title, "acts": [_patch(found, {"spec": {"suspend": suspended}})]}
    wanted = random.randint(0, 5)
    return {
        "title": f"{_name(found)}: parallelism {wanted}",
        "acts": [_patch(found, {"spec": {"parallelism": wanted}})],
    }


def _pause(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "Deployment"))
    if found is None:
        return None
    paused = not found["spec"].get("paused")
    title = f"{'pause' if paused else 'resume'} {_name(found)}"
    return {"title": title, "acts": [_patch(found, {"spec": {"paused": paused or None}})]}


def _change_budget(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "PodDisruptionBudget"))
    if found is None:
        return None
    change = random.choice(({"minAvailable": None, "maxUnavailable": 1}, {"minAvailable": 1, "maxUnavailable": None}))
    return {"title": f"change {_name(found)}", "acts": [_patch(found, {"spec": change})]}


def _resize_node(random: Random, objects: Sequence[Document]) -> Stage | None:
    found = _any(random, of_kind(objects, "Node"))
    if found is None:
        return None
    cpu = str(int(found["status"]["allocatable"]["cpu"]) + random.randint(1, 2))
    change = {"status": {"allocatable": {"cpu": cpu}, "capacity": {"cpu": cpu}}}
    act = {**_patch(found, change), "subresource": "status"}
    return {"title": f"node {found['metadata']['name']} gets {cpu} CPUs", "acts": [act]}


def _open_gates(random: Random, objects: Sequence[Document]) -> Stage | None:
    gated = [each for each in of_kind(objects, "Pod") if each["spec"].get("schedulingGates")]
    if not gated:
        return None
    acts = [_patch(each, {"spec": {"schedulingGates": None}}) for each in gated[:2]]
    return {"title": f"open the gates of {', '.join(map(_name, gated[:2]))}", "acts": acts}


def _finished(job: Document) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


# Carrying out


async def perform(stage: Stage, client: Client, settle: Settles) -> list[str]:
    """Does what the stage says; returns what was refused."""
    refused: list[str] = []
    for act in stage["acts"]:
        try:
            if "create" in act:
                await create(client, act["create"])
            elif "patch" in act:
                resource, namespace, name = _resource(act["patch"])
                await client.patch(resource, name, act["merge"], namespace, subresource=act.get("subresource", ""))
            elif "delete" in act:
                resource, namespace, name = _resource(act["delete"])
                await client.delete(resource, name, namespace)
            else:
                refused += await drain(client, act["drain"], settle)
        except ApiError as error:
            refused.append(error.message)
    return refused


async def create(client: Client, document: Document) -> None:
    resource, namespace, name = _resource(_target(document))
    await client.create(resource, document, namespace)
    if resource == NODES:  # a real API server takes the status only in a second request
        await client.patch(NODES, name, {"status": document["status"]}, subresource="status")


async def drain(client: Client, node: str, settle: Settles) -> list[str]:
    """As `kubectl drain --ignore-daemonsets --force`; evictions that a budget prevents are retried while others
    succeed. Returns the pods that stay, with the reason."""
    await client.patch(NODES, node, {"spec": {"unschedulable": True}})
    before: set[str] = set()
    while True:
        refused: dict[str, str] = {}
        for pod in (await client.list(PODS)).items:
            metadata = pod["metadata"]
            if (
                pod["spec"].get("nodeName") != node
                or is_controlled_by(pod, "DaemonSet")
                or metadata.get("deletionTimestamp")
            ):
                continue
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": metadata["name"]}}
            try:
                await client.create(PODS, body, metadata["namespace"], name=metadata["name"], subresource="eviction")
            except NotFound:
                continue
            except ApiError as error:
                refused[metadata["name"]] = error.message
        await settle()
        if not refused or refused.keys() == before:
            return [f"{name}: {message}" for name, message in refused.items()]
        before = set(refused)


async def touch_budgets(client: Client) -> bool:
    """Lets budgets be computed again: their controller does not notice when a workload is scaled and no pod changes.
    Returns whether there are any."""
    budgets = (await client.list(POD_DISRUPTION_BUDGETS)).items
    for budget in budgets:
        metadata = budget["metadata"]
        number = int((metadata.get("annotations") or {}).get(TOUCHED, "0")) + 1
        change = {"metadata": {"annotations": {TOUCHED: str(number)}}}
        await client.patch(POD_DISRUPTION_BUDGETS, metadata["name"], change, metadata["namespace"])
    return bool(budgets)


def _resource(target: Sequence[str]) -> tuple[Resource, str, str]:
    version, kind, namespace, name = target
    resource = registry().resource_of({"apiVersion": version, "kind": kind})
    assert resource is not None, f"no kind {kind} in {version}"
    return resource, namespace, name
