"""Warnings about names that mean nothing known, and about aliases that hide a resource of nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.resource_class.device_objects import GPU, klass, pod

from wharfinger.admission.request import SYSTEM, Request
from wharfinger.api.kinds.builtin import DEPLOYMENTS, PODS, RESOURCE_QUOTAS
from wharfinger.api.registry import Resource
from wharfinger.api.views import view
from wharfinger.systems.resource_class.admission.unknown_names import UnknownNameReviewer
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass, default_alias


def warnings(
    resource: Resource, document: dict[str, Any], old: dict[str, Any] | None = None, nodes: Any = (GPU,)
) -> list[str]:
    gold = view(klass("gold", alias="example.com/gold"), ResourceClass)
    request = Request("UPDATE" if old else "CREATE", resource, "", "o", SYSTEM, document, old)
    reviewer = UnknownNameReviewer(lambda: [gold], lambda: nodes)
    assert reviewer.concerns(resource.group, resource.plural, "")
    return list(reviewer.review(request).warnings)


@pytest.mark.parametrize(
    ("name", "warned"),
    [
        ("gold", False),
        ("example.com/gold", False),
        ("glod", True),
        (default_alias("gold"), True),  # the class has another alias
        (default_alias("glod"), True),
        (GPU, False),
        ("other.example/card", False),  # too dear to look up for every pod
        ("cpu", False),
    ],
)
def test_of_pods_and_their_templates(name: str, warned: bool) -> None:
    made = pod("p", {name: 1})
    assert bool(warnings(PODS, made)) == warned
    assert bool(warnings(DEPLOYMENTS, {"spec": {"template": made}})) == warned
    assert not warnings(PODS, made, made)


@pytest.mark.parametrize(
    ("name", "nodes", "warned"),
    [
        ("gold", (), False),
        ("requests.example.com/gold", (), False),
        ("glod", (), True),
        (f"requests.{default_alias('glod')}", None, True),
        (GPU, (), False),  # classes are made of it
        ("other.example/card", (GPU,), True),
        ("requests.other.example/card", ("other.example/card",), False),
        ("other.example/card", None, False),
        ("requests.cpu", (), False),
        ("count/pods", (), False),
    ],
)
def test_of_quotas(name: str, nodes: Any, warned: bool) -> None:
    assert bool(warnings(RESOURCE_QUOTAS, {"spec": {"hard": {name: "1"}}}, nodes=nodes)) == warned


def test_of_aliases_that_hide_a_resource_of_nodes() -> None:
    assert warnings(RESOURCE_CLASSES, klass("new", alias="example.com/nic"), nodes=("example.com/nic",))
    assert not warnings(RESOURCE_CLASSES, klass("new", alias="example.com/nic"), nodes=(GPU,))


@pytest.mark.parametrize("spec", [None, 5, {"containers": 5}, {"containers": [{"resources": 5}]}, {"hard": []}])
def test_malformed_objects_are_left_to_validation(spec: Any) -> None:
    for resource in (PODS, RESOURCE_QUOTAS):
        if spec != {"containers": 5}:
            assert not warnings(resource, {"spec": spec})
