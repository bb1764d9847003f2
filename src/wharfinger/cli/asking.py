"""What the subcommands of `wharf explain` share: their options, and a question asked of files or of a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from wharfinger.cli.completing import names_of
from wharfinger.cli.exit_status import InputError, interruptible
from wharfinger.cli.options import F, cluster_options, open_client, output_option

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.registry import Registry
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock
    from wharfinger.simulate.cluster import SimulatedCluster

T = TypeVar("T")


def state_options(function: F) -> F:
    """Adds the options that say where the state comes from and how the answer is printed."""
    namespace = click.option(
        "-n",
        "--namespace",
        default="default",
        show_default=True,
        shell_complete=names_of("namespaces"),
        help="The namespace if the name has none.",
    )
    return cluster_state_options(namespace(function))


def cluster_state_options(function: F) -> F:
    """The same for objects that are in no namespace."""
    for option in (
        click.option(
            "-f",
            "--filename",
            "paths",
            multiple=True,
            type=click.Path(),
            metavar="PATH",
            help="Read the state from files instead of a cluster.",
        ),
        click.option("-v", "--all", "everything", is_flag=True, help="List every node or cluster."),
        output_option("table", "json", "yaml"),
    ):
        function = option(function)
    return cluster_options(function)


def split_name(text: str, what: str, default: str) -> tuple[str, str]:
    """Namespace and name of `[NAMESPACE/]NAME`."""
    namespace, slash, name = text.rpartition("/")
    if not name:
        raise click.UsageError(f"{what}: want [NAMESPACE/]NAME, not {text!r}")
    return (namespace if slash else default), name


def ask(
    question: Callable[[Client, Clock, Configuration, Registry], Coroutine[object, object, T]],
    paths: tuple[str, ...],
    config: Path | None,
    kubeconfig: str | None,
    context: str | None,
) -> T:
    """The answer to a question about what the files hold, or about a live cluster."""
    import asyncio

    from msgspec.structs import replace

    from wharfinger.api.configuration import Configuration
    from wharfinger.api.kinds import registry
    from wharfinger.api.kinds.builtin import NODES
    from wharfinger.cli.simulating import bad_input, configured, loaded_world, read
    from wharfinger.client.running_configuration import running_configuration
    from wharfinger.client.server_version import version_to_follow
    from wharfinger.client.timers import SystemClock

    with bad_input():
        if paths:
            inputs = read(paths, config)
        else:
            given = None if config is None else configured(config, Configuration())
    if paths:
        with bad_input(), interruptible():
            world = loaded_world(inputs)
        try:
            with _api_errors(), interruptible():
                return _in(world, inputs.configuration, question)
        finally:
            world.close()

    async def live() -> T:
        client = open_client(kubeconfig, context)
        try:
            # Informers would retry for ever against a server that does not answer.
            await client.list(NODES, limit=1)
            configuration = given or await running_configuration(client) or Configuration()
            known = configuration.kubernetes or await version_to_follow(client, refusals=1)
            return await question(client, SystemClock(), replace(configuration, kubernetes=known), registry())
        finally:
            await client.close()

    with _api_errors():
        return asyncio.run(live())


def _in(
    world: SimulatedCluster,
    configuration: Configuration,
    question: Callable[[Client, Clock, Configuration, Registry], Coroutine[object, object, T]],
) -> T:
    """Asks about the state in which nothing has been scheduled; about objects that come into being only later, such as
    the second pod of a StatefulSet, after a whole simulation."""
    from wharfinger.api.errors import NotFound

    client = world.client("", lambda warning: None)
    try:
        return world.loop.complete(question(client, world.clock, configuration, world.registry))
    except NotFound:
        world.start()
        world.loop.complete(world.settle())
        return world.loop.complete(question(client, world.clock, configuration, world.registry))


@contextmanager
def _api_errors() -> Iterator[None]:
    """Ends the command when an object does not exist (status 2) or the API server refuses or does not answer (1)."""
    from wharfinger.api.errors import ApiError

    try:
        yield
    except ApiError as error:
        raise (InputError if error.code == 404 else click.ClickException)(error.message) from error
