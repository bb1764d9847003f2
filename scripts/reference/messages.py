"""The texts that users meet: why a pod is not scheduled, and the reasons and messages of conditions and events.

They are read from the source. A reason for which a pod is not scheduled is what is passed to `unschedulable`,
`unresolvable` or `refuse`; a reason with a message is what is passed to any function or class of ours that takes a
`reason` and a `message`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from scripts.reference.source import UNKNOWN, Module, called, modules, pairs, texts

_VERDICTS = ("unschedulable", "unresolvable", "refuse", "Status")
_NO_REASONS = ("Normal", "Warning", "FieldValue")  # types of events, and causes in answers of an API server
_SCHEDULING = ("plugins/", "engine/", "systems/", "framework/")
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
        if not module.area.startswith(_SCHEDULING):
            continue
        for call in module.calls:
            if called(call) not in _VERDICTS:
                continue
            for argument in call.args[1:] if called(call) == "Status" else call.args:
                found[_plugin(module.area)] |= dict.fromkeys(texts(argument, module))
    return {area: said for area, reasons in sorted(found.items()) if (said := sorted(filter(_says_something, reasons)))}


def reported() -> list[Told]:
    """Reasons with their messages."""
    signatures = _signatures()
    found: dict[Told, None] = {}
    for module in modules():
        if module.area.startswith(_REPORTING):
            for call in module.calls:
                for signature in signatures.get(called(call), ()):
                    if signature.module in ("", module.area):
                        found |= dict.fromkeys(_told(call, signature, module))
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
    if reason is None or message is None:
        return
    for text, more in pairs(reason, message, module):
        if text.isalnum() and text[0].isupper() and not text.startswith(_NO_REASONS):
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
