"""The metrics that components expose, from the calls that make them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.reference.source import Module, called, modules, texts

_TYPES = {
    "Counter": "counter",
    "CounterSeries": "counter",
    "Gauge": "gauge",
    "GaugeMetricFamily": "gauge",
    "Histogram": "histogram",
    "HistogramSeries": "histogram",
    "of": "gauge",  # ControllerGauges.of
}


@dataclass(frozen=True)
class MetricText:
    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    area: str


def metrics() -> list[MetricText]:
    found = {each.name: each for module in modules() for call in module.calls for each in _made(call, module)}
    return sorted(found.values(), key=lambda metric: (metric.area, metric.name))


def _made(call: ast.Call, module: Module) -> Iterator[MetricText]:
    type = _TYPES.get(called(call))
    arguments = _arguments(call)
    if type is None or len(arguments) < 2 or "name" in (keyword.arg for keyword in call.keywords):
        return
    function = module.function(call)
    parameters = [each.arg for each in function.args.args] if function is not None else []
    if _uses(arguments[0], parameters) and function is not None:
        # A helper that makes metrics of one type: every call of it makes one.
        for outer in module.calls:
            if called(outer) == function.name:
                yield from _through(outer, function, arguments[0], type, module)
        return
    for name, help in _named(arguments, module):
        labels = arguments[2] if len(arguments) > 2 else None
        yield MetricText(name, type, tuple(_labels(labels, module)), help, module.area.rpartition("/")[0])


def _arguments(call: ast.Call) -> list[ast.expr]:
    labels = [each.value for each in call.keywords if each.arg in ("labels", "labelnames")]
    return [*call.args, *labels]


def _uses(node: ast.expr, names: list[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def _through(outer: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, template: ast.expr, type: str, module: Module) -> Iterator[MetricText]:  # fmt: skip
    given = [text for each in outer.args[:2] for text in texts(each, module)]
    if len(given) != 2:
        return
    name, help = given
    pattern = next(iter(texts(template, module)), "<name>")
    labels = [text for each in outer.args[2:] for text in _labels(each, module)]
    yield MetricText(pattern.replace("<name>", name), type, tuple(labels), help, module.area.rpartition("/")[0])


def _named(arguments: list[ast.expr], module: Module) -> Iterator[tuple[str, str]]:
    names, helps = texts(arguments[0], module), texts(arguments[1], module)
    if len(names) == len(helps) == 1 and "_" in names[0]:
        yield names[0], helps[0]
    elif not names and isinstance(arguments[0], ast.Name):
        yield from _looped(arguments[0].id, module)


def _looped(variable: str, module: Module) -> Iterator[tuple[str, str]]:
    """Names and helps of `for name, help, … in ((…), (…)):`."""
    for node in module.nodes:
        match node:
            case ast.For(target=ast.Tuple(elts=[ast.Name(id=found), *_]), iter=ast.Tuple(elts=rows)) if (
                found == variable
            ):
                for row in rows:
                    if isinstance(row, ast.Tuple):
                        name, help = (texts(each, module) for each in row.elts[:2])
                        yield name[0], help[0]


def _labels(node: ast.expr | None, module: Module) -> list[str]:
    if isinstance(node, ast.Tuple | ast.List):
        return [text for each in node.elts for text in texts(each, module)]
    return texts(node, module) if isinstance(node, ast.Constant) else []
