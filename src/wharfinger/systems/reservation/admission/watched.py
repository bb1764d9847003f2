"""What the quota of reservations is computed from, in the caches of informers."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.views import Node, Pod
from wharfinger.client.informer import InformerSet
from wharfinger.systems.reservation.admission.device_quota import ClaimTemplates, WatchedClaimTemplates


class WatchedCluster:
    """A lookup over the informer caches."""

    def __init__(self, informers: InformerSet) -> None:
        self._pods = informers.of(PODS, Pod)
        self._by_node = self._pods.index("node", lambda pod: [pod.spec.node_name] if pod.spec.node_name else [])
        self._nodes = informers.of(NODES, Node)
        self.claims: ClaimTemplates = WatchedClaimTemplates(informers)

    def pod(self, namespace: str, name: str) -> Pod | None:
        return self._pods.get(name, namespace)

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def pods_on(self, node: str) -> Iterable[Pod]:
        return self._by_node.get(node)
