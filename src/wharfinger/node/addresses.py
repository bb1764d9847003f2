"""Which address each pod of a simulated node gets: the first of the node's range that none of its pods has."""

from __future__ import annotations

import ipaddress
import zlib
from collections import Counter

from wharfinger.api.views import Node, Pod


class Addresses:
    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}

    def give(self, pod: Pod, node: Node) -> str:
        """The pod's address; the same one until `forget`."""
        pool = self._pool(node.metadata.name)
        return pool.held.get(pod.metadata.uid) or pool.give(pod.metadata.uid, node)

    def shown(self, pod: Pod) -> None:
        """A pod of this node has an address, ours or one that it brought along."""
        pool = self._pool(pod.spec.node_name)
        if pool.held.get(pod.metadata.uid) != pod.status.pod_ip:
            pool.release(pod.metadata.uid)
            pool.take(pod.metadata.uid, pod.status.pod_ip)

    def forget(self, pod: Pod) -> None:
        pool = self._pools.get(pod.spec.node_name)
        if pool is not None:
            pool.release(pod.metadata.uid)
            if not pool.held:
                del self._pools[pod.spec.node_name]

    def _pool(self, node: str) -> _Pool:
        pool = self._pools.get(node)
        if pool is None:
            pool = self._pools[node] = _Pool()
        return pool


class _Pool:
    """The addresses of one node's pods."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}  # by pod uid
        self._used: Counter[str] = Counter()
        self._range = ""
        self._network: ipaddress.IPv4Network | ipaddress.IPv6Network = ipaddress.IPv4Network("10.0.0.0/24")
        self._first = 1  # no address below this one is free

    def give(self, uid: str, node: Node) -> str:
        wanted = node.spec.pod_cidr or _made_up_range(node.metadata.name)
        if wanted != self._range:
            self._range, self._first = wanted, 1
            self._network = ipaddress.ip_network(wanted, strict=False)
        base, size = self._network.network_address, self._network.num_addresses
        while self._first < size and self._used[str(base + self._first)]:
            self._first += 1
        # A range that is used up gives its first address again and again.
        address = str(base + self._first if self._first < size else base)
        self.take(uid, address)
        return address

    def take(self, uid: str, address: str) -> None:
        if address:
            self.held[uid] = address
            self._used[address] += 1

    def release(self, uid: str) -> None:
        address = self.held.pop(uid, None)
        if address is not None:
            self._used[address] -= 1
            self._first = 1


def _made_up_range(node: str) -> str:
    digest = zlib.crc32(node.encode())
    return f"10.{digest >> 8 & 255}.{digest & 255}.0/24"
