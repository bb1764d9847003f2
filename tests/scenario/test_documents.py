"""Scenario documents: every fault is named by path, paths and matchers mean what the documentation says."""

from typing import Any

import pytest
import yaml

from wharfinger.api.kinds import registry
from wharfinger.scenario.document import Expectation, parse_scenario
from wharfinger.scenario.expectations import check
from wharfinger.scenario.matchers import matcher
from wharfinger.scenario.paths import ABSENT, BadPath, parse_path

POD = {
    "metadata": {"name": "a", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"a.b/c": "7"}},
    "spec": {"nodeName": "n1", "containers": [{"name": "x"}, {"name": "y"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.nodeName", "n1"),
        ("status.conditions[type=Ready].status", "True"),
        ("metadata.annotations['a.b/c']", "7"),
        ('metadata.annotations["a.b/c"]', "7"),
        ("spec.containers[1].name", "y"),
        ("spec.containers[2].name", ABSENT),
        ("spec.missing.deeper", ABSENT),
        ("status.conditions[type=Other].status", ABSENT),
    ],
)
def test_paths_lead_to_fields(path: str, value: Any) -> None:
    assert parse_path(path).of(POD) == value


@pytest.mark.parametrize("path", ["", "a[", "a['b]", "[=x]"])
def test_bad_paths_are_refused(path: str) -> None:
    with pytest.raises(BadPath):
        parse_path(path)


@pytest.mark.parametrize(
    ("wanted", "value", "holds"),
    [
        ("n1", "n1", True),
        (5, "5", True),
        (True, True, True),
        (1, True, False),
        (None, ABSENT, True),
        ({"in": ["a", "b"]}, "b", True),
        ({"in": ["a", "b"]}, ABSENT, False),
        ({"not": "a"}, "b", True),
        ({"not": "a"}, ABSENT, True),
        ({"contains": "ell"}, "hello", True),
        ({"contains": "x"}, ["x", "y"], True),
        ({"contains": "x"}, ABSENT, False),
        ({"contains": {"a": 1}}, [{"a": 1, "b": 2}], True),
        ({"contains": {"a": 2}}, [{"a": 1, "b": 2}], False),
        ({"contains": {"a": 1}}, {"a": 1, "b": 2}, True),
        ({"contains": {"a": 1}}, 5, False),
        ({"exists": False}, ABSENT, True),
        ({"exists": True}, 0, True),
        ({"regex": "^n[0-9]$"}, "n1", True),
        ({"regex": "^n$"}, "n1", False),
        ({"lt": 2}, "1500m", True),
        ({"gt": "1Gi"}, "2Gi", True),
        ({"gt": 1, "lt": 3}, 2, True),
        ({"gt": 1}, "many", False),
        ({"a": "b"}, {"a": "b"}, True),
        ([1, 2], [1, 2], True),
        ([1, 2], [1], False),
    ],
)
def test_matchers(wanted: Any, value: Any, holds: bool) -> None:
    test, errors = matcher(wanted, "fields.x")
    assert not errors
    assert test(value) is holds


def test_every_fault_is_named_by_its_path() -> None:
    document = yaml.safe_load(
        """
        apiVersion: wharfinger.dev/v1alpha1
        kind: Scenario
        start: yesterday
        stepz: []
        steps:
        - at: 5 minutes
          aply: []
        - patch: {kind: Deployment, name: web}
        - delete: {kind: Nonsense, name: x}
        - fault: {bind: explode}
        - rejected: no
        - expect:
          - {kind: Pod, name: a, fields: {"spec.x": {lt: many}, "a[": 1}}
          - {kind: Pod, selector: "a in", count: -1, match: some}
        - apply: [{kind: Pod}]
        """
    )
    _, errors = parse_scenario(document, registry())
    assert [error.path for error in errors] == [
        "stepz",
        "start",
        "steps[0].aply",
        "steps[0].at",
        "steps[1].patch.merge",
        "steps[2].delete.kind",
        "steps[3].fault.bind",
        "steps[4]",
        "steps[5].expect[0].fields.spec.x.lt",
        "steps[5].expect[0].fields",
        "steps[5].expect[1].match",
        "steps[5].expect[1].selector",
        "steps[5].expect[1].count",
        "steps[6].apply[0].apiVersion",
    ]


def expectation(text: str) -> Expectation:
    document = {"steps": [{"expect": [yaml.safe_load(text)]}]}
    scenario, errors = parse_scenario(document, registry())
    assert not errors, errors
    return scenario.steps[0].expect[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{kind: Pod, namespace: shop, name: a, fields: {spec.nodeName: n1}}", ""),
        (
            "{kind: Pod, namespace: shop, name: a, fields: {spec.nodeName: n2}}",
            'spec.nodeName: expected "n2", found "n1"',
        ),
        ("{kind: Pod, name: a}", "not found"),
        ("{kind: Pod, selector: app=web, count: 1}", ""),
        ("{kind: Pod, selector: app=web, count: 2}", "expected 2, found 1: shop/a"),
        ("{kind: Pod, namespace: shop, name: gone, absent: true}", ""),
        ("{kind: Pod, namespace: shop, name: a, absent: true}", "expected none, found shop/a"),
        ("{kind: Pod, match: any, fields: {spec.nodeName: n1}}", ""),
        ("{kind: Pod, selector: app=none}", "not found"),
        ("{kind: Pod, selector: app=none, count: 0}", ""),
        ("{kind: Pod, selector: app=web, fields: {spec.nodeName: {in: [n3]}}}", 'found "n1"'),
    ],
)
def test_expectations_say_what_was_there(text: str, problem: str) -> None:
    outcome = check(expectation(text), [POD])
    assert outcome.ok is (problem == "")
    assert problem in " ".join(outcome.problems)
