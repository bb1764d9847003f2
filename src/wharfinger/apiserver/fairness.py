"""Fair shares: how much of the server one user may take, so that none can keep the others out.

Every user has a share of the requests in progress. A request beyond the share, or beyond the total, waits in the user's
queue; seats go to the waiting user with the fewest requests in progress. A queue that is too long, and a wait that is too
long, end in `429`. Bodies are received before a request takes a seat, and their number and size are limited for each user,
so a client that sends slowly holds up nobody.

Watches and other long requests take no seats. Of those that there is room for, a user may have as many as are still free:
one user alone gets half of them, and there is room for a newcomer whatever others have. A few are granted to everybody.

Members of `system:masters` and health checks are exempt, as with upstream's FlowSchema `exempt`; they never come here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from wharfinger.api.errors import TooManyRequests
from wharfinger.http.metrics import CounterSeries

# Defaults of kube-apiserver; only their sum matters, as with its priority and fairness.
MAX_READS, MAX_WRITES = 400, 200
MAX_WATCHES = 20_000
_FEW_WATCHES = 100  # more than a kubelet needs
_SHARE = 4  # one user may have a quarter of all seats
_QUEUE = 200  # requests of one user that may wait
_PATIENCE = 15.0  # seconds that a request may wait for a seat
_BODIES = 100  # bodies of one user that may be arriving
_BODY_BYTES = 32 * 1024 * 1024  # and what of them is held in memory
_KNOWN_FLOWS = 10_000  # idle flows beyond these are forgotten


@dataclass(slots=True)
class FairnessLimits:
    """`seats` are the requests in progress; `watches` is the number of long requests that there is room for, of which
    every user may have `few_watches`."""

    seats: int = MAX_READS + MAX_WRITES
    watches: int = MAX_WATCHES
    few_watches: int = _FEW_WATCHES
    queue: int = _QUEUE
    patience: float = _PATIENCE
    bodies: int = _BODIES
    body_bytes: int = _BODY_BYTES

    @property
    def share(self) -> int:
        return max(1, self.seats // _SHARE)


class Flow:
    """What one user is doing."""

    __slots__ = ("bodies", "body_bytes", "inflight", "queue", "watches")

    def __init__(self) -> None:
        self.inflight = 0
        self.queue: deque[asyncio.Future[None]] = deque()
        self.watches = 0
        self.bodies = 0
        self.body_bytes = 0

    @property
    def idle(self) -> bool:
        return not (self.inflight or self.queue or self.watches or self.bodies)


class Fairness:
    def __init__(self, limits: FairnessLimits, rejected: CounterSeries) -> None:
        self.limits = limits
        self.inflight = 0
        self.watches = 0
        self._rejected = rejected
        self._flows: dict[str, Flow] = {}
        self._waiting: dict[str, Flow] = {}  # flows with a queue

    @property
    def queued(self) -> int:
        return sum(len(flow.queue) for flow in self._waiting.values())

    def flow(self, user: str) -> Flow:
        found = self._flows.get(user)
        if found is None:
            if len(self._flows) >= _KNOWN_FLOWS:
                self._flows = {name: flow for name, flow in self._flows.items() if not flow.idle}
            found = self._flows[user] = Flow()
        return found

    def must_wait(self, flow: Flow) -> bool:
        """Whether `wait` has to be awaited for a seat. If not, the seat is taken."""
        if self.inflight < self.limits.seats and flow.inflight < self.limits.share and not flow.queue:
            self.inflight += 1
            flow.inflight += 1
            return False
        return True

    async def wait(self, user: str, flow: Flow) -> None:
        """Returns with a seat. Raises TooManyRequests."""
        if len(flow.queue) >= self.limits.queue:
            raise self.refusal("queue-full")
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow.queue.append(seat)
        self._waiting[user] = flow
        try:
            async with asyncio.timeout(self.limits.patience):
                await seat
        except BaseException as error:
            if seat.done() and not seat.cancelled():  # granted meanwhile
                self.release(flow)
            elif seat in flow.queue:  # not skipped by a grant that found it cancelled
                flow.queue.remove(seat)
                if not flow.queue:
                    self._waiting.pop(user, None)
            if isinstance(error, TimeoutError):
                raise self.refusal("time-out") from None
            raise

    def release(self, flow: Flow) -> None:
        self.inflight -= 1
        flow.inflight -= 1
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        limits = self.limits
        while self.inflight < limits.seats:
            user, flow = min(self._waiting.items(), key=_load, default=("", None))
            if flow is None or flow.inflight >= limits.share:
                return
            seat = flow.queue.popleft()
            if not flow.queue:
                del self._waiting[user]
            if not seat.done():
                self.inflight += 1
                flow.inflight += 1
                seat.set_result(None)

    def begin_watch(self, flow: Flow) -> None:
        """Counts a long request until `end_watch`. Raises TooManyRequests."""
        limits = self.limits
        if flow.watches >= max(limits.few_watches, limits.watches - self.watches):
            raise self.refusal("watches")
        self.watches += 1
        flow.watches += 1

    def end_watch(self, flow: Flow) -> None:
        self.watches -= 1
        flow.watches -= 1

    def refusal(self, reason: str) -> TooManyRequests:
        self._rejected.cell((reason,))[0] += 1
        return TooManyRequests("Too many requests, please try again later.", retry_after=1)


def _load(waiting: tuple[str, Flow]) -> int:
    return waiting[1].inflight
