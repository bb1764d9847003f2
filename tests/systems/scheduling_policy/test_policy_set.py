"""Sets of policies: what one knows of a policy is kept for the next while the policy is the same."""

from __future__ import annotations

from copy import deepcopy

import pytest
from tests.systems.scheduling_policy.policies import Document, allowing_all, pod, policy, refusal, world

from wharfinger.systems.scheduling_policy.kinds.views import MODE_KEY
from wharfinger.systems.scheduling_policy.rules import lookup as module
from wharfinger.systems.scheduling_policy.rules.lookup import PolicySet

ALL = frozenset(("a", "b", "c"))


def documents(*names: str) -> list[Document]:
    return [policy(name, {"allowed": {"schedulerNames": [name]}}) for name in names]


def test_only_what_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = module.read_policy
    monkeypatch.setattr(module, "read_policy", lambda one: (read.append(one["metadata"]["name"]), original(one))[1])
    given = documents("a", "b", "c")
    first = PolicySet(given)
    without_b = first.merged(ALL - {"b"}, "deep")
    assert first.merged(ALL, "deep").allowed.schedulers == ALL
    assert read == ["a", "b", "c"]
    given[1] = policy("b", {"allowed": {"schedulerNames": ["other"]}})
    second = PolicySet(given, first)
    assert read == ["a", "b", "c", "b"]
    assert second.names is first.names
    assert second.merged(ALL, "deep").allowed.schedulers == {"a", "other", "c"}
    assert second.merged(ALL - {"b"}, "deep") is without_b


def test_what_is_gone_new_or_no_longer_valid_is_noticed() -> None:
    given = documents("a", "b", "c")
    first = PolicySet(given)
    first.merged(ALL, "deep")
    broken = policy("c", {"allowed": {"schedulerName": ["x"]}})
    second = PolicySet([given[0], broken, *documents("d")], first)
    assert second.names == {"a", "c", "d"} and set(second.policies) == {"a", "d"} and set(second.broken) == {"c"}
    third = PolicySet([given[0], deepcopy(given[2])], second)
    assert third.names == {"a", "c"} and not third.broken


def test_merges_are_kept_for_some_sets_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGES", 2)
    found = PolicySet(documents("a", "b", "c"))
    once = found.merged(frozenset("a"), "deep")
    assert found.merged(frozenset("a"), "deep") is once
    for name in ("b", "c"):
        found.merged(frozenset(name), "deep")
    assert found.merged(frozenset("a"), "deep") is not once


def test_a_policy_that_only_reports_refuses_nothing_even_when_it_is_not_valid() -> None:
    broken = policy("broken", {"allowed": {"tolerations": [{"key": "a"}]}}, **{MODE_KEY: "audit"})
    assert not refusal(world(("good", allowing_all()), broken), pod())
