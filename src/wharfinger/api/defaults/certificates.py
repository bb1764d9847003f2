"""What an API server itself sets in certificate signing requests, and the defaults of those for pods."""

from __future__ import annotations

from wharfinger.api.defaults.walk import fill, made_child
from wharfinger.api.registry import Document

_DAY = 86400
_REQUESTER = ("username", "uid", "groups", "extra")


def prepare_request(document: Document) -> None:
    """Requests cannot be created as approved. The requester is set by admission, which knows the user."""
    document["status"] = {}
    spec = document.get("spec")
    if isinstance(spec, dict):
        for field in _REQUESTER:
            spec.pop(field, None)


def keep_request(new: Document, old: Document) -> None:
    """The spec never changes."""
    if "spec" in old:
        new["spec"] = old["spec"]


def keep_decisions(new: Document, old: Document) -> None:
    """A write to status leaves the conditions Approved and Denied as they are; adding one is a fault that validation finds."""
    status = new.get("status")
    if not isinstance(status, dict) or not isinstance(status.get("conditions"), list):
        return
    given = status["conditions"]
    before = (old.get("status") or {}).get("conditions") or []
    for type in ("Approved", "Denied"):
        here = [index for index, each in enumerate(given) if isinstance(each, dict) and each.get("type") == type]
        kept = [each for each in before if each.get("type") == type]
        if len(here) == len(kept):
            for index, condition in zip(here, kept):
                given[index] = condition


def default_pod_request(document: Document) -> None:
    fill(made_child(document, "spec"), maxExpirationSeconds=_DAY)
