"""The log of a container on a simulated node: the history of its states, as far as the status of its pod tells. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from wharfinger.api.registry import Document
from wharfinger.api.times import format_time, parse_time

_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


class NoLog(Exception):
    """The container has no log; the message is that of a kubelet."""


@dataclass(frozen=True, slots=True)
class LogLine:
    time: float
    message: str

    def text(self, *, timestamp: bool) -> str:
        """The line as a client gets it. `timestamp` adds the time that a container runtime puts before each line."""
        line = f"{format_time(self.time)} {self.message}\n"
        return f"{format_time(self.time)[:-1]}.000000000Z {line}" if timestamp else line


def lines(pod: Document, container: str, *, previous: bool = False) -> list[LogLine]:
    """The log of the current attempt of a container, or of the one before. Raises `NoLog`."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    found = _status(pod, container)
    if not found and status.get("phase") == "Failed" and not previous:  # rejected at admission
        return [*_placed(pod), LogLine(_time(status.get("startTime")), f"pod rejected: {status.get('message')}")]
    if not found:
        text = f'container "{container}" in pod "{metadata["name"]}" is waiting to start: ContainerCreating'
        raise NoLog(text)
    last = (found.get("lastState") or {}).get("terminated")
    restarts = found.get("restartCount") or 0
    if previous:
        if not last:
            raise NoLog(f'previous terminated container "{container}" in pod "{metadata["name"]}" not found')
        return _attempt(container, last, restarts - 1)
    state = found.get("state") or {}
    ended, running = state.get("terminated"), state.get("running")
    begin = [] if restarts else _placed(pod)
    if ended:
        return [*begin, *_attempt(container, ended, restarts)]
    if not running:
        reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
        raise NoLog(f'container "{container}" in pod "{metadata["name"]}" is waiting to start: {reason}')
    started = _time(running.get("startedAt"))
    made = [*begin, _started(container, started, restarts)]
    if found.get("ready"):
        since = max(started, _ready_since(status))
        made.append(LogLine(since, f"container {container} ready"))
    return made


def _placed(pod: Document) -> list[LogLine]:
    metadata, status = pod["metadata"], pod.get("status") or {}
    created = _time(metadata.get("creationTimestamp"))
    conditions = status.get("conditions") or ()
    bound: Document = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    return [
        LogLine(created, f"pod {metadata['namespace']}/{metadata['name']} created"),
        LogLine(
            max(created, _time(bound.get("lastTransitionTime"))),
            f"pod assigned to simulated node {pod['spec'].get('nodeName')}",
        ),
    ]


def _started(container: str, time: float, restarts: int) -> LogLine:
    return LogLine(time, f"container {container} started" + (f" (restart {restarts})" if restarts else ""))


def _attempt(container: str, ended: Document, restarts: int) -> list[LogLine]:
    finished = _time(ended.get("finishedAt"))
    reason = f" ({ended['reason']})" if ended.get("reason") else ""
    return [
        _started(container, _time(ended.get("startedAt")), restarts),
        LogLine(finished, f"container {container} finished with exit code {ended.get('exitCode', 0)}{reason}"),
    ]


def stopped_line(pod: Document, container: str, now: float) -> LogLine:
    """The last line of a container whose pod was deleted while it ran."""
    return LogLine(now, f"container {container} stopped: pod deleted")


def is_running(pod: Document, container: str) -> bool:
    return bool((_status(pod, container).get("state") or {}).get("running"))


def restart_count(pod: Document, container: str) -> int:
    return _status(pod, container).get("restartCount") or 0


def _status(pod: Document, container: str) -> Document:
    status = pod.get("status") or {}
    found: Document = next(
        (each for group in _STATUSES for each in status.get(group) or () if each.get("name") == container), {}
    )
    return found


def _ready_since(status: Document) -> float:
    conditions = status.get("conditions") or ()
    ready: Document = next((each for each in conditions if each.get("type") == "ContainersReady"), {})
    return _time(ready.get("lastTransitionTime")) if ready.get("status") == "True" else 0.0


def _time(text: str | None) -> float:
    return parse_time(text) if text else 0.0
