"""The kind SchedulingPolicy: what is valid, with hints for what is not; aliases; how it is served."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.systems.scheduling_policy.kinds.scheduling_policy import KINDS, schema
from wharfinger.systems.scheduling_policy.kinds.validation import validate_policy
from wharfinger.systems.scheduling_policy.kinds.views import HARD, MODE_KEY, SOFT, read_policy

TERMS = "nodeSelectorTerms"


def document(spec: Any, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


def default_affinity(*terms: Any) -> dict[str, Any]:
    return {"default": {"affinity": {"nodeAffinity": {HARD: {TERMS: list(terms)}}}}}


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"required": None, "allowed": None, "default": None},
        {
            "allowed": {
                "schedulerNames": [],
                "priorityClasseNames": [],
                "nodeSelectors": {},
                "tolerations": [],
                "affinities": {},
            }
        },
        {"required": {"SchedulerNames": ["a"]}, "default": {"SchedulerName": "a"}},
        {"required": {"priorityClassNames": ["gold"]}, "default": {"priorityClassName": "gold"}},
        {"required": {"priorityClasseNames": ["gold"], "priorityClassNames": ["gold"]}},
        {"required": {"nodeSelectors": {"arch": []}}},
        {"allowedAffinities": {"nodeAffinities": {}}},
        {"allowed": {"affinities": {"podAntiAffinities": {HARD: []}}}},
        {
            "allowed": {
                "affinities": {"nodeAffinities": {SOFT: [{"weight": 1, "preference": {"matchExpressions": []}}]}}
            }
        },
        {"allowed": {"tolerations": [{"keys": [], "operators": ["Lt"], "values": None, "effects": ["NoExecute"]}]}},
        {"default": {"tolerations": [{"key": "a", "values": ["x", "y"]}]}},
        default_affinity({"matchExpressions": [{"keys": ["a"], "operators": ["In"], "values": ["b"]}]}),
    ],
)
def test_valid(spec: Any) -> None:
    assert validate_policy(document(spec)) == []


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ([], "spec: Invalid value: []: must be of type object"),
        ({"require": {}}, "spec.require: Forbidden: unknown field; did you mean required?"),
        ({"required": {"schedulerNames": []}}, "spec.required.schedulerNames: Required value"),
        ({"required": {"SchedulerNames": []}}, "spec.required.SchedulerNames: Required value"),
        ({"required": {"priorityClasseNames": []}}, "spec.required.priorityClasseNames: Required value"),
        ({"required": {"nodeSelectors": {}}}, "spec.required.nodeSelectors: Required value"),
        ({"required": {"tolerations": []}}, "spec.required.tolerations: Required value"),
        ({"required": {"affinities": {}}}, "spec.required.affinities: Required value"),
        ({"default": {"tolerations": []}}, "spec.default.tolerations: Required value"),
        (
            {"allowed": {"schedulerNames": "a"}},
            'spec.allowed.schedulerNames: Invalid value: "a": must be of type array',
        ),
        ({"allowed": {"schedulerNames": ["A b"]}}, "spec.allowed.schedulerNames[0]: Invalid value"),
        (
            {"allowed": {"priorityClasseNames": ["a"], "priorityClassNames": ["b"]}},
            'spec.allowed.priorityClassNames: Invalid value: ["b"]: differs from priorityClasseNames',
        ),
        (
            {"allowed": {"nodeSelector": {}}},
            "spec.allowed.nodeSelector: Forbidden: unknown field; did you mean nodeSelectors?",
        ),
        ({"allowed": {"nodeSelectors": {"a": None}}}, "spec.allowed.nodeSelectors[a]: Required value"),
        ({"allowed": {"nodeSelectors": {"-a": []}}}, "spec.allowed.nodeSelectors: Invalid value"),
        (
            {"allowed": {"tolerations": [{"key": "a"}]}},
            "spec.allowed.tolerations[0].key: Forbidden: unknown field; did you mean keys?",
        ),
        (
            {"allowed": {"tolerations": [{"effects": ["No"]}]}},
            "spec.allowed.tolerations[0].effects[0]: Unsupported value",
        ),
        (
            {"allowed": {"tolerations": [{"operators": ["In"]}]}},
            "spec.allowed.tolerations[0].operators[0]: Unsupported value",
        ),
        ({"allowed": {"affinities": {"nodeAffinity": {}}}}, "did you mean nodeAffinities?"),
        (
            {"allowed": {"affinities": {"nodeAffinities": None}}},
            "null allows nothing, but an empty object allows everything",
        ),
        (
            {"allowed": {"affinities": {"nodeAffinities": {HARD: {TERMS: [{"matchExpressions": None}]}}}}},
            f"nodeAffinities.{HARD}.{TERMS}[0]: Invalid value",
        ),
        (
            {"allowed": {"affinities": {"nodeAffinities": {SOFT: [{"weight": 0, "preference": {}}]}}}},
            f"nodeAffinities.{SOFT}[0].weight: Invalid value: 0",
        ),
        (
            {"allowed": {"affinities": {"nodeAffinities": {SOFT: [{"preference": {}, "matchExpressions": []}]}}}},
            f"nodeAffinities.{SOFT}[0].matchExpressions: Forbidden: unknown field",
        ),
        (
            {"allowed": {"affinities": {"nodeAffinities": {HARD: {TERMS: [], "podAntiAffinities": {}}}}}},
            f"spec.allowed.affinities.nodeAffinities.{HARD}.podAntiAffinities: Forbidden: belongs beside nodeAffinities",
        ),
        ({"allowed": {"affinities": {"podAffinities": {HARD: [{"topologyKey": "a"}]}}}}, "as a whole: must be empty"),
        (
            {"allowed": {"affinities": {"nodeAffinities": {HARD: {TERMS: [{"matchFields": []}]}}}}},
            "can only be allowed by allowing everything",
        ),
        (
            {"allowed": {"affinities": {}}, "allowedAffinities": {"nodeAffinities": {}}},
            "spec.allowedAffinities: Invalid value",
        ),
        (
            {"default": {"tolerations": [{"key": "a", "value": "b", "values": ["c"]}]}},
            "may not be given together with value",
        ),
        ({"default": {"tolerations": [{"operator": "Equal"}]}}, "operator must be Exists when `key` is empty"),
        ({"default": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}}, "value must be empty"),
        ({"default": {"tolerations": [{"key": 0, "operator": "Exists"}]}}, "tolerations[0].key: Invalid value: 0"),
        ({"default": {"tolerations": [{"key": "a", "operator": []}]}}, "tolerations[0].operator: Invalid value: []"),
        ({"default": {"tolerations": [{"key": "a", "effect": False}]}}, "tolerations[0].effect: Invalid value: false"),
        ({"default": {"nodeSelector": {"a": ["b"]}}}, "spec.default.nodeSelector[a]"),
        ({"default": {"nodeSelector": {"a": None}}}, "spec.default.nodeSelector[a]"),
        (
            default_affinity({"matchExpressions": [{"keys": ["a", "b"], "operators": ["In"], "values": ["c"]}]}),
            f"spec.default.affinity.nodeAffinity.{HARD}.{TERMS}[0].matchExpressions[0].keys: Invalid value",
        ),
        (default_affinity({"matchFields": []}), "may not pin pods to one node"),
        (default_affinity(), "must have at least one node selector term"),
        (
            {"default": {"affinity": {"podAffinity": {HARD: [{}]}}}},
            f"podAffinity.{HARD}[0].topologyKey: Required value",
        ),
        (
            {"default": {"affinity": {"podAffinity": {HARD: [{"topologyKey": 5}]}}}},
            f"spec.default.affinity.podAffinity.{HARD}[0].topologyKey: Invalid value: 5: must be of type string",
        ),
        (
            {"default": {"affinity": {"podAffinity": {HARD: [{"topologyKey": "a", "labels": {}}]}}}},
            f"spec.default.affinity.podAffinity.{HARD}[0].labels: Forbidden: unknown field",
        ),
        (
            {"default": {"affinity": {"podAntiAffinity": {SOFT: [{"podAffinityTerm": {"topologyKey": "a"}}]}}}},
            f"spec.default.affinity.podAntiAffinity.{SOFT}[0].weight: Invalid value: 0: must be in the range 1-100",
        ),
        (
            {"default": {"affinity": {"nodeAffinity": {SOFT: [{"weight": True, "preference": {}, "extra": 1}]}}}},
            f"spec.default.affinity.nodeAffinity.{SOFT}[0].extra: Forbidden: unknown field",
        ),
    ],
)
def test_invalid_with_path_and_hint(spec: Any, fault: str) -> None:
    faults = [str(each) for each in validate_policy(document(spec))]
    assert any(fault in each for each in faults), faults


def test_all_faults_are_reported_at_once() -> None:
    spec = {"required": {"schedulerNames": []}, "allowed": {"tolerations": 5}, "default": {"nodeSelector": 7}}
    assert len(validate_policy(document(spec))) == 3


def test_the_mode_annotation_is_checked() -> None:
    assert validate_policy(document({}, **{MODE_KEY: "audit"})) == []
    assert "Unsupported value" in str(validate_policy(document({}, **{MODE_KEY: "off"}))[0])


def test_what_kubectl_drops_before_it_sends_is_looked_at() -> None:
    def applied(written: Any, spec: Any) -> dict[str, Any]:
        return document(spec, **{"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": written})})

    validate = KINDS[0].validate
    assert validate is not None
    sent = applied({"allowed": {"nodeSelectors": {"disk": None}}}, {"allowed": {"nodeSelectors": {}}})
    assert [each.path for each in validate(sent, None)] == ["spec.allowed.nodeSelectors[disk]"]
    assert validate(sent, sent) == []  # whoever changes it by other means is not held to it
    assert validate(applied({"allowed": {"schedulerNames": None}}, {"allowed": {}}), None) == []
    assert validate(document({}, **{"kubectl.kubernetes.io/last-applied-configuration": "null"}), None) == []


def test_aliases_read_as_what_they_stand_for() -> None:
    spelled = read_policy(
        document(
            {
                "required": {"SchedulerNames": ["a"], "priorityClassNames": ["b"]},
                "allowedAffinities": {"nodeAffinities": {}},
                "default": {"SchedulerName": "a", "priorityClassName": "b"},
            }
        )
    )
    assert spelled.required.scheduler_names == ("a",) and spelled.required.priority_classes == ("b",)
    assert spelled.default.scheduler_name == "a" and spelled.default.priority_class == "b"
    assert spelled.allowed.affinities is not None and len(spelled.allowed.affinities) == 2


def test_folding_several_default_terms_warns() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    assert "folded into one" in read_policy(document(default_affinity(term, term))).warnings[0]
    assert read_policy(document(default_affinity(term))).warnings == ()


def test_it_is_served_under_both_groups() -> None:
    kinds = registry()
    for group in ("scheduling.sigs.x-k8s.io", "extensions"):
        assert kinds.of_plural(group, "schedulingpolicies") is KINDS[0]
    assert kinds.find("schedpol") is KINDS[0]


def test_the_schema_declares_every_alias() -> None:
    spec = schema("v1alpha1")["properties"]["spec"]["properties"]
    for section in ("required", "allowed"):
        assert {"SchedulerNames", "priorityClassNames"} <= set(spec[section]["properties"])
    assert {"SchedulerName", "priorityClassName"} <= set(spec["default"]["properties"])
    assert "allowedAffinities" in spec


def test_columns_say_what_a_policy_speaks_of() -> None:
    shown = document({"allowed": {"schedulerNames": [], "tolerations": [{}]}, "default": {"nodeSelector": {"a": "b"}}})
    cells = {column.name: column.cell(shown, 0.0) for column in KINDS[0].columns if column.cell is not None}
    assert cells == {
        "Mode": "enforce",
        "Required": "<none>",
        "Allowed": "schedulerNames=*,tolerations",
        "Default": "nodeSelector",
    }


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"required": {"runtimeClassNames": []}}, "spec.required.runtimeClassNames"),
        ({"allowed": {"runtimeClassNames": ["Not A Name"]}}, "spec.allowed.runtimeClassNames[0]"),
        ({"required": {"topologySpreadConstraints": []}}, "spec.required.topologySpreadConstraints"),
        ({"allowed": {"topologySpreadConstraints": [{"keys": ["zone"]}]}}, "spec.allowed.topologySpreadConstraints[0].keys"),
        ({"allowed": {"topologySpreadConstraints": [{"whenUnsatisfiable": ["Never"]}]}}, "spec.allowed.topologySpreadConstraints[0].whenUnsatisfiable[0]"),
        ({"allowed": {"topologySpreadConstraints": 5}}, "spec.allowed.topologySpreadConstraints"),
        ({"default": {"topologySpreadConstraints": []}}, "spec.default.topologySpreadConstraints"),
        ({"default": {"topologySpreadConstraints": [5]}}, "spec.default.topologySpreadConstraints[0]"),
        ({"default": {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}}, "spec.default.topologySpreadConstraints[0].maxSkew"),
        ({"default": {"runtimeClassName": ["x"]}}, "spec.default.runtimeClassName"),
        ({"allowed": {"runtimeClassNames": [], "topologySpreadConstraints": []}}, ""),
    ],
)  # fmt: skip
def test_runtime_classes_and_topology_spread_are_validated(spec: dict[str, Any], path: str) -> None:
    assert [each.path for each in validate_policy({"metadata": {"name": "p"}, "spec": spec})] == (
        [path] if path else []
    )
