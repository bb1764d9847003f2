"""Protocol-buffer message classes built from a table, for protocols that we describe ourselves instead of generating code."""

from __future__ import annotations

import re
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

_FIELD = re.compile(r"(repeated )?(map<string, string>|\w+) (\w+) = (\d+)")


def message_classes(package: str, messages: Mapping[str, str]) -> dict[str, Any]:
    """A message class for each entry: its name, and its fields in the syntax of proto3, separated by semicolons.

    Types are `bool`, `bytes`, `int64`, `string`, `map<string, string>` and messages of the same table. Attributes of the
    classes exist at run time only, hence `Any`.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in filter(None, map(str.strip, fields.split(";"))):
            match = _FIELD.fullmatch(field)
            assert match is not None, field
            _add_field(message, f".{package}.", match[3], int(match[4]), match[2], repeated=bool(match[1]))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(
    message: descriptor_pb2.DescriptorProto, scope: str, name: str, number: int, type: str, *, repeated: bool = False
) -> None:
    field = message.field.add(name=name, number=number)
    if type.startswith("map<"):
        # A map is a repeated message with the fields key and value, whose name is prescribed.
        entry = message.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, scope, "key", 1, "string")
        _add_field(entry, scope, "value", 2, "string")
        scope, type, repeated = f"{scope}{message.name}.", entry.name, True
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if type in _SCALARS:
        field.type = _SCALARS[type]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, scope + type
