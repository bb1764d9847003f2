"""CEL expressions that select devices, in claims, templates and classes: whether they compile, and what they may cost."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.admission.request import Request
from wharfinger.api.fields import FieldError, forbidden, invalid, too_long
from wharfinger.api.kinds.builtin import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from wharfinger.api.registry import Document
from wharfinger.devices.selectors import BadSelectorExpression, device_selector

_LONGEST = 10 * 1024
_PLURALS = (RESOURCE_CLAIMS.plural, RESOURCE_CLAIM_TEMPLATES.plural, DEVICE_CLASSES.plural)


class DeviceExpressionChecker:
    """Expressions that are stored already are not checked again."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return group == DEVICE_CLASSES.group and plural in _PLURALS and not subresource

    def faults(self, request: Request) -> Iterator[FieldError]:
        new, old = request.object or {}, request.old or {}
        if _spec(new).get("selectors") == _spec(old).get("selectors") and request.old is not None:
            return
        if request.resource.plural == DEVICE_CLASSES.plural:
            yield from _selectors_faults(_spec(new), "spec")
        elif request.old is None:  # else it cannot change
            template = request.resource.plural == RESOURCE_CLAIM_TEMPLATES.plural
            spec = _spec(_spec(new)) if template else _spec(new)
            yield from _requests_faults(spec, "spec.spec.devices" if template else "spec.devices")


def _spec(document: Document) -> Document:
    return document.get("spec") or {}


def _requests_faults(spec: Document, path: str) -> Iterator[FieldError]:
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        here = f"{path}.requests[{index}]"
        if request.get("exactly"):
            yield from _selectors_faults(request["exactly"], f"{here}.exactly")
        for position, alternative in enumerate(request.get("firstAvailable") or ()):
            yield from _selectors_faults(alternative, f"{here}.firstAvailable[{position}]")


def _selectors_faults(owner: Document, path: str) -> Iterator[FieldError]:
    for index, selector in enumerate(owner.get("selectors") or ()):
        if selector.get("cel") is not None:
            text = selector["cel"].get("expression") or ""
            yield from _expression_faults(text, f"{path}.selectors[{index}].cel.expression")


def _expression_faults(text: str, path: str) -> Iterator[FieldError]:
    if len(text.encode()) > _LONGEST:
        yield too_long(path, _LONGEST)
        return
    try:
        selector = device_selector(text)
    except BadSelectorExpression as error:
        yield invalid(path, text, str(error))
        return
    if selector.is_too_complex():
        yield forbidden(path, "too complex, exceeds cost limit")
