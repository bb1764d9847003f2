"""What the plugins of a profile prepare for one shape, before any row is evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Code, Status, unresolvable

Points = Mapping[str, Sequence[Plugin]]
"""Extension point to the plugins that take part in it, in order."""

Filters = Sequence[tuple[str, Prepared]]
"""Filters by plugin name, in the order in which they run."""


class ScoringPlugin(msgspec.Struct, frozen=True):
    plugin: str
    prepared: Prepared
    weight: int


class PreparedShape:
    """The prepared answers of all plugins for one shape, by what they are for.

    When a plugin refuses the pod as a whole, `refusal` says why and `skipped` names the plugins that were not asked
    because of it. `only` is set when plugins narrowed the choice to some nodes; filters refuse all but those in `within`.
    """

    def __init__(self, shape: Shape, points: Points, weights: Mapping[str, int]) -> None:
        self.shape = shape
        self.by_plugin: dict[str, Prepared] = {}
        self.refusal: Status | None = None
        self.skipped: frozenset[str] = frozenset()
        self.only: frozenset[str] | None = None
        self.narrowed_by: list[str] = []
        self._prepare(points)
        found = self.by_plugin
        replaced = {name for each in found.values() for name in each.replaces}
        self.filters: Filters = [
            (plugin.name, found[plugin.name])
            for plugin in points["filter"]
            if plugin.name in found and found[plugin.name].filters and plugin.name not in replaced
        ]
        known = [each.within for _, each in self.filters if each.within is not None]
        self.within = frozenset.intersection(*known) if known else None
        # Most preparations never fail, and every decision asks: those with the plain constant are left out.
        self._fallible = [each for _, each in self.filters if each.fails or type(each).fails is not Prepared.fails]
        self.scorers = [
            ScoringPlugin(plugin.name, found[plugin.name], weights[plugin.name])
            for plugin in points["score"]
            if plugin.name in found and found[plugin.name].scores
        ]
        self.reservers = [
            (plugin, found.get(plugin.name))
            for plugin in points["reserve"]
            if not plugin.reserves_prepared or (plugin.name in found and found[plugin.name].reserves)
        ]
        self.overlays = [each.overlays for each in found.values() if each.overlays is not None]
        self.score_fault = next(
            (
                f'running PreScore plugin "{each.plugin}": {each.prepared.score_fault}'
                for each in self.scorers
                if each.prepared.score_fault
            ),
            "",
        )

    def _prepare(self, points: Points) -> None:
        at_filter = [*points["preFilter"], *(each for each in points["filter"] if each not in points["preFilter"])]
        at_score = [each for each in points["score"] if each not in at_filter]
        plugins = (*at_filter, *at_score)
        for index, plugin in enumerate(plugins):
            answer = plugin.prepare(self.shape)
            if answer is None:
                continue
            later = plugins[index + 1 :]
            if isinstance(answer, Status):
                if plugin in at_filter and self._refuse(answer.by(plugin.name), later):
                    return
                continue
            self.by_plugin[plugin.name] = answer
            if answer.nodes is not None and self._narrow(plugin.name, answer.nodes, later):
                return

    def _refuse(self, status: Status, later: Sequence[Plugin]) -> bool:
        """Takes a refusal of the pod as a whole; returns whether it is final.

        After one that evictions might resolve the other plugins are still asked, and an unresolvable one replaces it.
        """
        final = status.code is not Code.UNSCHEDULABLE
        if final or self.refusal is None:
            self.refusal = status
        if final:
            self.skipped = frozenset(each.name for each in later)
        return final

    def _narrow(self, plugin: str, nodes: frozenset[str], later: Sequence[Plugin]) -> bool:
        """Narrows the choice to some nodes; returns whether none is left."""
        self.narrowed_by.append(plugin)
        self.only = nodes if self.only is None else self.only & nodes
        if self.only:
            return False
        names = sorted(self.narrowed_by)
        what = f"plugin {names[0]}" if len(names) == 1 else f"plugin(s) [{' '.join(names)}] simultaneously"
        self.refusal = unresolvable(f"node(s) didn't satisfy {what}")
        self.skipped = frozenset(each.name for each in later)
        return True

    def fails(self) -> bool:
        """Whether filtering may give errors now."""
        return bool(self._fallible) and any(each.fails for each in self._fallible)

    def close(self) -> None:
        for prepared in self.by_plugin.values():
            prepared.close()
