"""CEL expressions that select devices: the `device` variable, and which devices an expression matches.

An expression is checked in one environment, where capacities are quantities, and evaluated in another, where they are maps
(see `cel.checking`). Results are kept with the content of a device, so that equal devices are evaluated once.

An unknown attribute domain is an empty map when it is looked up, but it is not there for `in`, `size` and macros. So
look-ups read the variables `device.attributes` and `device.capacity`, in which the domains that the expression names are
always present, and everything else reads `device.present.…`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from cel_expr_python import cel

from wharfinger.api.protobuf import unpacked
from wharfinger.cel import CostExceeded, Environment, EvaluationError, InvalidExpression, Program, values
from wharfinger.cel.checking import QUANTITY, checking_functions, comparisons_of_numbers, declare_types
from wharfinger.cel.cost import Extent
from wharfinger.cel.expressions import MESSAGES, parts_of
from wharfinger.devices.expression_cost import worst_cost
from wharfinger.devices.expression_literals import literal_faults
from wharfinger.devices.slices import DeviceContent, Document

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool

_encode = msgspec.json.Encoder(order="deterministic").encode

_ATTRIBUTES, _CAPACITY = "device.attributes", "device.capacity"
_PRESENT = "device.present."
_HINT = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
_MOST_MEMBERS = 32  # attributes and capacities of a device that an API server accepts
_LARGEST = Extent(breadth=64, length=256, weight=1024)  # a bound of such a device
_MOST_COST = 1_000_000  # of an expression, as in Kubernetes
_MOST_KNOWN = 4096  # results that a selector keeps
_TRIES = 16  # look-ups of unknown domains that are computed


class BadSelectorExpression(Exception):
    """The expression does not compile."""


class SelectorError(Exception):
    """The evaluation on a device ended in an error."""


@lru_cache(maxsize=1024)
def device_selector(text: str) -> DeviceSelector:
    """The compiled expression. Raises BadSelectorExpression; that is not kept."""
    return DeviceSelector(text)


class DeviceSelector:
    """One expression."""

    __slots__ = ("_domains", "_known", "_program", "_reads", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            checked = _checking().compile(_PRESENCE.sub(_always_present, text))
            fault = next(literal_faults(checked.checked), "") or _fault(checked.functions)
            if fault:
                raise InvalidExpression(f"compilation failed: {fault}")
            if checked.type not in ("bool", "dyn"):
                raise InvalidExpression(f"must evaluate to bool or the unknown type, not {checked.type}")
            serialized, self._domains = _with_separate_look_ups(checked.checked)
            self._program = _running().adopt(text, serialized)
            self._reads = _reads(serialized)
            self._known: dict[Hashable, bool | str] = {}  # by what it reads of a device
        except InvalidExpression as error:
            raise BadSelectorExpression(str(error)) from None

    def is_too_complex(self) -> bool:
        """Whether an API server refuses the expression because of what it may cost on the largest device."""
        return worst_cost(_checking().compile(_PRESENCE.sub(_always_present, self.text)).checked) > _MOST_COST

    def matches(self, content: DeviceContent) -> bool:
        """Whether the expression is true for a device. Raises SelectorError."""
        found = content.results.get(self)
        if found is None:
            found = content.results[self] = self._evaluate(content) if self._reads is None else self._look_up(content)
        if isinstance(found, str):
            raise SelectorError(found)
        return bool(found)

    def _look_up(self, content: DeviceContent) -> bool | str:
        """The result for a device that may differ from others only in what the expression does not read."""
        assert self._reads is not None
        read = [_member(content, *each) for each in self._reads]
        key = (content.driver, content.allow_multiple, _encode(read))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._evaluate(content)
        return found

    def _evaluate(self, content: DeviceContent) -> bool | str:
        try:
            attributes = _by_domain(content.attributes, content.driver, _attribute)
            capacity = _by_domain(content.capacity, content.driver, _capacity)
        except SelectorError as error:
            return str(error)
        added = {*self._domains, content.driver}
        for _ in range(_TRIES):
            result = _run(self._program, content, attributes, capacity, added)
            if not isinstance(result, _MissingKey):
                return result
            if result.key in added:
                return result.message
            added.add(result.key)  # it may be a domain whose name is computed
        return result.message if isinstance(result, _MissingKey) else result


_PRESENCE = re.compile(r"\bhas\(\s*device\s*\.\s*(?:attributes|capacity)\s*\)")


def _always_present(match: re.Match[str]) -> str:
    """The same question for a member that the checker does not take for a variable, padded so that columns in errors stay."""
    return "has(device.driver".ljust(len(match[0]) - 1) + ")"


def _fault(functions: Collection[str]) -> str:
    """Functions that are not available: the size of what they make cannot be bounded."""
    return next((f"{name} is not supported" for name in _UNBOUNDED if name in functions), "")


_UNBOUNDED = ("lists.range", "cel.@mapInsert")


def _member(content: DeviceContent, kind: str, domain: str, name: str) -> Any:
    """What a look-up finds, as it is published."""
    members = content.attributes if kind == "attributes" else content.capacity
    found = members.get(f"{domain}/{name}")
    return members.get(name) if found is None and domain == content.driver else found


class _MissingKey:
    __slots__ = ("key", "message")

    def __init__(self, key: str) -> None:
        self.key = key
        self.message = f"no such key: {key}{_HINT}"


def _run(
    program: Program,
    content: DeviceContent,
    attributes: Mapping[str, Any],
    capacity: Mapping[str, Any],
    added: set[str],
) -> bool | str | _MissingKey:
    empty: dict[str, Any] = {domain: {} for domain in added}
    device = {
        "driver": content.driver,
        "allowMultipleAllocations": content.allow_multiple,
        "attributes": attributes,
        "capacity": capacity,
    }
    bindings = _running().bind(
        {
            "device": device,
            _ATTRIBUTES: {**empty, **attributes},
            _CAPACITY: {**empty, **capacity},
            f"{_PRESENT}attributes": attributes,
            f"{_PRESENT}capacity": capacity,
        },
        size=_LARGEST if len(content.attributes) + len(content.capacity) <= _MOST_MEMBERS else None,
    )
    try:
        result = program.evaluate(bindings)
    except CostExceeded:
        return "operation cancelled: actual cost limit exceeded"
    except EvaluationError as error:
        text = str(error)
        if text.startswith("no such key: "):
            return _MissingKey(text.removeprefix("no such key: "))
        return _overload_text(text, program.text)
    return result if isinstance(result, bool) else _not_bool(result)


# -- values


def _by_domain(members: Document, driver: str, make: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, document in members.items():
        domain, slash, short = name.partition("/")
        if not slash:
            domain, short = driver, name
        found.setdefault(domain, {})[short] = make(name, document)
    return found


def _attribute(name: str, document: Document) -> Any:
    for kind in ("int", "bool", "string"):
        if document.get(kind) is not None:
            return document[kind]
    for kind in ("ints", "bools", "strings"):
        if document.get(kind) is not None:
            return list(document[kind])
    version, versions = document.get("version"), document.get("versions")
    try:
        if versions is not None:
            return [values.semver(each) for each in versions]
        if version is not None:
            return values.semver(version)
    except ValueError as error:
        raise SelectorError(f"attribute {name}: parse semantic version: {error}") from None
    raise SelectorError(f"attribute {name}: unsupported attribute value")


def _capacity(name: str, document: Document) -> Any:
    return values.quantity(str(document.get("value", "0")))


# -- errors in the words of cel-go

_OVERLOAD = re.compile(r"no such overload: (?:\((?P<target>[^)]*)\)\.)?(?P<name>[^()]+)(?:\((?P<arguments>.*)\))?")
_TYPES = {"int64": "int", "uint64": "uint"}
_COMPARED = frozenset(("bool", "bytes", "double", "duration", "int64", "string", "timestamp", "uint64"))
_COMPUTED = frozenset(("bytes", "double", "duration", "int64", "string", "timestamp", "uint64", "list"))
_COMPARING = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_COMPUTING = frozenset(("_+_", "_-_", "_*_", "_/_", "_%_"))


def _overload_text(text: str, expression: str) -> str:
    match = _OVERLOAD.fullmatch(text)
    if match is None:
        return text
    name, arguments = match["name"], (match["arguments"] or "").split(", ") if match["arguments"] else []
    if name in _COMPARING or name in _COMPUTING:
        known = _COMPARED if name in _COMPARING else _COMPUTED
        return "no such overload" if arguments and arguments[0] in known else f"no such overload: {name}"
    if not name[0].isalpha():
        return "no such overload"
    if name == "size":
        return "no such overload: size"
    types = [*([match["target"]] if match["target"] is not None else []), *arguments]
    return f"no such overload: {name}({', '.join(_type_text(each, expression) for each in types)})"


def _type_text(name: str, expression: str) -> str:
    if name == "map":  # most likely what the expression compares with
        with_version, with_quantity = "semver(" in expression, "quantity(" in expression
        if with_version is not with_quantity:
            return "kubernetes.Semver" if with_version else "kubernetes.Quantity"
    return _TYPES.get(name, name)


def _not_bool(result: Any) -> str:
    if isinstance(result, dict) and len(result) == 1 and next(iter(result)) in ("semver", "quantity"):
        name = "Semver" if "semver" in result else "Quantity"
        return f"CEL result of type kubernetes.{name} could not be converted to bool: type conversion error from '{name}' to 'bool'"
    for kind, name, why in (
        (int, "int", "unsupported type conversion from 'int' to bool"),
        (str, "string", "unsupported native conversion from string to 'bool'"),
        (float, "double", "type conversion error from Double to 'bool'"),
        (list, "list", "type conversion error from list to 'bool'"),
        (dict, "map", "type conversion error from map to 'bool'"),
    ):
        if isinstance(result, kind):
            return f"CEL result of type {name} could not be converted to bool: {why}"
    return f"CEL result of type {type(result).__name__} could not be converted to bool"


# -- environments

# Those of pkg/cel/environment/base.go in k8s.io/apiserver.
_EXTENSIONS = {"strings": 2, "optional": None, "bindings": None, "lists": 2, "two-var-comprehensions": None}


def _types() -> DescriptorPool:
    """`kubernetes.DRADevice`, with maps by domain."""
    from google.protobuf import struct_pb2
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="device.proto", package="kubernetes", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    device = file.message_type.add(name="DRADevice")
    device.field.add(name="driver", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    device.field.add(name="allowMultipleAllocations", number=2, type=Field.TYPE_BOOL, label=Field.LABEL_OPTIONAL)
    for number, name in ((3, "attributes"), (4, "capacity")):
        entry = device.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
        value = entry.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL)
        value.type_name = ".google.protobuf.Struct"
        member = device.field.add(name=name, number=number, type=Field.TYPE_MESSAGE, label=Field.LABEL_REPEATED)
        member.type_name = f".kubernetes.DRADevice.{entry.name}"
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    declare_types(pool)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def _pool() -> DescriptorPool:
    return _types()


@cache
def _checking() -> Environment:
    text, by_domain = cel.Type.STRING, cel.Type.Map
    return Environment(
        {
            "device": cel.Type("kubernetes.DRADevice"),
            _ATTRIBUTES: by_domain(text, cel.Type.Map(text, cel.Type.DYN)),
            _CAPACITY: by_domain(text, cel.Type.Map(text, QUANTITY)),
        },
        types=_pool(),
        library=[*checking_functions(), *comparisons_of_numbers()],
        extensions=_EXTENSIONS,
    )


@cache
def _running() -> Environment:
    names = ("device", _ATTRIBUTES, _CAPACITY, f"{_PRESENT}attributes", f"{_PRESENT}capacity")
    return Environment(dict.fromkeys(names, cel.Type.DYN), types=_pool(), extensions=_EXTENSIONS)


# -- look-ups of domains

_LOOK_UPS = frozenset(("_[_]", "_[?_]", "_?._"))


def _with_separate_look_ups(serialized: bytes) -> tuple[bytes, frozenset[str]]:
    """The expression with other uses than look-ups reading what is present, and the domains that it names."""
    from google.protobuf.any_pb2 import Any as AnyMessage

    envelope = AnyMessage.FromString(serialized)
    checked = MESSAGES["CheckedExpr"].FromString(envelope.value)
    maps = {
        each.id: each.reference.name for each in checked.references if each.reference.name in (_ATTRIBUTES, _CAPACITY)
    }
    looked_up: set[int] = set()
    domains: set[str] = set()
    for operand, key in _look_ups(checked.expr):
        if operand in maps:
            looked_up.add(operand)
            if key:
                domains.add(key)
    for each in checked.references:
        if each.id in maps and each.id not in looked_up:
            each.reference.name = _PRESENT + maps[each.id].removeprefix("device.")
    envelope.value = checked.SerializeToString()
    return envelope.SerializeToString(), frozenset(domains)


class _ReadsMore(Exception):
    """The expression reads more than single members of domains."""


def _reads(serialized: bytes) -> tuple[tuple[str, str, str], ...] | None:
    """The attributes and capacities that an expression looks up, as (kind, domain, name); None if that is not all that it
    reads of them."""
    checked = MESSAGES["CheckedExpr"].FromString(unpacked(serialized))
    names = {each.id: each.reference.name for each in checked.references if each.reference.name.startswith("device")}
    found: dict[tuple[str, str, str], None] = {}
    try:
        _collect(MESSAGES["Expr"].FromString(checked.expr), names, found)
    except _ReadsMore:
        return None
    return tuple(found)


def _collect(expr: Any, names: Mapping[int, str], found: dict[tuple[str, str, str], None]) -> None:
    if expr.id in names and names[expr.id] not in ("device",):
        raise _ReadsMore  # a map of domains as a whole
    key = _looked_up(expr)
    if key is not None:
        operand, name = key
        domain = _looked_up(operand)
        if domain is not None and names.get(domain[0].id) in (_ATTRIBUTES, _CAPACITY):
            if not name or not domain[1]:
                raise _ReadsMore
            found[names[domain[0].id].removeprefix("device."), domain[1], name] = None
            return
        if operand.id in names:
            if names[operand.id] == "device" and name in ("driver", "allowMultipleAllocations"):
                return
            raise _ReadsMore  # a domain as a whole
    elif expr.id in names:
        raise _ReadsMore  # the device as a whole
    for part in parts_of(expr):
        _collect(MESSAGES["Expr"].FromString(part), names, found)


def _looked_up(expr: Any) -> tuple[Any, str] | None:
    """The operand and the constant key of an index, a field access, or `key in map`."""
    if expr.HasField("select"):
        return MESSAGES["Expr"].FromString(expr.select.operand), expr.select.field
    if expr.HasField("call") and len(expr.call.args) == 2:
        function, (first, second) = expr.call.function, map(MESSAGES["Expr"].FromString, expr.call.args)
        if function in _LOOK_UPS and second.HasField("constant"):
            return first, second.constant.string_value.decode()
        if function == "@in" and first.HasField("constant") and _looked_up(second) is not None:
            return second, first.constant.string_value.decode()
    return None


def _look_ups(data: bytes) -> Iterator[tuple[int, str]]:
    """The operand of each index or field access, by its number in the expression, and the key if it is a constant."""
    expr = MESSAGES["Expr"].FromString(data)
    if expr.HasField("select"):
        yield MESSAGES["Expr"].FromString(expr.select.operand).id, expr.select.field
    elif expr.HasField("call") and expr.call.function in _LOOK_UPS and len(expr.call.args) == 2:
        key = MESSAGES["Expr"].FromString(expr.call.args[1])
        yield (
            MESSAGES["Expr"].FromString(expr.call.args[0]).id,
            key.constant.string_value.decode() if key.HasField("constant") else "",
        )
    for part in parts_of(expr):
        yield from _look_ups(part)
