"""What the commands that simulate share: reading their input, and what invalid input ends with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from wharfinger.cli.exit_status import InputError, interruptible

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.simulate.cluster import SimulatedCluster
    from wharfinger.simulate.inputs import Inputs, IsForeign


def quiet() -> None:
    """Components of a simulated cluster log like live ones; only their errors are shown."""
    import logging

    logging.getLogger("wharfinger").setLevel(logging.ERROR)


def read(
    paths: Iterable[str],
    config: Path | None = None,
    *,
    strict: bool = False,
    notes: bool = True,
    foreign: IsForeign | None = None,
) -> Inputs:
    """The inputs of files, folders and `-`; a configuration file overrides the one among them. With `notes`, prints what
    was left out and what a snapshot lacks. Raises BadInput."""
    from wharfinger.api.kinds import registry
    from wharfinger.simulate.inputs import files_of, read_inputs

    quiet()
    inputs = read_inputs(files_of(paths, sys.stdin.buffer), registry(), strict=strict, foreign=foreign)
    if config is not None:
        inputs.configuration = configured(config, inputs.configuration)
    for note in inputs.notes if notes else ():
        click.echo(f"Note: {note}", err=True)
    return inputs


def live_inputs(kubeconfig: str | None, context: str | None) -> tuple[Inputs, float]:
    """The state of a live cluster, and the current time."""
    import asyncio
    import time

    from msgspec.structs import replace

    from wharfinger.api.configuration import Configuration
    from wharfinger.api.kinds import registry
    from wharfinger.api.manifests import Manifest, Source
    from wharfinger.cli.options import open_client
    from wharfinger.client.running_configuration import running_configuration
    from wharfinger.client.server_version import version_to_follow
    from wharfinger.simulate.inputs import Inputs
    from wharfinger.simulate.snapshots import take

    manifests: list[Manifest] = []
    configuration = Configuration()
    source = Source("the cluster", 1, 1)

    async def read_cluster() -> None:
        nonlocal configuration
        client = open_client(kubeconfig, context)
        try:
            header = await take(
                client, registry(), time.time(), lambda document: manifests.append(Manifest(document, source))
            )
            running = await running_configuration(client) or Configuration()
            known = running.kubernetes or await version_to_follow(client, refusals=1)
            configuration = replace(running, kubernetes=known)
        finally:
            await client.close()
        for (_, kind), why in header.not_read.items():
            click.echo(f"Note: {kind} could not be read, so what depends on it is left out: {why}", err=True)

    asyncio.run(read_cluster())
    return Inputs(manifests, configuration=configuration), time.time()


def refuse_nothing(inputs: Inputs, paths: Iterable[str]) -> None:
    """Raises BadInput if the files have nothing to simulate, which is probably a mistake."""
    from wharfinger.simulate.inputs import BadInput

    if not (inputs.manifests or inputs.scenarios or inputs.configured):
        names = ", ".join("standard input" if path == "-" else path for path in paths)
        raise BadInput([f"{names}: there is no object in it"])


def loaded_world(inputs: Inputs) -> SimulatedCluster:
    """A simulated cluster with the objects of the files, in which nothing has been scheduled. Prints what the API
    refused."""
    from wharfinger.simulate.cluster import SimulatedCluster
    from wharfinger.simulate.simulation import fill

    world = SimulatedCluster(inputs.configuration, start=inputs.start())
    for refused in world.loop.complete(fill(world, inputs)):
        click.echo(f"Note: {refused.kind} {refused.name} was refused: {refused.message}", err=True)
    return world


def configured(path: Path, present: Configuration) -> Configuration:
    """The configuration of a file: a WharfingerConfiguration replaces the present one, a KubeSchedulerConfiguration its scheduler block."""
    import yaml
    from msgspec.structs import replace

    from wharfinger.api.configuration import KIND, BadConfiguration, load_configuration
    from wharfinger.scheduler import profiles
    from wharfinger.scheduler.configuration import BadSchedulerConfiguration
    from wharfinger.simulate.inputs import BadInput

    try:
        document = yaml.safe_load(path.read_text()) or {}
        if not isinstance(document, dict):
            raise BadInput([f"{path}: not a configuration document"])
        if document.get("kind") == KIND:
            loaded = load_configuration(document)
        else:
            loaded = replace(present, scheduler=document)
        profiles.load(loaded.scheduler, settings=loaded)
    except (BadConfiguration, BadSchedulerConfiguration) as error:
        raise BadInput([f"{path}: {fault}" for fault in error.errors]) from error
    except yaml.YAMLError as error:
        raise BadInput([f"{path}: not YAML: {error}"]) from error
    return loaded


def seconds(text: str, option: str) -> float:
    from wharfinger.api.times import BadTime, parse_duration
    from wharfinger.simulate.inputs import BadInput

    try:
        length = parse_duration(text)
    except BadTime as error:
        raise BadInput([f"{option}: {error}"]) from error
    if length < 0:
        raise BadInput([f"{option}: must not be negative"])
    return length


class InvalidInputs(InputError):
    """Prints a line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the input cannot be used:")
        self._problems = problems

    def show(self, file: IO[Any] | None = None) -> None:
        from wharfinger.cli.output import paint

        click.echo(paint(f"Error: {self.message}", "red", stream=sys.stderr), err=True)
        for problem in self._problems:
            click.echo(f"  {problem}", err=True)


@contextmanager
def bad_input() -> Iterator[None]:
    """Ends the command if the input is invalid."""
    from wharfinger.simulate.inputs import BadInput

    try:
        yield
    except BadInput as error:
        raise InvalidInputs(error.problems) from error


@contextmanager
def progressing() -> Iterator[None]:
    """Ends the command with an error if the simulation makes no progress, and at once on Ctrl-C."""
    from wharfinger.simulate.loop import NoProgress

    try:
        with interruptible():
            yield
    except NoProgress as error:
        raise click.ClickException(f"the simulation makes {error}") from error
