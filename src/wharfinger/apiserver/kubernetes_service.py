"""The Service `kubernetes` in the namespace `default`, with its Endpoints and EndpointSlice: how pods find the API server.

As in kube-apiserver, the server itself keeps them. The Service is created if it is missing; its endpoints are set to the
address of the server at start, and again when somebody changes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket

from wharfinger.admission.service_addresses import CLUSTER_RANGE
from wharfinger.api.errors import AlreadyExists, ApiError, Conflict
from wharfinger.api.kinds.builtin import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from wharfinger.api.registry import Document, Resource
from wharfinger.client.tasks import OwnedTask
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

NAME, NAMESPACE = "kubernetes", "default"
SERVICE_ADDRESS = str(CLUSTER_RANGE.network_address + 1)
_PORT_NAME, _PORT = "https", 443
_INTERVAL = 10.0  # seconds
_MANAGER = "wharfinger-apiserver"


class KubernetesService(OwnedTask):
    task_name = "service kubernetes"

    def __init__(self, store: Store, host: str, port: int) -> None:
        """`host` and `port` are where the server listens."""
        self._store = store
        self._address = advertised_address(host)
        self._port = port

    async def _run(self) -> None:
        while True:
            try:
                await self.sync()
            except ApiError as error:
                log.warning("cannot keep the Service %s/%s: %s", NAMESPACE, NAME, error)
            await asyncio.sleep(_INTERVAL)

    async def sync(self) -> None:
        """Creates what is missing and restores what has changed."""
        if self._store.peek(SERVICES, NAME, NAMESPACE) is None:
            with contextlib.suppress(AlreadyExists):
                await self._store.create(SERVICES, self._service(), NAMESPACE, field_manager=_MANAGER)
        await self._keep(ENDPOINTS, self._endpoints())
        await self._keep(ENDPOINT_SLICES, self._slice())

    async def _keep(self, resource: Resource, wanted: Document) -> None:
        found = self._store.peek(resource, NAME, NAMESPACE)
        try:
            if found is None:
                await self._store.create(resource, wanted, NAMESPACE, field_manager=_MANAGER)
                return
            current = found.document()
            labels = {**(current["metadata"].get("labels") or {}), **wanted["metadata"]["labels"]}
            metadata = {**current["metadata"], "labels": labels}
            restored = {**current, **wanted, "metadata": metadata}
            if restored != current:
                await self._store.update(resource, restored, NAMESPACE, name=NAME, field_manager=_MANAGER)
        except (AlreadyExists, Conflict):
            return  # written at the same moment; the next round looks again

    def _service(self) -> Document:
        port = {"name": _PORT_NAME, "protocol": "TCP", "port": _PORT, "targetPort": self._port}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": SERVICE_ADDRESS,
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "ports": [port],
            },
        }

    def _endpoints(self) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{"addresses": [{"ip": self._address}], "ports": [self._endpoint_port()]}],
        }

    def _slice(self) -> Document:
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": f"IPv{ipaddress.ip_address(self._address).version}",
            "endpoints": [{"addresses": [self._address], "conditions": {"ready": True}}],
            "ports": [self._endpoint_port()],
        }

    def _endpoint_port(self) -> Document:
        return {"name": _PORT_NAME, "port": self._port, "protocol": "TCP"}


def advertised_address(host: str) -> str:
    """The address under which others find the server. Endpoints may not have a loopback address, so a server that only
    serves this machine is published under the address of the machine, as kube-apiserver does."""
    address = ipaddress.ip_address(host)
    if not (address.is_loopback or address.is_unspecified):
        return host
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # chooses the interface of the default route; a datagram socket sends nothing
        found: str = probe.getsockname()[0]
        if not ipaddress.ip_address(found).is_loopback:
            return found
    return "192.0.2.1"  # a machine without a network: an address for documentation, which nobody can reach
