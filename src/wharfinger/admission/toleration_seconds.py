"""How long pods stay on a node that is not ready or unreachable: five minutes, unless they say otherwise."""

from __future__ import annotations

from typing import Any

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.kinds.builtin import PODS

SECONDS = 300
TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class TolerationSecondsReviewer:
    """Mutates pods on create and update, as upstream's DefaultTolerationSeconds."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural == PODS.plural and not group and not subresource

    def review(self, request: Request) -> Review:
        if request.resource.plural != PODS.plural or request.resource.group or request.subresource:
            return PASS
        spec = (request.object or {}).get("spec")
        if not isinstance(spec, dict) or request.operation not in ("CREATE", "UPDATE"):
            return PASS
        given = spec.get("tolerations")
        if not given:
            spec["tolerations"] = [_toleration(taint) for taint in TAINTS]
            return PASS
        missing = [taint for taint in TAINTS if not any(_tolerates(toleration, taint) for toleration in given)]
        if missing:
            spec["tolerations"] = [*given, *map(_toleration, missing)]
        return PASS


def _tolerates(toleration: Any, taint: str) -> bool:
    if not isinstance(toleration, dict):
        return True  # not for us to mend: validation names it
    return toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")


def _toleration(taint: str) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}
