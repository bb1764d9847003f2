"""How `wharf reserve` and `wharf migrate` run: create an object, follow it, and exit with how it ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn

import click

from wharfinger.api.errors import ApiError
from wharfinger.systems.reservation.commands.reserving import Refused

if TYPE_CHECKING:
    from wharfinger.client.http import HttpClient


def create_and_follow(
    connect: Callable[[], HttpClient],
    create: Callable[[HttpClient], Awaitable[str]],
    follow: Callable[[HttpClient, str], Awaitable[bool]],
    hint: Callable[[str], str],
) -> NoReturn:
    """`create` returns the name of the object, `follow` whether it reached its goal. If that is interrupted, `hint` says
    what can be done with an object that exists already."""
    made: list[str] = []

    async def run() -> bool:
        client = connect()
        try:
            made.append(await create(client))
            return await follow(client, made[0])
        finally:
            await client.close()

    try:
        sys.exit(0 if asyncio.run(run()) else 1)
    except KeyboardInterrupt:
        for each in made:
            click.echo(f"\n{hint(each)}", err=True)
        sys.exit(130)
    except (ApiError, Refused) as error:
        raise click.ClickException(str(error)) from error
