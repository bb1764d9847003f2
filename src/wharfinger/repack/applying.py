"""Carries out a plan with migration jobs: room on the target is reserved first, then the pod is evicted.

Nothing but the jobs and the cordons is kept, all in the API, so a command that was interrupted can be given again: it
plans anew from what there is by then, and takes up jobs that still run. The first move that fails ends it; moves that
have begun are awaited, since each of them either completes or leaves its pod where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from wharfinger.api.errors import AlreadyExists, NotFound, ServerTimeout, ServiceUnavailable, TooManyRequests
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import counted
from wharfinger.client.interface import Client
from wharfinger.repack.jobs import job_of, outcome_of
from wharfinger.repack.plans import RepackMove, RepackPlan

REPACK_LABEL = "wharfinger.dev/repack"
CORDONED = "wharfinger.dev/cordoned-by"
UNCORDONED: Document = {"metadata": {"annotations": {CORDONED: None}}, "spec": {"unschedulable": None}}
POLL_SECONDS = 1.0

_ABORT = "wharfinger.dev/abort"
_ENDED = ("Succeeded", "Failed", "Aborted")

Say = Callable[[str], None]


@dataclass(slots=True)
class AppliedPlan:
    done: list[RepackMove] = field(default_factory=list)
    remaining: list[RepackMove] = field(default_factory=list)
    surprise: str = ""  # why it ended before all moves were made


async def apply_plan(client: Client, jobs: Resource, plan: RepackPlan, say: Say, *, at_once: int = 1) -> AppliedPlan:
    """Makes the moves in order, at most `at_once` at a time."""
    for name in plan.freed:
        await cordon(client, name, "repack")
    found = AppliedPlan()
    waiting = list(plan.moves)
    running: dict[str, RepackMove] = {}
    while running or (waiting and not found.surprise):
        while waiting and not found.surprise and len(running) < at_once:
            move = waiting.pop(0)
            running[await _begin(client, jobs, move)] = move
            say(f"moving {move.pod} from {move.source} to {move.target}")
        for name, why in await _ended(client, jobs, running):
            move = running.pop(name)
            if why:
                found.surprise = found.surprise or why
                found.remaining.append(move)
                say(f"stopped: {why}")
            else:
                found.done.append(move)
                say(f"moved {move.pod} to {move.target}")
        if running:
            await asyncio.sleep(POLL_SECONDS)
    found.remaining += waiting
    return found


async def abort(client: Client, jobs: Resource, say: Say) -> int:
    """Ends all moves of plans that are being carried out. A pod that was evicted already still gets its place; all others
    stay where they are, and nodes that were cordoned for the plan take pods again."""
    names = [job["metadata"]["name"] for job in await _jobs(client, jobs) if not has_ended(job)]
    for name in names:
        try:
            await client.patch(jobs, name, {"metadata": {"annotations": {_ABORT: "true"}}})
        except NotFound:
            continue
    while any(not has_ended(job) for job in await _jobs(client, jobs)):
        await asyncio.sleep(POLL_SECONDS)
    page = await client.list(NODES)
    for node in page.items:
        if CORDONED in (node["metadata"].get("annotations") or {}):
            await uncordon(client, node["metadata"]["name"])
            say(f"{node['metadata']['name']} takes pods again")
    return len(names)


def job_name(move: RepackMove) -> str:
    """The same move has the same name, so that a repeated command takes up its job."""
    digest = hashlib.sha256(f"{move.pod} {move.source} {move.target}".encode()).hexdigest()[:10]
    return f"repack-{move.pod.partition('/')[2][:40].rstrip('-.')}-{digest}"


async def _begin(client: Client, jobs: Resource, move: RepackMove) -> str:
    name = job_name(move)
    job = job_of(move, name)
    job["metadata"]["labels"] = {REPACK_LABEL: "true"}
    try:
        await client.create(jobs, job)
    except AlreadyExists:
        known = await client.get(jobs, name)
        if has_ended(known):  # an earlier attempt; pods of StatefulSets keep their names
            await client.delete(jobs, name, uid=known["metadata"]["uid"])
            await client.create(jobs, job)
    return name


async def _ended(client: Client, jobs: Resource, running: dict[str, RepackMove]) -> list[tuple[str, str]]:
    """The jobs that have ended, each with the reason if its move was not made."""
    found = []
    for name, move in running.items():
        try:
            job = await client.get(jobs, name)
        except (ServiceUnavailable, ServerTimeout, TooManyRequests):
            continue  # the moves go on while the API server restarts
        except NotFound:
            found.append((name, f"{move.pod} does not get to {move.target}: its job was deleted"))
            continue
        if has_ended(job):
            found.append((name, outcome_of(job, move)))
    return found


async def _jobs(client: Client, jobs: Resource) -> Sequence[Document]:
    page = await client.list(jobs, label_selector=f"{REPACK_LABEL}=true")
    return list(page.items)


def has_ended(job: Document) -> bool:
    return (job.get("status") or {}).get("phase") in _ENDED


async def cordon(client: Client, name: str, by: str) -> None:
    """Keeps pods from a node, and notes who did."""
    node = await client.get(NODES, name)
    if not (node.get("spec") or {}).get("unschedulable"):
        await client.patch(NODES, name, {"metadata": {"annotations": {CORDONED: by}}, "spec": {"unschedulable": True}})


async def uncordon(client: Client, name: str) -> None:
    await client.patch(NODES, name, UNCORDONED)


def summary(applied: AppliedPlan, freed: Iterable[str]) -> list[str]:
    """What a person reads at the end."""
    if not applied.surprise:
        return [
            f"{name} is empty and cordoned: delete it, or let it take pods with `kubectl uncordon {name}`"
            for name in freed
        ]
    number = len(applied.done)
    lines = [f"{counted(number, 'move')} {'was' if number == 1 else 'were'} made; these remain:"]
    lines += [f"  {move.pod} from {move.source} to {move.target}" for move in applied.remaining]
    return [*lines, "give the command again to go on from what there is now, or `wharf repack --abort` to let it be"]
