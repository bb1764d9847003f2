"""An event loop in virtual time: when nothing is ready, its clock jumps to the next timer.

The live components run on it unchanged. It stops when a simulation is idle (only background timers are left, see
`wharfinger.client.timers`) or when a given moment is reached. There is no I/O on such a loop.

Work that never ends at one instant would keep time from passing. It ends the run with `NoProgress`, which names what the
components were doing.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from wharfinger.client.activity import ACTIVITY
from wharfinger.client.timers import after_refusal, background, in_background

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


_PROCESS: ContextVar[str] = ContextVar("wharfinger_simulated_process", default="")


class Deadlock(RuntimeError):
    """A coroutine waits forever: no task is ready and no timer is left."""


class NoProgress(RuntimeError):
    """Components are busy without end while no time passes. The message names what they are doing."""


TURNS = 10_000  # iterations at one instant, and...
TURNS_PER_OBJECT = 20  # ...for each object, after which time should have passed
TRACED_TURNS = 1_000  # further iterations in which the work is recorded, to name the loop
_NAMED = 5  # items that the error names


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, size: Callable[[], int] = lambda: 0, state: Callable[[], int] | None = None) -> None:
        """`size` is the number of objects in the simulated cluster: a large one needs more iterations at one instant.
        `state` is another number whenever something has changed that may let in what was refused."""
        self._now = 0.0
        self._size = size
        self._turns = 0  # iterations since time passed, or since somebody began to wait
        self._turns_allowed = TURNS
        self._waits = 0  # how many wait for the components to finish or for time to pass
        self._horizon: float | None = None  # time does not pass this moment
        self._stop_when_idle = False
        self._foreground: deque[asyncio.TimerHandle] = deque()
        self._state = state
        self._retries: list[tuple[asyncio.TimerHandle, int]] = []  # after refusals, with the state at that time
        self._compact_at = 1024
        self.each_turn: Callable[[], None] | None = None  # called in every iteration of the loop, to report progress
        self._waiting_for_still: list[asyncio.Future[None]] = []
        self._waiting_for_idle: list[asyncio.Future[None]] = []
        self._waiting_for_move: list[asyncio.Future[None]] = []
        self._paused: dict[str, list[asyncio.Handle]] = {}  # what the tasks of paused processes would do next
        super().__init__(_TimeJumpingSelector(self._turn))

    def time(self) -> float:
        return self._now

    def run_until_idle(self, *, until: float | None = None) -> None:
        """Runs until only background timers are left, or until loop time `until`."""
        self._run(until=until, stop_when_idle=True)

    def run_to(self, moment: float) -> None:
        """Runs everything that happens up to and including loop time `moment`."""
        self._run(until=moment, stop_when_idle=False)

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs until the coroutine is done; other tasks and timers go on meanwhile."""
        self._horizon, self._stop_when_idle = None, False
        return self.run_until_complete(work)

    async def still(self) -> None:
        """Waits, without letting time pass, until everything that can happen now has happened."""
        await self._wait_in(self._waiting_for_still)

    async def idle(self) -> None:
        """Lets time pass until only background timers are left."""
        await self._wait_in(self._waiting_for_idle)

    async def moment(self, when: float) -> None:
        """Lets time pass until loop time `when`, and everything due then happen."""
        with self._waiting(), background():
            await asyncio.sleep(max(0.0, when - self._now))
        await self.still()

    async def next_moment(self, until: float) -> None:
        """Lets time pass until the next timer, at most until `until`, and everything due then happen."""
        with background():
            limit = self.call_at(until, lambda: None)
        try:
            await self._wait_in(self._waiting_for_move)
            await self.still()
        finally:
            limit.cancel()

    async def _wait_in(self, waiting: list[asyncio.Future[None]]) -> None:
        future: asyncio.Future[None] = self.create_future()
        waiting.append(future)
        with self._waiting():
            await future

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Inside, nobody but the components acts, so work without end at one instant is theirs."""
        self._waits += 1
        self._time_passed()
        try:
            yield
        finally:
            self._waits -= 1

    def shut_down(self) -> None:
        """Cancels every task and closes the loop."""
        self.complete(_cancel(asyncio.all_tasks(self)))
        self.complete(self.shutdown_asyncgens())
        self.close()

    # -- processes

    def start_process(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Runs a coroutine, and all tasks that it starts, as a process that can be paused."""
        context = copy_context()
        context.run(_PROCESS.set, name)
        return self.create_task(work, name=name, context=context)

    def pause(self, process: str) -> None:
        """From now on no task of the process goes on. Timers elsewhere, and requests that it has sent, do."""
        self._paused.setdefault(process, [])
        self.call_soon = self._call_soon_unless_paused  # type: ignore[method-assign]  # costs nothing while none is

    def resume(self, process: str) -> None:
        held = self._paused.pop(process, [])
        if not self._paused:
            self.__dict__.pop("call_soon", None)
        for handle in held:
            self._ready.append(handle)  # type: ignore[attr-defined]  # of the base class

    def _call_soon_unless_paused(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        process = (_PROCESS.get if context is None else partial(context.get, _PROCESS))("")
        held = self._paused.get(process or "")
        if held is None:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        held.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        background = in_background() if context is None else context.run(in_background)
        refused = after_refusal() if context is None else context.run(after_refusal)
        if not background and refused and self._state is not None:
            self._retries.append((handle, self._state()))
        elif not background:
            self._foreground.append(handle)
            if len(self._foreground) > self._compact_at:
                self._foreground = deque(timer for timer in self._foreground if _pending(timer))
                self._compact_at = max(1024, 2 * len(self._foreground))
        return handle

    def _run(self, *, until: float | None, stop_when_idle: bool) -> None:
        self._horizon, self._stop_when_idle = until, stop_when_idle
        with self._waiting():
            self.run_forever()

    def _busy(self) -> bool:
        while self._foreground and not _pending(self._foreground[0]):
            self._foreground.popleft()
        return bool(self._foreground) or self._may_be_let_in()

    def _may_be_let_in(self) -> bool:
        """Whether a retry is pending that may succeed: something has changed since the refusal. What only an event from
        outside could change is not waited for."""
        if not self._retries or self._state is None:
            return False
        self._retries = [(timer, state) for timer, state in self._retries if _pending(timer)]
        now = self._state()
        return any(state != now for _, state in self._retries)

    def _turn(self, wait: float | None) -> None:
        if self.each_turn is not None:
            self.each_turn()
        if self._waits:
            self._turns += 1
            if self._turns > self._turns_allowed:
                self._suspect_loop()
        if wait is None or wait > 0:
            self._nothing_ready(wait)

    def _suspect_loop(self) -> None:
        """Many iterations without time passing: allow for the size of the cluster, then record the work, then give up."""
        allowed = TURNS + TURNS_PER_OBJECT * self._size()
        if self._turns <= allowed:
            self._turns_allowed = allowed
        elif ACTIVITY.counted is None:
            ACTIVITY.counted = Counter()
            self._turns_allowed = self._turns + TRACED_TURNS
        else:
            found, turns = ACTIVITY.counted, self._turns
            self._time_passed()
            raise NoProgress(_loop_text(turns, found))

    def _time_passed(self) -> None:
        self._turns, self._turns_allowed = 0, TURNS
        ACTIVITY.counted = None

    def _nothing_ready(self, wait: float | None) -> None:
        """Called by the selector when the loop would block for `wait` seconds: jump, or stop."""
        if self._waiting_for_still:
            _release(self._waiting_for_still)
        elif self._waiting_for_idle and not self._busy():
            _release(self._waiting_for_idle)
        elif self._stop_when_idle and not self._busy():
            self.stop()
        elif wait is None:
            if self._horizon is None and not self._stop_when_idle:
                raise Deadlock("nothing is ready and no timer is left")
            self._now = self._now if self._horizon is None else max(self._now, self._horizon)
            self.stop()
        elif self._horizon is not None and self._now + wait > self._horizon:
            self._now = max(self._now, self._horizon)
            self.stop()
        else:
            self._now += wait
            self._time_passed()
            _release(self._waiting_for_move)


def _loop_text(turns: int, counted: Counter[str]) -> str:
    loop = ", ".join(f"{item} ({count} times)" for item, count in counted.most_common(_NAMED))
    rest = f" and {len(counted) - _NAMED} others" if len(counted) > _NAMED else ""
    return (
        f"no progress: after {turns} steps at the same instant, components still repeat their work; "
        f"in the last {TRACED_TURNS} steps: {loop or 'no component was involved'}{rest}"
    )


def _release(waiting: list[asyncio.Future[None]]) -> None:
    released, waiting[:] = waiting[:], []
    for future in released:
        if not future.done():
            future.set_result(None)


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _pending(handle: asyncio.TimerHandle) -> bool:
    scheduled: bool = handle._scheduled  # type: ignore[attr-defined]  # the loop clears it when the timer is taken
    return scheduled and not handle.cancelled()


class _TimeJumpingSelector(selectors.BaseSelector):
    """Holds the loop's own wake-up pipe and nothing else; waiting means letting virtual time pass."""

    def __init__(self, turn: Callable[[float | None], None]) -> None:
        self._turn = turn
        self._real = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turn(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()
