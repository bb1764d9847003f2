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
    spec = shape.pod.spec
    needs = []
    if spec.resource_claims:
        needs.append("resource claims (spec.resourceClaims)")
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            needs.append(f"persistent volume claim {volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            needs.append(f"ephemeral volume {volume.name}")
    return needs


plugins = (Unsupported,)
