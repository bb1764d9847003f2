"""Unsupported: a pod that needs something we do not schedule stays pending and says what; it is never placed wrongly."""

from __future__ import annotations

from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable


class Unsupported(Plugin):
    name = "Unsupported"
    points = frozenset({"preFilter"})
    position = 25
    ours = True

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        needs = unsupported(shape)
        return unresolvable(f"not supported by this scheduler: {', '.join(needs)}") if needs else None


def unsupported(shape: Shape) -> list[str]:
    return ["resource claims (spec.resourceClaims)"] if shape.pod.spec.resource_claims else []


plugins = (Unsupported,)
