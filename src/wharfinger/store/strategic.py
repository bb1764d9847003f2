"""Strategic merge patches: JSON merge patches that merge some lists by key, with directives.

After pkg/util/strategicpatch of apimachinery: `$patch: replace|delete|merge`, `$retainKeys`, `$setElementOrder/…`
and `$deleteFromPrimitiveList/…`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from wharfinger.api.errors import ApiError, BadRequest
from wharfinger.api.registry import Document
from wharfinger.api.schema.tree import Schema

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder"
_DELETE_VALUES = "$deleteFromPrimitiveList"

Values = list[Any]


def merged(target: Document, patch: Document, schema: Schema, *, plain: bool = False) -> Document:
    """The patched target; both arguments may be modified. A `plain` patch has no nulls and no directives."""
    return _merge_plain(target, patch, schema) if plain else _merge(target, patch, schema)


def _merge_plain(result: Document, patch: Document, schema: Schema) -> Document:
    for name, value in patch.items():
        present = result.get(name)
        if type(value) is dict and type(present) is dict:
            known = schema.fields.get(name) or schema.child(name)
            result[name] = value if "replace" in known.patch_strategy else _merge_plain(present, value, known)
        elif type(value) is list and type(present) is list and "merge" in (known := schema.child(name)).patch_strategy:
            objects = (present or value) and _holds_objects(present, value)
            result[name] = (
                _merge_plain_objects(present, value, known) if objects else _merge_field(present, value, known, False)
            )
        else:
            result[name] = value
    return result


def _merge_plain_objects(original: Values, patch: Values, field: Schema) -> Values:
    key = field.merge_key
    if not key:
        raise _failed("cannot merge lists without merge key")
    result, server_order = list(original), list(original)
    places = _first_places(item.get(key) for item in original)
    for item in patch:
        place = places.setdefault(_hashable(_identity(item, key)), len(result))
        if place == len(result):
            result.append(item)
        else:
            result[place] = _merge_plain(result[place], item, field.item_schema)
    return _arranged(result, patch, server_order, key)


def _merge(original: Document, patch: Document, schema: Schema) -> Document:
    if _DIRECTIVE in patch:
        return _replaced(patch)
    result, patch = dict(original), dict(patch)
    _retain_keys(result, patch)
    for name in [name for name in patch if name.startswith(_ORDER)]:
        _merge_ordered(result, patch, name, schema)
    for name, value in patch.items():
        field, deleting = name, name.startswith(_DELETE_VALUES)
        if deleting:
            field = _field_of(name, _DELETE_VALUES, "invalid patch format of primitive list")
        if value is None:
            result.pop(field, None)
        elif type(result.get(field)) is type(value) and isinstance(value, dict):
            known = schema.child(field)
            result[field] = (
                dict(_clean(value)) if "replace" in known.patch_strategy else _merge(result[field], value, known)
            )
        elif type(result.get(field)) is type(value) and isinstance(value, list):
            result[field] = _merge_field(result[field], value, schema.child(field), deleting)
        elif not deleting:
            _set(result, field, value)
    return result


def _replaced(patch: Document) -> Document:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return dict(_clean({name: value for name, value in patch.items() if name != _DIRECTIVE}))
    if directive == "delete":
        return {}
    raise _failed(f"unknown patch type: {directive} in map: {patch}")


def _set(result: Document, field: str, value: Any) -> None:
    kept, value = _without_directives(value)
    if kept:
        result[field] = value
    else:
        result.pop(field, None)


def _without_directives(value: Any) -> tuple[bool, Any]:
    """The value of a patch without a target: without nulls and directives."""
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return False, None
        result = {}
        for name, item in value.items():
            if item is None or (name[:1] == "$" and name.startswith((_RETAIN, _ORDER, _DELETE_VALUES))):
                continue
            if type(item) is dict or type(item) is list:
                kept, item = _without_directives(item)
                if not kept:
                    continue
            result[name] = item
        return True, result
    if isinstance(value, list):
        return True, [item for kept, item in map(_without_directives, value) if kept]
    return True, value


def _clean(value: Any) -> Any:
    return _without_directives(value)[1]


def _retain_keys(result: Document, patch: Document) -> None:
    """`$retainKeys` removes all members that it does not list; the patch may set only listed ones."""
    if _RETAIN not in patch:
        return
    keys = patch.pop(_RETAIN)
    if not isinstance(keys, list):
        raise BadRequest("invalid patch format of retainKeys")
    kept = {key for key in keys if isinstance(key, str)}
    for name, value in patch.items():
        if value is not None and not name.startswith((_DELETE_VALUES, _ORDER)) and name not in kept:
            raise BadRequest("invalid patch format of retainKeys")
    for name in [name for name in result if name not in kept]:
        del result[name]


def _merge_ordered(result: Document, patch: Document, directive: str, schema: Schema) -> None:
    """Merges a list with `$setElementOrder` and sorts the result; items that only the server has keep their place."""
    order = patch.pop(directive)
    name = _field_of(directive, _ORDER, "invalid patch format of setElementOrder list")
    if not isinstance(order, list):
        raise BadRequest("invalid patch format of setElementOrder list")
    present, change = result.get(name), patch.pop(name, None)
    for values in (present, change):
        if values is not None and not isinstance(values, list):
            raise _failed(f"expected a list in {name}")
    field = schema.child(name)
    _check_order(change or [], order, field.merge_key)
    if present is None and change is None:
        return
    if present is None:
        values = _clean(change)
    elif change is None:
        values = present
    else:
        values = _merge_field(present, change, field, deleting=False)
    result[name] = _arranged(values, order, present or [], field.merge_key)


def _check_order(change: Values, order: Values, key: str) -> None:
    """Items of the patch must be in the order list, in the same relative order."""
    wanted = [_identity(item, key) for item in change if not (isinstance(item, dict) and _DIRECTIVE in item)]
    remaining = iter([_identity(item, key) for item in order])
    if change and order and not all(item in remaining for item in wanted):
        raise _failed(f"The order in patch list:\n{change}\n doesn't match {_ORDER} list:\n{order}\n")


def _field_of(name: str, prefix: str, fault: str) -> str:
    head, slash, field = name.partition("/")
    if head != prefix or not slash:
        raise BadRequest(fault)
    return field


def _merge_field(original: Values, patch: Values, field: Schema, deleting: bool) -> Values:
    if deleting:
        gone = set(map(_hashable, patch))
        return [value for value in original if _hashable(value) not in gone]
    if "merge" not in field.patch_strategy:
        return list(_clean(patch))
    if not original and not patch:
        return original
    if _holds_objects(original, patch):
        return _merge_objects(original, patch, field)
    known = set(original)
    added = (value for value in dict.fromkeys(patch) if value not in known)
    return _arranged([*original, *added], patch, original, "")


def _holds_objects(*lists: Values) -> bool:
    kinds = {type(item) for values in lists for item in values}
    if list in kinds:
        raise ApiError("lists of lists are not supported", code=422, reason="Invalid")
    if len(kinds) > 1:
        raise _failed(f"list element types are not identical: {list(lists)}")
    return dict in kinds


def _merge_objects(original: Values, patch: Values, field: Schema) -> Values:
    if not field.merge_key:
        raise _failed("cannot merge lists without merge key")
    key = field.merge_key
    changes, gone, replacing = [], set(), False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if directive is None:
            changes.append(item)
        elif directive == "delete":
            gone.add(_hashable(_identity(item, key)))
        elif directive == "replace":
            replacing = True
        elif directive == "merge":
            raise _failed("merging lists cannot yet be specified in the patch")
        else:
            raise _failed(f"unknown patch type: {directive} in map: {item}")
    if replacing:
        return list(_clean(changes))
    server_order = [item for item in original if _hashable(item.get(key)) not in gone]
    result = list(server_order)
    places = _first_places(item.get(key) for item in result)
    for item in changes:
        place = places.setdefault(_hashable(_identity(item, key)), len(result))
        if place == len(result):
            result.append(_clean(item))
        else:
            result[place] = _merge(result[place], item, field.item_schema)
    return _arranged(result, changes, server_order, key)


def _identity(item: Any, key: str) -> Any:
    if not key:
        return item
    if not isinstance(item, dict) or key not in item:
        raise _failed(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _arranged(values: Values, order: Values, server_order: Values, key: str) -> Values:
    """Items of the patch in the order of the patch; other items keep their place relative to them if possible."""
    wanted = _first_places(_identity(item, key) for item in order)
    stood = _first_places(_identity(item, key) for item in server_order)
    ours: list[tuple[int, Hashable, Any]] = []  # with their index in the patch and their identity
    theirs: list[tuple[Hashable, Any]] = []
    for item in values:
        identity = _hashable(_identity(item, key))
        if identity in wanted:
            ours.append((wanted[identity], identity, item))
        else:
            theirs.append((identity, item))
    ours.sort(key=lambda entry: entry[0])
    result: Values = []
    at = 0
    for left, item in theirs:
        while at < len(ours):
            right = ours[at][1]
            if left in stood and right in stood and stood[left] < stood[right]:
                break
            result.append(ours[at][2])
            at += 1
        if at == len(ours):
            break
        result.append(item)
    done = len(result) - at
    return result + [item for _, item in theirs[done:]] + [item for *_, item in ours[at:]]


def _first_places(identities: Iterable[Any]) -> dict[Hashable, int]:
    """Where each identity stands first."""
    places: dict[Hashable, int] = {}
    for place, identity in enumerate(identities):
        places.setdefault(_hashable(identity), place)
    return places


def _hashable(identity: Any) -> Hashable:
    """Equal for equal identities; those of malformed lists may be maps and lists."""
    return msgspec.json.encode(identity, order="sorted") if isinstance(identity, (dict, list)) else identity


def _failed(message: str) -> ApiError:
    return ApiError(message, code=500, reason="")
