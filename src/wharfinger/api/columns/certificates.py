"""Columns of certificate signing requests, of those for pods, and of trust bundles."""

from __future__ import annotations

from wharfinger.api.columns.cells import AGE, computed, labels_text
from wharfinger.api.registry import Column, Document
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


def _state(document: Document) -> str:
    conditions = (document.get("status") or {}).get("conditions") or ()
    known = [one["type"] for one in conditions if one.get("type") in ("Issued", "Denied", "Failed")]
    return known[-1] if known else "Pending"


def _annotations(document: Document) -> str:
    return labels_text((document.get("spec") or {}).get("unverifiedUserAnnotations"))


POD_REQUEST_COLUMNS = (
    Column("PodName", "spec.podName"),
    Column("ServiceAccountName", "spec.serviceAccountName"),
    Column("NodeName", "spec.nodeName"),
    Column("SignerName", "spec.signerName"),
    computed("State", _state),
    computed("UnverifiedUserAnnotations", _annotations),
)
TRUST_BUNDLE_COLUMNS = (computed("SignerName", _signer),)
