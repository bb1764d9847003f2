"""Counters, gauges and histograms in the text form that Prometheus reads.

Pure values: whoever owns a `Metrics` observes into it and serves `render()`; nothing here knows a clock or a socket.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metric:
    """Base: a name, a help text, label names, and lines of the text form."""

    kind = "untyped"

    def __init__(self, name: str, help: str, labels: tuple[str, ...] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = labels

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    def render(self) -> Iterator[str]:
        yield f"# HELP {self.name} {_escape(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.lines()


class Counter(Metric):
    kind = "counter"

    def __init__(self, name: str, help: str, labels: tuple[str, ...] = ()) -> None:
        super().__init__(name, help, labels)
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def inc(self, *labels: str, by: float = 1.0) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + by

    def lines(self) -> Iterator[str]:
        for labels, value in self.values.items():
            yield f"{self.name}{_labels(self.labels, labels)} {_number(value)}"


class Gauge(Counter):
    """A value that is set, or read by `source` at the moment of rendering."""

    kind = "gauge"

    def __init__(
        self, name: str, help: str, labels: tuple[str, ...] = (), *, source: Callable[[], float] | None = None
    ) -> None:
        super().__init__(name, help, labels)
        self._source = source

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value

    def lines(self) -> Iterator[str]:
        if self._source is not None:
            self.values[()] = self._source()
        yield from super().lines()


class Histogram(Metric):
    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = LATENCY_BUCKETS
    ) -> None:
        super().__init__(name, help, labels)
        self.buckets = buckets
        self._series: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def observe(self, value: float, *labels: str) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = ([0] * (len(self.buckets) + 1), [0.0])
        series[0][bisect_left(self.buckets, value)] += 1
        series[1][0] += value

    def count(self, *labels: str) -> int:
        return sum(self._series[labels][0]) if labels in self._series else 0

    def lines(self) -> Iterator[str]:
        names = (*self.labels, "le")
        for labels, (counts, total) in self._series.items():
            for bound, count in zip((*map(_number, self.buckets), "+Inf"), accumulate(counts)):
                yield f"{self.name}_bucket{_labels(names, (*labels, bound))} {count}"
            yield f"{self.name}_sum{_labels(self.labels, labels)} {_number(total[0])}"
            yield f"{self.name}_count{_labels(self.labels, labels)} {sum(counts)}"


class Metrics:
    """A set of metrics with one text form."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def _add(self, metric: Metric) -> None:
        if metric.name in self._metrics:
            raise ValueError(f"the metric {metric.name} exists already")
        self._metrics[metric.name] = metric

    def counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:
        self._add(metric := Counter(name, help, labels))
        return metric

    def gauge(
        self, name: str, help: str, labels: tuple[str, ...] = (), *, source: Callable[[], float] | None = None
    ) -> Gauge:
        self._add(metric := Gauge(name, help, labels, source=source))
        return metric

    def histogram(
        self, name: str, help: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = LATENCY_BUCKETS
    ) -> Histogram:
        self._add(metric := Histogram(name, help, labels, buckets))
        return metric

    def render(self) -> str:
        return "".join(f"{line}\n" for metric in self._metrics.values() for line in metric.render())


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escape(value).replace(chr(34), chr(92) + chr(34))}"' for name, value in zip(names, values))
    return "{" + ",".join(pairs) + "}"
