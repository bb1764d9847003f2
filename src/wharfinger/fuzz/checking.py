"""Checks the invariants while a history is played, step by step and at rest."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import LEASES
from wharfinger.api.requests import ApiRequest
from wharfinger.fuzz.history import PlainHistory
from wharfinger.fuzz.invariants.admission import PodsAdmitted
from wharfinger.fuzz.invariants.base import Invariant
from wharfinger.fuzz.invariants.binding import BoundOnce
from wharfinger.fuzz.invariants.claims import ClaimsHeldOnce
from wharfinger.fuzz.invariants.devices import DevicesHeldOnce
from wharfinger.fuzz.invariants.informing import DecidesInformed
from wharfinger.fuzz.invariants.leading import OneLeader
from wharfinger.fuzz.invariants.preemption import PreemptionHelps
from wharfinger.fuzz.invariants.quota import QuotaKept
from wharfinger.fuzz.invariants.reserving import ReservedMeansReserved
from wharfinger.fuzz.invariants.room import NoOvercommit
from wharfinger.fuzz.invariants.units import UnitLimits
from wharfinger.fuzz.invariants.volumes import VolumesAttachable
from wharfinger.fuzz.resting import REST_CHECKS, RestingCluster
from wharfinger.scenario.document import Scenario, ScenarioStep
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.loop import Deadlock, NoProgress
from wharfinger.simulate.processes import ProcessRun

INVARIANTS: tuple[type[Invariant], ...] = (
    NoOvercommit,
    BoundOnce,
    ReservedMeansReserved,
    UnitLimits,
    QuotaKept,
    DevicesHeldOnce,
    PodsAdmitted,
    PreemptionHelps,
    ClaimsHeldOnce,
    VolumesAttachable,
    OneLeader,
    DecidesInformed,
)
UNBROKEN = "unbroken"
"""No component ends, or meets an error that it did not expect."""
NAMES: tuple[str, ...] = (*(each.name for each in INVARIANTS), *REST_CHECKS, UNBROKEN)
_LEASE = "wharfinger-scheduler"
_SCHEDULERS = ("scheduler", "standby")
_PLACING = (("pods", "binding"), ("reservations", "status"))  # writes that carry out a decision
RECOUNT_EVERY = 50  # steps, or as many as there are pods if those are more: then sums are compared with a plain count


class InvariantViolation(msgspec.Struct, frozen=True):
    invariant: str
    message: str

    def __str__(self) -> str:
        return f"invariant {self.invariant} is violated: {self.message}"


class InvariantChecker:
    """Implements `wharfinger.scenario.runner.StepWatcher`."""

    def __init__(self, world: SimulatedCluster, names: Iterable[str] = NAMES) -> None:
        self._world = world
        self._names = frozenset(names)
        modes = {getattr(each, "mode", "") for each in world.configuration.blocks}
        self.history = PlainHistory(version=0, enforced="enforce" in modes)
        self._invariants = [each(self.history) for each in INVARIANTS if each.name in self._names]
        self._by_kind: dict[str, list[Invariant]] = defaultdict(list)  # those that read the changes of a kind
        for invariant in self._invariants:
            for plural in invariant.kinds:
                self._by_kind[plural].append(invariant)
        self._steps = 0
        self._recounted = 0  # the step at which the sums were compared last
        self.at_rest = False  # faults have ended, and what they left behind is over
        world.on_scheduler = self.history.follow
        world.on_review = self.history.review
        world.loop.set_task_factory(_watched_task)
        world.process_faults.on_write = self._wrote
        world.process_faults.stores_event = lambda event: event.get("reason") == "Preempted"  # the others cost much
        self._observe()  # what there is before the first step is not judged

    async def after_step(self, step: ScenarioStep) -> list[str]:
        return [str(each) for each in await self.check(step)]

    async def finish(self) -> list[str]:
        return [str(each) for each in await self.rest()]

    async def check(self, step: ScenarioStep) -> list[InvariantViolation]:
        """What does not hold after a step. One that does nothing and has no time lets everything come to rest."""
        self._steps += 1
        self.history.disturbed |= bool(step.faults)
        self.history.skewed |= any(each.skew for each in step.faults)
        found = self._observe()
        if step.at is None and not step.acts:
            found += await self.rest()
        elif self._steps - self._recounted >= max(RECOUNT_EVERY, len(self.history.objects["pods"])):
            found += self._recount()
        return found

    def _recount(self) -> list[InvariantViolation]:
        self._recounted = self._steps
        return [InvariantViolation(each.name, text) for each in self._invariants for text in each.recount()]

    async def rest(self) -> list[InvariantViolation]:
        """Faults end and everything settles; then what must hold at rest is checked."""
        found: list[InvariantViolation] = []
        resting = RestingCluster(self._world, self.history, lambda: found.extend(self._observe()))
        try:
            await resting.end_faults()
            self.at_rest = True
            await resting.settle()
            found += self._observe()
            found += self._recount()
            for name, check in REST_CHECKS.items():
                if name in self._names:
                    found += [InvariantViolation(name, text) for text in await check(resting)]
            self.at_rest = False
        except (NoProgress, Deadlock) as error:
            found += [InvariantViolation("liveness", str(error))] if "liveness" in self._names else []
        return found + self._observe()

    def _wrote(self, run: ProcessRun, request: ApiRequest[Any]) -> None:
        holder, store = "", self._world.store
        if run.name in _SCHEDULERS:
            if (request.resource.plural, request.subresource) in _PLACING:
                if (placed := store.peek(request.resource, request.name, request.namespace)) is not None:
                    self.history.carry_out(run, placed.uid)
            if (lease := store.peek(LEASES, _LEASE, "kube-system")) is not None:
                holder = str(lease.document()["spec"].get("holderIdentity") or "")
        for each in self._invariants:
            each.wrote(run, request, holder)

    def _observe(self) -> list[InvariantViolation]:
        found = []
        self.history.now = self._world.clock.now()
        for change in self.history.advance(self._world.store):
            for invariant in self._by_kind.get(change.plural, ()):
                for text in invariant.changed(change):
                    found.append(InvariantViolation(invariant.name, text))
        for invariant in self._invariants:
            for text in invariant.stepped():
                found.append(InvariantViolation(invariant.name, text))
        if UNBROKEN in self._names:
            found += [InvariantViolation(UNBROKEN, text) for text in (*self._world.broken(), *_ERRORS)]
        _ERRORS.clear()
        return found


def watcher(world: SimulatedCluster, scenario: Scenario) -> InvariantChecker:
    """What checks the invariants that a scenario names. Raises ValueError if there is none of a name."""
    unknown = sorted(set(scenario.invariants) - set(NAMES))
    if unknown:
        raise ValueError(f"no invariant {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return InvariantChecker(world, scenario.invariants)


_ERRORS: list[str] = []


class _ErrorCollector(logging.Handler):
    """Collects the errors that components log because they did not expect them."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            _ERRORS.append(f"{record.getMessage()}: {type(error).__name__}: {error}{_place(error)}")


def _watched_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any
) -> asyncio.Task[Any]:
    """A task whose end is looked at: nobody may wait for a task of a component, and then its error would be lost."""
    task = asyncio.Task(work, loop=loop, **options)
    task.add_done_callback(_task_ended)
    return task


def _task_ended(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and (defects := [each for each in _leaves(error) if not isinstance(each, _EXPECTED)]):
        text = ", ".join(f"{type(each).__name__}: {each}{_place(each)}" for each in defects)
        _ERRORS.append(f"the task {task.get_name()} ended: {text}")


_EXPECTED = (ApiError, asyncio.CancelledError, TimeoutError)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _place(error: BaseException) -> str:
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return f" at {where.tb_frame.f_code.co_filename.rpartition('/')[2]}:{where.tb_lineno}" if where else ""


@contextmanager
def collecting_errors() -> Iterator[None]:
    """Inside, what components log is not printed, and errors that they did not expect are violations."""
    logger, handler = logging.getLogger("wharfinger"), _ErrorCollector(logging.ERROR)
    propagate, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    _ERRORS.clear()
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)
