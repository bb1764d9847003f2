"""Bodies in Kubernetes' protobuf form, read into documents. Answers are always JSON, which such clients accept too.

The layout of the messages is data that `scripts/protobuf.py` makes.
"""

from __future__ import annotations

import gzip
import struct
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from wharfinger.api.errors import BadRequest, TooLarge
from wharfinger.api.registry import Document
from wharfinger.api.schema.definitions import META, definition_name
from wharfinger.api.times import format_micro_time, format_time
from wharfinger.apiserver.protobuf_wire import MalformedMessage, fields, signed

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_DEEPEST = 64
_MAX_FIELDS = 60_000  # of a body

_MACHINERY = "io.k8s.apimachinery.pkg."
_UNKNOWN = _MACHINERY + "runtime.Unknown"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
_ANY_JSON = _EXTENSIONS + "JSON"

Field = tuple[str, str, str]
"""JSON name, type, and flags: `r`epeated, `m`ap, `p`ointer (a zero counts), i`n`lined."""


@cache
def _layout() -> dict[str, dict[int, Field]]:
    packed = files("wharfinger.apiserver").joinpath("data/protobuf.json.gz").read_bytes()
    data: dict[str, dict[str, list[str]]] = msgspec.json.decode(gzip.decompress(packed))
    return {
        name: {
            int(number): (entry[0], entry[1], entry[2] if len(entry) > 2 else "") for number, entry in entries.items()
        }
        for name, entries in data.items()
    }


class _FieldCount:
    """The fields of one body. A body of nothing but empty fields would take long, and is refused."""

    def __init__(self) -> None:
        self.left = _MAX_FIELDS

    def fields(self, data: bytes) -> Iterator[tuple[int, int | bytes]]:
        for each in fields(data):
            self.left -= 1
            if self.left < 0:
                raise TooLarge("Request entity too large: too many fields")
            yield each


_counted = _FieldCount()  # of the body that is being decoded


def decode_protobuf(data: bytes) -> Document:
    """The document of an enveloped object; its apiVersion and kind come from the envelope."""
    _counted.left = _MAX_FIELDS
    try:
        if data[:4] != _MAGIC:
            raise MalformedMessage("the body does not begin with k8s and a zero byte")
        envelope = _message(_UNKNOWN, data[4:], 0)
        api_version, kind = envelope.get("apiVersion", ""), envelope.get("kind", "")
        group, _, version = api_version.rpartition("/")
        name = META + kind if kind == "DeleteOptions" else definition_name(group, version, kind)
        if name is None or name not in _layout():
            raise BadRequest(f'no kind "{kind}" is registered for version "{api_version}" in protobuf form; send JSON')
        if envelope.get("contentEncoding") or envelope.get("contentType") not in (None, "", MEDIA):
            raise MalformedMessage("the object inside is encoded in another way")
        return {"apiVersion": api_version, "kind": kind, **_message(name, envelope.get("-", b""), 0)}
    except (MalformedMessage, struct.error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise BadRequest(f"the body is not a Kubernetes object in protobuf form: {error}") from None


def _message(name: str, data: bytes, depth: int) -> Document:
    if depth > _DEEPEST:
        raise MalformedMessage("nested too deeply")
    layout = _layout()[name]
    made: Document = {}
    for number, raw in _counted.fields(data):
        field = layout.get(number)
        if field is not None:
            _put(made, field, raw, depth)
    return made


def _put(made: Document, field: Field, raw: int | bytes, depth: int) -> None:
    name, kind, flags = field
    if "m" in flags:
        key, value = _entry(kind, _bytes(raw), depth)
        made.setdefault(name, {})[key] = value
        return
    value = _value(kind, raw, depth)
    if "r" in flags:
        made.setdefault(name, []).append({} if value is None and kind != _ANY_JSON else value)
    elif "n" in flags:
        made.update(value or {})
    elif "p" in flags:
        if value is not None:
            made[name] = value
    elif value not in (None, "", 0, False, {}, b"") or name == "-":
        made[name] = value


def _entry(kind: str, data: bytes, depth: int) -> tuple[str, Any]:
    key, value = "", _ZEROES.get(kind, {})
    for number, raw in _counted.fields(data):
        if number == 1:
            key = _bytes(raw).decode()
        elif number == 2:
            value = _value(kind, raw, depth)
    return key, value


_ZEROES: dict[str, Any] = {"s": "", "b": "", "i": 0, "u": 0, "t": False}


def _value(kind: str, raw: int | bytes, depth: int) -> Any:
    match kind:
        case "s":
            return _bytes(raw).decode()
        case "i":
            return signed(_integer(raw))
        case "u":
            return _integer(raw)
        case "t":
            return bool(_integer(raw))
        case "d":
            number: float = struct.unpack("<d", _bytes(raw))[0]
            return int(number) if number.is_integer() else number
        case "b":
            return b64encode(_bytes(raw)).decode() if depth else _bytes(raw)
    if kind.startswith(_MACHINERY):
        special = kind[len(_MACHINERY) :]
        if special in _SPECIAL:
            return _special(special, kind, _bytes(raw), depth)
    if kind.startswith(_EXTENSIONS) and kind[len(_EXTENSIONS) :] in _SCHEMA_PARTS:
        return _schema_part(kind, _bytes(raw), depth)
    if kind.endswith(".ExtraValue"):
        return _message(kind, _bytes(raw), depth + 1).get("items", [])
    return _message(kind, _bytes(raw), depth + 1)


_SPECIAL = frozenset(
    (
        "api.resource.Quantity",
        "apis.meta.v1.Time",
        "apis.meta.v1.MicroTime",
        "apis.meta.v1.Duration",
        "apis.meta.v1.FieldsV1",
        "runtime.RawExtension",
        "util.intstr.IntOrString",
    )
)


_SCHEMA_PARTS = frozenset(("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"))


def _schema_part(kind: str, data: bytes, depth: int) -> Any:
    """Parts of the schemas of CustomResourceDefinitions that are of more than one JSON type."""
    if kind == _ANY_JSON:
        raw = _single_bytes(data)
        return msgspec.json.decode(raw) if raw else None
    made = _message(kind, data, depth + 1)
    if kind.endswith("OrBool"):
        return made.get("schema") or made.get("allows", False)
    return made.get("jSONSchemas") or made.get("property") or made.get("schema", {})


def _special(special: str, kind: str, data: bytes, depth: int) -> Any:
    """Types whose JSON form is not that of their message."""
    if special in ("runtime.RawExtension", "apis.meta.v1.FieldsV1"):
        raw = _single_bytes(data)
        return msgspec.json.decode(raw) if raw else None
    made = _message(kind, data, depth + 1)
    match special:
        case "api.resource.Quantity":
            return made.get("string", "0")
        case "util.intstr.IntOrString":
            return made.get("strVal", "") if made.get("type") else made.get("intVal", 0)
        case "apis.meta.v1.Duration":
            return made.get("duration", 0)
    if not data:
        return None  # the zero time
    seconds, nanos = made.get("seconds", 0), made.get("nanos", 0)
    if not -62_135_596_800 <= seconds < 253_402_300_800:
        raise MalformedMessage("a time outside the years 1 to 9999")
    return format_time(seconds) if special.endswith(".Time") else format_micro_time(seconds + nanos / 1e9)


def _single_bytes(data: bytes) -> bytes:
    found = b""
    for number, raw in _counted.fields(data):
        if number == 1:
            found = _bytes(raw)
    return found


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise MalformedMessage("a number where text is expected")
    return raw


def _integer(raw: int | bytes) -> int:
    if not isinstance(raw, int):
        raise MalformedMessage("text where a number is expected")
    return raw
