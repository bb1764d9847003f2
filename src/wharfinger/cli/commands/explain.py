"""`wharf explain`: why a pod goes where it goes, and what the systems can explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wharfinger.cli.asking import ExplainOptions, explain_options, namespace_option, scheduler_config_option, split_name
from wharfinger.cli.completing import names_of, names_of_given_kind
from wharfinger.system import systems

if TYPE_CHECKING:
    from wharfinger.api.registry import Kind


class Explain(click.Group):
    """Has the subcommands of this module and those of the systems. `deployment NAME` is short for
    `workload deployment NAME`, and so on. As in kubectl, kinds may be spelled `pod`, `pods` or `po`, and `pod/NAME` is the
    same as `pod NAME`."""

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
        word, slash, name = args[0].partition("/")
        kind = None if self.get_command(ctx, word) else _kind(word)
        if kind is not None:
            word = kind.singular or kind.kind.lower()
        args = [word, *([name] if slash else []), *args[1:]]
        if kind is not None and _is_workload(kind):
            args = ["workload", *args]
        return super().resolve_command(ctx, args)


@click.command(cls=Explain)
def command() -> None:
    """Explain a decision about a pod, a workload, a reservation, a policy, a placement or an admission request. Changes
    nothing.

    Kinds and names can be given as kubectl takes them: `pod NAME`, `pods NAME`, `po/NAME`, `deployment/NAME`.
    """


@command.command("pod")
@click.argument("pod", metavar="[NAMESPACE/]NAME", shell_complete=names_of("pods"))
@explain_options
@namespace_option
@scheduler_config_option
def pod(
    pod: str,
    namespace: str,
    options: ExplainOptions,
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
    from wharfinger.cli.explain_text import pod_text
    from wharfinger.scheduler import profiles
    from wharfinger.simulate.explaining import explain_pod

    namespace, name = split_name(pod, "the pod", namespace)
    explained = options.ask(
        lambda client, clock, configuration, registry: explain_pod(
            client,
            clock,
            profiles.load(configuration.scheduler, settings=configuration),
            registry,
            namespace,
            name,
            every_node=options.everything,
        )
    )
    options.show("PodExplanation", explained, pod_text)


def _kind(name: str) -> Kind | None:
    """The kind with this name, in any of its spellings; None if there is none."""
    from wharfinger.api.kinds import registry

    return registry().find(name)


def _is_workload(kind: Kind) -> bool:
    return kind.builtin and kind.pod_template == "spec.template"


@command.command("workload")
@click.argument("kind")
@click.argument("name", metavar="[NAMESPACE/]NAME", shell_complete=names_of_given_kind)
@explain_options
@namespace_option
@scheduler_config_option
def workload(
    kind: str,
    name: str,
    namespace: str,
    options: ExplainOptions,
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
    from wharfinger.cli.explain_text import workload_text
    from wharfinger.scheduler import profiles
    from wharfinger.simulate.workloads import explain_workload

    found = _kind(kind)
    if found is None or not _is_workload(found):
        raise click.UsageError(
            f"{kind!r} is no kind of workload; want deployment, statefulset, daemonset, job, replicaset"
        )
    namespace, name = split_name(name, "the workload", namespace)
    explained = options.ask(
        lambda client, clock, configuration, registry: explain_workload(
            client,
            clock,
            profiles.load(configuration.scheduler, settings=configuration),
            registry,
            found,
            namespace,
            name,
        )
    )
    options.show("WorkloadExplanation", explained, workload_text)
