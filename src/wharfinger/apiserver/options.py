"""Options of requests from query parameters and DeleteOptions bodies, validated as in Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from wharfinger.api.errors import BadRequest, invalid_object
from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, too_long
from wharfinger.api.numbers import parse_uint64
from wharfinger.api.registry import Document
from wharfinger.api.requests import DeleteOptions
from wharfinger.apiserver.request_info import QueryParameters

_META = "meta.k8s.io"
_OWN_AGENTS = "wharf/"  # prefix of the user agents of our own components
_VALIDATIONS = ("", "Ignore", "Warn", "Strict")
_PROPAGATIONS = ("Foreground", "Background", "Orphan")
_MATCHES = ("Exact", "NotOlderThan")


class WriteOptions(msgspec.Struct, frozen=True):
    dry_run: bool
    manager: str
    validation: str  # Ignore, Warn or Strict
    force: bool = False


def write_options(query: QueryParameters, kind: str, user_agent: str, *, apply: bool = False) -> WriteOptions:
    """`kind` is CreateOptions, UpdateOptions or PatchOptions; used in error messages."""
    if query.empty and not apply:
        return _plain_options(user_agent)
    faults: list[FieldError] = []
    dry_run = _dry_run(query.text("dryRun"), faults)
    validation = query.text("fieldValidation")
    if validation not in _VALIDATIONS:
        faults.append(not_supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    manager = query.text("fieldManager")
    if len(manager) > 128:
        faults.append(too_long("fieldManager", 128))
    elif not manager.isprintable():
        faults.append(invalid("fieldManager", manager, "should only contain printable characters"))
    elif apply and not manager:
        faults.append(FieldError("fieldManager", "FieldValueRequired", "Required value: is required for apply patch"))
    if query.has("force") and not apply and kind == "PatchOptions":
        faults.append(forbidden("force", "may not be specified for non-apply patch"))
    if faults:
        raise invalid_object(_META, kind, "", faults)
    return WriteOptions(dry_run, _manager(manager, user_agent, apply), validation or "Warn", query.flag("force"))


@lru_cache(1024)
def _plain_options(user_agent: str) -> WriteOptions:
    """Options of a request without query parameters, the common case."""
    return WriteOptions(False, _manager("", user_agent, False), "Warn")


def _manager(given: str, user_agent: str, apply: bool) -> str:
    """The field manager. Our own components write without one; see `wharfinger.store.apply`."""
    if user_agent.startswith(_OWN_AGENTS) and not apply:
        return ""
    return given or user_agent.partition("/")[0][:128] or "unknown"


def _dry_run(value: str, faults: list[FieldError]) -> bool:
    if value not in ("", "All"):
        faults.append(not_supported("dryRun", [value], ("All",)))
    return value == "All"


@dataclass(frozen=True, slots=True)
class Deletion:
    """Options of a delete, from its body or, without one, from its query parameters."""

    options: DeleteOptions
    dry_run: bool


def deletion(query: QueryParameters, body: Document | None) -> Deletion:
    options: dict[str, Any]
    if body:
        options = body
        if options.get("kind", "DeleteOptions") != "DeleteOptions":
            raise BadRequest("decoded object cannot be converted to DeleteOptions")
        dry_runs = options.get("dryRun") or ([query.text("dryRun")] if query.has("dryRun") else [])
    else:
        options = {"gracePeriodSeconds": query.number("gracePeriodSeconds")}
        if query.has("propagationPolicy"):
            options["propagationPolicy"] = query.text("propagationPolicy")
        if query.has("orphanDependents"):
            options["orphanDependents"] = query.flag("orphanDependents")
        dry_runs = [query.text("dryRun")] if query.has("dryRun") else []
    faults: list[FieldError] = []
    dry_run = False
    for value in dry_runs:
        dry_run = _dry_run(value, faults) or dry_run
    propagation = options.get("propagationPolicy") or ""
    orphan = options.get("orphanDependents")
    if propagation and propagation not in _PROPAGATIONS:
        faults.append(not_supported("propagationPolicy", propagation, (*_PROPAGATIONS, "nil")))
    if propagation and orphan is not None:
        faults.append(
            invalid("propagationPolicy", propagation, "orphanDependents and deletionPropagation cannot be both set")
        )
    grace = options.get("gracePeriodSeconds")
    if grace is not None and grace < 0:
        # kube-apiserver treats a negative grace period as 1.
        grace = 1
    if faults:
        raise invalid_object(_META, "DeleteOptions", "", faults)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    preconditions = options.get("preconditions") or {}
    uid, version = preconditions.get("uid") or "", preconditions.get("resourceVersion") or ""
    return Deletion(DeleteOptions(grace, propagation, uid, version), dry_run)


@dataclass(frozen=True, slots=True)
class ListOptions:
    limit: int
    continue_token: str
    version: str
    version_match: str
    timeout: int | None
    bookmarks: bool
    initial_events: bool | None


def list_options(query: QueryParameters, *, watch: bool) -> ListOptions:
    version, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    continue_token = query.text("continue")
    initial = query.flag("sendInitialEvents") if query.has("sendInitialEvents") else None
    faults = (
        _watch_faults(match, continue_token, initial)
        if watch
        else _list_faults(version, match, continue_token, initial)
    )
    limit = query.number("limit", 0) or 0
    if limit < 0:
        faults.append(invalid("limit", limit, "must be greater than or equal to 0"))
    if faults:
        raise invalid_object(_META, "ListOptions", "", faults)
    if version and parse_uint64(version) is None:
        why = "value out of range" if version.isascii() and version.isdigit() else "invalid syntax"
        fault = invalid("resourceVersion", version, f'strconv.ParseUint: parsing "{version}": {why}')
        if watch:
            raise invalid_object(_META, "ListOptions", "", [fault])
        raise BadRequest(f"invalid resource version: {fault}")
    timeout = query.number("timeoutSeconds")
    return ListOptions(limit, continue_token, version, match, timeout, query.flag("allowWatchBookmarks"), initial)


def _list_faults(version: str, match: str, continue_token: str, initial: bool | None) -> list[FieldError]:
    faults = []
    if match:
        if not version:
            faults.append(
                forbidden(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        if continue_token:
            faults.append(
                forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
            )
        if match not in _MATCHES:
            faults.append(not_supported("resourceVersionMatch", match, _MATCHES))
        if match == "Exact" and version == "0":
            faults.append(
                forbidden("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
            )
    if initial is not None:
        faults.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return faults


def _watch_faults(match: str, continue_token: str, initial: bool | None) -> list[FieldError]:
    faults = []
    if initial is not None:
        if match != "NotOlderThan":
            faults.append(
                forbidden(
                    "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                )
            )
        if continue_token:
            faults.append(forbidden("continue", "sendInitialEvents is forbidden when continue is provided"))
    elif match:
        faults.append(
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    return faults
