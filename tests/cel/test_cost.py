"""The cost of expressions: those that take long are refused before they run, ordinary ones are not."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.regex import compiled, program_size
from wharfinger.cel import CostExceeded, Environment, EvaluationBudget, EvaluationError
from wharfinger.cel.cost import PER_EXPRESSION
from wharfinger.cel.library import DYN

ENVIRONMENT = Environment({"object": DYN})
LARGE = ENVIRONMENT.bind(
    {
        "object": {
            "numbers": list(range(300)),
            "texts": ["text"] * 300,
            "text": "a" * 10_000,
            "map": {f"k{number}": {"a": "b"} for number in range(300)},
        }
    }
)
SMALL = ENVIRONMENT.bind({"object": {"text": "aaaa", "numbers": [1, 2, 3]}})


def doubled(levels: int) -> str:
    """A string, or a list, that is added to itself again and again."""
    inner = f"v{levels}.size() >= 0"
    for level in range(levels, 0, -1):
        inner = f"cel.bind(v{level}, v{level - 1} + v{level - 1}, {inner})"
    return inner


def nested(levels: int) -> str:
    """Lists of lists, ten on each level, compared with themselves."""
    inner = f"v{levels} == v{levels}"
    for level in range(levels, 0, -1):
        inner = f"cel.bind(v{level}, [{', '.join([f'v{level - 1}'] * 10)}], {inner})"
    return f"cel.bind(v0, 1, {inner})"


REPEATED = "(a{0,30}){0,30}b"

ANYWHERE = {
    "a string that doubles": f"cel.bind(v0, '{'x' * 1000}', {doubled(20)})",
    "lists of lists": nested(7),
    "replaced by itself": "cel.bind(a, 'x'.replace('x', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy'), "
    "cel.bind(b, a.replace('y', a), cel.bind(c, b.replace('y', b), c.size() > 0)))",
    "split and joined": "cel.bind(a, 'xxxxxxxxxxxxxxxx'.split(''), cel.bind(b, a.join('" + "y" * 2000 + "'), "
    "cel.bind(c, b.split('').join(b), c.size() > 0)))",
    "format of formats": "cel.bind(a, '%s%s%s%s%s%s%s%s'.format(['xxxxxxxxxxxxxxxxxxx', 1, 1, 1, 1, 1, 1, 1]), "
    "cel.bind(b, a.replace('x', a), cel.bind(c, b.replace('x', b), c.contains('q'))))",
    "a map of maps": "[1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, "
    "[1,2,3,4,5,6,7,8,9,10].map(d, [1,2,3,4,5,6,7,8,9,10].map(e, [1,2,3,4,5,6,7,8,9,10].map(f, f)))))).size() > 0",
    "a pattern put together": f"cel.bind(p, '{REPEATED}' + 'c{{0,900}}', [1,2,3,4,5,6,7,8,9].all(x, '{'a' * 300}'.matches(p)))",
    "a pattern that is too large": "'aaa'.find('[\\\\pL]{500}') == ''",
}
ON_LARGE_DOCUMENTS = {
    "loops in loops": "object.numbers.all(a, object.numbers.all(b, object.numbers.all(c, true)))",
    "a large program": f"object.text.matches('{REPEATED}')",
    "a large program in Python": f"object.text.find('{REPEATED}') == ''",
    "findAll in a loop": "object.numbers.all(x, object.text.findAll('a').size() > 0)",
    "replace in a loop": "object.numbers.all(x, object.text.replace('a', 'bb').size() > 0)",
    "split in a loop": "object.numbers.all(x, object.text.split('').size() > 0)",
    "sorting in a loop": "object.numbers.all(x, object.map.all(k, object.numbers.isSorted()))",
    "comparison in a loop": "object.numbers.all(x, object == object)",
    "search of a long text for a long one": "object.numbers.all(x, object.text.contains(object.text + 'b'))",
}


@pytest.mark.parametrize("case", ANYWHERE)
def test_expensive_expressions_are_refused_on_any_document(case: str) -> None:
    program = ENVIRONMENT.compile(ANYWHERE[case])
    assert program.cost(SMALL) > PER_EXPRESSION
    with pytest.raises(CostExceeded):
        program.evaluate(SMALL)


@pytest.mark.parametrize("case", ON_LARGE_DOCUMENTS)
def test_expressions_that_are_expensive_on_large_documents_are_refused_there(case: str) -> None:
    program = ENVIRONMENT.compile(ON_LARGE_DOCUMENTS[case])
    with pytest.raises(CostExceeded):
        program.evaluate(LARGE)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|aa)+b",
        "(a+)+b",
        "(a*)*b",
        "(.*)*b",
        "(a|a)*b",
        "([a-z]+)*b",
        "(a?){40}a{40}b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    ],
)
def test_patterns_never_backtrack(pattern: str) -> None:
    """Each of these takes minutes with an engine that backtracks."""
    for call in (
        f"object.text.find('{pattern}') == ''",
        f"!object.text.matches('{pattern}')",
        f"object.text.findAll('{pattern}') == []",
    ):
        assert ENVIRONMENT.compile(call).evaluate(ENVIRONMENT.bind({"object": {"text": "a" * 2000}})) is True


ORDINARY = [
    "object.metadata.labels.all(key, key.size() < 64 && object.metadata.labels[key].matches('^[a-z0-9A-Z._-]*$'))",
    "object.spec.containers.all(c, c.image.startsWith('registry.example.com/') && !c.image.endsWith(':latest'))",
    "object.spec.containers.all(c, has(c.resources) && quantity(c.resources.limits.memory).isLessThan(quantity('64Gi')))",
    "object.spec.containers.all(c, c.env.all(e, !e.name.contains('SECRET') && e.name.matches('^[A-Z_][A-Z0-9_]{0,63}$')))",
    "object.spec.containers.map(c, c.image.split(':')[0]).all(i, i in ['registry.example.com/app', 'registry.example.com/web'])",
    "object.spec.replicas <= 5 && object.spec == object.spec",
    "object.spec.containers.filter(c, c.name == 'c1').size() == 1",
    "object.spec.containers.map(c, c.name).join(',').size() > 0 && '%d'.format([object.spec.replicas]) == '3'",
    "cel.bind(names, object.spec.containers.map(c, c.name), object.spec.containers.all(c, c.name in names))",
    "object.spec.?template.?name.orValue('none') == 'none'",
    "object.metadata.annotations.all(key, object.metadata.annotations[key].find('[0-9]{1,3}([.][0-9]{1,3}){3}') == '')",
    "isURL(object.spec.url) && url(object.spec.url).getHost() == 'example.com' && semver('1.2.3').major() == 1",
]


def ordinary() -> dict[str, Any]:
    containers = [
        {
            "name": f"c{number}",
            "image": "registry.example.com/app:v1",
            "resources": {"limits": {"memory": "1Gi", "cpu": "1"}},
            "env": [{"name": f"NAME_{index}", "value": "value"} for index in range(20)],
        }
        for number in range(10)
    ]
    meta = {f"example.com/key-{number}": "value" for number in range(20)}
    annotations = {**meta, "note": "x" * 2000}
    spec = {"containers": containers, "replicas": 3, "url": "https://example.com/a"}
    return {"metadata": {"labels": meta, "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize("expression", ORDINARY)
def test_ordinary_expressions_are_below_the_limit(expression: str) -> None:
    bindings = ENVIRONMENT.bind({"object": ordinary()})
    program = ENVIRONMENT.compile(expression)
    assert program.cost(bindings) < PER_EXPRESSION
    try:
        program.evaluate(bindings)
    except CostExceeded:
        raise
    except EvaluationError as error:
        raise AssertionError(error) from error


def test_the_expressions_of_an_object_share_a_budget() -> None:
    program = ENVIRONMENT.compile("object.numbers.all(x, x > 0)")
    each = program.cost(SMALL)
    with EvaluationBudget(cost=each * 3):
        for _ in range(3):
            assert program.evaluate(SMALL) is True
        with pytest.raises(CostExceeded):
            program.evaluate(SMALL)
        with EvaluationBudget(), pytest.raises(CostExceeded):  # the outer one counts
            program.evaluate(SMALL)
    assert program.evaluate(SMALL) is True


def test_the_time_of_an_object_is_limited_whatever_was_estimated() -> None:
    program = ENVIRONMENT.compile("object.numbers.all(x, x > 0)")
    with EvaluationBudget(seconds=-1), pytest.raises(CostExceeded):
        program.evaluate(SMALL)


def test_programs_have_a_size() -> None:
    assert 0 < program_size("^[a-z]+$") < 20
    assert program_size("(?=a)") == 0
    assert program_size("[\\pL]{500}") == float("inf")
    with pytest.raises(ValueError, match=r"^illegal regex: invalid perl operator"):
        compiled("(?=a)")
