"""`wharf replay`: what a cluster would have done under another policy."""

from __future__ import annotations

from pathlib import Path

import click

from wharfinger.cli.options import output_option


@click.command
@click.option(
    "--format",
    "trace_format",
    type=click.Choice(["openb"]),
    required=True,
    help="What the trace looks like. `openb`: the tables of nodes and pods that FGD (USENIX ATC'23) was measured with.",
)
@click.option(
    "--nodes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="NODES.csv",
    help="With --format openb: the table of nodes.",
)
@click.option(
    "--pods",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PODS.csv",
    help="With --format openb: the table of pods.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="With --format openb: a packing policy. Can be repeated.",
)
@click.option("--seed", type=int, metavar="N", help="Decides the order of arrivals, and ties. Default: 42.")
@click.option("--seeds", metavar="FIRST..LAST", help="Several seeds, one run for each.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs at a time. Default: the number of cores.")
@output_option("table", "json", "yaml")
def command(
    trace_format: str,
    nodes: Path | None,
    pods: Path | None,
    policies: tuple[str, ...],
    seed: int | None,
    seeds: str | None,
    jobs: int | None,
    output: str,
) -> None:
    """Run a trace again, under other policies, and compare.

    With --format openb the pods of the trace arrive in random order, until they ask for 130 % of the GPUs; nobody
    leaves. The result says how many per cent of the GPUs were allocated when the arrived pods asked for 80, 100 and
    130 %, and how many were fragmented: idle, and of no use to pods like those of the trace.

    Exit status: 0 the trace was replayed, 2 it cannot be used; every row that cannot be true is listed.

    \b
    Examples:
      wharf replay --format openb --nodes NODES.csv --pods PODS.csv --policy FGD --seed 42 -o json
      wharf replay --format openb --nodes NODES.csv --pods PODS.csv --policy BestFit --policy FGD --seeds 42..51
    """
    from wharfinger.cli.openb_replay import replay_openb

    replay_openb(nodes, pods, policies, seed, seeds, jobs, output)
