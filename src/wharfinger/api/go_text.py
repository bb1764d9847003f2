"""Values as Go's `fmt` prints them, for the messages of Kubernetes that contain them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

_TYPES: dict[type, str] = {
    bool: "bool",
    str: "string",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}


def type_name(value: Any) -> str:
    """`%T`."""
    return _TYPES[type(value)]


_JSON_TYPES: dict[type, str] = {
    bool: "bool",
    str: "string",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}


def json_type(value: Any) -> str:
    """What Go's JSON decoder calls a value that it cannot decode: `array`, `number`."""
    return _JSON_TYPES[type(value)]


def plain(value: Any) -> str:
    """`%v`: text without quotes, maps in key order."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return "map[" + " ".join(f"{key}:{plain(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(plain, value)) + "]"
        case float():
            return _float(value)
    return str(value)


def spelled(value: Any) -> str:
    """`%#v`: as source code."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return msgspec.json.encode(value).decode()
        case dict():
            members = ", ".join(f"{spelled(key)}:{spelled(value[key])}" for key in sorted(value))
            return f"map[string]interface {{}}{{{members}}}"
        case list():
            return "[]interface {}{" + ", ".join(map(spelled, value)) + "}"
    return plain(value)


def _float(value: float) -> str:
    """`%g` with the shortest digits that identify the number; from a million on with an exponent."""
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = exponent + len(digits) - 1
    if -4 <= power < 6:
        return repr(value).removesuffix(".0")
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' * sign}{first}{'.' * bool(rest)}{rest}e{power:+03d}"


def duration_text(seconds: float) -> str:
    """A `time.Duration` of whole seconds: `1h30m0s`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def time_text(seconds: float) -> str:
    """A `time.Time` of whole seconds, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC")
