"""Whether a document has the structure of its kind: types of all fields, fields nobody knows, fields given twice.

The common case, a document in order, is decided by msgspec at the speed of decoding. Only when that finds something does
a walk over the schema say what, in the words of Kubernetes' decoder, and drop what is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from wharfinger.api.errors import BadRequest
from wharfinger.api.go_text import plain
from wharfinger.api.quantity import REGEX_MESSAGE, BadQuantity, parse_nano
from wharfinger.api.registry import Document, Kind, Registry, Resource
from wharfinger.api.shapes import definition_name, definitions
from wharfinger.api.times import BadTime, parse_time
from wharfinger.apiserver.definitions import META, reference, target
from wharfinger.apiserver.go_json import unmarshalled

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

_RANGES = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}
_QUANTITY = r"^[+-]?(\d{1,12}\.?\d{0,9}|\.\d{1,9})([numkMGTPE]|[KMGTPE]i)?$"  # what is surely one; others are parsed
_PLAIN: dict[str, Any] = {"string": str, "boolean": bool, "number": float}


class WrongType(ValueError):
    """A value of another type than its field; `go_type` is that of the field where nothing but the type is wrong."""

    def __init__(self, message: str, value: Any = None, go_type: str | None = None) -> None:
        super().__init__(message)
        self.value = value
        self.go_type = go_type


class OutOfRange(WrongType):
    """A number too large for its field."""


class Structure:
    """The structure of one kind in one version."""

    def __init__(self, schema: Document, kind: str, version: str, *, typed: bool = True) -> None:
        """Without `typed` wrong types pass: the validation of the kind names all of them, by path."""
        self._schema = schema
        self._typed = typed
        self._kind = kind
        self._version = version
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_type(schema, frozenset()))

    def check(self, document: Document, body: bytes, *, validation: str) -> list[str]:
        """Warnings about unknown and repeated fields; drops unknown ones. Raises BadRequest for wrong types, and with
        `Strict` for what would be a warning. `body` is the JSON the document was decoded from."""
        faults: list[str] = []
        if validation != "Ignore":
            faults += duplicates(body, document)
        try:
            self._decoder.decode(body)
            orderly = b"null" not in body
        except msgspec.DecodeError:
            orderly = False
        if not orderly:
            faults += self.prune(document)
        if faults and validation == "Strict":
            raise BadRequest(f"{self._handled()}: strict decoding error: {', '.join(faults)}")
        return faults if validation == "Warn" else []

    def prune(self, document: Document, *, patch: bool = False) -> list[str]:
        """Drops nulls and unknown fields in place and names the latter; a patch keeps nulls and its `$` directives."""
        try:
            return self.walk(document, patch=patch)
        except WrongType as error:
            raise BadRequest(f"{self._handled()}: {error}") from None

    def walk(self, document: Document, *, patch: bool = False) -> list[str]:
        """As `prune`, for callers with words of their own for a WrongType."""
        unknown: list[str] = []
        try:
            _Walk(unknown, patch=patch, typed=self._typed).value(self._schema, document, "", "", self._kind)
        except RecursionError:
            raise BadRequest(f"{self._handled()}: nested too deeply") from None
        return unknown

    def _handled(self) -> str:
        return f'{self._kind} in version "{self._version}" cannot be handled as a {self._kind}'


class Structures:
    """The structures of all kinds in a registry, built when first asked for."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[tuple[str, str, str], Structure | None] = {}

    def of(self, group: str, version: str, kind: str) -> Structure | None:
        """None where no schema is known: then anything passes here."""
        key = (group, version, kind)
        if key not in self._known:
            self._known[key] = self._build(group, version, kind)
        return self._known[key]

    def of_resource(self, resource: Resource) -> Structure | None:
        return self.of(resource.group, resource.version, resource.kind)

    def delete_options(self) -> Structure:
        key = ("", "", "DeleteOptions")
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Structure(reference(META + "DeleteOptions"), "DeleteOptions", "v1")
        return found

    def forget(self, kind: Kind) -> None:
        """A kind came, changed or went."""
        for key in [key for key in self._known if (key[0], key[2]) == (kind.group, kind.kind)]:
            del self._known[key]

    def _build(self, group: str, version: str, kind: str) -> Structure | None:
        api_version = f"{group}/{version}" if group else version
        if (name := definition_name(group, version, kind)) is not None:
            return Structure(reference(name), kind, version)
        found = self._registry.of_object(api_version, kind)
        if found is not None and found.schema is not None:
            return Structure(with_metadata(found.schema(version)), kind, version, typed=False)
        return None


def with_metadata(schema: Document) -> Document:
    """A CRD's schema with what every object has besides."""
    properties = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": reference(OBJECT_META),
    }
    return {**schema, "type": "object", "properties": properties}


# The fast way: msgspec types.

_types: dict[str, Any] = {}


def _type(schema: Document, above: frozenset[str]) -> Any:
    """The msgspec type of a schema; every field may be null, as in Kubernetes' JSON."""
    name = target(schema)
    if name is not None:
        if name in above:  # a schema of schemas: the walk is not stricter here
            return Any
        if name not in _types:
            _types[name] = _named(name, above | {name})
        return _types[name]
    if schema.get("x-kubernetes-int-or-string"):
        return int | str | None
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource"):
        return dict[str, Any] | None if schema.get("type") == "object" else Any
    match schema.get("type"):
        case "integer":
            low, high = _RANGES.get(schema.get("format", ""), _RANGES["int64"])
            return Annotated[int, msgspec.Meta(ge=low, le=high)] | None
        case "array":
            return list[_type(schema.get("items") or {}, above)] | None  # type: ignore[misc]  # a type made at run time
        case "object":
            if schema.get("properties"):
                return _struct("Inline", schema, above) | None
            extra = schema.get("additionalProperties")
            values = _type(extra, above) if isinstance(extra, dict) else Any
            return dict[str, values] | None  # type: ignore[valid-type]  # as above
        case "string":
            if schema.get("format") == "byte":
                return bytes | None
            if schema.get("format") == "date-time":
                return Annotated[datetime, msgspec.Meta(tz=True)] | None
            return str | None
        case str(plain) if plain in _PLAIN:
            return _PLAIN[plain] | None
    return Any


def _named(name: str, above: frozenset[str]) -> Any:
    schema = definitions()[name]
    if name == QUANTITY:
        return Annotated[str, msgspec.Meta(pattern=_QUANTITY)] | int | float | None
    if name == INT_OR_STRING:
        return int | str | None
    if name == RAW_EXTENSION or ("properties" not in schema and schema.get("type") != "string"):
        return Any
    if schema.get("type") == "string":
        return _type(schema, above)
    return _struct(name, schema, above) | None


def _struct(name: str, schema: Document, above: frozenset[str]) -> Any:
    fields = [
        (f"f{index}", _type(part, above), msgspec.field(default=None, name=key))
        for index, (key, part) in enumerate(schema["properties"].items())
    ]
    return msgspec.defstruct(name.rpartition(".")[2], fields, forbid_unknown_fields=True, gc=False)


# The slow way: a walk that names what is wrong.


class _Walk:
    def __init__(self, unknown: list[str], *, patch: bool, typed: bool) -> None:
        self._unknown = unknown
        self._patch = patch
        self._typed = typed

    def value(self, schema: Document, value: Any, path: str, field: str, owner: str) -> Any:
        """`path` has indexes and names the spot; `field` has none and is how Go's decoder names it."""
        try:
            return self._value(schema, value, path, field, owner)
        except WrongType:
            if self._typed or path.startswith("metadata"):
                raise
            return value

    def _value(self, schema: Document, value: Any, path: str, field: str, owner: str) -> Any:
        name = target(schema)
        if name == QUANTITY:
            return self._quantity(value, field, owner)
        if name == INT_OR_STRING or schema.get("x-kubernetes-int-or-string"):
            return self._expect(
                isinstance(value, str | int) and not isinstance(value, bool), value, "intstr.IntOrString", field, owner
            )
        if name == RAW_EXTENSION:
            return value
        if name is not None:
            referred = definitions()[name]
            if referred.get("type") == "object" and not isinstance(value, dict):
                raise _mismatch(value, _go(schema), field, owner)
            schema, owner = referred, name.rpartition(".")[2]
        if schema.get("x-kubernetes-embedded-resource"):
            return self._expect(isinstance(value, dict), value, "map[string]interface {}", field, owner)
        match schema.get("type"):
            case "object":
                return self._object(schema, value, path, field, owner)
            case "array":
                if not isinstance(value, list):
                    raise _mismatch(value, _go(schema), field, owner)
                items = schema.get("items") or {}
                value[:] = [
                    self._item(items, item, f"{path}[{index}]", field, owner) for index, item in enumerate(value)
                ]
                return value
            case "integer":
                low, high = _RANGES.get(schema.get("format", ""), _RANGES["int64"])
                whole = isinstance(value, int) and not isinstance(value, bool)
                if whole and not low <= value <= high:
                    raise OutOfRange(
                        f"json: cannot unmarshal number {value} into Go struct field {owner}.{field} of type {_go(schema)}"
                    )
                return self._expect(whole, value, _go(schema), field, owner)
            case "number":
                return self._expect(
                    isinstance(value, int | float) and not isinstance(value, bool), value, "float64", field, owner
                )
            case "boolean":
                return self._expect(isinstance(value, bool), value, "bool", field, owner)
            case "string":
                self._expect(isinstance(value, str), value, _go(schema), field, owner)
                _check_format(schema.get("format"), value)
                return value
        return value

    def _item(self, schema: Document, value: Any, path: str, field: str, owner: str) -> Any:
        if value is None:
            return _zero(schema) if self._typed else None  # only Go's decoder makes anything of it
        return self.value(schema, value, path, field, owner)

    def _object(self, schema: Document, value: Any, path: str, field: str, owner: str) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, _go(schema), field, owner)
        properties = schema.get("properties")
        if properties is None:
            rest = schema.get("additionalProperties")
            if isinstance(rest, dict):
                for key, item in value.items():
                    if item is not None or not self._patch:
                        value[key] = self._item(rest, item, f"{path}.{key}" if path else key, field, owner)
            return value
        keeps = schema.get("x-kubernetes-preserve-unknown-fields")
        for key in list(value):
            part = properties.get(key)
            here = f"{path}.{key}" if path else key
            if part is None:
                if not keeps and not (self._patch and key.startswith("$")):
                    self._unknown.append(f'unknown field "{here}"')
                    del value[key]
            elif value[key] is None:
                if not self._patch and not part.get("nullable"):
                    del value[key]
            else:
                value[key] = self.value(part, value[key], here, f"{field}.{key}" if field else key, owner)
        return value

    def _quantity(self, value: Any, field: str, owner: str) -> Any:
        self._expect(
            isinstance(value, str | int | float) and not isinstance(value, bool), value, "string", field, owner
        )
        try:
            parse_nano(value)
        except (BadQuantity, ValueError, OverflowError):
            raise WrongType(REGEX_MESSAGE) from None
        return value

    def _expect(self, holds: bool, value: Any, go_type: str, field: str, owner: str) -> Any:
        if not holds:
            raise _mismatch(value, go_type, field, owner)
        return value


def _mismatch(value: Any, go_type: str, field: str, owner: str) -> WrongType:
    what = unmarshalled(value)
    if isinstance(value, float) and go_type in _RANGES:
        what += f" {plain(value)}"
    where = f"Go struct field {owner}.{field}" if field else "Go value"
    return WrongType(f"json: cannot unmarshal {what} into {where} of type {go_type}", value, go_type)


def _go(schema: Document) -> str:
    """The Go type of a schema, as the decoder's messages print it."""
    if name := target(schema):
        *_, version, kind = name.split(".")
        return f"{version}.{kind}"
    match schema.get("type"):
        case "array":
            return f"[]{_go(schema.get('items') or {})}"
        case "object":
            return f"map[string]{_go(schema.get('additionalProperties') or {})}"
        case "integer":
            return schema.get("format") or "int64"
        case "boolean":
            return "bool"
        case "string":
            return "[]uint8" if schema.get("format") == "byte" else "string"
        case "number":
            return "float64"
    return "interface {}"


def _check_format(format: str | None, value: str) -> None:
    if format == "date-time":
        try:
            parse_time(value)
        except BadTime:
            raise WrongType(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse') from None
    elif format == "byte":
        try:
            msgspec.convert(value, bytes)
        except msgspec.ValidationError:
            raise WrongType("illegal base64 data") from None


_ZEROES: dict[str, Callable[[], Any]] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def _zero(schema: Document) -> Any:
    """What Go's decoder makes of null inside a list or map."""
    name = target(schema)
    if name == QUANTITY:
        return "0"
    kind = (definitions()[name] if name else schema).get("type")
    return _ZEROES[kind]() if kind in _ZEROES else None


# Fields given twice.


def duplicates(body: bytes, document: Any) -> list[str]:
    """`duplicate field "…"` for every repeated key. Decoding keeps the last of them, so that a body with repeats has more
    quotes than its document; only then is it read again with care."""
    if body.count(b'"') == msgspec.json.encode(document).count(b'"'):
        return []
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for key, value in items:
            if key in merged:
                repeated.setdefault(id(merged), []).append(key)
            merged[key] = value
        alive.append(merged)  # an id stays unique while its object lives
        return merged

    repeated: dict[int, list[str]] = {}
    alive: list[Any] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in repeated.get(id(value), ()):
                found.append(f'duplicate field "{path}.{key}"' if path else f'duplicate field "{key}"')
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")

    try:
        walk(json.loads(body, object_pairs_hook=pairs), "")
    except (ValueError, RecursionError):  # what msgspec took and json does not has no repeats worth naming
        return []
    return list(dict.fromkeys(found))
