"""The texts that users meet: why a pod is not scheduled, and the reasons and messages of conditions and events.

They are read from the source. A reason for which a pod is not scheduled is what is passed to `unschedulable`,
`unresolvable` or `refuse`. A reason with a message is what is passed to any function or class of ours that takes a
`reason` and a `message`, what a dictionary has under these keys, and any two neighbours in a tuple or a call of which the
first looks like a reason and the second like a sentence.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from scripts.reference.source import UNKNOWN, Module, called, modules, pairs, texts

from wharfinger.api.kinds import registry as all_kinds

_VERDICTS = ("unschedulable", "unresolvable", "refuse")
_ERROR_OF_A_PLUGIN = "running "  # begins the text
_EVENT_TYPES = ("Normal", "Warning")
_CONDITION_STATES = (True, False, "True", "False")
_NO_REASONS = frozenset((*_EVENT_TYPES, *(kind.kind for kind in all_kinds())))
_CAUSES = "FieldValue"  # begins what is wrong with a field in answers of an API server
_SCHEDULING = ("plugins/", "engine/", "systems/", "framework/", "scheduler/")
_REPORTING = ("controllers/", "systems/", "scheduler/", "node/", "devices/")


@dataclass(frozen=True)
class Told:
    """A reason with a message. `kind` is `event`, `condition`, or empty where the code does not say it at that place."""

    area: str
    kind: str
    reason: str
    message: str


def scheduling_reasons() -> dict[str, list[str]]:
    """The reasons for which a pod is not scheduled, by the plugin or part that gives them."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for module in modules():
        if module.area.startswith(_SCHEDULING):
            for node in module.nodes:
                for said in _reasons(node):
                    found[_plugin(module.area)] |= dict.fromkeys(texts(said, module))
    return {area: said for area, reasons in sorted(found.items()) if (said := sorted(filter(_says_something, reasons)))}


def _reasons(node: ast.AST) -> list[ast.expr]:
    """What a part of the code gives as the reason for which a pod is not scheduled, or as what failed meanwhile."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="reasons"), attr="append"), args=arguments):
            return arguments
        case ast.Call(args=[_, *arguments], keywords=keywords) if called(node) in (
            "Status",
            "Decision",
            "_bind_failed",
        ):
            return [*arguments, *(each.value for each in keywords if each.arg == "error")]
        case ast.Call(args=[], keywords=keywords) if called(node) == "Decision":
            return [each.value for each in keywords if each.arg == "error"]
        case ast.Call(args=arguments) if called(node) in _VERDICTS:
            return arguments
        case ast.JoinedStr(values=[ast.Constant(value=str(begin)), *_]) if begin.startswith(_ERROR_OF_A_PLUGIN):
            return [node]
    return []


def reported() -> list[Told]:
    """Reasons with their messages."""
    signatures = _signatures()
    found: dict[Told, None] = {}
    for module in modules():
        if module.area.startswith(_REPORTING) and "/kinds/" not in module.area:
            for call in module.calls:
                for signature in signatures.get(called(call), ()):
                    if signature.module in ("", module.area):
                        found |= dict.fromkeys(_told(call, signature, module))
            for node in module.nodes:
                found |= dict.fromkeys(_written(node, module))
    # A message that is not known here is left out where the same reason has a known one, and so is the unknown kind.
    known = {(told.area, told.reason) for told in found if told.message}
    found = {told: None for told in found if told.message or (told.area, told.reason) not in known}
    kinds = {(told.area, told.reason, told.message) for told in found if told.kind}
    found = {told: None for told in found if told.kind or (told.area, told.reason, told.message) not in kinds}
    return sorted(found, key=lambda told: (told.area, told.reason, told.message))


@dataclass(frozen=True)
class _Signature:
    module: str  # the only one that can call it; empty if any can
    reason: int  # positions, without `self`
    message: int


@cache
def _signatures() -> dict[str, set[_Signature]]:
    """The functions and classes of the package that take a reason and a message, by name."""
    found: dict[str, set[_Signature]] = defaultdict(set)
    for module in modules():
        for node in module.nodes:
            names: list[str] = []
            match node:
                case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
                    names = [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]
                    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
                case ast.ClassDef(body=body):
                    names = [each.target.id for each in body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]  # fmt: skip
            if "reason" in names and "message" in names and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):  # fmt: skip
                own = module.area if node.name.startswith("_") else ""
                found[node.name].add(_Signature(own, names.index("reason"), names.index("message")))
    return dict(found)


def _told(call: ast.Call, signature: _Signature, module: Module) -> Iterator[Told]:
    keywords = {each.arg: each.value for each in call.keywords}

    def given(name: str, position: int) -> ast.expr | None:
        return call.args[position] if position < len(call.args) else keywords.get(name)

    name = called(call)
    kind = "event" if "event" in name else "condition" if "condition" in name.lower() else ""
    reason, message = given("reason", signature.reason), given("message", signature.message)
    if reason is not None and message is not None:
        yield from _pairs(reason, message, module, kind)


def _written(node: ast.AST, module: Module) -> Iterator[Told]:
    """Reasons and messages in a dictionary, or side by side in a tuple or a call."""
    match node:
        case ast.Dict(keys=keys, values=values):
            entries = {key.value: value for key, value in zip(keys, values) if isinstance(key, ast.Constant)}
            if "reason" in entries and "message" in entries:
                yield from _pairs(
                    entries["reason"], entries["message"], module, "condition" if "type" in entries else ""
                )
        case ast.Tuple(elts=side_by_side, ctx=ast.Load()) | ast.Call(args=side_by_side):
            for before, reason, message in zip([None, *side_by_side], side_by_side, side_by_side[1:]):
                yield from _neighbours(before, reason, message, module)
        case ast.ClassDef(body=body):  # one with a property for each
            said = {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
            if "reason" in said and "message" in said:
                for each in ast.walk(said["reason"]):
                    if isinstance(each, ast.Return) and each.value is not None:
                        yield from _pairs(each.value, ast.Constant(""), module, "")


def _neighbours(before: ast.expr | None, reason: ast.expr, message: ast.expr, module: Module) -> Iterator[Told]:
    if isinstance(reason, ast.Tuple | ast.List) or isinstance(message, ast.Tuple | ast.List):
        return
    about = before.value if isinstance(before, ast.Constant) else None
    kind = "event" if about in _EVENT_TYPES else "condition" if about in _CONDITION_STATES else ""
    passed_on = isinstance(message, ast.Attribute) and message.attr == "message"
    for told in _pairs(reason, message, module, kind):
        if kind or passed_on or " " in told.message:
            yield told


def _pairs(reason: ast.expr, message: ast.expr, module: Module, kind: str) -> Iterator[Told]:
    for text, more in pairs(reason, message, module):
        if text.isalnum() and (kind or text[0].isupper()) and text not in _NO_REASONS and not text.startswith(_CAUSES):
            yield Told(_plugin(module.area), kind, text, more)


def _says_something(text: str) -> bool:
    return any(
        part.strip(f" {UNKNOWN}") and not part.startswith("<") for part in text.replace(">", "<").split("<")[::2]
    )


def _plugin(area: str) -> str:
    """The name under which an area is shown: the system, or the part of the core with its first folder."""
    parts = area.split("/")
    if parts[0] == "systems":
        return f"systems/{parts[1]}"
    return "/".join(parts[:2])
