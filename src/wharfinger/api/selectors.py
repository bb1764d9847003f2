"""Label selectors (as objects and as text), field selectors, and the views of node selectors.

Selectors are compiled to tuples of `Requirement`, which are hashable and cheap to evaluate. Compiling a selector that
Kubernetes rejects raises `BadSelector`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from wharfinger.api.names import label_value, qualified_name
from wharfinger.api.numbers import parse_int64


class BadSelector(ValueError):
    """The selector is invalid; `path` is the invalid field within it, such as `matchExpressions[0].values`."""

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
    """`metav1.LabelSelector`. An empty selector matches everything; what an absent one means depends on the field."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorExpression, ...] = ()

    def compile(self) -> Requirements:
        return compile_label_selector(self)


class NodeSelectorTerm(msgspec.Struct, rename="camel", frozen=True, gc=False):
    match_expressions: tuple[SelectorExpression, ...] = ()
    match_fields: tuple[SelectorExpression, ...] = ()


class NodeSelector(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """`v1.NodeSelector`: terms are ORed, the requirements of a term are ANDed; an empty term matches nothing."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class Requirement(msgspec.Struct, frozen=True):
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

    def text(self) -> str:
        """As kubectl writes a label selector: `key=value`, `key in (a,b)`, `!key`."""
        values = ",".join(sorted(self.values))
        match self.operator:
            case Operator.IN:
                return f"{self.key}={values}" if len(self.values) == 1 else f"{self.key} in ({values})"
            case Operator.NOT_IN:
                return f"{self.key} notin ({values})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GT | Operator.LT:
                return f"{self.key}{'>' if self.operator is Operator.GT else '<'}{values}"

    def _compares(self, value: str) -> bool:
        """Compares integers; false for any other label value, as in upstream's labels.Requirement."""
        number, bound = parse_int64(value), parse_int64(next(iter(self.values)))
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound


Requirements = tuple[Requirement, ...]


def matches(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    for requirement in requirements:  # noqa: SIM110 - faster than a generator
        if not requirement.matches(labels):
            return False
    return True


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
    """An empty selector has no requirements and matches everything."""
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


def exact_labels(labels: Mapping[str, str]) -> Requirements:
    """Requirements for a plain map of labels, such as `nodeSelector`, which upstream does not validate."""
    return tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in sorted(labels.items()))


_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|>|<|[^\s=!,()<>]+)")


def parse_label_selector(text: str) -> Requirements:
    """The text form of `?labelSelector=` and `kubectl -l`: `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    return _SelectorParser(text).requirements()


_PUNCTUATION = {"==", "!=", "=", "!", ",", "(", ")", ">", "<"}
_VERBS = {"in": Operator.IN, "notin": Operator.NOT_IN, "=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN}
_COMPARISONS = {">": Operator.GT, "<": Operator.LT}


class _SelectorParser:
    """As apimachinery's pkg/labels/selector.go, with its error messages."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def requirements(self) -> Requirements:
        compiled: list[Requirement] = []
        if not self._tokens:
            return ()
        while True:
            if self._next not in _PUNCTUATION - {"!"} and self._next:
                compiled.append(self._requirement())
                found = self._take()
                if not found:
                    return tuple(compiled)
                if found != ",":
                    raise BadSelector(f"found '{found}', expected: ',' or 'end of string'")
                if self._next in _PUNCTUATION - {"!"} or not self._next:
                    raise BadSelector(f"found '{self._next}', expected: identifier after ','")
            else:
                raise BadSelector(f"found '{self._next}', expected: !, identifier, or 'end of string'")

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        found = self._next
        self._at += 1
        return found

    def _fail(self, found: str, expected: str) -> BadSelector:
        return BadSelector(f"unable to parse requirement: found '{found}', expected: {expected}")

    def _requirement(self) -> Requirement:
        absent = self._next == "!"
        if absent:
            self._take()
        key = self._take()
        if not key or key in _PUNCTUATION:
            raise self._fail(key, "identifier")
        if faults := qualified_name(key):
            raise BadSelector(f'unable to parse requirement: <nil>: Invalid value: "{key}": {faults[0]}')
        if absent:
            return self._requirement_of(key, Operator.DOES_NOT_EXIST)
        if self._next in ("", ","):
            return self._requirement_of(key, Operator.EXISTS)
        verb = self._take()
        if verb in ("in", "notin"):
            return self._requirement_of(key, _VERBS[verb], self._values())
        if verb in _VERBS:
            value = self._take() if self._next not in ("", ",") else ""
            if value in _PUNCTUATION:
                raise self._fail(value, "identifier")
            return self._requirement_of(key, _VERBS[verb], (value,))
        if verb in _COMPARISONS:
            value = self._take()
            if not value or value in _PUNCTUATION:
                raise self._fail(value, "identifier")
            return self._requirement_of(key, _COMPARISONS[verb], (value,))
        raise self._fail(verb, "in, notin, =, ==, !=, gt, lt")

    def _values(self) -> list[str]:
        opening = self._take()
        if opening != "(":
            raise self._fail(opening, "'('")
        values, expecting = [], True
        while True:
            token = self._take()
            if token in (",", ")"):
                if expecting:
                    values.append("")
                if token == ")":
                    return values
                expecting = True
            elif not expecting or not token or token in _PUNCTUATION:
                raise self._fail(token, "',' or ')'" if not expecting else "',', ')' or identifier")
            else:
                values.append(token)
                expecting = False

    def _requirement_of(self, key: str, operator: Operator, values: Sequence[str] = ()) -> Requirement:
        try:
            return requirement(SelectorExpression(key, operator.value, tuple(values)), node=True)
        except BadSelector as error:
            where = f"{error.path}: " if error.path else ""
            if error.path.endswith("]"):
                index = int(error.path.rpartition("[")[2][:-1])
                where += f'Invalid value: "{values[index]}": '
            raise BadSelector(f"unable to parse requirement: {where}{error.args[0]}") from None


class FieldRequirement(msgspec.Struct, frozen=True):
    path: str
    value: str
    equal: bool = True

    def matches(self, document: Mapping[str, Any]) -> bool:
        return (field_text(document, self.path) == self.value) is self.equal


def parse_field_selector(text: str) -> tuple[FieldRequirement, ...]:
    """Parses `spec.nodeName=n1,status.phase!=Running`. Whether a kind supports a field is checked by the registry.

    Commas, equals signs and backslashes in values are escaped with a backslash.
    """
    parsed = []
    for part in filter(None, re.findall(r"(?:\\.|[^,\\])+", text, re.DOTALL)):
        match = re.match(r"(.*?)(!=|==|=)(.*)", part, re.DOTALL)
        if match is None:
            raise BadSelector(f"invalid selector: '{text}'; can't understand '{part}'")
        parsed.append(FieldRequirement(match[1], _unescaped(match[3]), match[2] != "!="))
    return tuple(parsed)


def _unescaped(value: str) -> str:
    plain = ""
    characters = iter(value)
    for character in characters:
        if character == "\\":
            character = next(characters, "")
            if character not in ("\\", ",", "="):
                raise BadSelector(f"invalid field selector: invalid escape sequence: \\{character}")
        elif character == "=":
            raise BadSelector(f"invalid field selector: unescaped character in value: {ord(character)}")
        plain += character
    return plain


def field_text(document: Mapping[str, Any], path: str) -> str:
    """The value of a dotted field as text; empty if it is absent."""
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
