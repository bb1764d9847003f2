"""From a configuration document to the profiles of the engine, with the arguments of every plugin validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from wharfinger.api.configuration import Configuration
from wharfinger.api.fields import FieldError
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.engine.profile import BadArguments, read_args
from wharfinger.engine.registry import known_plugins
from wharfinger.framework.plugin import Plugin
from wharfinger.scheduler.configuration import (
    PluginInfo,
    SchedulerConfiguration,
    load_scheduler_configuration,
)
from wharfinger.system import systems

OWN_NAME = "wharfinger"
EMBEDDED_NAMES = ("default-scheduler", OWN_NAME)
"""In the embedded and simulated modes one scheduler serves both names."""


def plugin_infos(kubernetes: KubernetesVersion = REFERENCE) -> dict[str, PluginInfo]:
    return {
        name: PluginInfo(
            plugin.points,
            plugin.weight,
            plugin.enabled,
            plugin.ours,
            plugin.aliases,
            partial(_argument_faults, plugin, kubernetes),
        )
        for name, plugin in known_plugins(kubernetes).items()
    }


def _argument_faults(
    plugin: type[Plugin], kubernetes: KubernetesVersion, args: Mapping[str, Any], path: str
) -> list[FieldError]:
    try:
        read_args(plugin, args, path, kubernetes)
    except BadArguments as error:
        return error.errors
    return []


def plugin_settings(settings: Configuration) -> dict[str, Mapping[str, Any]]:
    """Arguments that the settings of systems give to their plugins, by plugin name."""
    return {name: args for system in systems() for name, args in system.plugin_arguments(settings).items()}


def _merged(
    base: Mapping[str, Mapping[str, Any]], over: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    return {name: {**base.get(name, {}), **over.get(name, {})} for name in {**base, **over}}


def load(
    document: Mapping[str, Any],
    default_names: Sequence[str] = EMBEDDED_NAMES,
    settings: Configuration | None = None,
) -> SchedulerConfiguration:
    """The scheduler configuration. Raises BadSchedulerConfiguration with every fault, those of plugin arguments included.

    Plugins take arguments that the document does not give from `settings`, which also name the version of Kubernetes.
    """
    kubernetes = (settings.kubernetes if settings is not None else None) or REFERENCE
    configuration = load_scheduler_configuration(document, plugin_infos(kubernetes), default_names)
    configuration = replace(configuration, kubernetes=kubernetes)
    if settings is not None:
        given = plugin_settings(settings)
        profiles = tuple(replace(each, args=_merged(given, each.args)) for each in configuration.profiles)
        configuration = replace(configuration, profiles=profiles)
    return configuration
