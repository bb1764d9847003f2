"""Selectors: by labels (object form and text form), by fields, and of nodes.

Selectors compile to tuples of `Requirement`, which are hashable and cheap to evaluate; indexes over labels read
their parts. Compiling refuses what Kubernetes refuses, with `BadSelector`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from wharfinger.api.names import label_value, qualified_name


class BadSelector(ValueError):
    """The selector cannot be evaluated; `path` is the faulty field below the selector, as in `matchExpressions[0].values`."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class Operator(Enum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"  # node selectors only
    LT = "Lt"


class SelectorExpression(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """`{key, operator, values}`, as written in manifests."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """`metav1.LabelSelector`. Absent and empty differ: who holds one decides what absence means."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorExpression, ...] = ()

    def compile(self) -> Requirements:
        return compile_label_selector(self)


class NodeSelectorTerm(msgspec.Struct, rename="camel", frozen=True, gc=False):
    match_expressions: tuple[SelectorExpression, ...] = ()
    match_fields: tuple[SelectorExpression, ...] = ()


class NodeSelector(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """`v1.NodeSelector`: terms are ORed, what is inside one is ANDed; an empty term matches nothing."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GT | Operator.LT:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        """Whole numbers only; a label that is none compares false, as upstream's labels.Requirement does."""
        number, bound = parse_int64(value), parse_int64(next(iter(self.values)))
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound


Requirements = tuple[Requirement, ...]
EVERYTHING: Requirements = ()


def matches(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    return all(requirement.matches(labels) for requirement in requirements)


def parse_int64(text: str) -> int | None:
    """As Go's strconv.ParseInt(text, 10, 64): digits with an optional sign, nothing else."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def requirement(expression: SelectorExpression, *, node: bool = False, path: str = "") -> Requirement:
    """Compiles one expression; `node` also allows Gt and Lt."""
    prefix = f"{path}." if path else ""
    try:
        operator = Operator(expression.operator)
    except ValueError:
        operator = None
    if operator is None or (operator in (Operator.GT, Operator.LT) and not node):
        raise BadSelector(f'"{expression.operator}" is not a valid label selector operator', f"{prefix}operator")
    if faults := qualified_name(expression.key):
        raise BadSelector(faults[0], f"{prefix}key")
    values = expression.values
    if operator in (Operator.IN, Operator.NOT_IN):
        if not values:
            raise BadSelector("for 'in', 'notin' operators, values set can't be empty", f"{prefix}values")
    elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        if values:
            raise BadSelector("values set must be empty for exists and does not exist", f"{prefix}values")
    elif len(values) != 1:
        raise BadSelector("for 'Gt', 'Lt' operators, exactly one value is required", f"{prefix}values")
    elif parse_int64(values[0]) is None:
        raise BadSelector("for 'Gt', 'Lt' operators, the value must be an integer", f"{prefix}values[0]")
    for index, value in enumerate(values):
        if faults := label_value(value):
            raise BadSelector(faults[0], f"{prefix}values[{index}]")
    return Requirement(expression.key, operator, frozenset(values))


def compile_label_selector(selector: LabelSelector) -> Requirements:
    """An empty selector compiles to no requirement, which everything meets."""
    compiled = []
    for key, value in sorted(selector.match_labels.items()):
        if faults := qualified_name(key):
            raise BadSelector(faults[0], f"matchLabels.{key}")
        if faults := label_value(value):
            raise BadSelector(faults[0], f"matchLabels.{key}")
        compiled.append(Requirement(key, Operator.IN, frozenset((value,))))
    for index, expression in enumerate(selector.match_expressions):
        compiled.append(requirement(expression, path=f"matchExpressions[{index}]"))
    return tuple(compiled)


_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|>|<|[^\s=!,()<>]+)")


def parse_label_selector(text: str) -> Requirements:
    """The text form of `?labelSelector=` and `kubectl -l`: `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    tokens = _tokens(text)
    compiled: list[Requirement] = []
    while tokens:
        compiled.append(_parse_requirement(tokens, text))
        if tokens and (tokens.pop(0) != "," or not tokens):
            raise BadSelector(f"unable to parse requirement: {text!r}")
    return tuple(compiled)


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise BadSelector(f"unable to parse requirement: {text!r}")
        tokens.append(match[1])
        position = match.end()
    return tokens


_PUNCTUATION = {"==", "!=", "=", "!", ",", "(", ")", ">", "<"}


def _parse_requirement(tokens: list[str], text: str) -> Requirement:
    def fail(why: str) -> BadSelector:
        return BadSelector(f"unable to parse requirement: {why} in {text!r}")

    def word(what: str) -> str:
        if not tokens or tokens[0] in _PUNCTUATION:
            raise fail(f"expected {what}")
        return tokens.pop(0)

    def make(key: str, operator: Operator, values: Sequence[str] = ()) -> Requirement:
        return requirement(SelectorExpression(key, operator.value, tuple(values)), node=True)

    if tokens[0] == "!":
        tokens.pop(0)
        return make(word("a label key after '!'"), Operator.DOES_NOT_EXIST)
    key = word("a label key")
    if not tokens or tokens[0] == ",":
        return make(key, Operator.EXISTS)
    verb = tokens.pop(0)
    if verb in ("=", "==", "!="):
        value = tokens.pop(0) if tokens and tokens[0] not in _PUNCTUATION else ""
        return make(key, Operator.NOT_IN if verb == "!=" else Operator.IN, (value,))
    if verb in (">", "<"):
        return make(key, Operator.GT if verb == ">" else Operator.LT, (word("a number"),))
    if verb not in ("in", "notin"):
        raise fail(f"found '{verb}', expected: in, notin, =, ==, !=, gt, lt")
    if not tokens or tokens.pop(0) != "(":
        raise fail("expected '('")
    values, expecting = [], True
    while True:
        if not tokens:
            raise fail("expected ')'")
        token = tokens.pop(0)
        if token in (",", ")"):
            if expecting:
                values.append("")
            if token == ")":
                break
            expecting = True
        elif token in _PUNCTUATION or not expecting:
            raise fail(f"found '{token}', expected: ',' or ')'")
        else:
            values.append(token)
            expecting = False
    return make(key, Operator.IN if verb == "in" else Operator.NOT_IN, values)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    path: str
    value: str
    equal: bool = True

    def matches(self, document: Mapping[str, Any]) -> bool:
        return (field_text(document, self.path) == self.value) is self.equal


def parse_field_selector(text: str) -> tuple[FieldRequirement, ...]:
    """`spec.nodeName=n1,status.phase!=Running`; which fields a kind supports is the registry's matter."""
    parsed = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([^=!]+)(==|!=|=)(.*)", part)
        if match is None:
            raise BadSelector(f"invalid field selector: {part!r}; can't understand it, use field=value or field!=value")
        parsed.append(FieldRequirement(match[1].strip(), match[3].strip(), match[2] != "!="))
    return tuple(parsed)


def field_text(document: Mapping[str, Any], path: str) -> str:
    """The text of a dotted field; the empty string where it is absent."""
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
