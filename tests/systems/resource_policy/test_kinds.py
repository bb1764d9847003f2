"""ResourcePolicy: defaults, and every invalid field refused with its path."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.schema import structural
from wharfinger.api.schema.tree import ABSENT, structural_schema
from wharfinger.apiserver import custom_rules
from wharfinger.systems.resource_policy.kinds.resource_policy import KIND


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": spec}


def faults(document: dict[str, Any]) -> list[str]:
    assert KIND.default is not None
    assert KIND.validate is not None
    KIND.default(document)
    return [str(error) for error in KIND.validate(document, None)]


def test_defaults() -> None:
    document = policy(units=[{}, {"name": "spot", "priority": 2}])
    assert faults(document) == []
    assert document["spec"] == {
        "strategy": "required",
        "units": [{"name": "unit-0", "priority": 0}, {"name": "spot", "priority": 2}],
    }


INVALID = [
    ({"units": []}, "spec.units: Invalid value: 0: spec.units in body should have at least 1 items"),
    ({}, "spec.units: Required value"),
    ({"units": [{"priority": -1}]}, "spec.units[0].priority: Invalid value: -1: spec.units[0].priority in body should be greater than or equal to 0"),
    ({"units": [{"maxCount": -1}]}, "spec.units[0].maxCount: Invalid value: -1: spec.units[0].maxCount in body should be greater than or equal to 0"),
    ({"units": [{}], "strategy": "preferred"}, 'spec.strategy: Unsupported value: "preferred": supported values: "prefer", "required"'),
    ({"units": [{"name": "a"}, {"name": "a"}]}, 'spec.units[1].name: Duplicate value: "a"'),
    ({"units": [{}], "matchLabelKeys": ["a", "a"]}, 'spec.matchLabelKeys[1]: Duplicate value: "a"'),
    ({"units": [{}], "matchLabelKeys": ["a"], "podSelector": {"matchLabels": {"a": "b"}}}, 'spec.matchLabelKeys[0]: Invalid value: "a": exists in both matchLabelKeys and podSelector'),
    ({"units": [{"nodeSelector": {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]}}]}, 'spec.units[0].nodeSelector.matchExpressions[0].operator: Invalid value: "Gt": not a valid selector operator'),
    ({"units": [{"nodeSelector": {"matchExpressions": [{"key": "k", "operator": "In"}]}}]}, "spec.units[0].nodeSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
    ({"units": [{"maxPercent": 101}]}, "spec.units[0].maxPercent: Invalid value: 101: spec.units[0].maxPercent in body should be less than or equal to 100"),
    ({"units": [{"maxResources": {"cpu": "-1"}}]}, 'spec.units[0].maxResources[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
    ({"units": [{"maxResources": {"c/p/u": 1}}]}, "spec.units[0].maxResources[c/p/u]: "),
    ({"units": [{}], "whenTryNextUnits": {"policy": "TimeoutOrExceedMax"}}, "spec.whenTryNextUnits.timeout: Required value: must be set when `policy` is TimeoutOrExceedMax"),
    ({"units": [{}], "whenTryNextUnits": {"policy": "TimeoutOrExceedMax", "timeout": "0s"}}, 'spec.whenTryNextUnits.timeout: Invalid value: "0s": must be greater than 0'),
    ({"units": [{}], "whenTryNextUnits": {"policy": "TimeoutOrExceedMax", "timeout": "soon"}}, 'spec.whenTryNextUnits.timeout: Invalid value: "soon": '),
    ({"units": [{}], "whenTryNextUnits": {"timeout": "5m"}}, "spec.whenTryNextUnits.timeout: Forbidden: may only be set when `policy` is TimeoutOrExceedMax"),
    ({"units": [{}], "whenTryNextUnits": {"policy": "Never"}}, "spec.whenTryNextUnits.policy: Unsupported value: "),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "fault"), INVALID)
def test_invalid_fields_are_refused_by_path(spec: dict[str, Any], fault: str) -> None:
    found = faults(policy(**spec))
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_too_many_units() -> None:
    assert faults(policy(units=[{} for _ in range(101)])) == ["spec.units: Too many: 101: must have at most 100 items"]


@pytest.mark.parametrize("spec", [None, [], {"units": {}}, {"units": [1]}, {"units": [{"name": []}]}])
def test_documents_of_any_shape_get_a_fault_not_an_exception(spec: Any) -> None:
    assert faults({"spec": spec})


@pytest.mark.parametrize("spec", [spec for spec, _ in INVALID])
def test_the_definition_refuses_what_validation_refuses(spec: dict[str, Any]) -> None:
    """With the schema and its rules alone, as an API server without our webhook does."""
    schema = structural_schema(KIND.schema("v1alpha1"))
    document = policy(**spec)
    structural.default(schema, document)
    assert structural.validate(schema, document) or list(custom_rules.faults(schema, document, ABSENT))


def test_the_definition_accepts_what_is_valid() -> None:
    nodes = {
        "matchLabels": {"example.com/pool": "a"},
        "matchExpressions": [{"key": "k", "operator": "In", "values": ["a", ""]}, {"key": "l", "operator": "Exists"}],
    }
    amounts = {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": "4"}
    document = policy(
        units=[{"name": "a", "maxResources": amounts, "nodeSelector": nodes}, {}, {}],
        podSelector={"matchLabels": {"app": "web"}},
        matchLabelKeys=["pod-template-hash"],
        whenTryNextUnits={"policy": "TimeoutOrExceedMax", "timeout": "5m"},
    )
    schema = structural_schema(KIND.schema("v1alpha1"))
    assert not structural.validate(schema, document)
    assert not list(custom_rules.faults(schema, document, ABSENT))
