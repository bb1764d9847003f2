"""The types that Kubernetes adds to CEL, as types of their own: for environments that only check expressions.

Values of these types are maps when an expression is evaluated (see `values`), where a checker cannot tell them from one
another and from other maps. Here `quantity("1") == 1` and `quantity("1").major()` do not compile, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

from cel_expr_python import cel

from wharfinger.cel.library import BOOL, DOUBLE, DYN, INT, LIST, TEXT, TEXTS, free_function, function
from wharfinger.cel.values import FORMATS

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool

_MESSAGES = (
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "net.IP",
    "net.CIDR",
    "kubernetes.URL",
    "kubernetes.NamedFormat",
)


def declare_types(pool: DescriptorPool) -> None:
    """Adds the types, as messages without fields: the library has no other types that a checker keeps apart."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    for name in _MESSAGES:
        package, _, message = name.rpartition(".")
        file = FileDescriptorProto(name=f"{name}.proto", package=package, syntax="proto3")
        file.message_type.add(name=message)
        pool.AddSerializedFile(file.SerializeToString())


QUANTITY, SEMVER, _IP, _CIDR, _URL, _FORMAT = map(cel.Type, _MESSAGES)
_FAULTS = cel.Type.AbstractType("optional_type", [TEXTS])

_ELEMENTS = (INT, TEXT, DOUBLE, BOOL, cel.Type.Map(DYN, DYN), LIST, QUANTITY, SEMVER)


_NUMBERS = (("int64", INT), ("uint64", cel.Type.UINT), ("double", DOUBLE))
_ORDERINGS = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}


def _never(*_: Any) -> None:
    raise AssertionError("expressions of a checking environment are not evaluated here")


def _free(name: str, *signatures: tuple[Any, Sequence[Any]]) -> cel.FunctionDecl:
    return free_function(name, *((result, parameters, _never) for result, parameters in signatures))


def _member(name: str, *signatures: tuple[Any, Sequence[Any]]) -> cel.FunctionDecl:
    return function(name, *((result, parameters, _never) for result, parameters in signatures))


def checking_functions() -> list[cel.FunctionDecl]:
    """The functions of `library.kubernetes_functions`, with these types."""
    text, quantities, versions = (TEXT,), (QUANTITY, QUANTITY), (SEMVER, SEMVER)
    addresses = [
        cel.Overload("wharfinger_ip_free", _IP, [TEXT], False, _never),
        cel.Overload("wharfinger_ip_member", _IP, [_CIDR], True, _never),
    ]
    return [
        _free("quantity", (QUANTITY, text)),
        _free("isQuantity", (BOOL, text)),
        _member("sign", (INT, (QUANTITY,))),
        _member("isInteger", (BOOL, (QUANTITY,))),
        _member("asInteger", (INT, (QUANTITY,))),
        _member("asApproximateFloat", (DOUBLE, (QUANTITY,))),
        _member("add", (QUANTITY, quantities), (QUANTITY, (QUANTITY, INT))),
        _member("sub", (QUANTITY, quantities), (QUANTITY, (QUANTITY, INT))),
        _member("compareTo", (INT, quantities), (INT, versions)),
        _member("isGreaterThan", (BOOL, quantities), (BOOL, versions)),
        _member("isLessThan", (BOOL, quantities), (BOOL, versions)),
        _free("semver", (SEMVER, text), (SEMVER, (TEXT, BOOL))),
        _free("isSemver", (BOOL, text), (BOOL, (TEXT, BOOL))),
        *(_member(name, (INT, (SEMVER,))) for name in ("major", "minor", "patch")),
        cel.FunctionDecl("ip", addresses),
        _free("isIP", (BOOL, text)),
        _free("ip.isCanonical", (BOOL, text)),
        _member("family", (INT, (_IP,))),
        *(
            _member(name, (BOOL, (_IP,)))
            for name in (
                "isUnspecified",
                "isLoopback",
                "isLinkLocalMulticast",
                "isLinkLocalUnicast",
                "isGlobalUnicast",
            )
        ),
        _free("cidr", (_CIDR, text)),
        _free("isCIDR", (BOOL, text)),
        _member("containsIP", (BOOL, (_CIDR, _IP)), (BOOL, (_CIDR, TEXT))),
        _member("containsCIDR", (BOOL, (_CIDR, _CIDR)), (BOOL, (_CIDR, TEXT))),
        _member("masked", (_CIDR, (_CIDR,))),
        _member("prefixLength", (INT, (_CIDR,))),
        _free("url", (_URL, text)),
        _free("isURL", (BOOL, text)),
        *(
            _member(name, (TEXT, (_URL,)))
            for name in ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath")
        ),
        _member("getQuery", (cel.Type.Map(TEXT, TEXTS), (_URL,))),
        _member("isSorted", (BOOL, (LIST,))),
        *(_member(name, (DYN, (LIST,))) for name in ("sum", "min", "max")),
        *(_member(name, *((INT, (LIST, kind)) for kind in _ELEMENTS)) for name in ("indexOf", "lastIndexOf")),
        *(_free(f"sets.{name}", (BOOL, (LIST, LIST))) for name in ("contains", "equivalent", "intersects")),
        _member("find", (TEXT, (TEXT, TEXT))),
        _member("findAll", (TEXTS, (TEXT, TEXT)), (TEXTS, (TEXT, TEXT, INT))),
        _free("jsonpatch.escapeKey", (TEXT, text)),
        *(_free(f"format.{name}", (_FORMAT, ())) for name in FORMATS),
        _member("validate", (_FAULTS, (_FORMAT, TEXT))),
    ]


def comparisons_of_numbers() -> list[cel.FunctionDecl]:
    """Numbers of different types are compared by value, as in Kubernetes."""
    return [
        cel.FunctionDecl(
            operator,
            [
                cel.Overload(f"{name}_{left}_{right}", BOOL, [one, other], False, _never)
                for (left, one), (right, other) in permutations(_NUMBERS, 2)
            ],
        )
        for operator, name in _ORDERINGS.items()
    ]
