"""Which plugins listen to which events, and which waiting items an event can help."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.views import Pod
from wharfinger.engine import Engine
from wharfinger.framework.events import NODE, Action, ClusterEvent, WakeUp
from wharfinger.framework.plugin import Plugin

WakeUps = Mapping[str, Mapping[str, Collection[WakeUp]]]
"""By the name of the plugin and of the profile."""


class Listeners:
    """The plugins whose refusal an event can change, by kind of object and action."""

    def __init__(self, engine: Engine) -> None:
        self._wake_ups: dict[str, list[tuple[str, str, WakeUp]]] = {}  # by kind, with plugin and profile
        self._known: dict[tuple[str, Action], WakeUps] = {}
        for profile_name, profile in engine.profiles.items():
            for name, plugin in profile.plugins.items():
                for wake_up in _wake_ups(plugin, engine.tables.kubernetes):
                    self._wake_ups.setdefault(wake_up.kind, []).append((name, profile_name, wake_up))

    def of(self, event: ClusterEvent) -> Collection[str]:
        """Names of plugins, each once."""
        return self._listening(event)

    def wakes(self, item: Pod, plugin: str, event: ClusterEvent) -> bool:
        """Whether the event can make the plugin accept an item that it refused."""
        of_plugin = self._listening(event).get(plugin)
        if of_plugin is None:
            return False
        return any(each.wakes(item, event) for each in of_plugin.get(item.spec.scheduler_name, ()))

    def concerned(self, event: ClusterEvent) -> Collection[ObjectKey] | None:
        """The pods that the event can help; None if it can be any."""
        found: set[ObjectKey] = set()
        for of_plugin in self._listening(event).values():
            for wake_up in (each for of_profile in of_plugin.values() for each in of_profile):
                keys = None if wake_up.pods is None else wake_up.pods(event.old, event.new)
                if keys is None:
                    return None
                found.update(keys)
        return found

    def _listening(self, event: ClusterEvent) -> WakeUps:
        found = self._known.get((event.kind, event.action))
        if found is None:
            made: dict[str, dict[str, list[WakeUp]]] = {}
            for plugin, profile, wake_up in self._wake_ups.get(event.kind, ()):
                if event.action & wake_up.action:
                    made.setdefault(plugin, {}).setdefault(profile, []).append(wake_up)
            found = self._known[event.kind, event.action] = made
        return found


def _wake_ups(plugin: Plugin, kubernetes: KubernetesVersion) -> Iterator[WakeUp]:
    """What the plugin states, and what holds for every plugin that filters nodes."""
    yield from plugin.wake_ups()
    of_nodes = Action(0)
    for wake_up in plugin.wake_ups():
        if wake_up.kind == NODE:
            of_nodes |= wake_up.action
    if not of_nodes & Action.ADD:
        # The new node may be one that the plugin accepts.
        if plugin.points & {"preFilter", "filter"}:
            yield WakeUp(NODE, Action.ADD)
    elif kubernetes < KubernetesVersion.V1_37 and not of_nodes & Action.UPDATE_NODE_TAINT:
        # As kube-scheduler 1.36 (buildQueueingHintMap): who waits for a new node is retried when taints change.
        yield WakeUp(NODE, Action.UPDATE_NODE_TAINT)
