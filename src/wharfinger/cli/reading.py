"""Reads objects from manifests or from a cluster, as typed views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.exit_status import InputError

if TYPE_CHECKING:
    from wharfinger.api.registry import Resource


def read_kinds(
    kinds: Sequence[tuple[Resource, type[Any]]], files: Iterable[str], kubeconfig: str | None, context: str | None
) -> list[list[Any]]:
    """All objects of each kind: those of the files if any are given, else those of the cluster."""
    paths = list(files)
    return _from_files(kinds, paths) if paths else _from_cluster(kinds, kubeconfig, context)


def _from_files(kinds: Sequence[tuple[Resource, type[Any]]], paths: list[str]) -> list[list[Any]]:
    from wharfinger.cli.simulating import loaded_world, read
    from wharfinger.simulate.inputs import BadInput

    try:
        world = loaded_world(read(paths, notes=False))
    except BadInput as error:
        raise InputError(str(error)) from error
    try:
        return [[stored.view(view) for stored in world.store.scan(resource)] for resource, view in kinds]
    finally:
        world.close()


def _from_cluster(
    kinds: Sequence[tuple[Resource, type[Any]]], kubeconfig: str | None, context: str | None
) -> list[list[Any]]:
    import asyncio

    from wharfinger.api.errors import ApiError, NotFound
    from wharfinger.api.views import view
    from wharfinger.cli.options import open_client

    async def ask() -> list[list[Any]]:
        client = open_client(kubeconfig, context)
        found: list[list[Any]] = []
        try:
            for resource, as_type in kinds:
                try:
                    listed = await client.list(resource)
                except NotFound:
                    found.append([])  # the cluster does not serve this kind
                    continue
                found.append([view(item, as_type) for item in listed.items])
        finally:
            await client.close()
        return found

    try:
        return asyncio.run(ask())
    except ApiError as error:
        raise click.ClickException(str(error)) from error
