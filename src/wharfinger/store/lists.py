"""Lists at a resource version, and pages that together show one consistent version."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from wharfinger.api.errors import BadRequest, Expired, invalid_object
from wharfinger.api.fields import FieldError, forbidden, not_supported
from wharfinger.api.numbers import parse_uint64
from wharfinger.store.collection import Collection
from wharfinger.store.objects import Listing, StoredObject, encode
from wharfinger.store.selection import ObjectSelector
from wharfinger.store.watch import too_large

_TOKEN_VERSION = "meta.k8s.io/v1"
_TOKEN_AGE = 300.0  # seconds; kube-apiserver compacts its history that often
_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
_EXPIRED = "The resourceVersion for the provided list is too old."
_EXPIRED_PAGES = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def list_objects(
    collection: Collection,
    current: int,
    selection: ObjectSelector,
    prefix: str,
    *,
    now: float = 0,
    limit: int = 0,
    continue_token: str = "",
    version: str = "",
    version_match: str = "",
) -> Listing:
    _check_options(continue_token, version, version_match)
    wanted, start = current, ""
    if continue_token:
        if version and version != "0":
            raise BadRequest("specifying resource version is not allowed when using continue")
        token = _decode_token(continue_token)
        wanted = current if token.rv < 0 else token.rv
        start = prefix + token.start
        if token.rv >= 0 and token.t:
            if now - token.t > _TOKEN_AGE:
                raise _expired(start, prefix)
            now = token.t  # pages of one list expire together
    elif version:
        asked = parse_version(version)
        if asked > current:
            raise too_large(asked, current)
        if version_match == _EXACT or (limit and not version_match and asked):
            wanted = asked
    undone: dict[str, StoredObject | None] = {}
    if wanted != current:
        if wanted < collection.compacted:
            raise _expired(start, prefix)
        undone = {change.key: change.before for change in collection.since(wanted)}
    return _page(collection, wanted, undone, selection, prefix, start, limit, now)


def _page(
    collection: Collection,
    version: int,
    undone: dict[str, StoredObject | None],
    selection: ObjectSelector,
    prefix: str,
    start: str,
    limit: int,
    issued: float,
) -> Listing:
    keys = selection.keys(collection.visible, prefix, start)
    objects: dict[str, Any] = collection.visible.objects
    if undone:
        within = (key for key in undone if key.startswith(prefix) and key >= start)
        keys = sorted(set(keys).union(within))
        objects = {**objects, **undone}
    if not limit and selection.empty:
        found = [objects[key] for key in keys]
        return Listing([stored for stored in found if stored is not None] if undone else found, version)
    items: list[StoredObject] = []
    for position, key in enumerate(keys):
        stored = objects[key]
        if stored is None or not (selection.empty or selection.matches(stored)):
            continue
        if limit and len(items) == limit:
            last = items[-1]
            last_key = f"{last.namespace}/{last.name}" if last.namespace else last.name
            rest = keys[position:]
            remaining = None
            if selection.empty:
                remaining = sum(objects[key] is not None for key in rest) if undone else len(rest)
            token = encode_token(last_key.removeprefix(prefix) + "\0", version, issued)
            return Listing(items, version, token, remaining)
        items.append(stored)
    return Listing(items, version)


def parse_version(text: str) -> int:
    version = parse_uint64(text)
    if version is None:
        raise BadRequest(f'invalid resource version "{text}": must be a number')
    return version


def _check_options(continue_token: str, version: str, match: str) -> None:
    faults: list[FieldError] = []
    path = "resourceVersionMatch"
    if match:
        if not version:
            faults.append(forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if continue_token:
            faults.append(forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in (_EXACT, _NOT_OLDER):
            faults.append(not_supported(path, match, (_EXACT, _NOT_OLDER, "")))
        if match == _EXACT and version == "0":
            faults.append(forbidden(path, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if faults:
        raise invalid_object("meta.k8s.io", "ListOptions", "", faults)


def encode_token(start: str, version: int, issued: float = 0) -> str:
    """A token for the rest of a list. It expires some time after it was `issued`, unless that is 0."""
    token: dict[str, Any] = {"v": _TOKEN_VERSION, "rv": version, "start": start}
    if issued:
        token["t"] = int(issued)
    return base64.urlsafe_b64encode(encode(token)).decode().rstrip("=")


class _Token(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""
    t: int = 0


def _decode_token(text: str) -> _Token:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(data, type=_Token)
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadRequest(f"continue key is not valid: {error}") from None
    if token.v != _TOKEN_VERSION:
        raise BadRequest(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise BadRequest("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not token.start:
        raise BadRequest("encoded start key empty (version meta.k8s.io/v1)")
    return token


def _expired(start: str, prefix: str) -> Expired:
    if not start:
        return Expired(_EXPIRED)
    return Expired(_EXPIRED_PAGES, metadata={"continue": encode_token(start.removeprefix(prefix), -1)})
