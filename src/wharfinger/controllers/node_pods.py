"""The base of controllers that look at nodes and at the pods on them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from wharfinger.client.pods import index_by_node
from wharfinger.controllers.context import ContextController, ControllerContext

K = TypeVar("K", bound=Hashable)


class NodePodsController(ContextController[K]):
    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.nodes = context.nodes
        self.pods = context.pods
        self.pods_by_node = index_by_node(self.pods)
