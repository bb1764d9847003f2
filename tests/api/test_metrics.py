from __future__ import annotations

import pytest

from wharfinger.api.metrics import Metrics


def test_counters_gauges_and_histograms_are_written_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    requests = metrics.counter("requests_total", "Requests.", ("verb", "path"))
    requests.inc("GET", 'a"b\\c\n')
    requests.inc("GET", 'a"b\\c\n', by=2)
    metrics.counter("plain_total", "Never touched.")
    metrics.gauge("objects", "Objects.", source=lambda: 7)
    latency = metrics.histogram("seconds", "Time.", ("verb",), buckets=(0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 3.0):
        latency.observe(value, "GET")

    assert metrics.render().splitlines() == [
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
        'seconds_sum{verb="GET"} 4.5',
        'seconds_count{verb="GET"} 4',
    ]
    assert latency.count("GET") == 4
    assert latency.count("POST") == 0


def test_a_metric_has_one_owner() -> None:
    metrics = Metrics()
    metrics.counter("twice_total", "")
    with pytest.raises(ValueError, match="twice_total exists already"):
        metrics.gauge("twice_total", "")
