"""The time at which a device taint was added: set where the client leaves it out, and when the effect of a rule changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.defaults.walk import child, children
from wharfinger.api.kinds.builtin import DEVICE_TAINT_RULES, RESOURCE_SLICES
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time


class DeviceTaintReviewer:
    """Mutating."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (
            group == RESOURCE_SLICES.group
            and plural in (RESOURCE_SLICES.plural, DEVICE_TAINT_RULES.plural)
            and not subresource
        )

    def review(self, request: Request) -> Review:
        document = request.object
        if document is not None and self.concerns(request.resource.group, request.resource.plural, request.subresource):
            for taint in _taints(document):
                if taint.get("timeAdded") is None:
                    taint["timeAdded"] = format_time(self._now())
            if request.resource.plural == DEVICE_TAINT_RULES.plural and request.old is not None:
                self._renew(document, request.old)
        return PASS

    def _renew(self, document: Document, old: Document) -> None:
        taint, before = child(child(document, "spec"), "taint"), child(child(old, "spec"), "taint")
        if taint.get("effect") != before.get("effect") and taint.get("timeAdded") == before.get("timeAdded"):
            taint["timeAdded"] = format_time(self._now())


def _taints(document: Document) -> Iterator[Document]:
    spec = child(document, "spec")
    if isinstance(spec.get("taint"), dict):
        yield spec["taint"]
    for device in children(spec, "devices"):
        yield from children(device, "taints")
