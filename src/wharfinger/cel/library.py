"""The functions that Kubernetes adds to CEL, and the helpers with which other packages declare functions of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cel_expr_python import cel

from wharfinger.api import regex
from wharfinger.cel import lists, values

TEXT, INT, BOOL, DOUBLE, DYN = cel.Type.STRING, cel.Type.INT, cel.Type.BOOL, cel.Type.DOUBLE, cel.Type.DYN
MAP, LIST, TEXTS = cel.Type.Map(TEXT, DYN), cel.Type.List(DYN), cel.Type.List(TEXT)

Signature = tuple[Any, Sequence[Any], Callable[..., Any]]
"""Result type, parameter types and implementation of one overload."""


def function(name: str, *signatures: Signature, member: bool = True) -> cel.FunctionDecl:
    """A function with an overload for each signature. A member function is called on its first parameter."""
    overloads = [
        cel.Overload(
            f"wharfinger_{name.replace('.', '_')}_{index}",
            return_type=result,
            parameters=list(parameters),
            is_member=member,
            impl=implementation,
        )
        for index, (result, parameters, implementation) in enumerate(signatures)
    ]
    return cel.FunctionDecl(name, overloads)


def free_function(name: str, *signatures: Signature) -> cel.FunctionDecl:
    return function(name, *signatures, member=False)


def _both(name: str, free: Signature, member: Signature) -> cel.FunctionDecl:
    overloads = [
        cel.Overload(f"wharfinger_{name}_free", free[0], list(free[1]), False, free[2]),
        cel.Overload(f"wharfinger_{name}_member", member[0], list(member[1]), True, member[2]),
    ]
    return cel.FunctionDecl(name, overloads)


def kubernetes_functions() -> list[cel.FunctionDecl]:
    v, text = values, (TEXT,)
    one, two = (MAP,), (MAP, MAP)
    anything = (INT, TEXT, DOUBLE, BOOL, cel.Type.Map(DYN, DYN), LIST)
    return [
        # quantities
        free_function("quantity", (MAP, text, v.quantity)),
        free_function("isQuantity", (BOOL, text, v.is_quantity)),
        function("sign", (INT, one, v.sign)),
        function("isInteger", (BOOL, one, v.is_integer)),
        function("asInteger", (INT, one, v.as_integer)),
        function("asApproximateFloat", (DOUBLE, one, v.as_approximate_float)),
        function("add", (MAP, two, v.add), (MAP, (MAP, INT), v.add_int)),
        function("sub", (MAP, two, v.sub), (MAP, (MAP, INT), v.sub_int)),
        # quantities and versions
        function("compareTo", (INT, two, v.compare)),
        function("isGreaterThan", (BOOL, two, v.is_greater)),
        function("isLessThan", (BOOL, two, v.is_less)),
        # versions
        free_function("semver", (MAP, text, v.semver), (MAP, (TEXT, BOOL), v.semver_normalized)),
        free_function("isSemver", (BOOL, text, v.is_semver), (BOOL, (TEXT, BOOL), v.is_semver_normalized)),
        function("major", (INT, one, v.major)),
        function("minor", (INT, one, v.minor)),
        function("patch", (INT, one, v.patch)),
        # addresses and networks
        _both("ip", (MAP, text, v.ip), (MAP, one, v.cidr_ip)),
        free_function("isIP", (BOOL, text, v.is_ip)),
        free_function("ip.isCanonical", (BOOL, text, v.ip_is_canonical)),
        function("family", (INT, one, v.family)),
        function("isUnspecified", (BOOL, one, v.is_unspecified)),
        function("isLoopback", (BOOL, one, v.is_loopback)),
        function("isLinkLocalMulticast", (BOOL, one, v.is_link_local_multicast)),
        function("isLinkLocalUnicast", (BOOL, one, v.is_link_local_unicast)),
        function("isGlobalUnicast", (BOOL, one, v.is_global_unicast)),
        free_function("cidr", (MAP, text, v.cidr)),
        free_function("isCIDR", (BOOL, text, v.is_cidr)),
        function("containsIP", (BOOL, two, v.contains_ip), (BOOL, (MAP, TEXT), v.contains_ip_text)),
        function("containsCIDR", (BOOL, two, v.contains_cidr), (BOOL, (MAP, TEXT), v.contains_cidr_text)),
        function("masked", (MAP, one, v.masked)),
        function("prefixLength", (INT, one, v.prefix_length)),
        # URLs
        free_function("url", (MAP, text, v.url)),
        free_function("isURL", (BOOL, text, v.is_url)),
        function("getScheme", (TEXT, one, v.get_scheme)),
        function("getHost", (TEXT, one, v.get_host)),
        function("getHostname", (TEXT, one, v.get_hostname)),
        function("getPort", (TEXT, one, v.get_port)),
        function("getEscapedPath", (TEXT, one, v.get_escaped_path)),
        function("getQuery", (cel.Type.Map(TEXT, TEXTS), one, v.get_query)),
        # lists
        function("isSorted", (BOOL, (LIST,), lists.is_sorted)),
        function("sum", (DYN, (LIST,), lists.total)),
        function("min", (DYN, (LIST,), lists.smallest)),
        function("max", (DYN, (LIST,), lists.largest)),
        function("indexOf", *((INT, (LIST, kind), lists.index_of) for kind in anything)),
        function("lastIndexOf", *((INT, (LIST, kind), lists.last_index_of) for kind in anything)),
        # sets
        free_function("sets.contains", (BOOL, (LIST, LIST), lists.contains_all)),
        free_function("sets.equivalent", (BOOL, (LIST, LIST), lists.equivalent)),
        free_function("sets.intersects", (BOOL, (LIST, LIST), lists.intersects)),
        # regular expressions
        function("find", (TEXT, (TEXT, TEXT), regex.find)),
        function(
            "findAll",
            (TEXTS, (TEXT, TEXT), regex.find_all),
            (TEXTS, (TEXT, TEXT, INT), regex.find_all_limited),
        ),
        # JSON patches
        free_function("jsonpatch.escapeKey", (TEXT, text, v.escape_key)),
        # formats
        *(free_function(f"format.{name}", (MAP, (), _format(name))) for name in v.FORMATS),
        function("validate", (MAP, (MAP, TEXT), v.validate)),
        function("hasValue", (BOOL, one, v.has_value)),
        function("value", (TEXTS, one, v.optional_value)),
    ]


def _format(name: str) -> Callable[[], dict[str, Any]]:
    return lambda: values.named_format(name)
