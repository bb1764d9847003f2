"""Node selector and required node affinity together, as component-helpers' nodeaffinity."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.node_affinity import required_node_affinity
from wharfinger.api.views import Node, view
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.api.views.pods import PodSpec

NODE = Node(ObjectMeta(name="n1", labels={"zone": "a", "size": "8"}))


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("selector", "terms", "expected"),
    [
        pytest.param({}, None, True, id="no requirement"),
        pytest.param({"zone": "a"}, None, True, id="matching node selector"),
        pytest.param({"zone": "b"}, None, False, id="other node selector"),
        pytest.param({}, [], False, id="no terms"),
        pytest.param({}, [{}], False, id="an empty term"),
        pytest.param({}, [{"matchExpressions": [expression("size", "Gt", "4")]}], True, id="Gt"),
        pytest.param({}, [{"matchExpressions": [expression("size", "Lt", "4")]}], False, id="Lt"),
        pytest.param({}, [{"matchExpressions": [expression("zone", "Gt", "4")]}], False, id="Gt of a text"),
        pytest.param({}, [{"matchFields": [expression("metadata.name", "In", "n1")]}], True, id="node name"),
        pytest.param({}, [{"matchFields": [expression("metadata.name", "NotIn", "n1")]}], False, id="other node name"),
        pytest.param(
            {}, [{"matchFields": [expression("metadata.name", "In", "n1", "n2")]}], False, id="two names are malformed"
        ),
        pytest.param({}, [{"matchFields": [expression("metadata.uid", "In", "x")]}], False, id="unknown field"),
        pytest.param(
            {},
            [
                {"matchFields": [expression("metadata.name", "Exists")]},
                {"matchExpressions": [expression("zone", "Exists")]},
            ],
            True,
            id="terms are ORed, malformed ones match nothing",
        ),
        pytest.param(
            {"zone": "b"}, [{"matchExpressions": [expression("zone", "Exists")]}], False, id="both must match"
        ),
    ],
)
def test_required(selector: dict[str, str], terms: list[dict[str, Any]] | None, expected: bool) -> None:
    spec: dict[str, Any] = {"nodeSelector": selector}
    if terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    assert required_node_affinity(view(spec, PodSpec)).matches(NODE) is expected
