"""Limit ranges, as in upstream's LimitRanger: default requests and limits of containers, and bounds.

Defaults are set on creation of pods; minimum, maximum and ratio are checked for pods and persistent volume claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from wharfinger.admission.request import PASS, RepeatingPodReviewer, Request, Review
from wharfinger.api.kinds.builtin import PERSISTENT_VOLUME_CLAIMS, PODS
from wharfinger.api.quantity import BadQuantity, canonical, format_nano, parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.resource_names import PLAIN, ResourceNames
from wharfinger.api.resources import limits_nano, requests_nano
from wharfinger.api.views import view
from wharfinger.api.views.core import LimitRange, LimitRangeItem
from wharfinger.api.views.pods import Pod

ANNOTATION = "kubernetes.io/limit-ranger"

RangesOf = Callable[[str], Iterable[LimitRange]]
"""The limit ranges of a namespace."""

NamesOf = Callable[[], ResourceNames]


class LimitDefaultsReviewer(RepeatingPodReviewer):
    """Mutating: containers get the defaults of their namespace."""

    def __init__(self, ranges: RangesOf, names: NamesOf = lambda: PLAIN) -> None:
        self._ranges = ranges
        self._names = names

    def review(self, request: Request) -> Review:
        if not request.targets(PODS) or request.operation != "CREATE" or request.object is None:
            return PASS
        for limit_range in self._ranges(request.namespace):
            requests: dict[str, Any] = {}
            limits: dict[str, Any] = {}
            for item in limit_range.spec.limits:
                if item.type == "Container":
                    requests |= item.default_request
                    limits |= item.default
            _fill(request.object, requests, limits, self._names())
        return PASS


def _fill(pod: Document, requests: dict[str, Any], limits: dict[str, Any], names: ResourceNames) -> None:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    notes = []
    for field, word in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(field) or []:
            if not isinstance(container, dict):
                continue
            resources = container.setdefault("resources", {})
            for part, defaults in (("requests", requests), ("limits", limits)):
                given = resources.get(part) or {}
                known = {names.canonical(str(name)) for name in given} if defaults else ()
                missing = {name: defaults[name] for name in sorted(defaults) if names.canonical(name) not in known}
                if missing:
                    resources[part] = {**given, **missing}
                    notes.append(f"{', '.join(missing)} {part[:-1]} for {word} {container.get('name', '')}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


class LimitRangeReviewer:
    """Validating: pods and claims against the limit ranges of their namespace."""

    def __init__(self, ranges: RangesOf, names: NamesOf = lambda: PLAIN) -> None:
        self._ranges = ranges
        self._names = names

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural in (PODS.plural, PERSISTENT_VOLUME_CLAIMS.plural) and not group and not subresource

    def repeats(self, request: Request) -> bool:
        return True

    def review(self, request: Request) -> Review:
        document = request.object
        pod = request.targets(PODS) and request.operation == "CREATE"
        claim = request.targets(PERSISTENT_VOLUME_CLAIMS) and request.operation in ("CREATE", "UPDATE")
        if document is None or not (pod or claim):
            return PASS
        for limit_range in self._ranges(request.namespace):
            try:
                faults = list(
                    _pod_faults(limit_range, document, self._names()) if pod else _claim_faults(limit_range, document)
                )
            except (BadQuantity, msgspec.ValidationError):
                return PASS  # validation reports it
            if faults:
                why = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
                return request.refused(why)
        return PASS


def _pod_faults(limit_range: LimitRange, document: Document, names: ResourceNames) -> Iterator[str]:
    spec = document.get("spec") or {}
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    for item in limit_range.spec.limits:
        if item.type == "Container":
            for container in containers:
                resources = container.get("resources") or {}
                requested, limited = (_WrittenAmounts.of(resources.get(part)) for part in ("requests", "limits"))
                yield from _faults(item, requested.under(item, names), limited.under(item, names))
        elif item.type == "Pod":
            pod = view(document, Pod)
            requests, limits = requests_nano(pod, overhead=False), limits_nano(pod, overhead=False)
            yield from _faults(
                item, _WrittenAmounts(requests).under(item, names), _WrittenAmounts(limits).under(item, names)
            )


class _WrittenAmounts(dict[str, int]):
    """Amounts in nano-units with their quantities as written. Sums are written in the format of the bound."""

    def __init__(self, amounts: Mapping[str, int], written: Mapping[str, Any] | None = None) -> None:
        super().__init__(amounts)
        self._written = written or {}

    @classmethod
    def of(cls, quantities: Mapping[str, Any] | None) -> _WrittenAmounts:
        written = quantities or {}
        return cls({name: parse_nano(quantity) for name, quantity in written.items()}, written)

    def under(self, item: LimitRangeItem, names: ResourceNames) -> _WrittenAmounts:
        """The amounts with other names of one resource replaced by the name that the limit range uses."""
        if names is PLAIN:
            return self
        said = {
            names.canonical(each): each for part in (item.min, item.max, item.max_limit_request_ratio) for each in part
        }
        made: dict[str, int] = {}
        for name, amount in self.items():
            name = said.get(names.canonical(name), name)
            made[name] = made.get(name, 0) + amount
        return self if made.keys() == self.keys() else _WrittenAmounts(made)

    def text(self, name: str, bound: str | int | float) -> str:
        if name in self._written:
            return canonical(self._written[name])
        return format_nano(self[name], "binary" if str(bound).endswith("i") else "decimal")


def _faults(item: LimitRangeItem, requests: _WrittenAmounts, limits: _WrittenAmounts) -> Iterator[str]:
    for name, enforced in item.min.items():
        bound, said = parse_nano(enforced), f"minimum {name} usage per {item.type} is {canonical(enforced)}"
        if name not in requests:
            yield f"{said}.  No request is specified"
        elif requests[name] < bound:
            yield f"{said}, but request is {requests.text(name, enforced)}"
        elif name in limits and limits[name] < bound:
            yield f"{said}, but limit is {limits.text(name, enforced)}"
    for name, enforced in item.max.items():
        bound, said = parse_nano(enforced), f"maximum {name} usage per {item.type} is {canonical(enforced)}"
        if name not in limits:
            yield f"{said}.  No limit is specified"
        elif limits[name] > bound:
            yield f"{said}, but limit is {limits.text(name, enforced)}"
        elif name in requests and requests[name] > bound:
            yield f"{said}, but request is {requests.text(name, enforced)}"
    for name, enforced in item.max_limit_request_ratio.items():
        said = f"{name} max limit to request ratio per {item.type} is {canonical(enforced)}"
        if not requests.get(name):
            yield f"{said}, but no request is specified or request is 0"
        elif not limits.get(name):
            yield f"{said}, but no limit is specified or limit is 0"
        elif limits[name] * 10**9 > parse_nano(enforced) * requests[name]:
            yield f"{said}, but provided ratio is {limits[name] / requests[name]:f}"


def _claim_faults(limit_range: LimitRange, document: Document) -> Iterator[str]:
    requests = _WrittenAmounts.of(((document.get("spec") or {}).get("resources") or {}).get("requests"))
    for item in limit_range.spec.limits:
        if item.type != "PersistentVolumeClaim":
            continue
        for name, enforced in item.min.items():
            said = f"minimum {name} usage per {item.type} is {canonical(enforced)}"
            if name not in requests:
                yield f"{said}.  No request is specified"
            elif requests[name] < parse_nano(enforced):
                yield f"{said}, but request is {requests.text(name, enforced)}"
        for name, enforced in item.max.items():
            said = f"maximum {name} usage per {item.type} is {canonical(enforced)}"
            if name not in requests:
                yield f"{said}.  No request is specified"
            elif requests[name] > parse_nano(enforced):
                yield f"{said}, but request is {requests.text(name, enforced)}"
