"""The source of the package as syntax trees, and what an expression in it can be as text.

Texts that are put together at run time become templates: the parts that are not known have the name of the variable in
angle brackets, such as `Insufficient <resource>`.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from types import ModuleType

import wharfinger
from wharfinger.framework.status import Status

PACKAGE = Path(wharfinger.__file__).parent
UNKNOWN = "…"
_MOST = 12  # texts that one expression may stand for
_PHRASES = ("counted", "listed")  # functions that word a part of any text
_SINGULAR = {"are": "is", "have": "has", "units": "unit", "pods": "pod"}
_OF_INTEREST = re.compile(r"reason|unschedulable|unresolvable|condition|event\b|prometheus|Series|gauges|running P")
_FORMAT_FIELD = re.compile(r"\{(\w*)[^{}]*\}")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """One module of the package. `area` is its path in the package, such as `systems/reservation/plugin/use`."""

    area: str
    tree: ast.Module = field(repr=False)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def loaded(self) -> ModuleType:
        return importlib.import_module("wharfinger." + self.area.replace("/", "."))

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    def function(self, node: ast.AST) -> Function | None:
        """The function that `node` is in."""
        found: ast.AST | None = node
        while found is not None and not isinstance(found, Function):
            found = self.parents.get(found)
        return found

    def constant(self, name: str) -> object:
        return getattr(self.loaded, name, None)


@cache
def modules() -> tuple[Module, ...]:
    """The modules with texts or metrics, sorted by path."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name != "__main__.py" and _OF_INTEREST.search(text):
            area = str(path.relative_to(PACKAGE).with_suffix("")).removesuffix("/__init__")
            found.append(Module(area, ast.parse(text)))
    return tuple(found)


@cache
def imported(name: str) -> Module | None:
    """The module of the package with this full name."""
    path = PACKAGE.parent / f"{name.replace('.', '/')}.py"
    if not name.startswith(f"{PACKAGE.name}.") or not path.exists():
        return None
    return Module(str(path.relative_to(PACKAGE).with_suffix("")), ast.parse(path.read_text(encoding="utf-8")))


def called(call: ast.Call) -> str:
    """The last name of what is called: `event` for `self.context.recorder.event(…)`."""
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def texts(node: ast.expr, module: Module) -> list[str]:
    """What an expression can be as text; empty if nothing is known about it."""
    return list(dict.fromkeys(_Reader(module, node).read(node)))[:_MOST]


def pairs(first: ast.expr, second: ast.expr, module: Module) -> list[tuple[str, str]]:
    """What two expressions can be together: `a, b = ("x", "y") if … else ("v", "w")` gives `x` with `y` and `v` with `w`."""
    reader = _Reader(module, first)
    found: dict[tuple[str, str], None] = {}
    for one, two in _together(first, second, reader):
        for text in reader.read(one):
            found |= dict.fromkeys((text, other) for other in reader.read(two) or [""])
    return list(found)[:_MOST]


def _together(first: ast.expr, second: ast.expr, reader: _Reader) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The expressions as they belong together: branches of equal conditions, and elements of the same tuple."""
    match first, second:
        case ast.IfExp(), ast.IfExp() if ast.dump(first.test) == ast.dump(second.test):
            yield from _together(first.body, second.body, reader)
            yield from _together(first.orelse, second.orelse, reader)
        case ast.Name(), ast.Name() if joint := list(reader.assigned_together(first.id, second.id)):
            for one, two in joint:
                yield from _together(one, two, reader)
        case ast.Name(), ast.Name() | ast.IfExp() if isinstance(value := reader.only_value(first), ast.IfExp):
            yield from _together(value, second, reader)
        case ast.IfExp(), ast.Name() if isinstance(value := reader.only_value(second), ast.IfExp):
            yield from _together(first, value, reader)
        case _:
            yield first, second


class _Reader:
    """Reads expressions at one place of a module."""

    def __init__(self, module: Module, place: ast.AST) -> None:
        self._module = module
        self._place = place
        self._function = module.function(place)
        self._reading: set[str] = set()  # variables whose assignments are being read

    def only_value(self, name: ast.Name) -> ast.expr | None:
        values = list(self._assigned(name.id))
        return values[0] if len(values) == 1 else None

    def assigned_together(self, first: str, second: str) -> Iterator[tuple[ast.expr, ast.expr]]:
        for node in ast.walk(self._function) if self._function is not None else ():
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Tuple):
                yield from zip(_bound(target, node.value, first), _bound(target, node.value, second))

    def read(self, node: ast.expr | None) -> list[str]:
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr():
                return self._joined([self._part(part) for part in node.values])
            case ast.IfExp():
                return self.read(node.body) + self.read(node.orelse)
            case ast.BoolOp():
                return [text for value in node.values for text in self.read(value)]
            case ast.BinOp(op=ast.Add()):
                left, right = self.read(node.left), self.read(node.right)
                return self._joined([left or [placeholder(node.left)], right or [placeholder(node.right)]]) if left or right else []  # fmt: skip
            case ast.Name():
                return self._name(node.id)
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return [text for each in elements for text in self.read(each)]
            case (
                ast.GeneratorExp(elt=element, generators=[ast.comprehension(iter=source)])
                | ast.ListComp(elt=element, generators=[ast.comprehension(iter=source)])
            ):
                return self.read(element) or self.read(source)
            case ast.Starred(value=value):
                return self.read(value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items" | "values")):
                table = self._module.constant(name)
                return (
                    [text for value in table.values() for text in _constant(value)] if isinstance(table, dict) else []
                )
            case ast.Call(func=ast.Name(id="tuple" | "list" | "sorted" | "set"), args=[value]):
                return self.read(value)
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                return [_FORMAT_FIELD.sub(lambda found: f"<{found[1] or 'name'}>", text) for text in self.read(value)]
            case ast.Call():
                return self._returned(called(node))
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return _constant(getattr(self._module.constant(owner), name, None))
        return []

    def _part(self, part: ast.expr) -> list[str]:
        if isinstance(part, ast.FormattedValue):
            found = _without_plurals(self.read(part.value))
            return found if any(found) else [placeholder(part.value)]
        return self.read(part)

    @staticmethod
    def _joined(parts: list[list[str]]) -> list[str]:
        return ["".join(each) for each, _ in zip(product(*parts), range(_MOST))]

    def _name(self, name: str) -> list[str]:
        if name in self._reading:
            return []
        self._reading.add(name)
        found = [text for value in self._assigned(name) for text in self.read(value)]
        self._reading.discard(name)
        return found or _constant(self._module.constant(name))

    def _assigned(self, name: str) -> Iterator[ast.expr]:
        """The values given to a variable: the last one before this place in the same block, or all of the function."""
        nearest = self._nearest(name)
        if nearest is not None:
            yield nearest
            return
        for node in ast.walk(self._function) if self._function is not None else ():
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        yield from _bound(target, value, name)
                case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name and value is not None:
                    yield value
                case ast.AugAssign(target=ast.Name(id=found), value=value) if found == name:
                    yield value
                case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr="append"), args=[value]) if (
                    found == name
                ):
                    yield value
                case ast.NamedExpr(target=ast.Name(id=found), value=value) if found == name:
                    yield value

    def _nearest(self, name: str) -> ast.expr | None:
        statement = self._place
        while not isinstance(statement, ast.stmt):
            if (parent := self._module.parents.get(statement)) is None:
                return None
            statement = parent
        found = None
        for each in self._before(statement):
            if isinstance(each, ast.Assign):
                found = next((value for target in each.targets for value in _bound(target, each.value, name)), found)
            elif name in {
                node.id for node in ast.walk(each) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }:
                found = None  # changed by more than an assignment
            elif f"{name}.append" in ast.unparse(each):
                found = None
        return found

    def _before(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements before this one in its block."""
        parent = self._module.parents.get(statement)
        for name in ("body", "orelse", "finalbody"):
            block: list[ast.stmt] = getattr(parent, name, None) or []
            if isinstance(block, list) and statement in block:
                return block[: block.index(statement)]
        return []

    def _returned(self, function: str) -> list[str]:
        """The texts that a function of this module, or one that it imports from another one of ours, returns."""
        origin = getattr(self._module.constant(function), "__module__", None) or ""
        home = self._module if origin in ("", self._module.loaded.__name__) else imported(origin)
        if home is None or function in _PHRASES:
            return []
        key = f"{function}()"
        if key in self._reading:
            return []
        self._reading.add(key)
        found: list[str] = []
        for node in home.nodes:
            if isinstance(node, Function) and node.name == function:
                for each in ast.walk(node):
                    if isinstance(each, ast.Return) and each.value is not None:
                        reader = _Reader(home, each.value)
                        reader._reading = self._reading
                        found += reader.read(each.value)
        self._reading.discard(key)
        return [text for text in found if text]  # an empty one says that there is nothing to say


def _without_plurals(found: Iterable[str]) -> list[str]:
    """The texts without those that say the same of several things: `which is full` stands for `which are full`."""
    alike: dict[str, list[str]] = {}
    for text in found:
        alike.setdefault(singular(text), []).append(text)
    return [key if len(set(texts)) > 1 else texts[0] for key, texts in alike.items()]


def singular(text: str) -> str:
    return " ".join(_SINGULAR.get(word, word) for word in text.split(" "))


def _bound(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """The value that an assignment gives to the variable."""
    match target, value:
        case ast.Name(id=found), _ if found == name:
            yield value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            for each, given in zip(targets, values):
                yield from _bound(each, given, name)
        case ast.Tuple(), ast.IfExp():
            yield from _bound(target, value.body, name)
            yield from _bound(target, value.orelse, name)


def _constant(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return list(value.reasons) if isinstance(value, Status) else []


def placeholder(node: ast.expr) -> str:
    """How a part of a text that is known at run time only is shown: `<node>`, `<count>`."""
    match node:
        case ast.Name(id=name):
            return f"<{name.strip('_')}>"
        case ast.Attribute(attr="name", value=ast.Attribute(attr="metadata", value=ast.Name(id=name))):
            return f"<{name.strip('_')}>"
        case ast.Attribute(attr=name):
            return f"<{name.strip('_')}>"
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return f"<{name}>"
        case ast.Call(func=ast.Name(id="len"), args=[argument]):
            return "<count>"
        case ast.Call(args=[argument, *_]):
            return placeholder(argument)
        case ast.Call(func=ast.Attribute(value=value)):
            return placeholder(value)
        case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
            return placeholder(element)
        case ast.BoolOp(values=[first, *_]) | ast.IfExp(body=first):
            return placeholder(first)
        case ast.Subscript(value=value):
            return placeholder(value)
    return UNKNOWN
