"""The names under which quota counts device classes: a class and its alias are one, raw names are another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.systems.resource_class.kinds.views import ResourceClass


def alias_names(classes: Iterable[ResourceClass]) -> Mapping[str, str]:
    """Class names by alias; of several classes with one alias the first by name has it, as for scheduling."""
    return {each.alias: each.name for each in sorted(classes, key=lambda each: each.name, reverse=True)}
