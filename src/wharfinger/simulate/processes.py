"""The processes of a simulated control plane as faults see them: what happens to their requests and watches, and how one
ends.

A process that is killed sends nothing more: what its tasks do while they are cancelled does not reach the store.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar, cast

import msgspec
from msgspec.structs import replace

from wharfinger.api.errors import (
    ApiError,
    Conflict,
    Expired,
    InternalError,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
)
from wharfinger.api.kinds.builtin import EVENTS
from wharfinger.api.registry import Document
from wharfinger.api.requests import READS, ApiRequest
from wharfinger.client.interface import EventType, ListPage, LocalStream, WatchEvent
from wharfinger.client.local import LocalClient, StoreStream
from wharfinger.client.timers import Clock
from wharfinger.scenario.document import ScenarioFault
from wharfinger.scenario.faults import BindFaults, FaultyClient

T = TypeVar("T")

WatchedKind = tuple[str, object, str, str]
"""The plural, the view, and the selectors."""

WrittenKey = tuple[str, str, str]
"""The plural, the namespace and the name."""

_REFUSALS: dict[str, Callable[[], ApiError]] = {
    "unsent": lambda: ServiceUnavailable("the connection was lost"),
    "conflict": lambda: Conflict("the object has been modified; please apply your changes to the latest version"),
    "throttled": lambda: TooManyRequests("too many requests, please try again later", retry_after=1),
    "error": lambda: InternalError("the request was made to fail"),
    "unavailable": lambda: ServiceUnavailable("the server is currently unable to handle the request"),
    "timeout": lambda: ServerTimeout("the server did not answer in time", retry_after=1),
}


class SkewedClock:
    """The wall clock of one component, which may be ahead or behind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.skew = 0.0  # seconds ahead

    def now(self) -> float:
        return self._clock.now() + self.skew


class ProcessRun(msgspec.Struct, eq=False):
    """One run of a component, from its start to its end."""

    name: str
    number: int = 0
    alive: bool = True
    writes_left: int | None = None  # after so many writes of its own it is killed
    down_for: float = 0.0  # seconds after which it is started again
    writes_before_pause: int | None = None  # after so many writes of its own it stands still
    pause_for: float = 0.0  # seconds
    delayed: set[WrittenKey] = msgspec.field(default_factory=set)  # writes that arrived late
    _by_watch: dict[str, dict[WatchedKind, int]] = msgspec.field(default_factory=dict)  # by kind, what each has seen
    _seen: dict[str, int] = msgspec.field(default_factory=dict)

    def saw(self, watched: WatchedKind, version: str) -> None:
        """A process may watch a kind several times; what counts is the watch that lags behind."""
        plural = watched[0]
        watches = self._by_watch.setdefault(plural, {})
        watches[watched] = int(version)
        self._seen[plural] = min(watches.values())

    @property
    def seen(self) -> dict[str, int]:
        """By kind: the version up to which it has seen all changes."""
        return self._seen.copy()

    @property
    def kinds_seen(self) -> int:
        """Of how many kinds it has seen something."""
        return len(self._seen)


class ProcessFaults:
    """The faults still to inject into requests and watches; the first that fits is used."""

    def __init__(self, kill: Callable[[ProcessRun], None], pause: Callable[[ProcessRun], None]) -> None:
        self._armed: list[tuple[ScenarioFault, int]] = []
        self._kill = kill
        self._pause = pause
        self.on_write: Callable[[ProcessRun, ApiRequest[Any]], None] | None = None  # called with each accepted write
        self.stores_event: Callable[[Document], bool] | None = None  # others are accepted, and go nowhere
        self._moments: list[float] = []  # when, and...
        self._versions: list[int] = []  # ...what the version was then, for lists that are stale

    def arm(self, fault: ScenarioFault) -> None:
        self._armed.append((fault, fault.count))

    def clear(self) -> None:
        self._armed.clear()

    @property
    def armed(self) -> bool:
        return bool(self._armed)

    def note(self, moment: float, version: int) -> None:
        self._moments.append(moment)
        self._versions.append(version)

    def version_before(self, moment: float) -> int:
        """The version at a moment; 0 if unknown."""
        index = bisect_right(self._moments, moment)
        return self._versions[index - 1] if index else 0

    def take(self, run: ProcessRun, request: ApiRequest[Any], group: str, *kinds: str) -> ScenarioFault | None:
        """Uses up one fault of a group, `request` or `watch`, if one fits."""
        kind = request.resource.plural
        if request.subresource:
            kind += f"/{request.subresource}"
        for index, (fault, left) in enumerate(self._armed):
            which = fault.request if group == "request" else fault.watch
            if which and (not kinds or which in kinds) and fault.by in ("", run.name) and fault.to in ("", kind):
                if left > 1:
                    self._armed[index] = (fault, left - 1)
                else:
                    del self._armed[index]
                return fault
        return None

    def wrote(self, run: ProcessRun, request: ApiRequest[Any]) -> None:
        """Counts a write towards a pause and the death of the process. Does not return if that was the last one."""
        if self.on_write is not None:
            self.on_write(run, request)
        if run.writes_before_pause is not None:
            run.writes_before_pause -= 1
            if run.writes_before_pause <= 0:
                run.writes_before_pause = None
                self._pause(run)
        if run.writes_left is None:
            return
        run.writes_left -= 1
        if run.writes_left <= 0:
            run.writes_left = None
            self._kill(run)
            raise ServiceUnavailable("the process was killed")


class ProcessClient(FaultyClient):
    """The client of one run of a component."""

    def __init__(
        self, client: LocalClient, binds: BindFaults, faults: ProcessFaults, run: ProcessRun, bind_faults: bool
    ) -> None:
        super().__init__(client, binds)
        self._process_faults = faults
        self.run = run
        self._bind_faults = bind_faults

    @property
    def at_once(self) -> bool:
        run = self.run
        undisturbed = not self._process_faults.armed and run.writes_left is None and run.writes_before_pause is None
        return undisturbed and super().at_once

    async def send(self, request: ApiRequest[T]) -> T:
        run, faults = self.run, self._process_faults
        if not run.alive:
            raise ServiceUnavailable("the process was killed")
        fault = faults.take(run, request, "request") if faults.armed else None
        answer = await (self._deliver(request) if fault is None else self._disturbed(request, fault))
        if request.verb == "list":
            run.saw(_watched(request), cast("ListPage[Any]", answer).resource_version)
        return answer

    async def _deliver(self, request: ApiRequest[T]) -> T:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        if request.verb == "list" and self._process_faults.armed:
            request = self._dated(request)
        stores_event = self._process_faults.stores_event
        if stores_event is not None and request.resource == EVENTS and request.body and not stores_event(request.body):
            answer = cast("T", request.body)
        elif self._bind_faults:
            answer = await super().send(request)
        else:
            answer = await LocalClient.send(self, request)
        if request.verb not in READS:
            if loop.time() > sent:  # the process stood still while a webhook decided
                self.run.delayed.add(_written(request))
            self._process_faults.wrote(self.run, request)
        return answer

    async def _disturbed(self, request: ApiRequest[T], fault: ScenarioFault) -> T:
        kind = fault.request
        if kind in _REFUSALS:
            raise _REFUSALS[kind]()
        if kind == "slow":
            await asyncio.sleep(fault.delay)
            self.run.delayed.add(_written(request))
            return await self._deliver(request)
        if kind == "repeated":
            with suppress(ApiError):  # the answer is lost
                await self._deliver(request)
            return await self._deliver(request)
        answer = await self._deliver(request)
        if kind == "lost":
            raise ServiceUnavailable("the answer was lost")
        await asyncio.sleep(fault.delay)
        return answer

    def _dated(self, request: ApiRequest[T]) -> ApiRequest[T]:
        """A list as of some time ago, if a fault says so. The first page decides."""
        if request.continue_token or request.resource_version:
            return request
        fault = self._process_faults.take(self.run, request, "watch", "stale")
        if fault is None:
            return request
        version = self._process_faults.version_before(asyncio.get_running_loop().time() - fault.delay)
        if not version:
            return request
        return replace(request, resource_version=str(version), version_match="Exact", limit=0)

    def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        return ProcessStream(StoreStream(self.store, request), self.run, self._process_faults, request)


class ProcessStream(LocalStream[T]):
    """A watch of a process, with the faults of watches."""

    def __init__(
        self, stream: LocalStream[T], run: ProcessRun, faults: ProcessFaults, request: ApiRequest[WatchEvent[T]]
    ) -> None:
        self._stream = stream
        self._run = run
        self._faults = faults
        self._request = request
        self._watched = _watched(request)
        self._seen = request.resource_version

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._stream.__anext__()
        if not self._run.alive:
            await self._end()
        if self._faults.armed and event.object is not None:
            fault = self._faults.take(self._run, self._request, "watch", "delay", "gap", "disconnect", "bookmark")
            if fault is not None:
                if fault.watch == "gap":
                    await self.aclose()
                    raise Expired("too old resource version: the watch was made to end")
                if fault.watch == "disconnect":
                    await self._end()
                if fault.watch == "bookmark":
                    await self.aclose()
                    return WatchEvent(EventType.BOOKMARK, None, self._seen)
                await asyncio.sleep(fault.delay)
        if event.resource_version:
            self._saw(event.resource_version)
        return event

    async def _end(self) -> NoReturn:
        await self.aclose()
        raise StopAsyncIteration

    def ready(self, most: int) -> Sequence[WatchEvent[T]]:
        if self._faults.armed or not self._run.alive:
            return ()  # each event may meet a fault
        events = self._stream.ready(most)
        if events:
            self._saw(events[-1].resource_version)
        return events

    def _saw(self, version: str) -> None:
        self._seen = version
        self._run.saw(self._watched, version)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _written(request: ApiRequest[Any]) -> WrittenKey:
    return request.resource.plural, request.namespace, request.name


def _watched(request: ApiRequest[Any]) -> WatchedKind:
    return request.resource.plural, request.view, request.label_selector, request.field_selector
