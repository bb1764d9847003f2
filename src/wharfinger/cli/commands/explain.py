"""`wharf explain`: why a pod goes where it goes, a placement selects what it selects, a request is admitted or refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wharfinger.cli.options import F, cluster_options, open_client, output_option
from wharfinger.systems.scheduling_policy.commands.policy import check as admission

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.registry import Registry
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock

T = TypeVar("T")


@click.group
def command() -> None:
    """Say why: for pods, placements and admission. Explaining never changes anything."""


def _from(function: F) -> F:
    """Where the state comes from: files, or a live cluster."""
    for option in (
        click.option(
            "-f",
            "--filename",
            "paths",
            multiple=True,
            type=click.Path(),
            metavar="PATH",
            help="Take the state from files instead of a cluster.",
        ),
        click.option(
            "-n", "--namespace", default="default", show_default=True, help="The namespace of a name without one."
        ),
        click.option("-v", "--all", "everything", is_flag=True, help="Name every node or cluster."),
        output_option("table", "json", "yaml"),
    ):
        function = option(function)
    return cluster_options(function)


def _split(text: str, what: str, default: str) -> tuple[str, str]:
    namespace, slash, name = text.rpartition("/")
    if not name:
        raise click.UsageError(f"{what}: want [NAMESPACE/]NAME, not {text!r}")
    return (namespace if slash else default), name


@command.command("pod")
@click.argument("pod", metavar="[NAMESPACE/]NAME")
@_from
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
    """For each node the plugin that refuses the pod and why, or each plugin's score; and the choice.

    The pod need not be pending. Exits with 2 if there is no such pod, with 1 on other errors.

    \b
    Examples:
      wharf explain pod shop/web-1 -f cluster.yaml
      wharf explain pod shop/web-1 -o json
    """
    from wharfinger.scheduler import profiles
    from wharfinger.simulate.explaining import explain_pod

    namespace, name = _split(pod, "the pod", namespace)
    explained = _asked(
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

        emit(explained.document(), output)


def _asked(
    ask: Callable[[Client, Clock, Configuration, Registry], Coroutine[Any, Any, T]],
    paths: tuple[str, ...],
    config: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> T:
    """The answer to a question, asked of what the files hold, or of a live cluster."""
    import asyncio

    from wharfinger.api.configuration import Configuration
    from wharfinger.api.kinds import registry
    from wharfinger.api.kinds.builtin import NODES
    from wharfinger.cli.simulating import bad_input, configured, loaded_world, read
    from wharfinger.client.timers import SystemClock

    with bad_input():
        if paths:
            inputs = read(paths, config)
        else:
            configuration = Configuration() if config is None else configured(config, Configuration())
    if paths:
        world = loaded_world(inputs)
        try:
            with _missing():
                client = world.client("", lambda warning: None)
                return world.loop.complete(ask(client, world.clock, inputs.configuration, world.registry))
        finally:
            world.close()

    async def live() -> T:
        client = open_client(kubeconfig, context)
        try:
            # Informers would wait for a server that does not answer; a person wants to know.
            await client.list(NODES, limit=1)
            return await ask(client, SystemClock(), configuration, registry())
        finally:
            await client.close()

    with _missing():
        return asyncio.run(live())


@command.command("placement")
@click.argument("placement", metavar="[NAMESPACE/]NAME")
@_from
def placement(
    placement: str,
    namespace: str,
    paths: tuple[str, ...],
    everything: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """For each cluster the filter that refuses it and why, or each prioritizer's part of its score; and the choice.

    \b
    Examples:
      wharf explain placement apps/web -f fleet.yaml
    """
    from wharfinger.simulate.explaining import explain_placement

    namespace, name = _split(placement, "the placement", namespace)
    story = _asked(
        lambda client, clock, configuration, registry: explain_placement(
            client, clock, configuration, registry, namespace, name
        ),
        paths,
        None,
        kubeconfig,
        context,
    )
    if output == "table":
        from wharfinger.cli.explain_text import placement_text

        click.echo(placement_text(story, everything=everything))
    else:
        from wharfinger.cli.output import emit

        emit(story.document(), output)


def _missing() -> Any:
    """An object that is not there, or a cluster that does not answer, ends the command with its message."""
    from contextlib import contextmanager

    from wharfinger.api.errors import ApiError

    @contextmanager
    def caught() -> Any:
        try:
            yield
        except ApiError as error:
            click.echo(f"Error: {error.message}", err=True)
            sys.exit(2 if error.code == 404 else 1)

    return caught()


command.add_command(admission, "admission")
