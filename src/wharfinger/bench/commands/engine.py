"""`wharf bench engine`: decisions per second of the scheduling engine, by workload."""

from __future__ import annotations

import click

from wharfinger.bench.baseline import Results, baseline_options

_COLUMNS = (
    ("workload", "workload"),
    ("nodes", "nodes"),
    ("pods", "pods"),
    ("decisions/s", "decisions_per_second"),
    ("slowest ms", "slowest_cycle_ms"),
    ("rows/decision", "rows_per_decision"),
    ("unplaced", "unplaced"),
    ("MiB", "peak_memory_mib"),
)


@click.command
@click.option("--workload", help="One workload. Default: all.")
@click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes. Default: depends on the workload.")
@click.option("--pods", type=click.IntRange(min=1), help="Number of measured pods.")
@click.option(
    "--devices", type=click.IntRange(1, 128), help="Devices of each node, for DRA and DRAManyClaims. Default: 8."
)
@click.option(
    "--running",
    type=click.IntRange(min=0),
    help="Start as the scheduler does in a cluster with so many running pods, and measure that, too.",
)
@click.option("--seed", default=0, show_default=True, help="Breaks ties between equally good nodes.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@baseline_options
def command(
    workload: str | None,
    nodes: int | None,
    pods: int | None,
    devices: int | None,
    running: int | None,
    seed: int,
    output: str,
) -> Results:
    """Measure the scheduling engine alone, on one core."""
    from wharfinger.bench.measure import measure
    from wharfinger.bench.workloads import WORKLOADS, with_devices
    from wharfinger.cli.output import emit

    if workload is not None and workload not in WORKLOADS:
        raise click.UsageError(f"no workload {workload!r}; there are: {', '.join(WORKLOADS)}")
    chosen = list(WORKLOADS.values()) if workload is None else [WORKLOADS[workload]]
    if devices is not None:
        if workload is None or not chosen[0].has_devices:
            raise click.UsageError("--devices is for a workload with devices: --workload DRA or DRAManyClaims")
        chosen = [with_devices(chosen[0], devices)]
    results = []
    for each in chosen:
        results.append(measure(each, nodes, pods, seed, running))
        if output == "table":
            columns = _COLUMNS if running is None else (*_COLUMNS, ("running", "running"), ("start s", "start_seconds"))
            if len(results) == 1:
                click.echo(
                    "  ".join(f"{title:>34}" if not i else f"{title:>13}" for i, (title, _) in enumerate(columns))
                )
            values = [results[-1][key] for _, key in columns]
            click.echo("  ".join(f"{value:>34}" if not i else f"{value:>13}" for i, value in enumerate(values)))
    if output == "json":
        emit(results if workload is None else results[0], output, kind="Benchmark")
    return results
