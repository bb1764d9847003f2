"""The serialized form of checked expressions, the `cel.expr.CheckedExpr` of the CEL library.

Nested expressions are declared as bytes and decoded one level at a time, because protobuf limits how deeply messages may be
nested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wharfinger.api.protobuf import MessageClasses

MESSAGES = MessageClasses(
    "cel.expr",
    {
        "CheckedExpr": "repeated Referenced references = 2; repeated Typed types = 3; bytes expr = 4",
        "Referenced": "int64 id = 1; Reference reference = 2",
        "Reference": "string name = 1",
        "Typed": "int64 id = 1; bytes type = 2",
        "Type": """
            int64 primitive = 3; int64 well_known = 5; bytes list = 6; bytes map = 7; string message = 9;
            string parameter = 10
        """,
        "ListType": "Type element = 1",
        "Expr": """
            int64 id = 2; Constant constant = 3; Identifier identifier = 4; Select select = 5; Call call = 6;
            CreateList list = 7; CreateStruct struct = 8; Comprehension comprehension = 9
        """,
        "Constant": "bool bool_value = 2; bytes string_value = 6; bytes bytes_value = 7",
        "Identifier": "string name = 1",
        "Select": "bytes operand = 1; string field = 2; bool test_only = 3",
        "Call": "bytes target = 1; string function = 2; repeated bytes args = 3",
        "CreateList": "repeated bytes elements = 1",
        "CreateStruct": "string message_name = 1; repeated Entry entries = 2",
        "Entry": "bytes map_key = 3; bytes value = 4",
        "Comprehension": """
            string variable = 1; bytes range = 2; string accumulator = 3; bytes initial = 4; bytes condition = 5;
            bytes step = 6; bytes result = 7; string variable2 = 8
        """,
    },
)


def parts_of(expr: Any) -> Iterator[bytes]:
    """The serialized expressions directly below an `Expr`."""
    loop = expr.comprehension
    for part in (
        expr.select.operand,
        expr.call.target,
        *expr.call.args,
        *expr.list.elements,
        *(part for entry in expr.struct.entries for part in (entry.map_key, entry.value)),
        *(loop.range, loop.initial, loop.condition, loop.step, loop.result),
    ):
        if part:
            yield part
