"""Reservations in scenarios. A reservation is bound by a status patch; on a real cluster the quota it uses is recorded
in an annotation on the ResourceQuota."""

from __future__ import annotations

from typing import Any

import msgspec

from wharfinger.api.quantity import parse_nano
from wharfinger.api.quota import shown
from wharfinger.api.registry import Document
from wharfinger.api.requests import ApiRequest
from wharfinger.scenario.extension import BindingRequest, ScenarioExtension
from wharfinger.systems.reservation.controllers.quotas import RESERVED
from wharfinger.systems.reservation.kinds.names import RESERVATIONS


class ReservationScenario(ScenarioExtension):
    binding_requests = (BindingRequest(RESERVATIONS.group, "*", "reservations/status", "UPDATE"),)

    def binds(self, request: ApiRequest[Any]) -> bool:
        return (
            request.verb == "patch"
            and request.resource == RESERVATIONS
            and request.subresource == "status"
            and "nodeName" in request.body.get("status", {})
        )

    def observed(self, document: Document) -> Document:
        return with_reserved(document)


def with_reserved(document: Document) -> Document:
    """The quota with reserved resources added to `status.used`, as the embedded API server counts them."""
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(RESERVED)
    if text is None:
        return document
    status = document.get("status") or {}
    used = {name: parse_nano(quantity) for name, quantity in (status.get("used") or {}).items()}
    for name, quantity in msgspec.json.decode(text, type=dict[str, str]).items():
        used[name] = used.get(name, 0) + parse_nano(quantity)
    return {**document, "status": {**status, "used": {name: shown(name, amount) for name, amount in used.items()}}}
