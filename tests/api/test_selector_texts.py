"""Selectors as text: what they mean, and what is said of those that mean nothing, word for word as Kubernetes says it."""

from __future__ import annotations

import pytest

from wharfinger.api.selectors import BadSelector, matches, parse_field_selector, parse_label_selector

LABELS = {"app": "web", "tier": "1", "n": "5"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("app=web,tier==1", True),
        ("app != web", False),
        ("missing!=x", True),
        ("app in (web, db),!missing", True),
        ("app notin (web)", False),
        ("app=", False),
        ("missing in (,a)", False),
        ("n>4,n<6", True),
        ("in in (a)", False),
    ],
)
def test_what_a_label_selector_selects(text: str, holds: bool) -> None:
    assert matches(parse_label_selector(text), LABELS) is holds


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("!!", "unable to parse requirement: found '!', expected: identifier"),
        ("a>=3", "unable to parse requirement: found '=', expected: identifier"),
        ("a>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must"),
        ("-a", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a in x", "unable to parse requirement: found 'x', expected: '('"),
    ],
)  # fmt: skip
def test_what_is_no_label_selector(text: str, fault: str) -> None:
    with pytest.raises(BadSelector) as refused:
        parse_label_selector(text)
    assert str(refused.value).startswith(fault), refused.value


def test_field_selectors_may_escape() -> None:
    first, second = parse_field_selector(r"a.b=x\,y\=z\\,c!=")
    assert (first.path, first.value, first.equal) == ("a.b", "x,y=z\\", True)
    assert (second.path, second.value, second.equal) == ("c", "", False)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x", "invalid selector: 'x'; can't understand 'x'"),
        ("a=b,x", "invalid selector: 'a=b,x'; can't understand 'x'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
    ],
)
def test_what_is_no_field_selector(text: str, fault: str) -> None:
    with pytest.raises(BadSelector) as refused:
        parse_field_selector(text)
    assert str(refused.value) == fault
