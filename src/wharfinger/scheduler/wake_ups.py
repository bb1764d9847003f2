"""Which plugins listen to which events."""

from __future__ import annotations

from collections.abc import Collection

from wharfinger.engine import Engine
from wharfinger.framework.events import Action, ClusterEvent, WakeUp


class Listeners:
    """The plugins whose refusal an event can change, by kind of object and action."""

    def __init__(self, engine: Engine) -> None:
        self._wake_ups: dict[str, list[tuple[str, WakeUp]]] = {}  # by kind, with the name of the plugin
        self._known: dict[tuple[str, Action], Collection[str]] = {}
        for profile in engine.profiles.values():
            for name, plugin in profile.plugins.items():
                for wake_up in plugin.wake_ups():
                    self._wake_ups.setdefault(wake_up.kind, []).append((name, wake_up))

    def of(self, event: ClusterEvent) -> Collection[str]:
        """Names of plugins, each once."""
        found = self._known.get((event.kind, event.action))
        if found is None:
            wake_ups = self._wake_ups.get(event.kind, ())
            found = dict.fromkeys(name for name, wake_up in wake_ups if event.action & wake_up.action)
            self._known[event.kind, event.action] = found
        return found
