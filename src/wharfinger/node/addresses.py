"""Pod IPs of simulated nodes: each pod gets the lowest free address of its node's pod CIDR."""

from __future__ import annotations

import ipaddress
import zlib
from collections import Counter

from wharfinger.api.views import Node, Pod

# Until a node is known.
_NO_NETWORK: ipaddress.IPv4Network | ipaddress.IPv6Network = ipaddress.IPv4Network("10.0.0.0/24")


class PodAddresses:
    def __init__(self) -> None:
        self._pools: dict[str, _AddressPool] = {}

    def allocate(self, pod: Pod, node: Node) -> str:
        """The pod's address; the same one until `release`."""
        pool = self._pool(node.metadata.name)
        return pool.held.get(pod.metadata.uid) or pool.allocate(pod.metadata.uid, node)

    def observe(self, pod: Pod) -> None:
        """Takes over the address in the pod's status, which another process may have set."""
        pool = self._pool(pod.spec.node_name)
        if pool.held.get(pod.metadata.uid) != pod.status.pod_ip:
            pool.release(pod.metadata.uid)
            pool.take(pod.metadata.uid, pod.status.pod_ip)

    def release(self, pod: Pod) -> None:
        pool = self._pools.get(pod.spec.node_name)
        if pool is not None:
            pool.release(pod.metadata.uid)
            if not pool.held:
                del self._pools[pod.spec.node_name]

    def _pool(self, node: str) -> _AddressPool:
        pool = self._pools.get(node)
        if pool is None:
            pool = self._pools[node] = _AddressPool()
        return pool


class _AddressPool:
    """The addresses of one node's pods."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}  # by pod UID
        self._used: Counter[str] = Counter()
        self._cidr = ""
        self._base = _NO_NETWORK.network_address
        self._base_number = int(_NO_NETWORK.network_address)
        self._size = 0  # number of addresses
        self._first = 1  # every lower address is in use

    def allocate(self, uid: str, node: Node) -> str:
        cidr = node.spec.pod_cidr or _default_cidr(node.metadata.name)
        if cidr != self._cidr:
            self._cidr, self._first = cidr, 1
            network = ipaddress.ip_network(cidr, strict=False)
            self._base, self._base_number = network.network_address, int(network.network_address)
            self._size = network.num_addresses
        size, used = self._size, self._used
        while self._first < size and used.get(address := self._address(self._first)):
            self._first += 1
        if self._first >= size:
            address = self._address(0)  # an exhausted range hands out its network address repeatedly
        else:
            self._first += 1
        self.take(uid, address)
        return address

    def _address(self, number: int) -> str:
        if self._base.version == 6:
            return str(self._base + number)
        value = self._base_number + number  # many times as fast as an `IPv4Address`
        return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"

    def take(self, uid: str, address: str) -> None:
        if address:
            self.held[uid] = address
            self._used[address] += 1

    def release(self, uid: str) -> None:
        address = self.held.pop(uid, None)
        if address is not None:
            self._used[address] -= 1
            self._first = 1


def _default_cidr(node: str) -> str:
    digest = zlib.crc32(node.encode())
    return f"10.{digest >> 8 & 255}.{digest & 255}.0/24"
