"""Placement's rights on a real hub: what the webhook asks the API server, and what it makes of the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.systems.placement.hub import binding, cluster

from wharfinger.admission.request import Request, User
from wharfinger.systems.placement.admission.webhook import RightsHandler
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTER_SET_BINDINGS, MANAGED_CLUSTERS

USER = User("eve", ("team",), extra={"scopes": ("a",)})


class Answering:
    """An API server that answers access reviews one way."""

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.asked: list[dict[str, Any]] = []

    async def create(self, resource: Any, document: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(document["spec"])
        return {**document, "status": {"allowed": self.allowed}}


@pytest.mark.parametrize("allowed", [True, False])
def test_binding_a_set_is_asked_of_the_server(allowed: bool) -> None:
    server: Any = Answering(allowed)
    request = Request("CREATE", MANAGED_CLUSTER_SET_BINDINGS, "ns1", "global", USER, binding())
    answer = asyncio.run(RightsHandler(server).review(request, mutating=False))
    assert (answer.review.denied is None) is allowed
    (spec,) = server.asked
    assert (spec["user"], spec["groups"], spec["extra"]) == ("eve", ["team"], {"scopes": ["a"]})
    attributes = spec["resourceAttributes"]
    assert (attributes["verb"], attributes["subresource"], attributes["name"]) == ("create", "bind", "global")


def test_a_write_that_takes_no_further_right_asks_nothing() -> None:
    server: Any = Answering(False)
    document = cluster("c1")
    request = Request("UPDATE", MANAGED_CLUSTERS, "", "c1", USER, document, document)
    assert asyncio.run(RightsHandler(server).review(request, mutating=False)).review.denied is None
    assert server.asked == []
