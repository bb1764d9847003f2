"""`wharf bench placement`: decides many placements over many clusters from scratch, then again after one score
changed."""

from __future__ import annotations

import click

from wharfinger.bench.baseline import Results, baseline_options


@click.command()
@click.option("--placements", default=10_000, show_default=True, help="Number of Placements.")
@click.option("--clusters", default=1_000, show_default=True, help="Number of ManagedClusters.")
@click.option("--namespaces", default=20, show_default=True, help="Number of namespaces with Placements.")
@click.option("--users", default=1_000, show_default=True, help="Number of Placements that use the score that changes.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@baseline_options
def command(placements: int, clusters: int, namespaces: int, users: int, output: str) -> Results:
    """Measure Placements (3 clusters each, Additive plus one AddOn score) on an in-memory API, including writes.

    Controllers, admission, validation and store run in one process on one core.
    """
    from wharfinger.bench.support.placement import run

    report = run(placements, clusters, namespaces, users)
    if output == "json":
        from wharfinger.cli.output import emit

        emit(report, output, kind="Benchmark")
        return report
    click.echo(f"{placements:,} placements over {clusters:,} clusters in {namespaces} namespaces")
    click.echo(
        f"  from nothing:      {report['fromNothingSeconds']:8.2f} s  ({report['decisionsPerSecond']:,.0f} decisions/s)"
    )
    click.echo(
        f"  one score changed: {report['oneScoreSeconds']:8.2f} s  ({report['decidedAgain']:,} placements decided again)"
    )
    return report
