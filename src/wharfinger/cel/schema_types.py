"""Message types for the schemas of objects, so that the CEL library checks expressions about them by type.

Only types matter: no value is ever converted to these messages. What CEL has no type for, such as quantities and values
that may be numbers or texts, is dynamic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cel_expr_python import cel
from google.protobuf import struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from wharfinger.api.schema.tree import Schema

_FIELD = FieldDescriptorProto
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "boolean": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT64,
    "int64": _FIELD.TYPE_INT64,
    "number": _FIELD.TYPE_DOUBLE,
    "bytes": _FIELD.TYPE_BYTES,
}
_DYNAMIC = ".google.protobuf.Value"
_TIME = ".google.protobuf.Timestamp"


class SchemaTypes:
    """The types of several schemas, each under a name that messages of the library show."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._file = FileDescriptorProto(name="schemas.proto", syntax="proto3")
        self._file.dependency.extend(("google/protobuf/struct.proto", "google/protobuf/timestamp.proto"))
        self._names: dict[int, str] = {}
        for name, schema in schemas.items():
            self._message(schema, name)
        self.pool = DescriptorPool()
        for known in (struct_pb2, timestamp_pb2):
            self.pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        self.pool.AddSerializedFile(self._file.SerializeToString())

    def of(self, name: str) -> cel.Type:
        return cel.Type(name)

    def _message(self, schema: Schema, name: str) -> str:
        known = self._names.get(id(schema))
        if known is not None:
            return known
        self._names[id(schema)] = name
        message = self._file.message_type.add(name=name)
        for number, (field, inner) in enumerate(schema.fields.items(), 1):
            if _IDENTIFIER.fullmatch(field):
                self._field(message, field, number, inner)
        return name

    def _field(self, message: DescriptorProto, name: str, number: int, schema: Schema) -> None:
        made = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        made.json_name = f"{name}{number}"  # the default ones may be equal for different fields
        if schema.type == "list" and not schema.preserves and schema.item_schema.type not in ("list", "map"):
            made.label = _FIELD.LABEL_REPEATED
            self._typed(made, schema.item_schema, f"{message.name}_{name}")
        elif schema.type == "map" and schema.item_schema.type not in ("list", "map"):
            entry = message.nested_type.add(name=f"{_camel(name)}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
            value = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL)
            self._typed(value, schema.item_schema, f"{message.name}_{name}")
            made.label, made.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
            made.type_name = f".{message.name}.{entry.name}"
        else:
            self._typed(made, schema, f"{message.name}_{name}")

    def _typed(self, made: FieldDescriptorProto, schema: Schema, name: str) -> None:
        if schema.type in _SCALARS and not schema.constraints.nullable:
            made.type = _SCALARS[schema.type]
            return
        made.type, made.type_name = _FIELD.TYPE_MESSAGE, _DYNAMIC
        if schema.type == "time":
            made.type_name = _TIME
        elif schema.type == "object" and schema.fields and not (schema.preserves or schema.embedded):
            made.type_name = "." + self._message(schema, name)


def _camel(name: str) -> str:
    """The name that the entry type of a map field must have."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
