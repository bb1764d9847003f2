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

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.admission.quota import QuotaExtension
    from wharfinger.admission.scheduler_records import SchedulerRecord
    from wharfinger.api.configuration import Block, Configuration
    from wharfinger.api.registry import Kind, KindExtension
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

    def settings(self) -> type[Block] | None:
        """The block of the configuration document that has the name of this system."""
        return None

    def kinds(self) -> Sequence[Kind]:
        """Kinds to store, serve, validate and ship as CustomResourceDefinitions."""
        return ()

    def plugins(self) -> Sequence[type[Plugin]]:
        """Scheduling plugins."""
        return ()

    def schedulables(self) -> Sequence[type[Schedulable]]:
        """Kinds of objects, besides pods, that the scheduler places on nodes."""
        return ()

    def plugin_arguments(self, configuration: Configuration) -> Mapping[str, Mapping[str, Any]]:
        """Arguments of plugins that follow from the settings of this system, by plugin name."""
        return {}

    def reviewers(self, context: AdmissionContext) -> SystemReviewers | None:
        """What reviews writes to a store in this process: the embedded server and simulations."""
        return None

    def quota(self, context: ControllerContext, changed: Callable[[str | None], None]) -> QuotaExtension | None:
        """What this system adds to the counting of quota by the ResourceQuota controller; `changed` is called with the
        namespace whose quotas are to be counted again, or with None for all of them."""
        return None

    def scheduler_records(self) -> Sequence[SchedulerRecord]:
        """Annotations of pods that only schedulers may write."""
        return ()

    def scheduler_identities(self, configuration: Configuration) -> Sequence[str]:
        """Further users that count as schedulers."""
        return ()

    def kind_extensions(self) -> Mapping[tuple[str, str], KindExtension]:
        """Defaulting and validation that this system adds to kinds of the core, by group and plural."""
        return {}

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
