"""Decoding of patches and checks of their results, with the error messages of kube-apiserver. The store applies patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from wharfinger.api.errors import ApiError, BadRequest, Invalid, invalid_object
from wharfinger.api.fields import invalid
from wharfinger.api.go_text import json_type, plain
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.schema.decoding import WrongType, repeated_fields
from wharfinger.apiserver.exchange import decode_json, decode_yaml
from wharfinger.apiserver.go_json import syntax_error
from wharfinger.apiserver.structure import Structure

Finish = Callable[[Document], None]
"""Checks the result of a patch; may raise or change it."""

_MAP = "map[string]interface {}"


def decode_patch(data: bytes, type: PatchType) -> Any:
    """The patch: a list of operations, or an object."""
    if type is PatchType.APPLY:
        value = decode_yaml(data, "error decoding YAML: error converting YAML to JSON: ")
        prefix = "error decoding YAML: error unmarshaling JSON: while decoding JSON: "
    else:
        prefix = "" if type is PatchType.STRATEGIC else "error decoding patch: "
        try:
            value = decode_json(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"{prefix}{syntax_error(data) or error}") from None
    if value is None and type is not PatchType.MERGE:
        return [] if type is PatchType.JSON else {}
    if value is None:
        raise BadRequest("Invalid JSON Patch")
    if type is PatchType.JSON:
        _check_operations(value, prefix)
    elif not isinstance(value, dict):
        raise BadRequest(f"{prefix}json: cannot unmarshal {json_type(value)} into Go value of type {_MAP}")
    return value


def repeated_keys(data: bytes, document: Any) -> str:
    """The message of Go's strict YAML decoder about keys that a mapping has more than once; empty if there are none."""
    if data.lstrip()[:1] == b"{" and not repeated_fields(data, document):
        return ""
    found: list[str] = []
    open_mappings: list[set[str] | None] = []  # the keys of each open mapping; None for a sequence
    keys_next: list[bool] = []  # whether a key follows
    for event in yaml.parse(data, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            open_mappings.pop()
            keys_next.pop()
            continue
        is_node = isinstance(event, yaml.NodeEvent)
        if is_node and open_mappings and (keys := open_mappings[-1]) is not None:
            if keys_next[-1] and isinstance(event, yaml.ScalarEvent):
                if event.value in keys:
                    found.append(f'  line {_line(event)}: key "{event.value}" already set in map')
                keys.add(event.value)
            keys_next[-1] = not keys_next[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            open_mappings.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            keys_next.append(True)
    if not found:
        return ""
    return "error converting YAML to JSON: yaml: unmarshal errors:\n" + "\n".join(found)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _check_operations(patch: Any, prefix: str) -> None:
    if not isinstance(patch, list):
        raise BadRequest(
            f"{prefix}json: cannot unmarshal {json_type(patch)} into Go value of type []handlers.jsonPatchOp"
        )
    for operation in patch:
        if operation is not None and not isinstance(operation, dict):
            raise BadRequest(
                f"{prefix}json: cannot unmarshal {json_type(operation)} into Go value of type handlers.jsonPatchOp"
            )
        for name in ("op", "path", "from"):
            value = (operation or {}).get(name)
            if value is not None and not isinstance(value, str):
                where = f"Go struct field jsonPatchOp.{name} of type string"
                raise BadRequest(f"{prefix}json: cannot unmarshal {json_type(value)} into {where}")


def checked_result(structure: Structure, validation: str, warnings: list[str]) -> Finish:
    """For JSON patches, which can produce anything: the result must have the structure of the kind."""

    def finish(document: Document) -> None:
        before = msgspec.json.encode(document)
        try:
            unknown = structure.walk(document)
        except WrongType as error:
            raise invalid_patch(_sorted(before), str(error)) from None
        if unknown and validation == "Strict":
            raise invalid_patch(_sorted(before), f"strict decoding error: {', '.join(unknown)}")
        if validation == "Warn":
            warnings.extend(unknown)

    return finish


def rejecting(why: str) -> Finish:
    def finish(document: Document) -> None:
        raise invalid_patch(_sorted(msgspec.json.encode(document)), why)

    return finish


def invalid_patch(shown: str, why: str) -> Invalid:
    """The error for an invalid result of a patch or, for strategic merge patches, for the patch itself."""
    return invalid_object("", "", "", [invalid("patch", shown, why)])


def invalid_merge(patch: Document, why: str) -> ApiError:
    return invalid_patch(plain(patch), why)


def _sorted(data: bytes) -> str:
    document = msgspec.json.decode(data)
    return msgspec.json.encode({name: document[name] for name in sorted(document)}).decode()


def restore_error(error: WrongType) -> str:
    """The message for a wrong type in a strategic merge patch, whose values are assigned rather than decoded."""
    if error.go_type is None:
        return str(error)
    kinds = {bool: "bool", str: "string", int: "int64", float: "float64", list: "slice", dict: "map"}
    found, wanted = kinds[type(error.value)], error.go_type
    if wanted.startswith("[]"):
        return f"cannot restore slice from {found}"
    if wanted.startswith("map["):
        return f"cannot restore map from {found}"
    if wanted not in ("string", "bool", "int32", "int64", "float64"):
        return str(error) if wanted == "intstr.IntOrString" else f"cannot restore struct from: {found}"
    numbers = ("int32", "int64", "float64")
    if (found == "int64" and wanted == "string") or (found in numbers and wanted in numbers):
        return f"cannot convert {found} to {wanted}"
    return f"unrecognized type: {wanted}"
