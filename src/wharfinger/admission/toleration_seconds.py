"""Pods tolerate a node that is not ready or unreachable for five minutes by default."""

from __future__ import annotations

from typing import Any

from wharfinger.admission.request import PASS, RepeatingPodReviewer, Request, Review
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.taints import NO_EXECUTE, NOT_READY, UNREACHABLE

SECONDS = 300
TAINTS = (NOT_READY, UNREACHABLE)


class TolerationSecondsReviewer(RepeatingPodReviewer):
    """Mutating, on create and update, as upstream's DefaultTolerationSeconds."""

    def review(self, request: Request) -> Review:
        if not request.targets(PODS):
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
        return True  # malformed: validation reports it
    return toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", NO_EXECUTE)


def _toleration(taint: str) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": SECONDS}
