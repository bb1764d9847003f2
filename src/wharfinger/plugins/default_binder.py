"""DefaultBinder: binds pods. It is here so that configurations can name it; the live scheduler does the work."""

from __future__ import annotations

from wharfinger.framework.plugin import Plugin


class DefaultBinder(Plugin):
    name = "DefaultBinder"
    points = frozenset({"bind"})
    position = 180


plugins = (DefaultBinder,)
