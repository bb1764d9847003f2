"""What a selector costs at most on any device, as cel-go estimates it: an API server refuses what is beyond the limit.

After checker/cost.go of cel-go and the estimators of k8s.io/apiserver/pkg/cel/library. Only upper bounds are computed. Sizes
are those of the largest device; what is not known is unbounded. Estimates of compiled programs in `cel.cost`, which
protect the evaluation, are another thing: they are bounds of our time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from wharfinger.api.protobuf import unpacked
from wharfinger.cel.expressions import MESSAGES

_STRING, _BYTES = 5, 6
_TRAVERSAL = 0.1  # of a character
_PATTERN = 0.25  # of a character of a regular expression
_LIST, _MAP, _STRUCT = 10.0, 30.0, 40.0  # creating one

Path = tuple[str, ...]
_SIZES: Mapping[Path, float] = {
    ("device", "driver"): 63,
    ("device", "allowMultipleAllocations"): 1,
    **{("device", part): 32 for part in ("attributes", "capacity")},
    **{("device", part, "@keys"): 63 for part in ("attributes", "capacity")},
    **{("device", part, "@values"): 32 for part in ("attributes", "capacity")},
    **{("device", part, "@values", "@keys"): 32 for part in ("attributes", "capacity")},
    ("device", "attributes", "@values", "@values"): 64,
}
_ONE = frozenset(
    [
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "add",
        "sub",
        "major",
        "minor",
        "patch",
        "getScheme",
        "getHostname",
        "getHost",
        "getPort",
        "getEscapedPath",
        "getQuery",
        "masked",
        "prefixLength",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
    ]
)
_PARSED = frozenset(("quantity", "isQuantity", "semver", "isSemver", "cidr", "isIP", "isCIDR", "ip", "url"))
_COPIED = frozenset(("lowerAscii", "upperAscii", "substring", "trim"))
_SEARCHING = frozenset(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"))
_SETS = {"sets.contains": 1, "sets.intersects": 1, "sets.equivalent": 2}
_COMPARED = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"))


class _ItemBound(NamedTuple):
    """What is known of the elements of a list."""

    size: float


class _ExpressionBound(NamedTuple):
    """An expression: its cost, its size if that is known, its path from the device, and its elements if it is a list."""

    cost: float
    size: float | None = None
    path: Path = ()
    item: _ItemBound | None = None

    @property
    def bound(self) -> float:
        return math.inf if self.size is None else self.size


_Scope = Mapping[str, _ExpressionBound]


def worst_cost(serialized: bytes) -> float:
    """The most that a checked expression costs."""
    checked = MESSAGES["CheckedExpr"].FromString(unpacked(serialized))
    types = {each.id: MESSAGES["Type"].FromString(each.type) for each in checked.types}
    names = {each.id: each.reference.name for each in checked.references}
    return _WorstCase(types, names).of(checked.expr, {}).cost


def _scaled(size: float, factor: float) -> float:
    return math.inf if math.isinf(size) else math.ceil(round(size * factor, 6))


def _times(one: float, other: float) -> float:
    return 0.0 if not one or not other else one * other


class _WorstCase:
    def __init__(self, types: Mapping[int, Any], names: Mapping[int, str]) -> None:
        self._types = types
        self._names = names

    def of(self, data: bytes, scope: _Scope) -> _ExpressionBound:
        expr = MESSAGES["Expr"].FromString(data)
        name = self._names.get(expr.id, "")
        if name in ("device.attributes", "device.capacity") and (
            expr.HasField("select") or expr.HasField("identifier")
        ):
            return self._sized(expr, 2.0, tuple(name.split(".")))
        if expr.HasField("constant"):
            text = bytes(expr.constant.string_value)
            return _ExpressionBound(
                0.0, float(len(text.decode(errors="replace")) or len(expr.constant.bytes_value) or self._text(expr))
            )
        if expr.HasField("identifier"):
            found = scope.get(expr.identifier.name)
            if found is None:
                return self._sized(expr, 1.0, (expr.identifier.name,))
            return self._sized(expr, 1.0, found.path, found.size, found.item)
        if expr.HasField("select"):
            return self._select(expr, scope)
        if expr.HasField("call"):
            return self._call(expr, scope)
        if expr.HasField("list"):
            items = [self.of(each, scope) for each in expr.list.elements]
            largest = max((each.bound for each in items), default=0.0)
            return _ExpressionBound(
                sum(each.cost for each in items) + _LIST, float(len(items)), (), _ItemBound(largest)
            )
        if expr.HasField("struct"):
            return self._struct(expr.struct, scope)
        if expr.HasField("comprehension"):
            return self._comprehension(expr, scope)
        return _ExpressionBound(0.0)

    def _text(self, expr: Any) -> int:
        """The size of a constant that is not a text: 1, but an empty text has none."""
        kind = self._types.get(expr.id)
        return 0 if kind is not None and kind.primitive in (_STRING, _BYTES) else 1

    def _sized(
        self, expr: Any, cost: float, path: Path, size: float | None = None, item: _ItemBound | None = None
    ) -> _ExpressionBound:
        """With the size that the path has, that every value of the type has, or that was computed."""
        if path in _SIZES:
            return _ExpressionBound(cost, _SIZES[path], path, item)
        kind = self._types.get(expr.id)
        scalar = kind is not None and (kind.primitive not in (0, _STRING, _BYTES) or kind.well_known > 1)
        return _ExpressionBound(cost, 1.0 if scalar else size, path, item)

    def _select(self, expr: Any, scope: _Scope) -> _ExpressionBound:
        operand = self.of(expr.select.operand, scope)
        if expr.select.test_only:
            return self._sized(expr, operand.cost, ())
        kind = self._types.get(MESSAGES["Expr"].FromString(expr.select.operand).id)
        own = 1.0 if kind is not None and (kind.map or kind.message or kind.parameter) else 0.0
        path = (*operand.path, expr.select.field) if operand.path else ()
        if operand.path == ("device", "attributes", "@values"):
            path = (*operand.path, "@values")
        return self._sized(expr, operand.cost + own, path)

    def _struct(self, struct: Any, scope: _Scope) -> _ExpressionBound:
        parts = [self.of(part, scope) for entry in struct.entries for part in (entry.map_key, entry.value) if part]
        base = _STRUCT if struct.message_name else _MAP
        return _ExpressionBound(sum(each.cost for each in parts) + base, float(len(struct.entries)))

    def _comprehension(self, expr: Any, scope: _Scope) -> _ExpressionBound:
        loop = expr.comprehension
        values, initial = self.of(loop.range, scope), self.of(loop.initial, scope)
        condition = MESSAGES["Expr"].FromString(loop.condition)
        if not values.size and condition.HasField("constant") and not condition.constant.bool_value:
            bound = {**scope, loop.accumulator: initial}  # cel.bind
            result = self.of(loop.result, bound)
            return result._replace(cost=values.cost + initial.cost + result.cost)
        inside = {**scope, loop.accumulator: initial}
        inside |= self._elements(loop, values)
        each = self.of(loop.condition, inside).cost + (step := self.of(loop.step, inside)).cost
        result = self.of(loop.result, {**scope, loop.accumulator: initial})
        cost = values.cost + initial.cost + result.cost + _times(values.bound, each)
        collects = MESSAGES["Expr"].FromString(loop.initial)
        if collects.HasField("list") or collects.HasField("struct"):
            return _ExpressionBound(cost, values.bound, (), step.item)
        return _ExpressionBound(cost, initial.size)

    def _elements(self, loop: Any, values: _ExpressionBound) -> dict[str, _ExpressionBound]:
        kind = self._types.get(MESSAGES["Expr"].FromString(loop.range).id)
        is_list = values.item is not None or (kind is not None and bool(kind.list))
        size = None if values.item is None or math.isinf(values.item.size) else values.item.size

        def element(part: str) -> _ExpressionBound:
            return _ExpressionBound(0.0, size if is_list else None, (*values.path, part) if values.path else ())

        if loop.variable2:
            return {loop.variable: element("@keys"), loop.variable2: element("@values")}
        return {loop.variable: element("@items" if is_list else "@keys")}

    def _call(self, expr: Any, scope: _Scope) -> _ExpressionBound:
        call, name = expr.call, expr.call.function
        target = self.of(call.target, scope) if call.target else None
        args = [self.of(each, scope) for each in call.args]
        paid = sum(each.cost for each in args) + (target.cost if target is not None else 0.0)
        if name == "_[_]":
            path = (*args[0].path, "@values") if args[0].path else ()
            size = None if args[0].item is None else args[0].item.size
            return self._sized(expr, paid + 1, path, size)
        if name == "_?_:_":
            branches = max(args[1].cost, args[2].cost)
            return self._sized(
                expr, args[0].cost + branches, (), max(args[1].bound, args[2].bound), args[1].item or args[2].item
            )
        if name in ("_&&_", "_||_"):
            return self._sized(expr, paid, ())
        if name == "_+_":
            return self._added(expr, args, paid)
        if name == "dyn":
            return args[0]._replace(cost=paid + 1)
        if name in _SEARCHING and target is not None:
            own, size = self._searched(call.target, target), None
        else:
            own, size = self._function(name, target, args)
        return self._sized(expr, paid + own, (), size)

    def _added(self, expr: Any, args: list[_ExpressionBound], paid: float) -> _ExpressionBound:
        kind = self._types.get(expr.id)
        size = args[0].bound + args[1].bound
        if kind is not None and bool(kind.list):
            items = [each.item.size for each in args if each.item is not None]
            return _ExpressionBound(paid + 1, size, (), _ItemBound(max(items)) if items else None)
        if kind is not None and kind.primitive not in (0, _STRING, _BYTES):
            return self._sized(expr, paid + 1, ())
        return _ExpressionBound(paid + max(1.0, _scaled(size, _TRAVERSAL)), size)

    def _searched(self, data: bytes, values: _ExpressionBound) -> float:
        """A comparison with every element of a list, or of a text. The sizes of texts in lists are not known."""
        kind = self._types.get(MESSAGES["Expr"].FromString(data).id)
        if kind is None or not kind.list:
            return _scaled(values.bound, _TRAVERSAL)
        texts = MESSAGES["ListType"].FromString(kind.list).element.primitive in (_STRING, _BYTES)
        return _times(values.bound, math.inf if texts else 1.0)

    def _function(
        self, name: str, target: _ExpressionBound | None, args: list[_ExpressionBound]
    ) -> tuple[float, float | None]:
        """The cost of a call beyond that of its arguments, and the size of its result if it is known."""
        of = target or _ExpressionBound(0.0)
        first = args[0] if args else of
        if name in _COMPARED and len(args) == 2:
            return _scaled(min(args[0].bound, args[1].bound), _TRAVERSAL), None
        if name == "@in" and len(args) == 2:
            return (1.0 if args[1].item is None else args[1].bound), None
        if name in ("startsWith", "endsWith"):
            return _scaled(first.bound, _TRAVERSAL), None
        if name in ("matches", "find", "findAll"):
            text, pattern = (of, first) if target is not None else (args[0], args[1])
            cost = _times(_scaled(text.bound + 1, _TRAVERSAL), _scaled(pattern.bound, _PATTERN))
            return cost, None if name == "matches" else text.size
        if name == "contains" and target is not None:
            return _times(_scaled(of.bound, _TRAVERSAL), _scaled(first.bound, _TRAVERSAL)), None
        if name in _SETS and len(args) == 2:
            return _times(args[0].bound, args[1].bound) * _SETS[name] + 1, None
        if name in _ONE:
            return 1.0, None
        if name in _PARSED:
            return _scaled(first.bound, _TRAVERSAL), None
        if name in _COPIED and target is not None:
            return _scaled(of.bound, _TRAVERSAL), of.size
        if name in _BUILDING and target is not None:
            return _BUILDING[name](of, args)
        return 1.0, None


def _replaced(text: _ExpressionBound, args: list[_ExpressionBound]) -> tuple[float, float | None]:
    old, new = args[0].bound, args[1].bound
    if not old:
        size = _times(text.bound + 1, new) + text.bound
    elif new <= old:
        size = text.bound
    else:
        size = _times(math.ceil(text.bound / old) if not math.isinf(text.bound) else math.inf, new)
    return _scaled(text.bound, 2 * _TRAVERSAL), size


def _split(text: _ExpressionBound, args: list[_ExpressionBound]) -> tuple[float, float | None]:
    return _scaled(text.bound, 2 * _TRAVERSAL), text.size


def _joined(values: _ExpressionBound, args: list[_ExpressionBound]) -> tuple[float, float | None]:
    size = _times(values.bound, math.inf)  # the sizes of texts in lists are not known
    return _scaled(size, _TRAVERSAL), size


_BUILDING: Mapping[str, Callable[[_ExpressionBound, list[_ExpressionBound]], tuple[float, float | None]]] = {
    "replace": _replaced,
    "split": _split,
    "join": _joined,
}
