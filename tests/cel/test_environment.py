"""CEL environments: the function library of Kubernetes, compile and evaluation errors, cost, and contexts."""

from __future__ import annotations

import pytest

from wharfinger.cel import (
    CostExceeded,
    Environment,
    EvaluationError,
    InvalidExpression,
    MissingVariable,
    current_context,
)
from wharfinger.cel.library import DYN, TEXT, function

ENVIRONMENT = Environment(
    {"object": DYN, "other": DYN}, [function("lookup", (TEXT, (TEXT,), lambda key: current_context()[key]))]
)
NOTHING = ENVIRONMENT.bind({})


@pytest.mark.parametrize(
    "expression",
    [
        'quantity("1Gi").add(quantity("1Gi")).compareTo(quantity("2Gi")) == 0 && quantity("5").sub(3).asInteger() == 2',
        'isQuantity("1Gi") && !isQuantity("1Gx") && quantity("-1").sign() == -1 && !quantity("50m").isInteger()',
        'quantity("50k").asApproximateFloat() == 50000.0',
        'semver("v1.31", true).isLessThan(semver("1.31.1")) && semver("1.2.3-rc.1").isLessThan(semver("1.2.3"))',
        'isSemver("1.2.3") && !isSemver("v1.2.3") && isSemver("v1.2", true) && semver("1.2.3").minor() == 2',
        'semver("1.2.3-alpha.2").compareTo(semver("1.2.3-alpha.10")) == -1',
        'ip("10.0.0.1").family() == 4 && ip("::1").isLoopback() && isIP("1.2.3.4") && !isIP("1.2.3.04")',
        'ip.isCanonical("::1") && !ip.isCanonical("0::1") && ip("10.0.0.1").isGlobalUnicast()',
        'cidr("10.0.0.0/8").containsIP(ip("10.2.3.4")) && cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16")',
        'cidr("10.1.2.3/8").masked() == cidr("10.0.0.0/8") && cidr("10.0.0.0/8").prefixLength() == 8',
        'cidr("10.0.0.5/8").ip() == ip("10.0.0.5") && isCIDR("::/0") && !isCIDR("10.0.0.0")',
        'url("https://a.b:8443/p?x=1&x=2").getHost() == "a.b:8443" && url("https://a.b/p").getPort() == ""',
        'url("https://[::1]:80/p").getHostname() == "::1" && url("/p?x=1").getQuery()["x"] == ["1"] && !isURL("x")',
        "[1, 2, 3].isSorted() && [3, 1].min() == 1 && [3, 1].max() == 3 && [1, 2].sum() == 3",
        '["a", "b", "a"].lastIndexOf("a") == 2 && ["a"].indexOf("z") == -1 && "abc".indexOf("c") == 2',
        '"abc 123".find("[0-9]+") == "123" && "1a2b".findAll("[0-9]") == ["1", "2"] && "1a2".findAll("[0-9]", 1) == ["1"]',
        '"aaaa".find("(a+)+$") == "aaaa" && "aé".find("é") == "é" && "aa".findAll("b") == [] && "a\\nb".find("a.b") == ""',
        '!format.dns1123Label().validate("good").hasValue() && format.dns1123Label().validate("BAD").hasValue()',
        'format.dns1123Label().validate("BAD").value().size() == 1 && !format.uuid().validate("x").value().isSorted() == false',
        '"%s-%d".format(["a", 1]) == "a-1" && "A".lowerAscii() == "a" && "a,b".split(",").size() == 2',
    ],
)
def test_the_library_of_kubernetes(expression: str) -> None:
    assert ENVIRONMENT.compile(expression).evaluate(NOTHING) is True


@pytest.mark.parametrize(
    "expression",
    [
        'quantity("nonsense") == quantity("1")',
        'semver("1").major() == 1',
        '"aaaa".find("(?=a)") == ""',
        '"aaaa".find("(a)\\\\1") == ""',
        '"aaaa".find("a{1001}") == ""',
        'ip("10.0.0.1").isGreaterThan(ip("10.0.0.0"))',
        '[1, "a"].max() == 1',
    ],
)
def test_invalid_arguments_are_evaluation_errors(expression: str) -> None:
    with pytest.raises(EvaluationError):
        ENVIRONMENT.compile(expression).evaluate(NOTHING)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("nosuch == 1", "undeclared reference to 'nosuch' (in container '')"),
        ("1 +", "Syntax error"),
        ("1 + 'a'", "found no matching overload for '_+_'"),
        ("quantity(1)", "found no matching overload for 'quantity'"),
    ],
)
def test_compile_errors_are_those_of_cel(expression: str, words: str) -> None:
    with pytest.raises(InvalidExpression, match="compilation failed: ERROR: <input>:1:") as error:
        ENVIRONMENT.compile(expression)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("expression", "type"), [("true", "bool"), ("'a'", "string"), ("null", "null_type"), ("object", "dyn")]
)
def test_expressions_have_a_type(expression: str, type: str) -> None:
    assert ENVIRONMENT.compile(expression).type == type


def test_a_variable_without_a_value_is_an_error_where_it_is_read() -> None:
    bindings = ENVIRONMENT.bind({"object": 1})
    assert ENVIRONMENT.compile("object == 1 || other == 1").evaluate(bindings) is True
    with pytest.raises(MissingVariable) as error:
        ENVIRONMENT.compile("other == 1").evaluate(bindings)
    assert error.value.name == "other"


def test_missing_keys_are_reported_like_cel_go() -> None:
    with pytest.raises(EvaluationError, match=r"^no such key: b$"):
        ENVIRONMENT.compile("object.b == 1").evaluate(ENVIRONMENT.bind({"object": {"a": 1}}))


def test_expensive_expressions_are_not_evaluated() -> None:
    loops = ENVIRONMENT.compile("object.all(a, object.all(b, object.all(c, a + b + c >= 0)))")
    assert loops.evaluate(ENVIRONMENT.bind({"object": [1, 2, 3]})) is True
    with pytest.raises(CostExceeded):
        loops.evaluate(ENVIRONMENT.bind({"object": list(range(1000))}))


def test_deeply_nested_expressions_have_a_cost() -> None:
    assert ENVIRONMENT.compile(" && ".join(["object == 1"] * 150)).evaluate(ENVIRONMENT.bind({"object": 1})) is True


def test_functions_get_the_context_of_the_bindings() -> None:
    program = ENVIRONMENT.compile("'a'.lookup()")
    assert program.functions == {"lookup"}
    assert program.evaluate(ENVIRONMENT.bind({}, {"a": "first"})) == "first"
    assert program.evaluate(ENVIRONMENT.bind({}, {"a": "second"})) == "second"
    assert current_context() is None
