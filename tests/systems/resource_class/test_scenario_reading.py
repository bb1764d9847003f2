"""What a real cluster shows, read as a scenario says it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.scenario.document import parse_scenario
from wharfinger.scenario.expectations import check
from wharfinger.systems.reservation.controllers.quotas import RESERVED
from wharfinger.systems.reservation.scenario import with_reserved
from wharfinger.systems.resource_class.rules.compute_resources import RECORD
from wharfinger.systems.resource_class.scenario import ClassNames, unqualified, with_record

PREFIX = "resourceclass.scheduling.sigs.x-k8s.io/"
GIVEN = [{"computeResourceName": "cr", "count": 2}]


def klass(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": name},
        "spec": {"resourceName": "example.com/gpu", **spec},
    }


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        (f"Insufficient {PREFIX}gold", "Insufficient gold"),
        (f"requested: requests.{PREFIX}gold=1, used: requests.{PREFIX}gold=6", "requested: gold=1, used: gold=6"),
        ("Insufficient own.example.com/silver.", "Insufficient silver."),
        ("requests.example.com/gpu=3, example.com/gpu", "example.com/gpu=3, example.com/gpu"),
        (f'unknown class "{PREFIX}fast.nic".', 'unknown class "fast.nic".'),
        ("requests.cpu=1, requests.other.com/gpu=2", "requests.cpu=1, requests.other.com/gpu=2"),
    ],
)
def test_a_class_has_one_name(said: str, plain: str) -> None:
    names = ClassNames([klass("gold"), klass("silver", alias="own.example.com/silver")])
    assert names.plain(said) == plain


@pytest.mark.parametrize("asked", ["gold", f"{PREFIX}gold"])
def test_expectations_hold_by_either_name(asked: str) -> None:
    names = ClassNames([klass("gold")])
    fields = {
        f"spec.containers[0].allocatedComputeResources['{asked}']": GIVEN,
        "status.message": {"contains": f"Insufficient {asked}"},
    }
    steps = [{"expect": {"kind": "Pod", "name": "a", "fields": fields}}]
    scenario, errors = parse_scenario({"steps": steps}, registry())
    assert not errors
    (expectation,) = names.scenario(scenario).steps[0].expect
    shown = {
        "metadata": {
            "name": "a",
            "namespace": "default",
            "annotations": {RECORD: json.dumps({"c": {f"{PREFIX}gold": GIVEN}})},
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"message": f"1 Insufficient {PREFIX}gold."},
    }
    assert check(expectation, [names.document(shown)]).ok
    shown["spec"] = {"containers": [{"name": "other"}]}
    assert not check(expectation, [names.document(shown)]).ok


def test_a_record_that_cannot_be_read_is_left_alone() -> None:
    document = {"metadata": {"annotations": {RECORD: "nonsense"}}, "spec": {"containers": [{"name": "c"}]}}
    assert with_record(document) == document


def test_what_reservations_take_of_a_quota_counts_as_used() -> None:
    quota = {
        "metadata": {"annotations": {RESERVED: '{"requests.cpu":"2500m","requests.memory":"1Gi"}'}},
        "status": {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "500m", "pods": "1"}},
    }
    used = with_reserved(quota)["status"]["used"]
    assert used == {"requests.cpu": "3", "requests.memory": "1Gi", "pods": "1"}
    assert with_reserved({"metadata": {}, "status": {}}) == {"metadata": {}, "status": {}}


def test_names_that_real_api_servers_refuse() -> None:
    spec = {"containers": [{"resources": {"limits": {"cpu": 1, "gold": 1, "example.com/gpu": 1}}}]}
    for document in (
        {"kind": "Pod", "spec": spec},
        {"kind": "Deployment", "spec": {"template": {"spec": spec}}},
        {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}},
    ):
        assert list(unqualified(document)) == ["gold"]
    hard = {"gold": 1, "pods": 2, "requests.cpu": 1, "services.loadbalancers": 1, "example.com/gpu": 1}
    assert list(unqualified({"kind": "ResourceQuota", "spec": {"hard": hard}})) == ["gold"]
