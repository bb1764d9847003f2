"""`wharf explain`: why a pod goes where it goes, and what the systems can explain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.asking import ask, split_name, state_options
from wharfinger.cli.completing import names_of, names_of_given_kind
from wharfinger.system import systems

if TYPE_CHECKING:
    from wharfinger.api.registry import Kind


class Explain(click.Group):
    """Has the subcommands of this module and those of the systems. `deployment NAME` is short for
    `workload deployment NAME`, and so on."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *(name for each in systems() for name in each.explain_commands())])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for system in systems():
            if load := system.explain_commands().get(cmd_name):
                return load()
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and _workload_kind(args[0]) is not None:
            args = ["workload", *args]
        return super().resolve_command(ctx, args)


@click.command(cls=Explain)
def command() -> None:
    """Explain a decision about a pod, a workload, a reservation, a policy, a placement or an admission request. Changes
    nothing."""


@command.command("pod")
@click.argument("pod", metavar="[NAMESPACE/]NAME", shell_complete=names_of("pods"))
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
    chosen. For a pod that fits nowhere: the nodes that come nearest, what is lacking there, and the smallest changes that
    would let it in, each of which was tried.

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
            client,
            clock,
            profiles.load(configuration.scheduler, settings=configuration),
            registry,
            namespace,
            name,
            every_node=everything,
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


def _workload_kind(name: str) -> Kind | None:
    """The kind of workloads with this name, in any of its spellings; None if there is none."""
    from wharfinger.api.kinds import registry

    kind = registry().find(name)
    return kind if kind is not None and kind.builtin and kind.pod_template == "spec.template" else None


@command.command("workload")
@click.argument("kind")
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=names_of_given_kind)
@state_options
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The scheduler's configuration."
)
def workload(
    kind: str,
    name: str,
    namespace: str,
    paths: tuple[str, ...],
    everything: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    config: Path | None,
) -> None:
    """Show how many pods of a Deployment, StatefulSet, DaemonSet, Job or ReplicaSet run, where those without a node would
    go, why the others wait, and which changes would let how many of them in. `wharf explain deployment NAME` and so on are
    short forms.

    Exit status: 2 if there is no such workload, 1 on other errors.

    \b
    Examples:
      wharf explain workload deployment shop/web -f cluster.yaml
      wharf explain job batch/render -o json
    """
    from wharfinger.scheduler import profiles
    from wharfinger.simulate.workloads import explain_workload

    found = _workload_kind(kind)
    if found is None:
        raise click.UsageError(
            f"{kind!r} is no kind of workload; want deployment, statefulset, daemonset, job, replicaset"
        )
    namespace, name = split_name(name, "the workload", namespace)
    explained = ask(
        lambda client, clock, configuration, registry: explain_workload(
            client,
            clock,
            profiles.load(configuration.scheduler, settings=configuration),
            registry,
            found,
            namespace,
            name,
        ),
        paths,
        config,
        kubeconfig,
        context,
    )
    if output == "table":
        from wharfinger.cli.explain_text import workload_text

        click.echo(workload_text(explained, everything=everything))
    else:
        from wharfinger.cli.output import emit

        emit(explained.document(), output, kind="WorkloadExplanation")
