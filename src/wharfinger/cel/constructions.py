"""Objects that the expressions of mutating policies construct, such as `Object.spec{replicas: 3}`.

The CEL library constructs only messages with a known descriptor, but the types of these objects follow the path of
their fields. So a construction is compiled as a map, which carries the name of its type under a key of its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

TYPE = "\x00type"
_TYPE_TEXT = r'"\u0000type"'
_TOKEN = re.compile(
    r"""
    (?P<text>[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    | (?P<comment>//[^\n]*)
    | (?P<space>\s+)
    | (?P<name>[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*)
    | (?P<quoted>`[^`\n]*`)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_JSON_PATCH = "JSONPatch"
_JSON_PATCH_FIELDS = ("from", "op", "path", "value")


class MismatchedTypes(Exception):
    """The value is not what a mutation may construct."""


@lru_cache(maxsize=1024)
def as_maps(text: str) -> str:
    """The expression with each construction of `Object`, `Object.…` and `JSONPatch` as a map."""
    tokens = [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(text)]
    made: list[str] = []
    braces: list[bool] = []  # whether each open brace belongs to a construction
    for index, (kind, token) in enumerate(tokens):
        following = _next(tokens, index)
        if kind == "name" and following == "{" and _constructs(token):
            made.append("")  # the brace says which type it is
            continue
        if token == "{" and kind == "other":
            name = _previous_name(tokens, index)
            braces.append(bool(name))
            made.append(f'{{{_TYPE_TEXT}: "{name}"' + ("" if following == "}" else ", ") if name else token)
            continue
        if token == "}" and kind == "other" and braces:
            braces.pop()
        elif kind in ("name", "quoted") and braces and braces[-1] and following == ":" and _begins(tokens, index):
            made.append('"' + token.strip("`") + '"')
            continue
        made.append(token)
    return "".join(made)


def _constructs(name: str) -> bool:
    path = [part.strip() for part in name.split(".")]
    return path[0] == "Object" or path == [_JSON_PATCH]


def _next(tokens: list[tuple[str, str]], index: int) -> str:
    return next((token for kind, token in tokens[index + 1 :] if kind not in ("space", "comment")), "")


def _previous(tokens: list[tuple[str, str]], index: int) -> tuple[str, str]:
    return next((one for one in reversed(tokens[:index]) if one[0] not in ("space", "comment")), ("", ""))


def _previous_name(tokens: list[tuple[str, str]], index: int) -> str:
    kind, token = _previous(tokens, index)
    return ".".join(part.strip() for part in token.split(".")) if kind == "name" and _constructs(token) else ""


def _begins(tokens: list[tuple[str, str]], index: int) -> bool:
    """Whether the token is the key of an entry, rather than the end of a condition before a colon."""
    return _previous(tokens, index)[1] in ("{", ",", "?") and not _conditional(tokens, index)


def _conditional(tokens: list[tuple[str, str]], index: int) -> bool:
    """Whether a question mark before the token belongs to `a ? b : c` and not to an optional entry."""
    if _previous(tokens, index)[1] != "?":
        return False
    mark = max(position for position, (_, token) in enumerate(tokens[:index]) if token == "?")
    return _previous(tokens, mark)[1] not in ("{", ",")


def constructed_object(value: Any) -> dict[str, Any]:
    """The apply configuration that an expression constructed, without the names of types."""
    if not isinstance(value, dict) or value.get(TYPE) != "Object":
        raise MismatchedTypes(f"unsupported return type from ApplyConfiguration expression: {_type_of(value)}")
    _check(value, ["Object"])
    made: dict[str, Any] = _plain(value)
    return made


def constructed_operations(value: Any) -> list[dict[str, Any]]:
    """The operations of a JSON patch that an expression constructed."""
    if not isinstance(value, list | tuple):
        raise MismatchedTypes("type mismatch: JSONPatchType.expression should evaluate to array")
    operations = []
    for one in value:
        if not isinstance(one, dict) or one.get(TYPE) != _JSON_PATCH:
            raise MismatchedTypes("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
        for field, inner in one.items():
            if field != TYPE and field not in _JSON_PATCH_FIELDS:
                raise MismatchedTypes(f"unexpected JSONPatchType field: {field}")
            if field in ("op", "path", "from") and not isinstance(inner, str):
                raise MismatchedTypes(f"unexpected type {_type_of(inner)} for JSONPatchType '{field}' field")
        if isinstance(one.get("value"), dict) and TYPE in one["value"]:
            _check(one["value"], [one["value"][TYPE]])
        made = {field: _plain(inner) for field, inner in one.items() if field != TYPE}
        operations.append({"op": "", "path": "", **made})
    return operations


def _check(value: Any, path: list[str]) -> None:
    """An object under a field must have the type that the path of the field names."""
    if isinstance(value, dict):
        named = value.get(TYPE)
        wanted = ".".join(path)
        if named is not None and named != wanted:
            raise MismatchedTypes(
                f'type mismatch: unexpected type name "{named}", expected "{wanted}", which matches field name path from root Object type'
            )
        for field, inner in value.items():
            if field != TYPE:
                _check(inner, [*path, field] if named is not None else path)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check(inner, path)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(field): _plain(inner) for field, inner in value.items() if field != TYPE}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _type_of(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get(TYPE, "map"))
    names = {bool: "bool", str: "string", int: "int", float: "double", list: "list", type(None): "null_type"}
    return names.get(type(value), type(value).__name__)
