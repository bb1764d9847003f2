"""The next transition of a simulated pod, from its object, its annotations and the time. Pure.

There is no state between calls, so a restarted kubelet continues where the last one stopped.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from wharfinger.api.conditions import transition_time
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time, parse_time
from wharfinger.api.views import Pod
from wharfinger.api.views.pods import Container, ContainerStatus, ContainerTerminated
from wharfinger.node import annotations as names
from wharfinger.node.annotations import NEVER, exit_code, seconds

TERMINATED_BY_SIGNAL = 143  # exit code of a process that does not handle SIGTERM
KILLED = 137
BACKOFF_BASE, BACKOFF_LIMIT = 10.0, 300.0
_SIMULATED = "simulated://"  # start of the ids of our containers
_STARTING = ("", "ContainerCreating", "PodInitializing")  # reasons why a container that will start waits
_parsed_time = lru_cache(4096)(parse_time)  # many containers start in the same second
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class PodStep(msgspec.Struct, frozen=True):
    """What to do for a pod: write `status` as a strategic merge patch (the pod is reconciled again when the change arrives),
    `delete` it to complete a graceful deletion, or reconcile it after `wait` seconds.

    A wait that leads to no final state (an endless restart, an expiry) is a background one: the simulation does not keep running for it.
    """

    status: Document | None = None
    delete: bool = False
    wait: float | None = None
    background: bool = False


DONE = PodStep()


def next_step(pod: Pod, *, bound_at: float, startup: float, now: float, pod_ip: str, host_ip: str) -> PodStep:
    """`bound_at` is when the kubelet admitted the pod; `pod_ip` becomes its address if it starts now."""
    if pod.terminating:
        return _stop(pod, now)
    if pod.terminal:
        return DONE
    if not pod.status.start_time or _waits_for_start(pod):
        return _start(pod, bound_at, startup, now, pod_ip, host_ip)
    return _run(pod, now)


def is_settled(pod: Pod, now: float) -> bool:
    """Whether nothing will happen to a running pod until it changes, as is true of most: then `next_step` is `DONE` from now
    on, and no resize is wanted. A quick test, which is False where more has to be looked at."""
    spec, status = pod.spec, pod.status
    if status.phase != "Running" or not status.start_time or pod.metadata.deletion_timestamp:
        return False
    if pod.metadata.annotations or spec.active_deadline_seconds is not None or spec.readiness_gates:
        return False
    if not spec.containers or len(spec.containers) != len(status.container_statuses) or not pod.ready:
        return False
    for container, each in zip(spec.containers, status.container_statuses):
        running = each.state.running
        if not each.ready or running is None or each.state.terminated is not None:
            return False
        if not running.started_at or _parsed_time(running.started_at) > now:
            return False
        actual, wanted = each.resources, container.resources
        if actual is None:
            continue
        if (actual.requests or {}) != wanted.requests or (actual.limits or {}) != wanted.limits:
            return False
    return status.condition("PodResizePending") is None


def rejected(pod: Pod, reason: str, message: str, now: float) -> Document:
    """The status of a pod that the kubelet rejects at admission."""
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": format_time(now),
        "observedGeneration": pod.metadata.generation,
    }


# Stopping


def _stop(pod: Pod, now: float) -> PodStep:
    grace = float(pod.metadata.deletion_grace_period_seconds or 0)
    signalled = parse_time(pod.metadata.deletion_timestamp) - grace
    takes = seconds(pod.metadata.annotations, names.SHUTDOWN_AFTER, 0.0)
    running = bool(pod.status.container_statuses) and not pod.terminal
    left = signalled + min(takes, grace) - now if running else 0.0
    if left > 0:
        return PodStep(wait=left)
    if running and pod.metadata.finalizers:
        # The object outlives its containers; the owner of the finalizer needs to see how they ended.
        code = KILLED if takes > grace else TERMINATED_BY_SIGNAL
        return PodStep(status=_ended(pod, code, now, reason="", message=""))
    return PodStep(delete=not pod.metadata.finalizers or _needs_zero_grace(pod))


def _needs_zero_grace(pod: Pod) -> bool:
    return pod.metadata.deletion_grace_period_seconds not in (0, None)


# Starting


def _start(pod: Pod, bound_at: float, startup: float, now: float, pod_ip: str, host_ip: str) -> PodStep:
    takes = seconds(pod.metadata.annotations, names.START_AFTER, startup)
    admitted = parse_time(pod.status.start_time) if pod.status.start_time else bound_at
    left = min(admitted, now) + takes - now
    if takes == NEVER:
        return DONE
    if left > 0:
        return PodStep(wait=left)
    stamp = format_time(now)
    containers = _containers_ready(pod, now, now)
    status: Document = {
        "phase": "Running",
        "startTime": pod.status.start_time or stamp,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": host_ip if pod.spec.host_network else pod_ip,
        "podIPs": [{"ip": host_ip if pod.spec.host_network else pod_ip}],
        "observedGeneration": pod.metadata.generation,
        "containerStatuses": [_running(container, stamp, 0, ready=containers) for container in pod.spec.containers],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_initialized(container, stamp) for container in pod.spec.init_containers]
    status["conditions"] = _conditions(pod, stamp, ready=_ready(pod, now, now), containers=containers)
    return PodStep(status=status)


def _running(container: Container, stamp: str, restarts: int, *, ready: bool) -> Document:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": _container_id(container.name, restarts),
        "ready": ready,
        "started": True,
        "restartCount": restarts,
        "state": {"running": {"startedAt": stamp}},
        **_resources(container),
    }


def _resources(container: Container) -> Document:
    resources = msgspec.to_builtins(container.resources)
    shown = {key: amounts for key, amounts in resources.items() if amounts}
    found: Document = {"resources": shown} if shown else {}
    if shown.get("requests"):
        found["allocatedResources"] = shown["requests"]
    return found


def _initialized(container: Container, stamp: str) -> Document:
    if container.restart_policy == "Always":
        return _running(container, stamp, 0, ready=True)
    return {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "ready": True,
        "started": False,
        "restartCount": 0,
        "state": {
            "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": stamp, "finishedAt": stamp},
        },
    }


# Running


def _run(pod: Pod, now: float) -> PodStep:
    deadline = pod.spec.active_deadline_seconds
    if deadline is not None:
        expires = parse_time(pod.status.start_time) + deadline
        if now >= expires:
            return PodStep(status=_ended(pod, KILLED, now, reason="DeadlineExceeded", message=DEADLINE_MESSAGE))
    step = DONE if _runs_elsewhere(pod) else _attempt(pod, now)
    if deadline is not None and step.status is None:
        left = expires - now
        if step.wait is None or left < step.wait:
            # A deadline is an expiry, so the wait is in the background unless the pod ends by itself.
            return PodStep(wait=left, background=step.wait is None or step.background)
    return step


def _waits_for_start(pod: Pod) -> bool:
    """Whether no container has started yet, and none is known to be unable to start."""
    return all(
        not status.container_id and status.state.waiting is not None and status.state.waiting.reason in _STARTING
        for status in pod.status.container_statuses
    )


def _runs_elsewhere(pod: Pod) -> bool:
    """Whether a real kubelet started the containers, or tried to, as in a snapshot: nobody here knows more about them
    than it reported, so they stay ready, unready or crashing. An annotation may say how long they run."""
    if names.RUN_FOR in pod.metadata.annotations:
        return False
    return any(
        (status.container_id and not status.container_id.startswith(_SIMULATED))
        or (status.state.waiting is not None and status.state.waiting.reason not in _STARTING)
        for status in pod.status.container_statuses
    )


def _attempt(pod: Pod, now: float) -> PodStep:
    """The current attempt of the containers, which all start and end together."""
    first = pod.status.container_statuses[0]
    if first.state.terminated is not None:
        return _restart(pod, first, now)
    if first.state.running is None or not first.state.running.started_at:
        return _restart(pod, first, now)
    started = parse_time(first.state.running.started_at)
    takes = seconds(pod.metadata.annotations, names.RUN_FOR, NEVER)
    code = exit_code(pod.metadata.annotations, first.restart_count)
    ends = started + takes
    final = _is_final(pod, code)
    if now >= ends:
        if final:
            return PodStep(status=_ended(pod, code, now, reason="", message=""))
        return PodStep(status=_crashed(pod, code, now))
    ready = _ready(pod, started, now)
    containers = _containers_ready(pod, started, now)
    if ready != pod.ready or any(status.ready != containers for status in pod.status.container_statuses):
        return PodStep(status=_readiness(pod, now, ready=ready, containers=containers))
    waits = [] if takes == NEVER else [(ends - now, not final)]
    ready_at = started + seconds(pod.metadata.annotations, names.READY_AFTER, 0.0)
    if now < ready_at < NEVER:
        waits.append((ready_at - now, False))
    if not waits:
        return DONE
    wait, endless = min(waits)
    return PodStep(wait=wait, background=endless)


def _is_final(pod: Pod, code: int) -> bool:
    policy = pod.spec.restart_policy
    return policy == "Never" or (policy == "OnFailure" and code == 0)


def _restart(pod: Pod, first: ContainerStatus, now: float) -> PodStep:
    """Restarts containers that ended: the first time immediately, then with exponential back-off."""
    ended = first.state.terminated
    restarts = first.restart_count
    finished = parse_time(ended.finished_at) if ended is not None and ended.finished_at else now
    wait = 0.0 if restarts == 0 else min(BACKOFF_LIMIT, BACKOFF_BASE * 2 ** (restarts - 1))
    left = finished + wait - now
    code = exit_code(pod.metadata.annotations, restarts + 1)
    if left > 0:
        return PodStep(wait=left, background=not _is_final(pod, code))
    stamp = format_time(now)
    containers = _containers_ready(pod, now, now)
    statuses = []
    for container, status in zip(pod.spec.containers, pod.status.container_statuses):
        fresh = _running(container, stamp, status.restart_count + 1, ready=containers)
        if status.state.terminated is not None:
            fresh["lastState"] = {"terminated": _ended_attempt(status, status.state.terminated)}
        statuses.append(fresh)
    conditions = _conditions(pod, stamp, ready=_ready(pod, now, now), containers=containers)
    return PodStep(status={"containerStatuses": statuses, "conditions": conditions})


def _crashed(pod: Pod, code: int, now: float) -> Document:
    stamp = format_time(now)
    return {
        "containerStatuses": [_stopped(pod, status, code, now, stamp) for status in pod.status.container_statuses],
        "conditions": _conditions(pod, stamp, ready=False, containers=False),
    }


def _ended(pod: Pod, code: int, now: float, *, reason: str, message: str) -> Document:
    """The status of a pod whose containers have ended for good."""
    stamp = format_time(now)
    status: Document = {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [_stopped(pod, each, code, now, stamp) for each in pod.status.container_statuses],
        "conditions": _conditions(
            pod, stamp, ready=False, containers=False, why="PodCompleted" if code == 0 else "PodFailed"
        ),
    }
    if reason:
        status |= {"reason": reason, "message": message}
    return status


def _stopped(pod: Pod, status: ContainerStatus, code: int, now: float, stamp: str) -> Document:
    container = next((c for c in pod.spec.containers if c.name == status.name), Container(name=status.name))
    started = status.state.running.started_at if status.state.running is not None else ""
    identity = _container_id(status.name, status.restart_count)
    return {
        "name": status.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": identity,
        "ready": False,
        "started": False,
        "restartCount": status.restart_count,
        "state": {"terminated": _terminated(code, now, started or stamp, identity)},
    }


def _terminated(code: int, now: float, started: str, container_id: str) -> Document:
    return {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": started,
        "finishedAt": format_time(now),
        "containerID": container_id,
    }


def _container_id(name: str, restarts: int) -> str:
    return f"{_SIMULATED}{name}-{restarts}"


def _ended_attempt(status: ContainerStatus, ended: ContainerTerminated) -> Document:
    """The last state of a container that is started again."""
    made: Document = {"exitCode": ended.exit_code, "containerID": _container_id(status.name, status.restart_count)}
    texts = {"reason": ended.reason, "startedAt": ended.started_at, "finishedAt": ended.finished_at}
    return made | {key: text for key, text in texts.items() if text}


# Readiness


def _containers_ready(pod: Pod, started: float, now: float) -> bool:
    delay = seconds(pod.metadata.annotations, names.READY_AFTER, 0.0)
    return delay <= 0 or now >= started + delay  # a clock that is set back does not make a pod unready


def _ready(pod: Pod, started: float, now: float) -> bool:
    if not _containers_ready(pod, started, now):
        return False
    held = {condition.type for condition in pod.status.conditions if condition.status == "True"}
    return all(gate.condition_type in held for gate in pod.spec.readiness_gates)


def _readiness(pod: Pod, now: float, *, ready: bool, containers: bool) -> Document:
    stamp = format_time(now)
    statuses = []
    for container, status in zip(pod.spec.containers, pod.status.container_statuses):
        running = status.state.running.started_at if status.state.running is not None else stamp
        statuses.append(_running(container, running, status.restart_count, ready=containers))
    return {
        "containerStatuses": statuses,
        "conditions": _conditions(pod, stamp, ready=ready, containers=containers),
    }


def _conditions(pod: Pod, stamp: str, *, ready: bool, containers: bool, why: str = "") -> list[Document]:
    """The conditions that the kubelet sets."""
    if not ready and not why:
        why = "ReadinessGatesNotReady" if containers else "ContainersNotReady"
    unready = f"containers with unready status: [{' '.join(container.name for container in pod.spec.containers)}]"
    message = unready if why == "ContainersNotReady" else ""
    wanted: list[tuple[str, bool, str, str]] = [
        ("PodReadyToStartContainers", why not in ("PodCompleted", "PodFailed"), "", ""),
        ("Initialized", True, "PodCompleted" if why == "PodCompleted" else "", ""),
        ("Ready", ready, why, message),
        ("ContainersReady", containers, "" if containers else why, message),
    ]
    if pod.status.condition("PodScheduled") is None:
        wanted.append(("PodScheduled", True, "", ""))
    return [_condition(pod, stamp, *each) for each in wanted]


def _condition(pod: Pod, stamp: str, type: str, holds: bool, reason: str, message: str) -> Document:
    before = pod.status.condition(type)
    status = "True" if holds else "False"
    made: Document = {
        "type": type,
        "status": status,
        "lastTransitionTime": transition_time(before, status, stamp),
        "observedGeneration": pod.metadata.generation,
    }
    # Null removes a field in a patch, but would be stored for a field that does not exist.
    if reason or (before is not None and before.reason):
        made["reason"] = reason or None
    if message or (before is not None and before.message):
        made["message"] = message or None
    return made


# Resize


def resize_wanted(pod: Pod) -> bool:
    """Whether the resources in the spec differ from those of the running containers, or a resize is pending."""
    return pod.status.condition("PodResizePending") is not None or any(
        _differs(container, status)
        for container, status in zip(pod.spec.containers, pod.status.container_statuses)
        if status.state.running is not None
    )


def _differs(container: Container, status: ContainerStatus) -> bool:
    if status.resources is None:
        return False  # not reported, as in pods of snapshots: the containers run with the resources of the spec
    wanted = {k: v for k, v in msgspec.to_builtins(container.resources).items() if v}
    return wanted != {k: v for k, v in msgspec.to_builtins(status.resources).items() if v}


def resized(pod: Pod, now: float) -> Document:
    """The status of a pod after a resize to the resources in its spec."""
    statuses = []
    for container, status in zip(pod.spec.containers, pod.status.container_statuses):
        running = status.state.running.started_at if status.state.running is not None else format_time(now)
        statuses.append(_running(container, running, status.restart_count, ready=status.ready))
    change: Document = {"containerStatuses": statuses, "observedGeneration": pod.metadata.generation}
    if pod.status.condition("PodResizePending") is not None:
        change["conditions"] = [{"$patch": "delete", "type": "PodResizePending"}]
    return change
