"""Metrics in the Prometheus text format, and the small HTTP endpoint that shows them with the health of a process.

A `Metrics` holds what one process measures; components get it handed in. Nothing here is global.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

DEFAULT_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Family:
    """One metric name with its label names. The label values of a sample come in the order of the names."""

    type = ""

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)

    def _check(self, values: tuple[str, ...]) -> None:
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not values for {values}")

    def samples(self) -> Iterator[str]:
        raise NotImplementedError

    def _line(self, suffix: str, values: Sequence[str], value: float, extra: str = "") -> str:
        pairs = [f'{label}="{_escape(text)}"' for label, text in zip(self.labels, values)]
        if extra:
            pairs.append(extra)
        body = f"{{{','.join(pairs)}}}" if pairs else ""
        return f"{self.name}{suffix}{body} {_number(value)}"


class Counter(_Family):
    type = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        super().__init__(name, help, labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def inc(self, *values: str, by: float = 1.0) -> None:
        self._check(values)
        self._values[values] = self._values.get(values, 0.0) + by

    def value(self, *values: str) -> float:
        return self._values.get(values, 0.0)

    def samples(self) -> Iterator[str]:
        for values, value in sorted(self._values.items()):
            yield self._line("", values, value)


class Gauge(Counter):
    """A value that goes up and down; a callable given to `watch` is asked when the metrics are read."""

    type = "gauge"

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        super().__init__(name, help, labels)
        self._watched: dict[tuple[str, ...], Callable[[], float]] = {}

    def set(self, value: float, *values: str) -> None:
        self._check(values)
        self._values[values] = value

    def watch(self, read: Callable[[], float], *values: str) -> None:
        self._check(values)
        self._watched[values] = read

    def remove(self, *values: str) -> None:
        self._values.pop(values, None)
        self._watched.pop(values, None)

    def samples(self) -> Iterator[str]:
        for values, read in self._watched.items():
            self._values[values] = read()
        yield from super().samples()


class Histogram(_Family):
    type = "histogram"

    def __init__(self, name: str, help: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        super().__init__(name, help, labels)
        self._bounds = tuple(sorted(buckets))
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *values: str) -> None:
        counts = self._counts.get(values)
        if counts is None:
            self._check(values)
            counts = self._counts[values] = [0] * (len(self._bounds) + 1)
            self._sums[values] = 0.0
        counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sums[values] += value

    def count(self, *values: str) -> int:
        return sum(self._counts.get(values, ()))

    def samples(self) -> Iterator[str]:
        for values, counts in sorted(self._counts.items()):
            running = 0
            for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
                running += count
                yield self._line("_bucket", values, running, f'le="{_number(bound)}"')
            yield self._line("_sum", values, self._sums[values])
            yield self._line("_count", values, running)


F = TypeVar("F", bound=_Family)


class Metrics:
    """All metrics of one process. Asking for a name again gives the same metric."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        return self._get(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        return self._get(Gauge(name, help, labels))

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = DEFAULT_BUCKETS
    ) -> Histogram:
        return self._get(Histogram(name, help, labels, buckets))

    def _get(self, made: F) -> F:
        found = self._families.setdefault(made.name, made)
        if type(found) is not type(made) or found.labels != made.labels:
            raise ValueError(f"{made.name} is already a {found.type} with the labels {found.labels}")
        return found

    def text(self) -> str:
        """The exposition format that Prometheus reads."""
        lines = []
        for family in sorted(self._families.values(), key=lambda family: family.name):
            help = family.help.replace("\\", "\\\\").replace("\n", "\\n")
            lines += [f"# HELP {family.name} {help}", f"# TYPE {family.name} {family.type}", *family.samples()]
        return "\n".join(lines) + "\n"


class ControllerMetrics:
    """The observer that counts what controllers do."""

    def __init__(self, metrics: Metrics) -> None:
        self._adds = metrics.counter("wharfinger_workqueue_adds_total", "Keys added to work queues.", ("controller",))
        self._seconds = metrics.histogram(
            "wharfinger_reconcile_duration_seconds", "Time to reconcile one key.", ("controller", "outcome")
        )

    def added(self, controller: str) -> None:
        self._adds.inc(controller)

    def reconciled(self, controller: str, seconds: float, outcome: str) -> None:
        self._seconds.observe(seconds, controller, outcome)


class HealthServer:
    """Serves `/metrics`, `/healthz` and `/readyz`. A check returns what is wrong, or nothing."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        healthy: Callable[[], str] = lambda: "",
        ready: Callable[[], str] = lambda: "",
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.port = port  # the real one after `start`
        self._metrics = metrics
        self._checks = {"/healthz": healthy, "/livez": healthy, "/readyz": ready}
        self._host = host
        self._runner: Any = None

    async def start(self) -> None:
        from aiohttp import web

        async def metrics(request: web.Request) -> web.Response:
            return web.Response(body=self._metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})

        async def check(request: web.Request) -> web.Response:
            wrong = self._checks[request.path]()
            return web.Response(text=wrong or "ok", status=500 if wrong else 200)

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        for path in self._checks:
            app.router.add_get(path, check)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
