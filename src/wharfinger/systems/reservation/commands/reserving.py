"""The work of `wharf reserve` and `wharf migrate`: create the object, follow it and report its progress.

The functions take any client and a `say` callback, so they also run in tests with virtual time.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import parse_time
from wharfinger.client.interface import Client
from wharfinger.systems.reservation.controllers.sets import SET_LABEL
from wharfinger.systems.reservation.kinds.names import POD_MIGRATION_JOBS, RESERVATION_SETS, RESERVATIONS
from wharfinger.systems.reservation.kinds.reservation_set import LONGEST_NAME
from wharfinger.systems.reservation.rules.migration import ABORT, unmovable
from wharfinger.systems.reservation.rules.reservations import ttl_seconds

Say = Callable[[str], None]

POLL_SECONDS = 1.0
_ENDED = ("Succeeded", "Failed", "Aborted")


class Refused(Exception):
    """The request cannot be carried out. The message gives the cause and the next step."""


def set_for(workload: Document, *, name: str, replicas: int, **spec: Any) -> Document:
    """A ReservationSet for future pods of a workload, with the workload's pod template, selector and namespace."""
    metadata, template = workload["metadata"], deepcopy(workload["spec"].get("template"))
    selector = workload["spec"].get("selector")
    if not template or not selector:
        raise Refused(f"{workload['kind']} {metadata['name']} has no pod template and selector")
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}  # a ReplicationController's selector is a plain map
    template.setdefault("metadata", {})["namespace"] = metadata["namespace"]
    return {
        "apiVersion": RESERVATION_SETS.api_version,
        "kind": RESERVATION_SETS.kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "template": template,
            "owners": [{"object": {"namespace": metadata["namespace"]}, "labelSelector": selector}],
            **{field: value for field, value in spec.items() if value is not None},
        },
    }


async def reserve(
    client: Client,
    resource: Resource,
    workload: str,
    namespace: str,
    say: Say,
    *,
    replicas: int,
    name: str,
    now: Callable[[], float] = time.time,
    **spec: Any,
) -> str:
    """Create the ReservationSet and return its name. If there is one of that name, it reserves as many again, whatever
    was used of it, for as long from now."""
    try:
        found = await client.get(resource, workload, namespace)
    except NotFound:
        raise Refused(
            f"{resource.kind} {namespace}/{workload} not found; select another namespace with -n, or run "
            f"`kubectl get {resource.plural} -A`"
        ) from None
    found.setdefault("kind", resource.kind)
    wanted = set_for(found, name=name or set_name(resource, namespace, workload), replicas=replicas, **spec)
    name = wanted["metadata"]["name"]
    try:
        current = await client.get(RESERVATION_SETS, name)
    except NotFound:
        await _create(client, RESERVATION_SETS, wanted)
        say(f"reservationset {name} created: {replicas} for {resource.kind.lower()} {namespace}/{workload}")
        return name
    _renew(current, wanted["spec"], now())
    await client.update(RESERVATION_SETS, current)
    say(f"reservationset {name} updated: {replicas} for {resource.kind.lower()} {namespace}/{workload}")
    return name


def set_name(resource: Resource, namespace: str, workload: str) -> str:
    """The name of the set for a workload. Neither a kind nor a namespace has a dot, so no two workloads share one; and
    reservations carry it as a label value, which is limited to 63 characters."""
    name = f"{resource.kind.lower()}.{namespace}.{workload}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: LONGEST_NAME - len(digest) - 1].rstrip('-.')}-{digest}"


def _renew(current: Document, spec: Document, now: float) -> None:
    """Give an existing set a new spec. Its replicas include those that were used, and its ttl counts from its creation."""
    used = int((current.get("status") or {}).get("used") or 0)
    seconds = ttl_seconds(spec["ttl"]) if spec.get("ttl") is not None else 0.0
    current["spec"] = {**spec, "replicas": spec["replicas"] + used}
    if seconds > 0:
        age = max(0.0, now - parse_time(current["metadata"]["creationTimestamp"]))
        current["spec"]["ttl"] = f"{int(age + seconds)}s"


async def _create(client: Client, resource: Resource, document: Document) -> Document:
    try:
        return await client.create(resource, document)
    except NotFound:
        raise Refused(
            f"{resource.plural}.{resource.group} is not installed on the cluster; run "
            "`wharf install --components scheduler,reservation | kubectl apply --server-side -f -`"
        ) from None


async def follow_set(client: Client, name: str, say: Say, timeout: float) -> bool:
    """Report progress until all reservations are available or used. Returns False on timeout."""
    loop = asyncio.get_running_loop()
    end, said = loop.time() + timeout, ""
    reasons: list[str] = []
    while True:
        document = await client.get(RESERVATION_SETS, name)
        status, wanted = document.get("status") or {}, document["spec"].get("replicas", 1)
        seen = status.get("observedGeneration") == document["metadata"].get("generation")
        line = _set_line(status, wanted)
        if seen and line != said:
            say(line)
            said = line
        if seen and status.get("available", 0) + status.get("used", 0) >= wanted:
            return True
        found = await _why_not(client, name, status)
        if seen and found != reasons:
            for why in found:
                say(f"  {why}")
            reasons = found
        if loop.time() >= end:
            if "observedGeneration" not in status:
                say(f"reservationset {name} has not been reconciled yet; is `wharf controllers` running?")
            elif status.get("pending") and not reasons:
                say("  no scheduler has processed the reservations yet; is `wharf scheduler` running?")
            say(set_hint(name))
            return False
        await asyncio.sleep(POLL_SECONDS)


def set_hint(name: str) -> str:
    """How to check on or delete a set that is no longer being followed."""
    return (
        f"reservationset {name} remains active: check it with `kubectl get reservationset {name}`, "
        f"or cancel it with `kubectl delete reservationset {name}`"
    )


def job_hint(name: str) -> str:
    """How to check on or abort a job that is no longer being followed."""
    return (
        f"podmigrationjob {name} continues: check it with `kubectl get podmigrationjob {name}`, or, before the pod is "
        f"evicted, abort it with `kubectl annotate podmigrationjob {name} {ABORT}=true`"
    )


def _set_line(status: Document, wanted: int) -> str:
    parts = [f"{status.get('available', 0)}/{max(0, wanted - status.get('used', 0))} available"]
    parts += [f"{status[sort]} {sort}" for sort in ("used", "waiting", "pending") if status.get(sort)]
    return ", ".join(parts)


async def _why_not(client: Client, name: str, status: Document) -> list[str]:
    """Why reservations of a set are not available yet, with the number of reservations for each reason."""
    ready = find_condition(status.get("conditions") or (), "Ready") or {}
    refused = [str(ready.get("message"))] if ready.get("reason") == "Refused" else []
    page = await client.list(RESERVATIONS, label_selector=f"{SET_LABEL}={name}")
    found: dict[str, int] = {}
    for document in page.items:
        status = document.get("status") or {}
        if status.get("phase") in ("Pending", "Waiting"):
            conditions = [each for each in status.get("conditions") or () if each.get("status") == "False"]
            for each in conditions:
                message = str(each.get("message"))
                found[message] = found.get(message, 0) + 1
    return [*refused, *(f"{count}: {message}" for message, count in sorted(found.items()))]


async def migrate(
    client: Client,
    pod: str,
    namespace: str,
    say: Say,
    *,
    to: str = "",
    ttl: str = "5m",
    directly: bool = False,
    force: bool = False,
) -> str:
    """Create a PodMigrationJob; returns its name. `force` allows pods without a controller to recreate them."""
    try:
        found = await client.get(PODS, pod, namespace)
    except NotFound:
        raise Refused(
            f"pod {namespace}/{pod} not found; specify it as NAMESPACE/NAME, as listed by `kubectl get pods -A`"
        ) from None
    here = found["spec"].get("nodeName")
    if not here:
        raise Refused(
            f"pod {namespace}/{pod} is not scheduled yet; `wharf explain pod {namespace}/{pod}` shows the reason"
        )
    if to and to == here:
        raise Refused(f"pod {namespace}/{pod} is already on node {to}")
    if reason := unmovable(found):
        raise Refused(f"pod {namespace}/{pod} {reason}")
    if not force and controller_of(found) is None:
        raise Refused(
            f"pod {namespace}/{pod} has no controller that would recreate it after its eviction; use --force to evict it "
            "anyway and reserve room for a pod of the same name"
        )
    if to:
        await _check_target(client, to)
    spec: Document = {
        "podRef": {"namespace": namespace, "name": pod, "uid": found["metadata"]["uid"]},
        "ttl": ttl,
        "mode": "EvictDirectly" if directly else "ReservationFirst",
    }
    if to:
        spec["reservationOptions"] = {"template": {"spec": {"template": {"spec": {"nodeName": to}}}}}
    job = {
        "apiVersion": POD_MIGRATION_JOBS.api_version,
        "kind": POD_MIGRATION_JOBS.kind,
        "metadata": {"generateName": f"{pod[:40].rstrip('.-')}-"},
        "spec": spec,
    }
    created = await _create(client, POD_MIGRATION_JOBS, job)
    name = str(created["metadata"]["name"])
    say(f"podmigrationjob {name} created: pod {namespace}/{pod} moves from node {here}{f' to node {to}' if to else ''}")
    return name


async def _check_target(client: Client, node: str) -> None:
    try:
        found = await client.get(NODES, node)
    except NotFound:
        raise Refused(f"node {node} not found; list the nodes with `kubectl get nodes`") from None
    if found["spec"].get("unschedulable"):
        raise Refused(f"node {node} is cordoned; `kubectl uncordon {node}` makes it schedulable again")


async def follow_job(client: Client, name: str, say: Say, timeout: float) -> bool:
    """Report each step until the job has ended; returns whether it succeeded. Raises Refused on timeout."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    said: set[str] = set()
    while True:
        status = (await client.get(POD_MIGRATION_JOBS, name)).get("status") or {}
        phase = str(status.get("phase") or "Pending")
        # Conditions also record the steps completed between two polls.
        steps = [str(each.get("message")) for each in status.get("conditions") or () if each.get("type") != "Complete"]
        last = f"{phase}: {status['message']}" if status.get("message") and phase in _ENDED else ""
        for line in (*steps, last):
            if line and line not in said:
                said.add(line)
                say(line)
        if phase in _ENDED:
            return phase == "Succeeded"
        if loop.time() >= end:
            unseen = (
                "" if status.get("conditions") else "it has not been reconciled yet; is `wharf controllers` running? "
            )
            raise Refused(f"timed out; {unseen}{job_hint(name)}")
        await asyncio.sleep(POLL_SECONDS)
