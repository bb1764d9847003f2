"""The registry agrees with the constants that code uses, and finds kinds by the names people type."""

from __future__ import annotations

import pytest

from wharfinger.api.kinds import builtin, registry
from wharfinger.api.registry import Resource

CONSTANTS = {name: value for name, value in vars(builtin).items() if isinstance(value, Resource)}


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_every_constant_names_a_registered_kind(name: str) -> None:
    resource = CONSTANTS[name]
    kind = registry().of_resource(resource)
    assert kind.resource(resource.version) == resource
    assert resource.version in kind.versions


@pytest.mark.parametrize(
    ("typed", "plural"),
    [
        ("po", "pods"),
        ("Pod", "pods"),
        ("deploy", "deployments"),
        ("deployments.apps", "deployments"),
        ("event.events.k8s.io", "events"),
        ("quota", "resourcequotas"),
        ("ep", "endpoints"),
        ("crd", "customresourcedefinitions"),
    ],
)
def test_kinds_are_found_by_any_name_a_person_types(typed: str, plural: str) -> None:
    found = registry().find(typed)
    assert found is not None
    assert found.plural == plural


def test_events_are_one_kind_under_two_groups() -> None:
    kinds = registry()
    assert kinds.of_object("v1", "Event") is kinds.of_object("events.k8s.io/v1", "Event")


def test_reviews_are_not_stored() -> None:
    review = registry().of_object("authorization.k8s.io/v1", "SubjectAccessReview")
    assert review is not None
    assert not review.stored


def test_an_event_has_other_names_in_its_own_group() -> None:
    kind = registry().find("events")
    assert kind is not None
    assert kind.convert_group is not None
    core = {"message": "m", "involvedObject": {"name": "p"}, "reason": "R", "count": 2, "reportingComponent": "c"}
    other = kind.convert_group(core, "events.k8s.io")
    assert other == {
        "note": "m",
        "regarding": {"name": "p"},
        "reason": "R",
        "deprecatedCount": 2,
        "reportingController": "c",
    }
    assert kind.convert_group(other, "") == core
