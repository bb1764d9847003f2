"""Columns of pods and nodes."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.columns.cells import (
    AGE,
    NONE,
    UNKNOWN,
    computed,
    condition,
    has_condition,
    since,
    spec,
    status,
)
from wharfinger.api.registry import Column, Document


class _Summary(msgspec.Struct):
    """Values of several columns of a pod, computed in one pass over its container statuses."""

    ready: int = 0
    total: int = 0
    reason: str = ""
    restarts: int = 0
    last_restart: str = ""

    def count(self, container: Document) -> None:
        self.restarts += container.get("restartCount") or 0
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.last_restart = max(self.last_restart, ended)


def _is_sidecar(container: Document | None) -> bool:
    return container is not None and container.get("restartPolicy") == "Always"


def _ending(terminated: Document) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def summary(pod: Document) -> _Summary:
    now, inits = status(pod), {c.get("name"): c for c in spec(pod).get("initContainers") or ()}
    result = _Summary(total=len(spec(pod).get("containers") or ()) + sum(map(_is_sidecar, inits.values())))
    result.reason = now.get("reason") or now.get("phase") or ""
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        result.reason = "SchedulingGated"
    sidecars = _Summary()
    initializing = _initialize(pod, inits, result, sidecars)
    if not initializing or has_condition(pod, "Initialized"):
        result.restarts, result.last_restart = sidecars.restarts, sidecars.last_restart
        _run(pod, result)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if now.get("reason") == "NodeLost":
            result.reason = "Unknown"
        elif now.get("phase") not in ("Succeeded", "Failed"):
            result.reason = "Terminating"
    return result


def _initialize(pod: Document, inits: dict[Any, Document], result: _Summary, sidecars: _Summary) -> bool:
    """Sets the reason of init containers; returns whether one is still running or failed."""
    for index, container in enumerate(status(pod).get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        result.count(container)
        sidecar = _is_sidecar(inits.get(container.get("name")))
        if sidecar:
            sidecars.count(container)
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            result.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            result.reason = f"Init:{_ending(terminated)}"
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            result.reason = f"Init:{waiting['reason']}"
        else:
            result.reason = f"Init:{index}/{len(inits)}"
        return True
    return False


def _run(pod: Document, result: _Summary) -> None:
    running, failure = False, ""
    for container in reversed(status(pod).get("containerStatuses") or ()):
        result.count(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if (state.get("waiting") or {}).get("reason"):
            result.reason = state["waiting"]["reason"]
        elif terminated is not None:
            result.reason = _ending(terminated)
            if terminated.get("exitCode"):
                failure = result.reason
        elif container.get("ready") and state.get("running") is not None:
            running = True
            result.ready += 1
    if result.reason == "Completed":
        if running and has_condition(pod, "Ready"):
            result.reason = "Running"
        elif failure:
            result.reason = failure
        elif running:
            result.reason = "NotReady"


def _ready(pod: Document) -> str:
    found = summary(pod)
    return f"{found.ready}/{found.total}"


def _restarts(pod: Document, now: float) -> str:
    found = summary(pod)
    if found.restarts and found.last_restart:
        return f"{found.restarts} ({since(found.last_restart, now)} ago)"
    return str(found.restarts)


def _gates(pod: Document) -> str:
    gates = spec(pod).get("readinessGates") or ()
    if not gates:
        return NONE
    return f"{sum(has_condition(pod, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"


def _pod_ip(pod: Document) -> str:
    addresses = status(pod).get("podIPs") or ()
    return (addresses[0].get("ip") if addresses else status(pod).get("podIP")) or NONE


POD_COLUMNS: tuple[Column, ...] = (
    computed("Ready", _ready),
    computed("Status", lambda pod: summary(pod).reason),
    Column("Restarts", cell=_restarts),
    AGE,
    computed("IP", _pod_ip, wide=True),
    computed("Node", lambda pod: spec(pod).get("nodeName") or NONE, wide=True),
    computed("Nominated Node", lambda pod: status(pod).get("nominatedNodeName") or NONE, wide=True),
    computed("Readiness Gates", _gates, wide=True),
)

_ROLE = "node-role.kubernetes.io/"


def _node_status(node: Document) -> str:
    ready = condition(node, "Ready")
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if spec(node).get("unschedulable") else text


def _roles(node: Document) -> str:
    labels = (node.get("metadata") or {}).get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE) and key != _ROLE}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(roles)) or NONE


def _address(kind: str) -> Any:
    def of(node: Document) -> str:
        for address in status(node).get("addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address", ""))
        return NONE

    return of


def _info(field: str) -> Any:
    return lambda node: (status(node).get("nodeInfo") or {}).get(field) or UNKNOWN


def _kernel(node: Document) -> str:
    architecture = (status(node).get("nodeInfo") or {}).get("architecture")
    kernel = str(_info("kernelVersion")(node))
    return f"{kernel} ({architecture})" if architecture else kernel


NODE_COLUMNS: tuple[Column, ...] = (
    computed("Status", _node_status),
    computed("Roles", _roles),
    AGE,
    Column("Version", "status.nodeInfo.kubeletVersion"),
    computed("Internal-IP", _address("InternalIP"), wide=True),
    computed("External-IP", _address("ExternalIP"), wide=True),
    computed("OS-Image", _info("osImage"), wide=True),
    computed("Kernel-Version", _kernel, wide=True),
    computed("Container-Runtime", _info("containerRuntimeVersion"), wide=True),
)
