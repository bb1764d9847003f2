"""What the subcommands of `wharf explain` share: their options, and a question asked of files or of a live cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from wharfinger.cli.completing import LIMIT, names_of
from wharfinger.cli.exit_status import InputError, interruptible
from wharfinger.cli.options import EXISTING_FILE, F, cluster_options, open_client, output_option, paths_option

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.registry import Document, Registry
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock
    from wharfinger.simulate.cluster import SimulatedCluster

NAMED = 5  # objects that a message lists when the one asked for does not exist

T = TypeVar("T")
Question = Callable[["Client", "Clock", "Configuration", "Registry"], Coroutine[object, object, T]]


class Explained(Protocol):
    def document(self) -> Document: ...


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Where the state comes from and how the answer is printed."""

    paths: tuple[str, ...]
    everything: bool
    output: str
    kubeconfig: str | None
    context: str | None
    config: Path | None = None

    def ask(self, question: Question[T]) -> T:
        return ask(question, self.paths, self.config, self.kubeconfig, self.context)

    def show(self, kind: str, explanation: Explained, text: Callable[..., str]) -> None:
        """Prints what `text` makes of the explanation, given `everything`, or the document of it."""
        from wharfinger.cli.output import emit

        if self.output == "table":
            click.echo(text(explanation, everything=self.everything))
        else:
            emit(explanation.document(), self.output, kind=kind)


def explain_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say where the state comes from and how the answer is printed; the command gets `options`,
    an ExplainOptions."""

    @cluster_options
    @output_option("table", "json", "yaml")
    @click.option("-v", "--all", "everything", is_flag=True, help="List every node or cluster.")
    @paths_option("-f", "--filename", "paths", help="Read the state from files instead of a cluster.")
    @functools.wraps(function)
    def explain(
        paths: tuple[str, ...],
        everything: bool,
        output: str,
        kubeconfig: str | None,
        context: str | None,
        config: Path | None = None,
        **others: Any,
    ) -> None:
        function(options=ExplainOptions(paths, everything, output, kubeconfig, context, config), **others)

    return explain


def namespace_option(function: F) -> F:
    """Adds `-n/--namespace`, for names without one."""
    return click.option(
        "-n",
        "--namespace",
        default="default",
        show_default=True,
        shell_complete=names_of("namespaces"),
        help="The namespace if the name has none.",
    )(function)


def scheduler_config_option(function: F) -> F:
    """Adds `--config`, which becomes part of the ExplainOptions."""
    return click.option("--config", type=EXISTING_FILE, help="The scheduler's configuration.")(function)


def split_name(text: str, what: str, default: str) -> tuple[str, str]:
    """Namespace and name of `[NAMESPACE/]NAME`."""
    namespace, slash, name = text.rpartition("/")
    if not name:
        raise click.UsageError(f"{what}: want [NAMESPACE/]NAME, not {text!r}")
    return (namespace if slash else default), name


def ask(
    question: Question[T],
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
                return _in(world, inputs.configuration, _with_likely_names(question))
        finally:
            world.close()

    async def live() -> T:
        client = open_client(kubeconfig, context)
        try:
            # Informers would retry for ever against a server that does not answer.
            await client.list(NODES, limit=1)
            configuration = given or await running_configuration(client) or Configuration()
            known = configuration.kubernetes or await version_to_follow(client, refusals=1)
            asked = _with_likely_names(question)
            return await asked(client, SystemClock(), replace(configuration, kubernetes=known), registry())
        finally:
            await client.close()

    with _api_errors():
        return asyncio.run(live())


def _in(
    world: SimulatedCluster,
    configuration: Configuration,
    question: Question[T],
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


def _with_likely_names(question: Question[T]) -> Question[T]:
    """The question, with the objects that may be meant in the message if an object does not exist."""
    from wharfinger.api.errors import NotFound

    async def asked(client: Client, clock: Clock, configuration: Configuration, registry: Registry) -> T:
        try:
            return await question(client, clock, configuration, registry)
        except NotFound as error:
            raise NotFound(
                error.message + await _likely(client, registry, error.details), details=error.details
            ) from error

    return asked


async def _likely(client: Client, registry: Registry, details: Document) -> str:
    """What to name instead of an object that does not exist: one with the same name in another namespace or with a
    similar name, or else those that exist. Empty if they cannot be read."""
    from wharfinger.api.errors import ApiError
    from wharfinger.api.wording import listed, nearest

    kind = registry.of_plural(details.get("group", ""), details.get("kind", ""))
    if kind is None:
        return ""
    try:
        page = await client.list(kind.resource(), limit=LIMIT)
    except ApiError:
        return ""
    namespace, _, name = details.get("name", "").rpartition("/")
    found = [(item["metadata"].get("namespace") or "", item["metadata"]["name"]) for item in page.items]
    found.sort(key=lambda each: (each[0] != namespace, each))  # those of the namespace that was asked for come first
    names = [f"{place}/{each}" if place else each for place, each in found]
    like = nearest(name, (each for _, each in found))
    if like:
        return f"; did you mean {next(full for full, (_, each) in zip(names, found, strict=True) if each == like)}?"
    return f"; there are {listed(names, NAMED)}" if names else "; there are none"


@contextmanager
def _api_errors() -> Iterator[None]:
    """Ends the command when an object does not exist (status 2) or the API server refuses or does not answer (1)."""
    from wharfinger.api.errors import ApiError

    try:
        yield
    except ApiError as error:
        raise (InputError if error.code == 404 else click.ClickException)(error.message) from error
