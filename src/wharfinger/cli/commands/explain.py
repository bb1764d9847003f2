"""`wharf explain`: why a pod goes where it goes, and what the systems can explain."""

from __future__ import annotations

from pathlib import Path

import click

from wharfinger.cli.asking import ask, split_name, state_options
from wharfinger.system import systems


class Explain(click.Group):
    """Has the subcommands of this module and those of the systems."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *(name for each in systems() for name in each.explain_commands())])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for system in systems():
            if load := system.explain_commands().get(cmd_name):
                return load()
        return super().get_command(ctx, cmd_name)


@click.command(cls=Explain)
def command() -> None:
    """Explain a decision about a pod, a reservation, a placement or an admission request. Changes nothing."""


@command.command("pod")
@click.argument("pod", metavar="[NAMESPACE/]NAME")
@state_options
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The scheduler's configuration."
)
def pod(
    pod: str,
    namespace: str,
    paths: tuple[str, ...],
    everything: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    config: Path | None,
) -> None:
    """Show for each node the plugin that rejects the pod and why, or the score from each plugin; and which node is
    chosen.

    The pod does not have to be pending. Exit status: 2 if there is no such pod, 1 on other errors.

    \b
    Examples:
      wharf explain pod shop/web-1 -f cluster.yaml
      wharf explain pod shop/web-1 -o json
    """
    from wharfinger.scheduler import profiles
    from wharfinger.simulate.explaining import explain_pod

    namespace, name = split_name(pod, "the pod", namespace)
    explained = ask(
        lambda client, clock, configuration, registry: explain_pod(
            client, clock, profiles.load(configuration.scheduler, settings=configuration), registry, namespace, name
        ),
        paths,
        config,
        kubeconfig,
        context,
    )
    if output == "table":
        from wharfinger.cli.explain_text import pod_text

        click.echo(pod_text(explained, everything=everything))
    else:
        from wharfinger.cli.output import emit

        emit(explained.document(), output, kind="PodExplanation")
