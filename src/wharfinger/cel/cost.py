"""Estimates the cost of a CEL expression on a document before it is evaluated.

A unit takes at most about 50 ns: a field access, a call, ten characters searched. A macro (`all`, `map`, …) costs its body times
the size of its range, a regular expression the length of the text times the size of its program. Sizes of values are bounded too, since an expression can build large ones (`a + a`, `replace`, lists of lists). Sizes that are not known are those
of the largest parts of the document; if that costs too much, the parts that the expression reads are looked up. All of this is an upper bound, so an expression within the limit takes less than a tenth
of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from wharfinger.api.protobuf import unpacked
from wharfinger.api.regex import program_size
from wharfinger.cel.expressions import MESSAGES, parts_of

PER_EXPRESSION = 1_000_000

_CALL = 1.0
_LITERAL_COLLECTION = 10.0  # creating a list or map, as in cel-go
_PYTHON_CALL = 30.0  # a function in Python, whose arguments are converted
_PYTHON_ELEMENT = 6.0  # converting an element of an argument
_PER_CHARACTER = 0.1


class SizeBound:
    """An upper bound of a value: elements at its top level and at any deeper one, characters of its longest string, and its
    whole weight, in which an element counts 1 and ten characters count 1."""

    __slots__ = ("inner", "length", "top", "weight")

    def __init__(self, top: float = 0.0, inner: float = 0.0, length: float = 0.0, weight: float = 1.0) -> None:
        self.top = top
        self.inner = inner
        self.length = length
        self.weight = weight

    def element(self) -> SizeBound:
        """The bound of what a macro iterates over."""
        return self if self.top == self.inner else SizeBound(self.inner, self.inner, self.length, self.weight)

    def field(self, name: str) -> SizeBound:
        return self.element()

    def item(self) -> SizeBound:
        """The bound of an element of a list, or of a value of a map."""
        return self.element()


class MeasuredBound(SizeBound):
    """The bound of one of some values in a document. It is measured when it is needed."""

    __slots__ = ("_values",)

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> float:
        if name not in SizeBound.__slots__:
            raise AttributeError(name)
        collections = [value for value in self._values if isinstance(value, dict | list)]
        size = extent(self._values)
        self.top = float(max(map(len, collections), default=0))
        self.inner = float(max((extent(list(_inside(value))).breadth for value in collections), default=0))
        self.length, self.weight = float(size.length), float(size.weight)
        return float(getattr(self, name))

    def element(self) -> SizeBound:
        return MeasuredBound([one for value in self._values if isinstance(value, dict | list) for one in value])

    def field(self, name: str) -> SizeBound:
        return MeasuredBound([value[name] for value in self._values if isinstance(value, dict) and name in value])

    def item(self) -> SizeBound:
        return MeasuredBound([one for value in self._values for one in _inside(value)])


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


SCALAR = SizeBound()
_UNKNOWN = SizeBound(64, 64, 64, 4096)  # of what a function reads from elsewhere: the scores of a cluster


def _largest(bounds: list[SizeBound]) -> SizeBound:
    return SizeBound(
        max((bound.top for bound in bounds), default=0.0),
        max((bound.inner for bound in bounds), default=0.0),
        max((bound.length for bound in bounds), default=0.0),
        max((bound.weight for bound in bounds), default=1.0),
    )


class Extent(NamedTuple):
    """Size of a document: elements of its largest list or map, characters of its longest string, and its weight."""

    breadth: int
    length: int
    weight: int


def extent(document: Any) -> Extent:
    breadth, length, nodes, characters = 0, 0, 0, 0
    stack = [document]
    while stack:
        value = stack.pop()
        nodes += 1
        if isinstance(value, str):
            length = max(length, len(value))
            characters += len(value)
        elif isinstance(value, dict):
            breadth = max(breadth, len(value))
            stack.extend(value.values())
        elif isinstance(value, list):
            breadth = max(breadth, len(value))
            stack.extend(value)
    return Extent(_rounded(breadth), _rounded(length), _rounded(nodes + characters // 10))


def _rounded(number: int) -> int:
    """Rounded up to three significant bits, so that many documents share a cached estimate."""
    step = 1 << max(0, number.bit_length() - 3)
    return -(-number // step) * step


class CostModel:
    """The cost of one checked expression as a function of a document's extent."""

    def __init__(self, serialized: bytes) -> None:
        checked = MESSAGES["CheckedExpr"].FromString(unpacked(serialized))
        self._root: bytes = checked.expr
        self.functions = frozenset(_functions(self._root))
        self.cost = lru_cache(maxsize=256)(self._cost)

    def _cost(self, size: Extent) -> float:
        document = SizeBound(size.breadth, size.breadth, size.length, size.weight)
        return _Estimate(document, {}).of(self._root, {})[0]

    def exact_cost(self, values: Mapping[str, Any]) -> float:
        """A closer bound for these values of variables, which takes longer to compute."""
        return _Estimate(SCALAR, {name: MeasuredBound([value]) for name, value in values.items()}).of(self._root, {})[0]


_Scope = Mapping[str, SizeBound]
_Estimated = tuple[float, SizeBound]


class _Estimate:
    """`of` returns the cost of an expression, and the bound of its value."""

    def __init__(self, document: SizeBound, variables: _Scope) -> None:
        self._document = document
        self._variables = variables

    def of(self, data: bytes, scope: _Scope) -> _Estimated:
        expr = MESSAGES["Expr"].FromString(data)
        if expr.HasField("constant"):
            length = float(len(expr.constant.string_value or expr.constant.bytes_value))
            return 0.0, SizeBound(length=length, weight=1 + length * _PER_CHARACTER)
        if expr.HasField("identifier"):
            name = expr.identifier.name
            return _CALL, scope.get(name) or self._variables.get(name, self._document)
        if expr.HasField("select"):
            cost, operand = self.of(expr.select.operand, scope)
            return cost + _CALL, operand.field(expr.select.field)
        if expr.HasField("call"):
            return self._call(expr.call, scope)
        if expr.HasField("list"):
            return self._collection(expr.list.elements, len(expr.list.elements), scope)
        if expr.HasField("struct"):
            entries = expr.struct.entries
            parts = [part for entry in entries for part in (entry.map_key, entry.value)]
            return self._collection(parts, len(entries), scope)
        if expr.HasField("comprehension"):
            return self._comprehension(expr.comprehension, scope)
        return 0.0, SCALAR

    def _collection(self, parts: list[bytes], count: int, scope: _Scope) -> _Estimated:
        cost, bounds = self._all(parts, scope)
        inner = max((max(bound.top, bound.inner) for bound in bounds), default=0.0)
        length = max((bound.length for bound in bounds), default=0.0)
        return _LITERAL_COLLECTION + cost, SizeBound(count, inner, length, 1 + sum(bound.weight for bound in bounds))

    def _all(self, parts: list[bytes], scope: _Scope) -> tuple[float, list[SizeBound]]:
        total, bounds = 0.0, []
        for part in parts:
            cost, bound = self.of(part, scope)
            total += cost
            bounds.append(bound)
        return total, bounds

    def _call(self, call: Any, scope: _Scope) -> _Estimated:
        cost, bounds = self._all([call.target, *call.args] if call.target else list(call.args), scope)
        name: str = call.function
        made = _FUNCTIONS[name](bounds) if name in _FUNCTIONS and bounds else None
        if name in _MATCHING and len(bounds) > 1 and made is not None:
            size = self._program_size(call.args[0 if call.target else 1], bounds[1], scope)
            compiling = _PER_INSTRUCTION * size if name == "matches" or not _is_constant(call) else 0.0
            made = (made[0] + compiling + _regex_cost(bounds[0].length, size), made[1])
        own, result = made if made is not None else (0.0, _largest(bounds))
        if name[0] not in "_@!-" and name not in _NATIVE:
            own += _PYTHON_CALL + sum(bound.length for bound in bounds) * _PER_CHARACTER
            if made is None and name not in _LIBRARY:
                own += sum(bound.weight for bound in bounds) * _PYTHON_ELEMENT
                result = _largest([result, _UNKNOWN])
            elif made is None:
                result = _texts(result.length, 1)
        return cost + own + _CALL, result

    def _program_size(self, data: bytes, bound: SizeBound, scope: _Scope) -> float:
        """The size of a regular expression. One that the expression itself puts together may have large counted
        repetitions; one that is read from the document is assumed to have none."""
        expr = MESSAGES["Expr"].FromString(data)
        if expr.HasField("constant"):
            return program_size(bytes(expr.constant.string_value).decode(errors="replace"))
        return bound.length * (1 if _is_path(data, scope) else _REPETITION)

    def _comprehension(self, loop: Any, scope: _Scope) -> _Estimated:
        range_cost, values = self.of(loop.range, scope)
        initial_cost, initial = self.of(loop.initial, scope)
        element = values.element()
        inside = {**scope, loop.variable: element, loop.variable2: element, loop.accumulator: SCALAR}
        condition_cost, _ = self.of(loop.condition, inside)
        step_cost, step = self.of(loop.step, inside)
        count = values.top
        # Each step adds to the accumulator what it would make of an empty one.
        collected = SizeBound(
            initial.top + count * step.top,
            max(initial.inner, step.inner),
            max(initial.length, step.length),
            initial.weight + count * step.weight,
        )
        result_cost, result = self.of(loop.result, {**scope, loop.accumulator: collected})
        each = condition_cost + step_cost + _CALL
        return range_cost + initial_cost + result_cost + count * each, result


def _texts(length: float, count: float = 0.0) -> SizeBound:
    """A string, or a list of `count` strings of that length in total."""
    return SizeBound(count, count, length, 1 + count + length * _PER_CHARACTER)


def _scalar(bounds: list[SizeBound]) -> _Estimated:
    return 0.0, SCALAR


def _optional(bounds: list[SizeBound]) -> _Estimated:
    """A field or an element that may be absent is copied."""
    found = bounds[0].item()
    return found.length * 0.02 + found.top * _PER_CHARACTER, found


def _indexed(bounds: list[SizeBound]) -> _Estimated:
    return 0.0, bounds[0].item()


def _added(bounds: list[SizeBound]) -> _Estimated:
    left, right = bounds[0], bounds[-1]
    length = left.length + right.length
    inner = max(left.inner, right.inner)
    result = SizeBound(left.top + right.top, inner, length, left.weight + right.weight)
    return max(left.length, right.length) * _PER_CHARACTER, result


def _equal(bounds: list[SizeBound]) -> _Estimated:
    return min(bound.weight for bound in bounds) * 3, SCALAR


def _contained(bounds: list[SizeBound]) -> _Estimated:
    """`x in list`: compares with every element. In a map it is one look-up."""
    return bounds[-1].weight, SCALAR


def _searched(bounds: list[SizeBound]) -> _Estimated:
    text, pattern = bounds[0].length, bounds[-1].length
    return (text + 1) * _PER_CHARACTER * max(1.0, pattern * _PER_CHARACTER), SCALAR


def _position(bounds: list[SizeBound]) -> _Estimated:
    """In a string or, in Python, in a list."""
    return _searched(bounds[:2])[0] + (bounds[0].weight * 2 if bounds[0].top else 0.0), SCALAR


def _regex_cost(text: float, size: float) -> float:
    """Small programs run as automata, large ones by simulation."""
    return (text + 10) * max(_PER_CHARACTER, size * (0.05 if size <= _SMALL_PROGRAM else 0.15))


def _is_constant(call: Any) -> bool:
    """Whether the pattern of `find` is a constant, so that it is compiled once; `matches` compiles it every time."""
    return bool(MESSAGES["Expr"].FromString(call.args[0]).HasField("constant"))


_MATCHING = frozenset(("matches", "find", "findAll"))
_SMALL_PROGRAM = 500  # instructions
_PER_INSTRUCTION = 10.0  # compiling one
_REPETITION = 140  # instructions for each character of `a{1000}`


def _is_path(data: bytes, scope: _Scope) -> bool:
    """Whether an expression is a path into the document: `object.spec.pattern`."""
    expr = MESSAGES["Expr"].FromString(data)
    while expr.HasField("select"):
        expr = MESSAGES["Expr"].FromString(expr.select.operand)
    return bool(expr.HasField("identifier")) and expr.identifier.name not in scope


def _found(bounds: list[SizeBound]) -> _Estimated:
    return 0.0, _texts(bounds[0].length)


def _all_found(bounds: list[SizeBound]) -> _Estimated:
    text = bounds[0].length
    return text * _PYTHON_ELEMENT, _texts(text, text + 1)


def _replaced(bounds: list[SizeBound]) -> _Estimated:
    text, new = bounds[0].length, bounds[2].length if len(bounds) > 2 else 0.0
    length = (text + 1) * (new + 1)
    return length, _texts(length)


def _split(bounds: list[SizeBound]) -> _Estimated:
    text = bounds[0].length
    return text * 4, _texts(text, text + 1)


def _joined(bounds: list[SizeBound]) -> _Estimated:
    separator = bounds[1].length if len(bounds) > 1 else 0.0
    length = bounds[0].weight / _PER_CHARACTER + bounds[0].top * separator
    return length * _PER_CHARACTER / 2, _texts(length)


def _formatted(bounds: list[SizeBound]) -> _Estimated:
    """A verb such as `%.999f` makes up to a thousand characters."""
    pattern, values = bounds[0], bounds[-1]
    verbs = min(values.top, pattern.length / 2)
    length = pattern.length + verbs * 1000 + values.weight / _PER_CHARACTER
    return pattern.length + values.weight / 2 + verbs * 10, _texts(length)


def _transformed(bounds: list[SizeBound]) -> _Estimated:
    length = bounds[0].length
    return length * _PER_CHARACTER, _texts(length)


def _longer(bounds: list[SizeBound]) -> _Estimated:
    """Quoted or encoded."""
    length = bounds[0].length
    return length * _PER_CHARACTER * 2, _texts(length * 6 + 10)


def _text(bounds: list[SizeBound]) -> _Estimated:
    length = max(bounds[0].length, 400.0)  # the largest double has 309 digits
    return bounds[0].length * _PER_CHARACTER, _texts(length)


def _parsed(bounds: list[SizeBound]) -> _Estimated:
    """A document in JSON, or a query."""
    length = bounds[0].length
    return length * _PYTHON_ELEMENT / 2, SizeBound(length / 2, length / 2, length, length)


def _measured(bounds: list[SizeBound]) -> _Estimated:
    """In Python, of a whole list."""
    return bounds[0].weight * _PYTHON_ELEMENT, bounds[0].item()


def _sets(bounds: list[SizeBound]) -> _Estimated:
    """In Python: every element of one list with every element of the other."""
    left, right = bounds[0].weight, bounds[-1].weight
    return (left + right) * _PYTHON_ELEMENT + left * right * 3, SCALAR


_FUNCTIONS: dict[str, Callable[[list[SizeBound]], _Estimated]] = {
    **dict.fromkeys(("_&&_", "_||_", "!_", "@not_strictly_false", "_<_", "_<=_", "_>_", "_>=_", "size"), _scalar),
    **dict.fromkeys(("_-_", "_*_", "_/_", "_%_", "-_", "int", "uint", "double", "bool", "type"), _scalar),
    **dict.fromkeys(("startsWith", "endsWith"), _scalar),
    **dict.fromkeys(("isSorted", "sum", "min", "max"), _measured),
    **dict.fromkeys(("_==_", "_!=_"), _equal),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "substring", "reverse", "charAt"), _transformed),
    **dict.fromkeys(("strings.quote", "base64.encode", "base64.decode"), _longer),
    **dict.fromkeys(("string", "bytes"), _text),
    **dict.fromkeys(("parseJSON", "getQuery"), _parsed),
    **dict.fromkeys(("_?._", "_[?_]"), _optional),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), _sets),
    "_[_]": _indexed,
    "_+_": _added,
    "@in": _contained,
    "contains": _searched,
    "indexOf": _position,
    "lastIndexOf": _position,
    "matches": _scalar,
    "find": _found,
    "findAll": _all_found,
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "format": _formatted,
}


_NATIVE = frozenset(
    {
        *("size", "startsWith", "endsWith", "contains", "matches", "string", "bytes", "int", "uint", "double", "bool"),
        *(
            "type",
            "dyn",
            "duration",
            "timestamp",
            "charAt",
            "indexOf",
            "lastIndexOf",
            "join",
            "lowerAscii",
            "upperAscii",
        ),
        *(
            "replace",
            "split",
            "substring",
            "trim",
            "reverse",
            "format",
            "strings.quote",
            "base64.encode",
            "base64.decode",
        ),
        *("optional.of", "optional.ofNonZeroValue", "optional.none", "or", "orValue"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds"),
        *("getMinutes", "getMonth", "getSeconds"),
        *(f"math.{name}" for name in ("@max", "@min", "ceil", "floor", "round", "trunc", "abs", "sign", "isNaN")),
    }
)
"""Functions that are not in Python, besides operators."""

_LIBRARY = frozenset(
    {
        *("quantity", "isQuantity", "sign", "isInteger", "asInteger", "asApproximateFloat", "add", "sub", "compareTo"),
        *(
            "isGreaterThan",
            "isLessThan",
            "semver",
            "isSemver",
            "major",
            "minor",
            "patch",
            "ip",
            "isIP",
            "ip.isCanonical",
        ),
        *("family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"),
        *("cidr", "isCIDR", "containsIP", "containsCIDR", "masked", "prefixLength", "url", "isURL", "getScheme"),
        *("getHost", "getHostname", "getPort", "getEscapedPath", "validate", "hasValue", "value"),
    }
)
"""Functions of Kubernetes in Python whose arguments and results are strings, or values of the size of one."""


def _functions(data: bytes) -> Iterator[str]:
    """The names of all functions called anywhere in an expression."""
    expr = MESSAGES["Expr"].FromString(data)
    if expr.HasField("call"):
        yield expr.call.function
    for part in parts_of(expr):
        yield from _functions(part)
