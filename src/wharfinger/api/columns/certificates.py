"""Columns of certificate signing requests."""

from __future__ import annotations

from wharfinger.api.columns.cells import AGE, computed
from wharfinger.api.registry import Document
from wharfinger.api.times import human_duration


def _signer(document: Document) -> str:
    return (document.get("spec") or {}).get("signerName") or "<none>"


def _requestor(document: Document) -> str:
    return (document.get("spec") or {}).get("username") or ""


def _duration(document: Document) -> str:
    seconds = (document.get("spec") or {}).get("expirationSeconds")
    return "<none>" if seconds is None else human_duration(seconds)


def _condition(document: Document) -> str:
    status = document.get("status") or {}
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    text = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    if "Failed" in types:
        text += ",Failed"
    return f"{text},Issued" if status.get("certificate") else text


REQUEST_COLUMNS = (
    AGE,
    computed("SignerName", _signer),
    computed("Requestor", _requestor),
    computed("RequestedDuration", _duration),
    computed("Condition", _condition),
)
