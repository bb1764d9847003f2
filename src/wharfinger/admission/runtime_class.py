"""Runtime classes: a pod gets the overhead, node selector and tolerations of its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wharfinger.admission.request import PASS, RepeatingPodReviewer, Request, Review
from wharfinger.api.quantity import parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.taints import NO_EXECUTE

_DIFFERS = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


class RuntimeClassReviewer(RepeatingPodReviewer):
    """Mutating, as upstream's RuntimeClass plugin. Unless classes are `required`, a pod whose class does not exist is left
    unchanged: snapshots may lack classes."""

    def __init__(self, find: Callable[[str], Document | None], *, required: bool) -> None:
        self._find = find
        self._required = required

    def review(self, request: Request) -> Review:
        spec = (request.object or {}).get("spec")
        if request.operation != "CREATE" or not isinstance(spec, dict):
            return PASS
        name = spec.get("runtimeClassName")
        if not isinstance(name, str):
            if spec.get("overhead"):
                return request.refused(
                    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                )
            return PASS
        found = self._find(name)
        if found is None:
            return request.refused(f'pod rejected: RuntimeClass "{name}" not found') if self._required else PASS
        if why := _set_overhead(spec, found) or _set_scheduling(spec, found):
            return request.refused(why)
        return PASS


def _set_overhead(spec: Document, found: Document) -> str:
    overhead = (found.get("overhead") or {}).get("podFixed") or {}
    given = spec.get("overhead")
    if not overhead:
        return "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead" if given else ""
    if given and (not isinstance(given, dict) or _amounts(given) != _amounts(overhead)):
        return _DIFFERS
    spec["overhead"] = dict(overhead)
    return ""


def _amounts(quantities: Document) -> dict[str, int | None]:
    return {name: _amount(quantity) for name, quantity in quantities.items()}


def _amount(quantity: Any) -> int | None:
    try:
        return parse_nano(quantity)
    except (TypeError, ValueError):
        return None  # validation reports it


def _set_scheduling(spec: Document, found: Document) -> str:
    scheduling = found.get("scheduling")
    if scheduling is None:
        return ""
    selector = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if isinstance(selector, dict) and selector.get(key, value) != value:
            return (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**selector, **scheduling["nodeSelector"]}
    if tolerations := _merged([*(spec.get("tolerations") or ()), *(scheduling.get("tolerations") or ())]):
        spec["tolerations"] = tolerations
    return ""


def _merged(tolerations: list[Document]) -> list[Document]:
    """The tolerations without those that another one covers; of equal ones the first is kept."""
    kept: list[Document] = []
    for index, one in enumerate(tolerations):
        later = tolerations[index + 1 :]
        if not any(_covers(other, one) for other in kept) and not any(
            other != one and _covers(other, one) for other in later
        ):
            kept.append(one)
    return kept


def _covers(wide: Any, narrow: Any) -> bool:
    if wide == narrow:
        return True
    if not isinstance(wide, dict) or not isinstance(narrow, dict):
        return False
    exists = wide.get("operator") == "Exists"
    if wide.get("key", "") != narrow.get("key", "") and (wide.get("key") or not exists):
        return False
    if wide.get("effect") and wide["effect"] != narrow.get("effect", ""):
        return False
    seconds, others = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    if wide.get("effect") == NO_EXECUTE and seconds is not None and (others is None or others > seconds):
        return False
    if exists:
        return True
    return (
        wide.get("operator") in (None, "", "Equal")
        and narrow.get("operator") == "Equal"
        and wide.get("value", "") == narrow.get("value", "")
    )
