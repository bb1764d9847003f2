"""Counts the nodes of each rack in its status."""

from wharfinger.client.controller import Controller
from wharfinger_racks.kinds import LABEL, RACKS


class RackController(Controller):
    name = "rack"

    def __init__(self, context):
        super().__init__(observer=context.observer)
        self._client = context.client
        self._racks = context.documents(RACKS)
        self._nodes = context.nodes
        self._racks.add_handler(on_add=lambda rack: self.queue.add(rack["metadata"]["name"]))
        self._nodes.add_handler(
            on_add=self._node_changed,
            on_update=lambda old, new: (self._node_changed(old), self._node_changed(new)),
            on_delete=self._node_changed,
        )

    def _node_changed(self, node):
        if rack := node.metadata.labels.get(LABEL):
            self.queue.add(rack)

    async def reconcile(self, key):
        rack = self._racks.get(key)
        if rack is None:
            return
        count = sum(1 for node in self._nodes if node.metadata.labels.get(LABEL) == key)
        if (rack.get("status") or {}).get("nodes") != count:
            await self._client.patch(RACKS, key, {"status": {"nodes": count}}, subresource="status")
