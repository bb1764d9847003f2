"""The CEL environment of cluster selectors: `managedCluster`, `scores`, `parseJSON` and Kubernetes' libraries.

Compile errors carry cel-go's own words. Whatever goes wrong while evaluating means that the cluster does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from wharfinger.api.quantity import BadQuantity, canonical
from wharfinger.api.registry import Document
from wharfinger.cel import lists, values
from wharfinger.cel.cost import PER_EXPRESSION, CostModel, Extent, extent

ScoreLookup = Callable[[str], list[dict[str, Any]] | None]
"""The valid scores of the cluster in hand by resource name; None where there is no such object or it has expired."""

_T = cel.Type
_TEXT, _INT, _BOOL, _DOUBLE, _ANY = _T.STRING, _T.INT, _T.BOOL, _T.DOUBLE, _T.DYN
_MAP, _LIST, _TEXTS = _T.Map(_TEXT, _ANY), _T.List(_ANY), _T.List(_TEXT)


class BadExpression(ValueError):
    """The expression does not compile."""


class Subject:
    """One cluster, bound for evaluation: converted once, used by every expression."""

    def __init__(self, document: Document, scores: ScoreLookup) -> None:
        normal = normalised(document)
        self.scores = scores
        self.extent: Extent = extent(normal)
        self.activation = _environment().Activation({"managedCluster": normal})


class Program:
    """One compiled expression."""

    def __init__(self, expression: str) -> None:
        try:
            self._expression = _environment().compile(expression)
        except RuntimeError as error:
            raise BadExpression(_clean(str(error))) from None
        self._model = CostModel(self._expression.serialize())
        self.uses_scores = "scores" in self._model.functions

    def cost(self, subject: Subject) -> float:
        return self._model.cost(subject.extent)

    def matches(self, subject: Subject) -> bool:
        """Whether the expression is true; errors, other values and an exhausted budget are not."""
        if self.cost(subject) > PER_EXPRESSION:
            return False
        _SCORES.lookup = subject.scores
        try:
            result = self._expression.eval(subject.activation)
        except RuntimeError:
            return False
        finally:
            _SCORES.lookup = None
        return result.type() == _BOOL and result.value() is True


@lru_cache(maxsize=4096)
def program(expression: str) -> Program:
    return Program(expression)


class _Scores:
    """Where `scores()` looks: set for the time of one evaluation, since a CEL function gets only its arguments."""

    lookup: ScoreLookup | None = None

    def of(self, cluster: dict[str, Any], resource: str) -> list[dict[str, Any]]:
        found = self.lookup(resource) if self.lookup is not None and "metadata" in cluster else None
        if found is None:
            raise ValueError(f"failed to get score: {resource} not found or expired")
        return found


_SCORES = _Scores()


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"failed to parse JSON: {error}") from None


_Signature = tuple[Any, Sequence[Any], Callable[..., Any]]


def _function(name: str, *signatures: _Signature, member: bool = True) -> cel.FunctionDecl:
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


def _free(name: str, *signatures: _Signature) -> cel.FunctionDecl:
    return _function(name, *signatures, member=False)


def _both(name: str, free: _Signature, member: _Signature) -> cel.FunctionDecl:
    overloads = [
        cel.Overload(f"wharfinger_{name}_free", free[0], list(free[1]), False, free[2]),
        cel.Overload(f"wharfinger_{name}_member", member[0], list(member[1]), True, member[2]),
    ]
    return cel.FunctionDecl(name, overloads)


def _functions() -> list[cel.FunctionDecl]:
    v, text = values, (_TEXT,)
    one, two = (_MAP,), (_MAP, _MAP)
    anything = (_INT, _TEXT, _DOUBLE, _BOOL, _T.Map(_ANY, _ANY), _LIST)
    return [
        _function("scores", (_T.List(_MAP), (_MAP, _TEXT), _SCORES.of)),
        _function("parseJSON", (_ANY, text, _parse_json)),
        # quantities
        _free("quantity", (_MAP, text, v.quantity)),
        _free("isQuantity", (_BOOL, text, v.is_quantity)),
        _function("sign", (_INT, one, v.sign)),
        _function("isInteger", (_BOOL, one, v.is_integer)),
        _function("asInteger", (_INT, one, v.as_integer)),
        _function("asApproximateFloat", (_DOUBLE, one, v.as_approximate_float)),
        _function("add", (_MAP, two, v.add), (_MAP, (_MAP, _INT), v.add_int)),
        _function("sub", (_MAP, two, v.sub), (_MAP, (_MAP, _INT), v.sub_int)),
        # quantities and versions
        _function("compareTo", (_INT, two, v.compare)),
        _function("isGreaterThan", (_BOOL, two, v.is_greater)),
        _function("isLessThan", (_BOOL, two, v.is_less)),
        # versions
        _free("semver", (_MAP, text, v.semver), (_MAP, (_TEXT, _BOOL), v.semver_normalized)),
        _free("isSemver", (_BOOL, text, v.is_semver), (_BOOL, (_TEXT, _BOOL), v.is_semver_normalized)),
        _function("major", (_INT, one, v.major)),
        _function("minor", (_INT, one, v.minor)),
        _function("patch", (_INT, one, v.patch)),
        # addresses and networks
        _both("ip", (_MAP, text, v.ip), (_MAP, one, v.cidr_ip)),
        _free("isIP", (_BOOL, text, v.is_ip)),
        _free("ip.isCanonical", (_BOOL, text, v.ip_is_canonical)),
        _function("family", (_INT, one, v.family)),
        _function("isUnspecified", (_BOOL, one, v.is_unspecified)),
        _function("isLoopback", (_BOOL, one, v.is_loopback)),
        _function("isLinkLocalMulticast", (_BOOL, one, v.is_link_local_multicast)),
        _function("isLinkLocalUnicast", (_BOOL, one, v.is_link_local_unicast)),
        _function("isGlobalUnicast", (_BOOL, one, v.is_global_unicast)),
        _free("cidr", (_MAP, text, v.cidr)),
        _free("isCIDR", (_BOOL, text, v.is_cidr)),
        _function("containsIP", (_BOOL, two, v.contains_ip), (_BOOL, (_MAP, _TEXT), v.contains_ip_text)),
        _function("containsCIDR", (_BOOL, two, v.contains_cidr), (_BOOL, (_MAP, _TEXT), v.contains_cidr_text)),
        _function("masked", (_MAP, one, v.masked)),
        _function("prefixLength", (_INT, one, v.prefix_length)),
        # URLs
        _free("url", (_MAP, text, v.url)),
        _free("isURL", (_BOOL, text, v.is_url)),
        _function("getScheme", (_TEXT, one, v.get_scheme)),
        _function("getHost", (_TEXT, one, v.get_host)),
        _function("getHostname", (_TEXT, one, v.get_hostname)),
        _function("getPort", (_TEXT, one, v.get_port)),
        _function("getEscapedPath", (_TEXT, one, v.get_escaped_path)),
        _function("getQuery", (_T.Map(_TEXT, _TEXTS), one, v.get_query)),
        # lists
        _function("isSorted", (_BOOL, (_LIST,), lists.is_sorted)),
        _function("sum", (_ANY, (_LIST,), lists.total)),
        _function("min", (_ANY, (_LIST,), lists.smallest)),
        _function("max", (_ANY, (_LIST,), lists.largest)),
        _function("indexOf", *((_INT, (_LIST, kind), lists.index_of) for kind in anything)),
        _function("lastIndexOf", *((_INT, (_LIST, kind), lists.last_index_of) for kind in anything)),
        # regular expressions
        _function("find", (_TEXT, (_TEXT, _TEXT), lists.find)),
        _function(
            "findAll",
            (_TEXTS, (_TEXT, _TEXT), lists.find_all),
            (_TEXTS, (_TEXT, _TEXT, _INT), lists.find_all_limited),
        ),
        # formats
        *(_free(f"format.{name}", (_MAP, (), _format(name))) for name in v.FORMATS),
        _function("validate", (_MAP, (_MAP, _TEXT), v.validate)),
        _function("hasValue", (_BOOL, one, v.has_value)),
        _function("value", (_TEXTS, one, v.optional_value)),
    ]


def _format(name: str) -> Callable[[], dict[str, Any]]:
    return lambda: values.named_format(name)


def extensions() -> list[Any]:
    """Kubernetes' libraries, also for other environments than ours."""
    return [
        ext_strings.ExtStrings(),
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
        ext_encoders.ExtEncoders(),
        ext_math.ExtMath(),
        cel.CelExtension("wharfinger", _functions()),
    ]


@cache
def _environment() -> cel.Env:
    return cel.NewEnv(variables={"managedCluster": _MAP}, extensions=extensions())


def _clean(message: str) -> str:
    """The compiler's own words, without the status code that the library puts around them."""
    return "compilation failed: " + message.removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")


_OMITTED_WHEN_EMPTY = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("metadata", "finalizers"),
    ("spec", "taints"),
    ("spec", "managedClusterClientConfigs"),
    ("status", "capacity"),
    ("status", "allocatable"),
    ("status", "clusterClaims"),
    ("status", "managedNamespaces"),
)


def normalised(document: Document) -> Document:
    """The cluster as a typed client would send it: what is always present is, what is empty is absent."""
    parts = {name: dict(document.get(name) or {}) for name in ("metadata", "spec", "status")}
    for part, name in _OMITTED_WHEN_EMPTY:
        if not parts[part].get(name):
            parts[part].pop(name, None)
    parts["metadata"].setdefault("creationTimestamp", None)
    parts["spec"].setdefault("hubAcceptsClient", False)
    parts["status"]["conditions"] = parts["status"].get("conditions")
    parts["status"]["version"] = parts["status"].get("version") or {}
    for name in ("capacity", "allocatable"):
        if name in parts["status"]:
            parts["status"][name] = {key: _canonical(amount) for key, amount in parts["status"][name].items()}
    return {**document, **parts}


def _canonical(amount: Any) -> Any:
    try:
        return canonical(amount)
    except (BadQuantity, TypeError):
        return amount
