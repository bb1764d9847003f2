"""What a system is, and the registry of those that are installed.

A system is a package that plugs into the core: kinds, scheduling plugins, admission, controllers, commands. The five
systems of Wharfinger and those of other packages are found in the same way, by the entry-point group
`wharfinger.systems`; nothing else lists them. The environment variable `WHARF_DISABLED_SYSTEMS` (names separated by
commas) leaves some out; `WHARF_SYSTEMS` leaves out all others.

Methods of a `System` import what they return when they are called: listing the systems loads none of their code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from wharfinger.entry_points import entry_points

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.admission.quota import QuotaExtension
    from wharfinger.admission.scheduler_records import SchedulerRecord
    from wharfinger.api.configuration import Block, Configuration
    from wharfinger.api.registry import Kind, KindExtension
    from wharfinger.client.controller import Controller
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.interface import Client
    from wharfinger.contributions import Installation, SystemReport
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin
    from wharfinger.scenario.extension import ScenarioExtension
    from wharfinger.scheduler.schedulable import Schedulable
    from wharfinger.webhook.handler import WebhookContext, WebhookHandler

GROUP = "wharfinger.systems"
DISABLED, ENABLED = "WHARF_DISABLED_SYSTEMS", "WHARF_SYSTEMS"


class InvalidSystem(ValueError):
    """An entry point of the group does not name a system, two systems have the same name, or one to disable is unknown."""


class System:
    """Base of all systems. Every method has a default, so that a system overrides only what it brings."""

    name: ClassVar[str] = ""
    order: ClassVar[int] = 1000
    """Position among the systems in reports and manifests; systems of equal order are sorted by name."""
    webhook_suffices: ClassVar[bool] = False
    """Whether its webhook handlers do all that its mutating and validating reviewers do in process."""

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
        """Annotations of pods that only schedulers or node agents may write."""
        return ()

    def scheduler_identities(self, configuration: Configuration) -> Sequence[str]:
        """Further users and groups that count as schedulers."""
        return ()

    def openapi_definitions(self) -> Mapping[str, dict[str, Any]]:
        """OpenAPI definitions by full name that this system adds to those of Kubernetes. One that exists already gets
        the given properties in addition to its own."""
        return {}

    def kind_extensions(self) -> Mapping[tuple[str, str], KindExtension]:
        """Defaulting and validation that this system adds to kinds of the core, by group and plural."""
        return {}

    def webhook_handlers(self, context: WebhookContext) -> Sequence[WebhookHandler]:
        """What reviews requests for a real API server."""
        return ()

    def allocated_resources(self, informers: InformerSet) -> Callable[[str], Collection[str]] | None:
        """A function that returns, for the name of a node, the resources that this system allocates there. Simulated
        kubelets do not check these."""
        return None

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        """Factories of controllers by name."""
        return {}

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        """Subcommands of `wharf` by name; each is loaded when it is run or its help is shown."""
        return {}

    # -- reports

    def explain_commands(self) -> Mapping[str, Callable[[], click.Command]]:
        """Subcommands of `wharf explain` by name."""
        return {}

    def report(self) -> SystemReport:
        """Sections of `wharf simulate`, `plan`, `status` and `up --sample`."""
        from wharfinger.contributions import SystemReport

        return SystemReport()

    # -- running and installing

    def installation(self) -> Installation:
        """The component of `wharf install`, permissions, and programs that run beside scheduler and controllers."""
        from wharfinger.contributions import Installation

        return Installation()

    async def bootstrap(self, client: Client, *, required: bool = True) -> None:
        """Creates the objects that a control plane must have before it serves requests. Unless `required`, a client
        without the permission to create them leaves that to others."""

    def cluster_settings(self, block: Mapping[str, Any], *, enforce: bool, scheduler: str = "") -> Mapping[str, Any]:
        """The block of the configuration document for a real cluster, given what the administrator wrote.
        `enforce`: refuse what is not allowed instead of warning; `scheduler`: the user that binds pods."""
        return block

    def scenario_extension(self) -> ScenarioExtension | None:
        """A new instance for each scenario that is run."""
        return None


@cache
def systems() -> tuple[System, ...]:
    """The installed systems that are not disabled, by name."""
    points = sorted(entry_points(GROUP), key=lambda point: point.name)
    disabled = systems_left_out()
    found: dict[str, System] = {}
    for point in points:
        if point.name in disabled:
            continue
        system = point.load()
        if not isinstance(system, System) or not system.name:
            raise InvalidSystem(f"{GROUP}: {point.name} = {point.value}: not an instance of wharfinger.system.System")
        if system.name in found:
            raise InvalidSystem(f"{GROUP}: two systems are called {system.name}")
        found[system.name] = system
    return tuple(found.values())


@cache
def systems_left_out() -> frozenset[str]:
    """The names of the installed systems that are disabled."""
    installed = sorted(point.name for point in entry_points(GROUP))
    named = {
        variable: {name.strip() for name in os.environ[variable].split(",") if name.strip()}
        for variable in (DISABLED, ENABLED)
        if variable in os.environ
    }
    for variable, names in named.items():
        if unknown := names.difference(installed):
            shown = f"{', '.join(sorted(unknown))}; installed are {', '.join(installed)}"
            raise InvalidSystem(f"{variable}: there is no system {shown}")
    return frozenset(named.get(DISABLED, ())) | (frozenset(installed) - named.get(ENABLED, set(installed)))


def command_of(module: str, name: str = "command") -> Callable[[], click.Command]:
    """A function that imports a module and returns its command."""

    def load() -> click.Command:
        command: click.Command = getattr(import_module(module), name)
        return command

    return load


def ordered_systems() -> list[System]:
    """The enabled systems in the order of reports and manifests."""
    return sorted(systems(), key=lambda system: (system.order, system.name))


def cluster_configuration(document: Mapping[str, Any], *, enforce: bool, scheduler: str = "") -> dict[str, Any]:
    """A configuration document with the settings that each system wants on a real cluster."""
    made = dict(document)
    for system in ordered_systems():
        key = settings_key(system.name)
        if block := system.cluster_settings(document.get(key) or {}, enforce=enforce, scheduler=scheduler):
            made[key] = dict(block)
    return made


def settings_key(name: str) -> str:
    """The key of a system's block in the configuration document: `scheduling_policy` has `schedulingPolicy`."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
