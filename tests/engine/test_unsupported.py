"""Pods that need unsupported features are refused, and do not share a shape with pods that do not need them."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.api.views import Pod, view
from wharfinger.engine.unsupported import unsupported
from wharfinger.framework.shapes import Shape, shape_key

RULES = [{"action": "RestartAllContainers"}]


def pod(container: dict[str, Any], **spec: Any) -> Pod:
    return view({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", **container}], **spec}}, Pod)


@pytest.mark.parametrize(
    ("container", "spec", "needs"),
    [
        ({}, {"schedulingGroup": {"podGroupName": "g"}}, "groups of pods (spec.schedulingGroup)"),
        ({}, {"hostNetwork": True, "hostUsers": False}, "user namespaces on the host's network"),
        ({"restartPolicyRules": RULES}, {}, "restarts of all containers"),
        ({}, {"initContainers": [{"name": "i", "restartPolicyRules": RULES}]}, "restarts of all containers"),
        ({}, {"hostNetwork": True}, ""),
        ({}, {"hostUsers": False}, ""),
        ({"restartPolicyRules": [{"action": "Restart"}]}, {}, ""),
        ({"resources": {"requests": {"example.com/gpu": "1"}}}, {}, ""),
    ],
)
def test_the_unsupported_feature_is_named(container: dict[str, Any], spec: dict[str, Any], needs: str) -> None:
    asking = pod(container, **spec)
    found = unsupported(Shape(0, asking))
    assert [text[: len(needs)] for text in found] == ([needs] if needs else [])
    if needs:
        assert shape_key(asking) != shape_key(pod({}))
