"""`wharf ask`: would this start now, when, or never?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import output_option, paths_option, state_options, strict_option

if TYPE_CHECKING:
    from wharfinger.simulate.asking import AskAnswer

_NAMED = 3


@click.command
@paths_option(
    "-f", "--filename", "paths", required=True, help="The pods or workloads to ask about: a file, a folder, or -."
)
@state_options
@click.option("--as", "user", default="", help="The user who would create the objects. Default: the administrator.")
@click.option("-v", "--all", "everything", is_flag=True, help="List every pod.")
@strict_option
@output_option("table", "json", "yaml")
def command(
    paths: tuple[str, ...],
    snapshots: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    user: str,
    everything: bool,
    strict: bool,
    output: str,
) -> None:
    """Say whether pods or workloads would start now and on which nodes, what they would wait for and until when, or that
    they would never start, and the smallest changes that would help. Nothing is created.

    The start of a pod that waits is told where what it waits for has a known end within a day: pods and Jobs with
    deadlines, reservations that expire, rollouts and evictions in progress. Exit status: 0 now, 1 waiting or never,
    2 invalid input.

    \b
    Examples:
      wharf ask -f job.yaml
      wharf ask -f job.yaml --cluster cluster.json.gz -o json
    """
    from wharfinger.api.errors import ApiError
    from wharfinger.cli.simulating import bad_input, live_inputs, progressing, read, refuse_nothing
    from wharfinger.simulate.asking import Verdict, ask

    with bad_input():
        asked = read(paths, strict=strict)
        refuse_nothing(asked, paths)
        try:
            cluster, start = (read(snapshots, strict=strict), None) if snapshots else live_inputs(kubeconfig, context)
        except ApiError as error:
            raise click.ClickException(error.message) from error
        with progressing():
            answer = ask(cluster, asked, start=start, user=user)
    if output == "table":
        click.echo(answer_text(answer, everything=everything))
    else:
        from wharfinger.cli.output import emit

        emit(answer.document(), output)
    sys.exit(0 if answer.verdict is Verdict.NOW else 1)


def answer_text(answer: AskAnswer, *, everything: bool) -> str:
    from wharfinger.api.times import format_time
    from wharfinger.api.wording import listed
    from wharfinger.cli.explain_text import remedy_lines
    from wharfinger.cli.output import Colour, paint, table
    from wharfinger.simulate.asking import Verdict

    colours: dict[Verdict, Colour] = {Verdict.NOW: "green", Verdict.WAITING: "yellow", Verdict.NEVER: "red"}
    lines = [f"{paint(str(answer.verdict), colours[answer.verdict], bold=True)}: {answer.because}"]
    groups: dict[tuple[Verdict, str, str, str], list[str]] = {}
    for each in answer.pods:
        starts = format_time(each.starts) if each.starts is not None else "-"
        groups.setdefault((each.verdict, each.node or "-", starts, each.because or "-"), []).append(
            f"{each.namespace}/{each.name}"
        )
    rows = [
        (len(names), listed(names, len(names) if everything else _NAMED), str(verdict), *rest)
        for (verdict, *rest), names in sorted(groups.items(), key=lambda item: (-item[0][0], item[0][1:]))
    ]
    if rows:
        lines += ["", table(("pods", "which", "starts", "node", "at", "because"), rows)]
    lines += [f"Note: {note}" for note in answer.notes]
    for helpful in answer.would_help:
        of_several = listed(helpful.pods, _NAMED) if len(answer.would_help) > 1 else ""
        lines += remedy_lines(helpful.remedies, of_several)
    return "\n".join(lines)
