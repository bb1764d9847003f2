"""Objects of dynamic resource allocation: what kube-apiserver 1.37.1 refuses is refused in its words, and what it fills in.

`answers/devices-1.37.1.json` has the answers of a real server; `tests/kubernetes/test_device_words.py` asks one again.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.api import device_cases as cases
from tests.api.device_cases import RefusedObject

from wharfinger.api.fields import describe
from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document, Kind
from wharfinger.api.validation import object_faults

ANSWERS: dict[str, str] = json.loads((Path(__file__).parent / "answers/devices-1.37.1.json").read_text())
KNOWN = registry()


def kind_of(document: Document) -> Kind:
    kind = KNOWN.of_object(document["apiVersion"], document["kind"])
    assert kind is not None, document["kind"]
    return kind


def prepared(document: Document) -> Document:
    """The document as validation sees it."""
    kind, made = kind_of(document), copy.deepcopy(document)
    assert kind.default is not None
    kind.default(made)
    if kind.prepare_create is not None:
        kind.prepare_create(made)
    return made


def refusal(case: RefusedObject) -> str:
    kind, document = kind_of(case.document), prepared(case.document)
    if case.changed is None:
        faults = object_faults(kind, document)
    else:
        validate = kind.validator("status" if case.status else "")
        assert validate is not None
        faults = validate(prepared(case.changed), document)
    name = document["metadata"]["name"]
    shown = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return f'{shown} "{name}" is invalid: {describe(faults)}' if faults else ""


REFUSED = [
    case for case in (*cases.REFUSED, *cases.RULES) if KNOWN.of_object("resource.k8s.io/v1", case.document["kind"])
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_bad_objects_are_refused_in_upstreams_words(case: RefusedObject) -> None:
    assert refusal(case) == ANSWERS[case.name]


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in (*cases.REFUSED, *cases.RULES, *cases.EXPRESSIONS)]
    assert len(names) == len(set(names)) and set(names) == set(ANSWERS)


GOOD = [
    cases.claim(),
    cases.claim(cases.exactly(allocationMode="All", tolerations=[{"operator": "Exists"}]), config=[cases.opaque(a=1)]),
    cases.claim({"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "a"}, {"name": "b", "deviceClassName": "b"}]}, constraints=[{"requests": ["any/a", "any"], "matchAttribute": "a.com/b"}]),
    cases.template(labels={"a": "b"}),
    cases.slice_of(),
    cases.slice_of(*({"name": f"g{n}"} for n in range(128))),
    cases.slice_of(cases.device(attributes={"a.com/b": {"version": "1.2.3-rc.1+x"}, "c": {"string": "x" * 64}}, capacity={"mem": {"value": "80Gi"}})),
    cases.slice_of(devices=None, sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}]),
    cases.shared({"default": "1Gi", "validRange": {"min": "1Gi", "max": "3Gi", "step": "1Gi"}}),
    cases.device_class(extendedResourceName="example.com/gpu", selectors=cases.cel("true")),
]  # fmt: skip


@pytest.mark.parametrize("document", GOOD, ids=range(len(GOOD)))
def test_good_objects_pass(document: Document) -> None:
    assert object_faults(kind_of(document), prepared(document)) == []


def test_requests_are_filled_in() -> None:
    toleration = {"key": "a"}
    made = prepared(
        cases.claim(
            cases.exactly(tolerations=[toleration], capacity={"requests": {"mem": "1024Mi"}}),
            {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "a", "allocationMode": "All"}]},
        )
    )
    exact, alternatives = made["spec"]["devices"]["requests"]
    assert exact["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "a", "operator": "Equal"}],
        "capacity": {"requests": {"mem": "1Gi"}},
    }
    assert alternatives["firstAvailable"] == [{"name": "a", "deviceClassName": "a", "allocationMode": "All"}]


def test_fields_of_features_that_are_off_are_dropped() -> None:
    slice = cases.slice_of(
        cases.device(consumesCounters=[{"counterSet": "c", "counters": {"m": {"value": "1000m"}}, "compatibilityGroups": ["a"]}]),
        partitionTypeAttribute="a.com/b",
        skipNodeOperations=["*"],
    )  # fmt: skip
    made = prepared(slice)["spec"]
    assert made["devices"][0]["consumesCounters"] == [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]
    assert "partitionTypeAttribute" not in made and "skipNodeOperations" not in made
    request = cases.exactly(derivedAttributes=[{"name": "a.com/b", "expression": "true"}])
    assert "derivedAttributes" not in prepared(cases.claim(request))["spec"]["devices"]["requests"][0]["exactly"]


def test_the_status_of_devices_goes_with_their_allocation() -> None:
    kind = kind_of(cases.claim())
    device = {"driver": cases.DRIVER, "pool": "n1", "device": "gpu-0"}
    old = {**cases.claim(), "status": {"allocation": cases.allocation(), "devices": [device]}}
    new: dict[str, Any] = {**cases.claim(), "status": {"devices": [device]}}
    assert kind.prepare_status is not None
    kind.prepare_status(new, old)
    assert new["status"] == {}


def test_columns() -> None:
    def cells(document: Document) -> list[Any]:
        return [column.cell(document, 0.0) for column in kind_of(document).columns if column.cell is not None]

    claim = cases.claim()
    assert cells(claim) == ["pending"]
    assert cells({**claim, "status": {"allocation": {}, "reservedFor": [{}]}}) == ["allocated,reserved"]
    deleted = {**claim, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert cells(deleted) == ["deleted"]
    assert cells({**deleted, "status": {"allocation": {}}}) == ["deleted,allocated"]
    assert cells(cases.slice_of()) == ["n1", "n1"]
