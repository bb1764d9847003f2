"""`wharf replay`: what a cluster would have done under another policy."""

from __future__ import annotations

from pathlib import Path

import click

from wharfinger.cli.options import EXISTING_FILE, FILE, FOLDER, output_option, paths_option


@click.command
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "trace_format",
    type=click.Choice(["openb", "tables", "csv", "k8s-events"]),
    help="What the trace looks like. Default: as its trace.yaml says. `openb`: the tables of nodes and pods that FGD "
    "(USENIX ATC'23) was measured with.",
)
@paths_option(
    "--config",
    "configs",
    help="A configuration to replay with: a file or a folder with a WharfingerConfiguration or a "
    "KubeSchedulerConfiguration, and with objects to apply. Can be repeated. Default: the one that was recorded.",
)
@click.option("--until", metavar="DURATION", help="Replay only so much of the trace, such as 12h or 30d.")
@click.option(
    "--ties",
    type=click.Choice(["recorded", "seed"]),
    default="recorded",
    show_default=True,
    help="Which of equally good nodes a pod gets: the one it had in the record (or with the first configuration), or one "
    "that the seed decides.",
)
@click.option(
    "--report",
    "report_path",
    type=FILE,
    metavar="FILE.html",
    help="Write the comparison as one page with plots, which needs no network.",
)
@click.option(
    "--save-trace",
    type=FOLDER,
    metavar="FOLDER",
    help="Write the trace as tables into this folder, and replay nothing.",
)
@click.option("--nodes", type=EXISTING_FILE, metavar="NODES.csv", help="With --format openb: the table of nodes.")
@click.option("--pods", type=EXISTING_FILE, metavar="PODS.csv", help="With --format openb: the table of pods.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="With --format openb: a packing policy. Can be repeated.",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Decides ties, and with --format openb the order of arrivals.  [default: 0; openb: 42]",
)
@click.option("--seeds", metavar="FIRST..LAST", help="Several seeds, one run for each.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs at a time. Default: the number of cores.")
@output_option("table", "json", "yaml")
def command(
    trace: Path | None,
    trace_format: str | None,
    configs: tuple[str, ...],
    until: str | None,
    ties: str,
    report_path: Path | None,
    save_trace: Path | None,
    nodes: Path | None,
    pods: Path | None,
    policies: tuple[str, ...],
    seed: int | None,
    seeds: str | None,
    jobs: int | None,
    output: str,
) -> None:
    """Run a trace again, under other policies, and compare.

    A TRACE is a folder that `wharf record` wrote, or one with tables of nodes and work. The real control plane runs over
    it in virtual time, once for each --config. Recorded decisions are checked with the first configuration, each in the
    recorded state; without --config nothing else is done. The other replays are compared with the first.

    With --format openb the pods of the trace arrive in random order, until they ask for 130 % of the GPUs; nobody
    leaves. The result says how many per cent of the GPUs were allocated when the arrived pods asked for 80, 100 and
    130 %, and how many were fragmented: idle, and of no use to pods like those of the trace.

    Exit status: 0 the trace was replayed, 2 it cannot be used; every row that cannot be true is listed.

    \b
    Examples:
      wharf replay trace/
      wharf replay trace/ --config now.yaml --config tighter.yaml --report report.html
      wharf replay --format openb --nodes NODES.csv --pods PODS.csv --policy FGD --seed 42 -o json
      wharf replay --format openb --nodes NODES.csv --pods PODS.csv --policy BestFit --policy FGD --seeds 42..51
    """
    if trace_format != "openb":
        from wharfinger.cli.trace_replay import TraceRequest, replay_trace

        if trace is None:
            raise click.UsageError("name the folder of a trace, or use --format openb")
        if nodes is not None or pods is not None or policies or seeds is not None or jobs is not None:
            raise click.UsageError("--nodes, --pods, --policy, --seeds and --jobs belong to --format openb")
        replay_trace(
            TraceRequest(trace, trace_format, configs, until, seed or 0, ties, report_path, save_trace, output)
        )
        return
    if trace is not None or configs or until is not None or report_path is not None:
        raise click.UsageError("--format openb takes no TRACE, --config, --until or --report")
    if nodes is None or pods is None:
        raise click.UsageError("--format openb needs --nodes and --pods")
    from wharfinger.cli.openb_replay import replay_openb, save_openb

    if save_trace is not None:
        save_openb(nodes, pods, save_trace)
        return
    replay_openb(nodes, pods, policies, seed, seeds, jobs, output)
