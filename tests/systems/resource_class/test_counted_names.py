"""Classes and their aliases as one name, for everything that counts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.resource_class.device_objects import klass, pod

from wharfinger.admission.request import SYSTEM, Request
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.quantity import NANO
from wharfinger.api.quota import pod_usage
from wharfinger.api.views import Pod, view
from wharfinger.systems.resource_class.admission.reviewers import FormerAliasReviewer
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import FORMER_ALIASES, ResourceClass, default_alias
from wharfinger.systems.resource_class.rules.counted_names import CountedNames

SILVER = default_alias("silver")


def names(*classes: Any) -> CountedNames:
    return CountedNames(view(each, ResourceClass) for each in classes)


def former(name: str, *aliases: str, alias: str) -> dict[str, Any]:
    made = klass(name, alias=alias)
    made["metadata"]["annotations"] = {FORMER_ALIASES: ",".join(aliases)}
    return made


@pytest.mark.parametrize(
    ("classes", "name", "counted"),
    [
        ([], "silver", "silver"),
        ([], SILVER, "silver"),
        ([], "nvidia.com/gpu", "nvidia.com/gpu"),
        ([klass("silver")], SILVER, "silver"),
        ([klass("silver", alias="example.com/a")], "example.com/a", "silver"),
        ([klass("silver", alias="example.com/a")], SILVER, "silver"),
        ([former("silver", "example.com/a", alias="example.com/b")], "example.com/a", "silver"),
        ([former("gold", "example.com/a", alias="example.com/b"), klass("tin", alias="example.com/a")], "example.com/a", "tin"),
        ([klass("b", alias="example.com/x"), klass("a", alias="example.com/x")], "example.com/x", "a"),
        ([klass("other", alias=SILVER)], SILVER, "other"),
    ],
)  # fmt: skip
def test_one_name_is_counted(classes: list[Any], name: str, counted: str) -> None:
    assert names(*classes).canonical(name) == counted


def test_usage_is_told_under_every_name() -> None:
    known = names(former("silver", "example.com/a", alias="example.com/b"))
    asking = view(pod("p", {"silver": 1, "example.com/a": 2, SILVER: 3}), Pod)
    used = pod_usage(asking, 0.0, known)
    for name in ("silver", "example.com/a", "example.com/b", SILVER):
        assert used[name] == used[f"requests.{name}"] == 6 * NANO


def test_former_aliases_are_noted_and_cannot_be_dropped() -> None:
    steps = [("example.com/b", "example.com/a"), ("example.com/c", "example.com/a,example.com/b"), ("example.com/a", "example.com/b,example.com/c")]  # fmt: skip
    current = klass("silver", alias="example.com/a")
    for alias, noted in steps:
        new = klass("silver", alias=alias)  # without the annotation, as a manifest has it
        request = Request("UPDATE", RESOURCE_CLASSES, "", "silver", SYSTEM, new, current)
        FormerAliasReviewer().review(request)
        assert new["metadata"]["annotations"][FORMER_ALIASES] == noted
        current = new
    FormerAliasReviewer().review(Request("UPDATE", PODS, "", "p", SYSTEM, current, current))
