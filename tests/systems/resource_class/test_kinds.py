"""ResourceClass and NodeComputeResources: what is accepted, what is refused by which path, and how properties compare."""

from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.validation import object_faults
from wharfinger.api.validation.resources import is_device, is_unqualified
from wharfinger.api.views import Pod, view
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.rules.compute_resources import (
    BadRecord,
    compute_resource_name,
    format_record,
    parse_record,
    property_hash,
    recorded,
)
from wharfinger.systems.resource_class.rules.properties import Expression, matches, parse_amount

Document = dict[str, Any]


def klass(name: str = "gold", **spec: Any) -> Document:
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": name},
        "spec": {"resourceName": "nvidia.com/gpu", **spec},
    }


def selector(key: str, operator: str, *values: str) -> Document:
    expression: Document = {"key": key, "operator": operator}
    return {"matchExpressions": [{**expression, "values": list(values)} if values else expression]}


def faults(document: Document, old: Document | None = None) -> list[str]:
    kind = registry().find(document["kind"])
    assert kind is not None and kind.default is not None
    kind.default(document)
    return [fault.path for fault in object_faults(kind, document, old)]


@pytest.mark.parametrize(
    ("property", "operator", "bound", "expected"),
    [
        ("16G", "Gt", "15G", True),
        ("15G", "Gt", "15G", False),
        ("15Gi", "Gt", "15G", True),
        ("100Gbps", "Gt", "40GBPS", True),
        ("40GBPS", "Gt", "40GBPS", False),
        ("fast", "Gt", "40GBPS", False),
        ("50G", "Gt", "40GBPS", True),
        ("50GHz", "Gt", "40GBPS", False),
        ("50GBPS", "Gt", "40", True),
        ("0.1", "Lt", "100m", False),
        ("0.0999999999999999999999", "Lt", "0.1", True),
        ("9007199254740993", "Gt", "9007199254740992", True),
        ("1e3", "Lt", "1001", True),
        ("-5", "Lt", "0", True),
        ("1e400", "Gt", "1E", True),
        ("10GB/s", "Gt", "9gb/s", False),  # g is no prefix, so the unit is another one
        ("1.2.3", "Gt", "1", False),
        ("1.2.3", "Gt", "1.2.2", True),
        ("1.10", "Gt", "v1.9", True),
        ("1.10", "Gt", "1.9", False),  # not known to be a version
        ("9" * 5000, "Gt", "1", False),
    ],
)
def test_amounts_compare_exactly_with_their_units(property: str, operator: str, bound: str, expected: bool) -> None:
    assert Expression("p", operator, (bound,)).holds({"p": property}) is expected


@pytest.mark.parametrize(
    ("operator", "values", "properties", "expected"),
    [
        ("In", ("a", "b"), {"p": "b"}, True),
        ("In", ("15Gi",), {"p": "15360Mi"}, False),  # text, not amounts
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {"p": "a"}, False),
        ("NotIn", ("a",), {}, True),
        ("Exists", (), {"p": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"p": "x"}, False),
        ("Gt", ("1",), {}, False),
        ("Lt", ("1",), {}, False),
    ],
)
def test_a_missing_property_is_not_in_and_does_not_exist(
    operator: str, values: tuple[str, ...], properties: dict[str, str], expected: bool
) -> None:
    assert Expression("p", operator, values).holds(properties) is expected


def test_selectors_are_alternatives_and_their_expressions_are_not() -> None:
    yes, no = Expression("p", "Exists"), Expression("q", "Exists")
    assert matches(((no,), (yes,)), {"p": "1"})
    assert not matches(((yes, no),), {"p": "1"})
    assert matches((), {})


def test_units_of_unlike_words_never_compare() -> None:
    assert parse_amount("40GBPS") == parse_amount("40Gbps")
    assert parse_amount("") is None and parse_amount("G") is None and parse_amount("1e2000") is None


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"resourceSelector": []},
        {"labelSelector": [selector("speed", "Gt", "40GBPS")]},
        {"resourceSelectorRequirements": [selector("gpuType", "In", "p100")]},
        {"alias": "example.com/gold", "scope": "Cluster"},
        {"groupBy": "nvlink", "groupSize": 2},
    ],
)
def test_classes_that_are_accepted(spec: Document) -> None:
    assert faults(klass(**spec)) == []


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (klass(resourceName="gpu"), "spec.resourceName"),
        (klass(resourceName="kubernetes.io/gpu"), "spec.resourceName"),
        (klass("cpu"), "metadata.name"),
        (klass("hugepages-2mi"), "metadata.name"),
        (klass("Gold"), "metadata.name"),
        (
            klass(resourceSelector=[selector("memory", "Gt", "big")]),
            "spec.resourceSelector[0].matchExpressions[0].values[0]",
        ),
        (klass(resourceSelector=[selector("memory", "Gt")]), "spec.resourceSelector[0].matchExpressions[0].values"),
        (
            klass(resourceSelector=[selector("memory", "Lt", "1", "2")]),
            "spec.resourceSelector[0].matchExpressions[0].values",
        ),
        (klass(resourceSelector=[selector("memory", "In")]), "spec.resourceSelector[0].matchExpressions[0].values"),
        (
            klass(resourceSelector=[selector("memory", "Exists", "x")]),
            "spec.resourceSelector[0].matchExpressions[0].values",
        ),
        (
            klass(resourceSelector=[selector("memory", "Is", "x")]),
            "spec.resourceSelector[0].matchExpressions[0].operator",
        ),
        (klass(resourceSelector=[selector("a b", "Exists")]), "spec.resourceSelector[0].matchExpressions[0].key"),
        (klass(resourceSelector=[{"matchExpressions": []}]), "spec.resourceSelector[0].matchExpressions"),
        (klass(resourceSelector=[selector("a", "Exists")] * 33), "spec.resourceSelector"),
        (
            klass(resourceSelector=[selector("a", "Exists")], labelSelector=[selector("b", "Exists")]),
            "spec.labelSelector",
        ),
        (klass(alias="gold"), "spec.alias"),
        (klass(alias="kubernetes.io/gold"), "spec.alias"),
        (klass("x" * 64), "spec.alias"),
        (klass(scope="World"), "spec.scope"),
        (klass(groupBy="nvlink"), "spec.groupSize"),
        (klass(groupSize=2), "spec.groupBy"),
        (klass(groupBy="nvlink", groupSize=1), "spec.groupSize"),
        (klass(autoProvisionConfig={"a": 1}), "spec.autoProvisionConfig"),
        (klass(resourceRequestParameters={"a": 1}), "spec.resourceRequestParameters"),
    ],
)
def test_classes_that_are_refused_name_the_field(document: Document, path: str) -> None:
    assert path in faults(document)


def test_the_raw_resource_of_a_class_never_changes() -> None:
    assert faults(klass(resourceName="a.com/b"), klass()) == ["spec.resourceName"]


def test_a_class_has_an_alias_of_its_own_name() -> None:
    document = klass("nvidia.high.mem")
    assert faults(document) == []
    assert document["spec"]["alias"] == "resourceclass.scheduling.sigs.x-k8s.io/nvidia.high.mem"
    assert view(klass("nvidia.high.mem"), ResourceClass).alias == document["spec"]["alias"]


def test_names_of_compute_resources_follow_from_their_properties() -> None:
    first = compute_resource_name("nvidia.com/gpu", {"a": "1", "b": "2"})
    assert first == compute_resource_name("nvidia.com/gpu", {"b": "2", "a": "1"})
    assert first != compute_resource_name("nvidia.com/gpu", {"a": "1", "b": "3"})
    assert property_hash({}) == "44136fa355"  # of {}
    assert property_hash({"ü": "é"}) == "fbb071c9b1"  # UTF-8, not escaped
    longer = compute_resource_name("nvidia.com/gpu", {"a": "1", "b": "2"}, {first})
    assert longer.startswith(first) and len(longer) == len(first) + 1


def inventory(*resources: Document) -> Document:
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "NodeComputeResources",
        "metadata": {"name": "n1"},
        "spec": {"computeResources": list(resources)},
    }


def machine(*resources: Document) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"computeResources": list(resources)},
    }


GPU = {"resourceName": "nvidia.com/gpu", "properties": {"gpuType": "k80"}, "devices": ["a", "b"]}


@pytest.mark.parametrize(("make", "root"), [(inventory, "spec"), (machine, "status")])
@pytest.mark.parametrize(
    ("resources", "path"),
    [
        ([GPU], ""),
        ([{**GPU, "allocatableDevices": []}], ""),
        ([GPU, {**GPU, "resourceName": "amd.com/gpu"}], ""),
        ([{**GPU, "resourceName": "gpu"}], "[0].resourceName"),
        ([{**GPU, "allocatableDevices": ["c"]}], "[0].allocatableDevices[0]"),
        ([{**GPU, "deviceUnits": 2}], "[0].deviceUnits"),
        ([{**GPU, "owner": "x"}], "[0].owner"),
        ([{**GPU, "isolationGuarantee": "x"}], "[0].isolationGuarantee"),
        ([GPU, {**GPU, "devices": ["c"]}], "[1].properties"),
        ([{**GPU, "name": "x"}, {**GPU, "name": "x", "properties": {}, "devices": []}], "[1].name"),
        ([GPU, {**GPU, "properties": {}, "devices": ["b"]}], "[1].devices[0]"),
    ],
)
def test_compute_resources_are_told_apart(make: Any, root: str, resources: list[Document], path: str) -> None:
    expected = [f"{root}.computeResources{path}"] if path else []
    found = faults(make(*[dict(resource) for resource in resources]))
    assert found[: len(expected) or None] == expected


def test_which_names_may_mean_devices() -> None:
    assert [name for name in ("gpu-gold", "nvidia.high.mem", "nvidia.com/gpu") if not is_device(name)] == []
    others = ("cpu", "memory", "pods", "hugepages-2Mi", "kubernetes.io/x", "requests.cpu", "limits.memory", "storage")
    assert [name for name in others if is_device(name)] == []
    assert not is_unqualified("nvidia.com/gpu")


def test_records_are_read_from_fields_or_the_annotation() -> None:
    allocation = {"c": {"gold": {"nvidia.com/gpu-1": 2, "nvidia.com/gpu-2": 1}}}
    assert parse_record(format_record(allocation)) == allocation
    entries = [{"computeResourceName": "x", "count": 1}]
    document = {"spec": {"containers": [{"name": "c", "allocatedComputeResources": {"gold": entries}}]}}
    assert recorded(view(document, Pod)) == {"c": {"gold": {"x": 1}}}
    assert recorded(view({"spec": {"containers": [{"name": "c"}]}}, Pod)) is None
    for text in ("", "[]", '{"c": 1}', '{"c": {"gold": [{"computeResourceName": "x", "count": 0}]}}'):
        with pytest.raises(BadRecord):
            parse_record(text)


@pytest.mark.parametrize(
    ("key", "property", "operator", "bound", "expected"),
    [
        ("driverVersion", "535.104", "Gt", "535.54", True),
        ("driver", "535.104.05", "Gt", "535.104", True),
        ("vendor.example/firmware", "535.54", "Lt", "535.104", True),
        ("cuda_version", "12.0", "Gt", "12", False),
        ("cuda_version", "12.0", "Lt", "12.0.0", False),
        ("driverVersion", "2.0-rc1", "Lt", "2.0", True),
        ("driverVersion", "v2.1", "Gt", "2.0", True),
        ("driverVersion", "fast", "Gt", "2.0", False),
        ("version", "16G", "Gt", "15G", True),  # an amount after all
        ("memory", "535.104", "Gt", "535.54", False),
    ],
)
def test_versions_compare_part_by_part(key: str, property: str, operator: str, bound: str, expected: bool) -> None:
    assert Expression(key, operator, (bound,)).holds({key: property}) is expected
    assert not faults(klass(resourceSelector=[selector(key, operator, bound)]))
