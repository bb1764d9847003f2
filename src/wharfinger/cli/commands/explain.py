"""`wharf explain`: why a pod goes where it goes, a placement selects what it selects, a request is admitted or refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.commands.policy import check as admission
from wharfinger.cli.options import F, cluster_options, open_client, output_option

if TYPE_CHECKING:
    from wharfinger.simulate.explaining import PodExplanation


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
            metavar="PATH",
            help="Take the state from files instead of a cluster.",
        ),
        click.option("--all", "everything", is_flag=True, help="Name every node or cluster."),
        output_option("table", "json", "yaml"),
    ):
        function = option(function)
    return cluster_options(function)


def _split(text: str, what: str) -> tuple[str, str]:
    namespace, slash, name = text.rpartition("/")
    if not name:
        raise click.UsageError(f"{what}: want NAMESPACE/NAME, not {text!r}")
    return (namespace if slash else "default"), name


@command.command("pod")
@click.argument("pod", metavar="NAMESPACE/NAME")
@_from
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The scheduler's configuration."
)
def pod(
    pod: str,
    paths: tuple[str, ...],
    everything: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    config: Path | None,
) -> None:
    """For each node the plugin that refuses the pod and why, or each plugin's score; and the choice.

    \b
    wharf explain pod shop/web-1 -f cluster.yaml
    wharf explain pod shop/web-1 -o json
    """
    namespace, name = _split(pod, "the pod")
    explained = (
        _pod_from_files(paths, config, namespace, name)
        if paths
        else _pod_live(kubeconfig, context, config, namespace, name)
    )
    if output == "table":
        from wharfinger.cli.explain_text import pod_text

        click.echo(pod_text(explained, everything=everything))
    else:
        from wharfinger.cli.output import emit

        emit(explained.document(), output)


def _pod_from_files(paths: tuple[str, ...], config: Path | None, namespace: str, name: str) -> PodExplanation:
    from wharfinger.cli.simulating import bad_input, loaded_world, read
    from wharfinger.scheduler import profiles
    from wharfinger.simulate.explaining import explain_pod

    with bad_input():
        inputs = read(paths, config)
    world = loaded_world(inputs)
    try:
        with _missing():
            return world.loop.complete(
                explain_pod(
                    world.client("", lambda warning: None),
                    world.clock,
                    profiles.load(inputs.configuration.scheduler),
                    world.registry,
                    namespace,
                    name,
                )
            )
    finally:
        world.close()


def _pod_live(
    kubeconfig: str | None, context: str | None, config: Path | None, namespace: str, name: str
) -> PodExplanation:
    import asyncio

    from wharfinger.api.kinds import registry
    from wharfinger.cli.commands.scheduler import read_configuration
    from wharfinger.client.timers import SystemClock
    from wharfinger.scheduler.profiles import EMBEDDED_NAMES
    from wharfinger.simulate.explaining import explain_pod

    configuration = read_configuration(config, EMBEDDED_NAMES)

    async def ask() -> PodExplanation:
        client = open_client(kubeconfig, context)
        try:
            return await explain_pod(client, SystemClock(), configuration, registry(), namespace, name)
        finally:
            await client.close()

    with _missing():
        return asyncio.run(ask())


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
