"""Protocol-buffer message classes built from a table, for protocols that we describe ourselves instead of generating code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
}

FieldTable = Mapping[str, tuple[int, str]]
"""Field name to number and type: a scalar (`string`, `int64`, …), a message of the same table, either of them after
`repeated `, or `map<string, string>`."""


def message_classes(package: str, messages: Mapping[str, FieldTable]) -> dict[str, Any]:
    """A message class (proto3) for each entry of the table. Their attributes exist at run time only, hence `Any`."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, type) in fields.items():
            _add_field(message, f".{package}.", field, number, type)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: descriptor_pb2.DescriptorProto, scope: str, name: str, number: int, type: str) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if type == "map<string, string>":
        # A map is a repeated message with the fields key and value; its name is prescribed.
        entry = message.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, scope, "key", 1, "string")
        _add_field(entry, scope, "value", 2, "string")
        scope, type = f"{scope}{message.name}.", f"repeated {entry.name}"
    if type.startswith("repeated "):
        field.label = _Field.LABEL_REPEATED
        type = type.removeprefix("repeated ")
    if type in _SCALARS:
        field.type = _SCALARS[type]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, scope + type
