"""Uniting policies: the document's three results, and what holds whatever the policies are."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.systems.scheduling_policy.policies import ENFORCE, admit, hard, is_in, pod, policy, world

from wharfinger.systems.scheduling_policy.kinds.validation import validate_policy
from wharfinger.systems.scheduling_policy.kinds.views import HARD, SOFT, read_policy
from wharfinger.systems.scheduling_policy.rules.merge import MergedPolicy, Strategy, merge

ARCH, OS = "beta.kubernetes.io/arch", "beta.kubernetes.io/os"
A = policy(
    "schedpol-a",
    {
        "required": {"nodeSelectors": {ARCH: ["amd64", "arm64"]}},
        "allowed": {"nodeSelectors": {"disk": ["ssd"]}},
        "default": {"nodeSelector": {ARCH: "amd64"}},
    },
)
B = policy(
    "schedpol-b",
    {
        "required": {
            "nodeSelectors": {ARCH: ["amd64", "arm64", "i386"], OS: ["Linux", "Windows"]},
            "priorityClasseNames": ["bronze", "gold", "silver"],
        },
        "allowed": {"nodeSelectors": {"disk": ["sata"]}},
        "default": {"nodeSelector": {ARCH: "i386", OS: "Linux"}, "priorityClasseName": "bronze"},
    },
)


def plain(merged: MergedPolicy) -> dict[str, Any]:
    """What a merge says, in the form of the document's results."""
    required, default, selectors = merged.required, merged.default, merged.allowed.selectors or {}
    return {
        "required": {key: found.value for key, found in required.selectors.items()},
        "classes": required.classes and required.classes.value,
        "allowed": {key: values for key, values in selectors.items() if key not in required.selectors},
        "default": {key: found.value for key, found in default.selector.items()},
        "class": default.priority_class and default.priority_class.value,
    }


CLASSES = ("bronze", "gold", "silver")
BOTH = {ARCH: ("amd64", "arm64"), OS: ("Linux", "Windows")}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (
            "deep",
            {
                "required": BOTH,
                "classes": CLASSES,
                "allowed": {"disk": {"ssd", "sata"}},
                "default": {ARCH: "amd64", OS: "Linux"},
                "class": "bronze",
            },
        ),
        (
            "first",
            {
                "required": {ARCH: ("amd64", "arm64")},
                "classes": None,
                "allowed": {"disk": {"ssd"}},
                "default": {ARCH: "amd64"},
                "class": None,
            },
        ),
        (
            "simple",
            {
                "required": {ARCH: ("amd64", "arm64")},
                "classes": CLASSES,
                "allowed": {"disk": {"ssd"}},
                "default": {ARCH: "amd64"},
                "class": "bronze",
            },
        ),
    ],
)
def test_the_documents_three_results(strategy: Strategy, expected: dict[str, Any]) -> None:
    assert plain(merge([read_policy(B), read_policy(A)], strategy)) == expected


def test_names_order_bytewise() -> None:
    def named(name: str) -> Any:
        return read_policy(policy(name, {"default": {"schedulerName": name.lower()}}))

    found = merge([named("b"), named("a1"), named("a-b"), named("a.b")]).default.scheduler
    assert found is not None and found.value == "a-b"


def test_affinity_merges_by_kind_hardness_and_keys() -> None:
    def requiring(name: str, *patterns: dict[str, Any]) -> Any:
        terms = [{"matchExpressions": list(patterns)}]
        return read_policy(
            policy(name, {"required": {"affinities": {"nodeAffinities": {HARD: {"nodeSelectorTerms": terms}}}}})
        )

    first = requiring("a", {"keys": ["y", "x"], "values": ["1"]}, {"keys": ["x", "y"], "values": ["2"]})
    second = requiring("b", {"keys": ["x", "y"], "values": ["3"]}, {"keys": ["x"], "values": ["4"]})
    found = merge([first, second]).required.affinities
    assert [(part.policy, part.value.pattern.values) for part in found if part.value.pattern] == [
        ("a", ("1",)),
        ("a", ("2",)),
        ("b", ("4",)),
    ]
    assert [part.policy for part in merge([first, second], "simple").required.affinities] == ["a", "a"]


def test_affinity_as_such_and_an_expression_of_any_key_are_two_requirements() -> None:
    trees = ({HARD: {}}, {HARD: {"nodeSelectorTerms": [{"matchExpressions": [{"operators": ["In"]}]}]}})
    policies = [
        read_policy(policy(name, {"required": {"affinities": {"nodeAffinities": tree}}}))
        for name, tree in zip("ab", trees, strict=True)
    ]
    assert [part.policy for part in merge(policies).required.affinities] == ["a", "b"]


def test_what_a_policy_requires_or_injects_stays_allowed_beside_another() -> None:
    one = read_policy(policy("a", {"default": {"schedulerName": "x"}}))
    two = read_policy(policy("b", {"default": {"schedulerName": "y"}, "required": {"tolerations": [{"keys": ["t"]}]}}))
    allowed = merge([one, two]).allowed
    assert allowed.schedulers == {"x", "y"}
    assert allowed.tolerations is not None and [pattern.keys for pattern in allowed.tolerations] == [("t",)]


# Random policies

KEYS, VALUES, NAMES = ["k1", "k2", "k3"], ["v1", "v2"], ["s1", "s2", "default-scheduler"]
EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]


def lists(items: list[str], least: int = 0) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(items), min_size=least, max_size=3, unique=True)


def sparse(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


patterns = sparse(keys=lists(KEYS), operators=lists(["Equal", "Exists"]), values=lists(VALUES), effects=lists(EFFECTS))
expressions = sparse(keys=lists(KEYS), operators=lists(["In", "NotIn"]), values=lists(VALUES))
terms = st.fixed_dictionaries({"matchExpressions": st.lists(expressions, min_size=1, max_size=2)})
leaves = st.one_of(st.just({}), st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms, min_size=1, max_size=2)}))


def trees(empty: bool) -> st.SearchStrategy[dict[str, Any]]:
    whole = st.one_of(st.just({}), sparse(**{HARD: st.just({}), SOFT: st.just({})}))
    tree = sparse(nodeAffinities=sparse(**{HARD: leaves, SOFT: leaves}), podAffinities=whole, podAntiAffinities=whole)
    return tree if empty else tree.filter(bool)


def sections(empty: bool) -> st.SearchStrategy[dict[str, Any]]:
    least = 0 if empty else 1
    return sparse(
        schedulerNames=lists(NAMES, least),
        priorityClasseNames=lists(["gold", "iron"], least),
        nodeSelectors=st.dictionaries(st.sampled_from(KEYS), lists(VALUES), min_size=least, max_size=2),
        tolerations=st.lists(patterns, min_size=least, max_size=2),
        affinities=trees(empty),
    )


one_toleration = st.builds(
    lambda key, value, effect: (
        {"key": key, "operator": "Equal" if value else "Exists", "effect": effect} | ({"value": value} if value else {})
    ),
    st.sampled_from(KEYS),
    st.sampled_from(["", *VALUES]),
    st.sampled_from(["", *EFFECTS]),
)
one_expression = st.builds(is_in, st.sampled_from(KEYS), st.sampled_from(VALUES))
defaults = sparse(
    schedulerName=st.sampled_from(NAMES),
    priorityClasseName=st.sampled_from(["gold", "iron"]),
    nodeSelector=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
    tolerations=st.lists(one_toleration, min_size=1, max_size=2),
    affinity=st.builds(
        lambda found: hard(*found), st.lists(st.lists(one_expression, min_size=1, max_size=2), min_size=1, max_size=2)
    ),
)
specs = sparse(required=sections(False), allowed=sections(True), default=defaults)


@settings(max_examples=150, deadline=None)
@given(st.lists(specs, min_size=1, max_size=4), st.sampled_from(["deep", "first", "simple"]), st.randoms())
def test_the_order_in_which_policies_are_given_does_not_matter(
    given_specs: list[dict[str, Any]], strategy: Strategy, shuffle: random.Random
) -> None:
    policies = [policy(f"p{index}", spec) for index, spec in enumerate(given_specs)]
    assert all(not validate_policy(each) for each in policies)
    expected = merge([read_policy(each) for each in policies], strategy)
    shuffle.shuffle(policies)
    assert merge([read_policy(each) for each in policies], strategy) == expected


@settings(max_examples=150, deadline=None)
@given(specs)
def test_a_policys_own_defaults_are_refused_only_by_its_own_requirements(spec: dict[str, Any]) -> None:
    where = world(
        {key: value for key, value in spec.items() if key != "required"} | {"allowed": {"schedulerNames": []}}
    )
    review, _ = admit(where, pod())
    assert review.denied is None


odd = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["nodeSelector", "tolerations", "affinity", "nodeAffinity", HARD, "key", "nodeSelectorTerms"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    specs,
    st.dictionaries(
        st.sampled_from(["spec", "metadata"]),
        st.one_of(
            odd,
            st.dictionaries(
                st.sampled_from(
                    [
                        "nodeSelector",
                        "tolerations",
                        "affinity",
                        "schedulerName",
                        "serviceAccountName",
                        "annotations",
                        "name",
                    ]
                ),
                odd,
            ),
        ),
    ),
)
def test_odd_pods_get_an_answer(spec: dict[str, Any], oddity: dict[str, Any]) -> None:
    document = {"metadata": {"name": "p"}, **oddity}
    if not isinstance(document["metadata"], dict):
        document["metadata"] = {"name": "p", "annotations": document["metadata"]}
    review, _ = admit(world(spec), document, ENFORCE)
    assert review.denied is None or review.denied.message
    admit(world(spec), document, ENFORCE, old={"metadata": {}, "spec": {}})
