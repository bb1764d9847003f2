"""Metrics as our servers expose them: `prometheus_client` keeps the values, this module writes them out.

The text is that of the Go client, so that series are the same as those of the Kubernetes components: whole numbers and
bucket bounds have no decimal point (`le="1"`, where prometheus_client writes `le="1.0"`), labels keep their declared order,
and there are no `_created` series.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_M = TypeVar("_M", bound=MetricWrapperBase)


class LabelledSeries(dict[tuple[str, ...], _M], Generic[_M]):
    """The series of a labelled metric by label values.

    `Metric.labels()` takes a lock and converts the values on every call, which costs 1 µs; a look-up here costs 0.05 µs.
    """

    def __init__(self, metric: _M) -> None:
        super().__init__()
        self._metric = metric

    def __missing__(self, values: tuple[str, ...]) -> _M:
        series = self[values] = self._metric.labels(*values)
        return series


class CounterSeries(Collector):
    """A counter with labels for values that are only changed in the event loop.

    `prometheus_client` takes a lock for every change: `inc` and `observe` together cost 1.1 µs for each request, of 11 µs
    for a whole read. The owner of a series keeps its cell and adds to it: `cell[0] += 1` costs 0.03 µs.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name = name.removesuffix("_total")
        self._documentation = documentation
        self._labels = tuple(labels)
        self._cells: dict[tuple[str, ...], list[int]] = {}
        registry.register(self)

    def cell(self, values: tuple[str, ...]) -> list[int]:
        """The value of a series: a list of one number."""
        found = self._cells.get(values)
        if found is None:
            found = self._cells[values] = [0]
        return found

    def collect(self) -> Iterable[Metric]:
        metric = Metric(self._name, self._documentation, "counter")
        for values, cell in self._cells.items():
            metric.add_sample(f"{self._name}_total", dict(zip(self._labels, values)), cell[0])
        yield metric


class Timings:
    """One series of a `HistogramSeries`."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class HistogramSeries(Collector):
    """A histogram with labels, as `CounterSeries`; `Timings.observe` costs 0.15 µs."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        bounds: tuple[float, ...] = LATENCY_BUCKETS,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._bounds = bounds
        self._series: dict[tuple[str, ...], Timings] = {}
        registry.register(self)

    def series(self, values: tuple[str, ...]) -> Timings:
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = Timings(self._bounds)
        return found

    def collect(self) -> Iterable[Metric]:
        metric = Metric(self._name, self._documentation, "histogram")
        for values, timings in self._series.items():
            labels = dict(zip(self._labels, values))
            for bound, count in zip((*map(str, self._bounds), "+Inf"), accumulate(timings.counts)):
                metric.add_sample(f"{self._name}_bucket", {**labels, "le": bound}, count)
            metric.add_sample(f"{self._name}_count", labels, sum(timings.counts))
            metric.add_sample(f"{self._name}_sum", labels, timings.total)
        yield metric


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics of the registry in the Prometheus text format."""
    return "".join(f"{line}\n" for metric in registry.collect() for line in _lines(metric)).encode()


def _lines(metric: Metric) -> Iterator[str]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    yield f"# HELP {name} {_escape(metric.documentation)}"
    yield f"# TYPE {name} {metric.type}"
    for sample in metric.samples:
        if not sample.name.endswith("_created"):
            yield f"{sample.name}{_labels(sample)} {_number(sample.value)}"


def _labels(sample: Sample) -> str:
    pairs = []
    for name, value in sample.labels.items():
        if name == "le" and value != "+Inf":
            value = _number(float(value))
        quoted = _escape(value).replace('"', '\\"')
        pairs.append(f'{name}="{quoted}"')
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
