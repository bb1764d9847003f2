"""Protocol-buffer message classes built from a table, for protocols that we describe ourselves instead of generating code.

The protobuf library is loaded with the first class that is used: most commands need none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

_FIELD = re.compile(r"(repeated )?(map<string, string>|\w+) (\w+) = (\d+)")


class MessageClasses(dict[str, Any]):
    """A message class for each entry: its name, and its fields in the syntax of proto3, separated by semicolons.

    Types are `bool`, `bytes`, `int64`, `string`, `map<string, string>` and messages of the same table. Attributes of the
    classes exist at run time only, hence `Any`.
    """

    def __init__(self, package: str, messages: Mapping[str, str]) -> None:
        super().__init__()
        self._package = package
        self._messages = messages

    def __missing__(self, name: str) -> Any:
        if name not in self._messages:
            raise KeyError(name)
        self.update(_message_classes(self._package, self._messages))
        return self[name]


def unpacked(message: bytes) -> bytes:
    """The message in a `google.protobuf.Any`."""
    from google.protobuf.any_pb2 import Any as AnyMessage

    return AnyMessage.FromString(message).value


def _message_classes(package: str, messages: Mapping[str, str]) -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
    message: DescriptorProto, scope: str, name: str, number: int, type: str, *, repeated: bool = False
) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    field = message.field.add(name=name, number=number)
    if type.startswith("map<"):
        # A map is a repeated message with the fields key and value, whose name is prescribed.
        entry = message.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, scope, "key", 1, "string")
        _add_field(entry, scope, "value", 2, "string")
        scope, type, repeated = f"{scope}{message.name}.", entry.name, True
    field.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    scalars = {
        "bool": Field.TYPE_BOOL,
        "bytes": Field.TYPE_BYTES,
        "int64": Field.TYPE_INT64,
        "string": Field.TYPE_STRING,
    }
    if type in scalars:
        field.type = scalars[type]
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, scope + type
