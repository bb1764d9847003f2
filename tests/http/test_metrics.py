from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from wharfinger.http.metrics import CounterSeries, HistogramSeries, LabelledSeries, exposition


def test_counters_gauges_and_histograms_are_written_as_the_go_client_writes_them() -> None:
    registry = CollectorRegistry()
    requests = LabelledSeries(Counter("requests_total", "Requests.", ("verb", "path"), registry=registry))
    requests["GET", 'a"b\\c\n'].inc()
    requests["GET", 'a"b\\c\n'].inc(2)
    Counter("plain_total", "Never touched.", registry=registry)
    Gauge("objects", "Objects.", registry=registry).set_function(lambda: 7)
    latency = Histogram("seconds", "Time.", ("verb",), registry=registry, buckets=(0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 3.0):
        latency.labels("GET").observe(value)

    assert exposition(registry).decode().splitlines() == [
        "# HELP requests_total Requests.",
        "# TYPE requests_total counter",
        'requests_total{verb="GET",path="a\\"b\\\\c\\n"} 3',
        "# HELP plain_total Never touched.",
        "# TYPE plain_total counter",
        "plain_total 0",
        "# HELP objects Objects.",
        "# TYPE objects gauge",
        "objects 7",
        "# HELP seconds Time.",
        "# TYPE seconds histogram",
        'seconds_bucket{verb="GET",le="0.5"} 2',
        'seconds_bucket{verb="GET",le="1"} 3',
        'seconds_bucket{verb="GET",le="+Inf"} 4',
        'seconds_count{verb="GET"} 4',
        'seconds_sum{verb="GET"} 4.5',
    ]


def test_a_name_is_registered_once() -> None:
    registry = CollectorRegistry()
    Counter("twice_total", "", registry=registry)
    with pytest.raises(ValueError, match="twice_total"):
        Gauge("twice_total", "", registry=registry)


def test_series_of_the_event_loop_are_written_like_those_of_the_library() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counted = CounterSeries("requests_total", "Requests.", ("verb", "code"), ours)
    expected = Counter("requests_total", "Requests.", ("verb", "code"), registry=theirs)
    timed = HistogramSeries("seconds", "Time.", ("verb",), ours, (0.5, 1.0))
    expected_times = Histogram("seconds", "Time.", ("verb",), registry=theirs, buckets=(0.5, 1.0))
    for verb, code, seconds in (("GET", "200", 0.25), ("GET", "200", 0.5), ("GET", "404", 0.75), ("PUT", "200", 3.0)):
        counted.cell((verb, code))[0] += 1
        expected.labels(verb, code).inc()
        timed.series((verb,)).observe(seconds)
        expected_times.labels(verb).observe(seconds)
    assert exposition(ours) == exposition(theirs)
