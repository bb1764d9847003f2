"""What a system is, and the registry of those that are installed.

A system is a package that plugs into the core: kinds, scheduling plugins, admission, controllers, commands. The five
systems of Wharfinger and those of other packages are found in the same way, by the entry-point group
`wharfinger.systems`; nothing else lists them. The environment variable `WHARF_DISABLED_SYSTEMS` (names separated by
commas) leaves some out.

Methods of a `System` import what they return when they are called: listing the systems loads none of their code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import click

    from wharfinger.api.registry import Kind
    from wharfinger.client.controller import Controller
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin
    from wharfinger.scheduler.schedulable import Schedulable
    from wharfinger.webhook.handler import Context, Handler

GROUP = "wharfinger.systems"
DISABLED = "WHARF_DISABLED_SYSTEMS"


class InvalidSystem(ValueError):
    """An entry point of the group does not name a system, or two systems have the same name."""


class System:
    """Base of all systems. Every method has a default, so that a system overrides only what it brings."""

    name: ClassVar[str] = ""

    def kinds(self) -> Sequence[Kind]:
        """Kinds to store, serve, validate and ship as CustomResourceDefinitions."""
        return ()

    def plugins(self) -> Sequence[type[Plugin]]:
        """Scheduling plugins."""
        return ()

    def schedulables(self) -> Sequence[type[Schedulable]]:
        """Kinds of objects, besides pods, that the scheduler places on nodes."""
        return ()

    def webhook_handlers(self, context: Context) -> Sequence[Handler]:
        """What reviews requests for a real API server."""
        return ()

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        """Factories of controllers by name."""
        return {}

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        """Subcommands of `wharf` by name; each is loaded when it is run or its help is shown."""
        return {}


@cache
def systems() -> tuple[System, ...]:
    """The installed systems that are not disabled, by name."""
    from importlib.metadata import entry_points

    disabled = {name.strip() for name in os.environ.get(DISABLED, "").split(",")}
    found: dict[str, System] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in disabled:
            continue
        system = point.load()
        if not isinstance(system, System) or not system.name:
            raise InvalidSystem(f"{GROUP}: {point.name} = {point.value}: not an instance of wharfinger.system.System")
        if system.name in found:
            raise InvalidSystem(f"{GROUP}: two systems are called {system.name}")
        found[system.name] = system
    return tuple(found.values())
