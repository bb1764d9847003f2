"""A DRA driver for one node over device plugins: publishes their devices as ResourceSlices, and prepares them for claims.

The kubelet finds the driver by a socket in its registration folder, and calls it before the containers of a pod start. All
state is in the API and in CDI files, so that a restarted driver continues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from wharfinger.api.defaults.devices import allocation_results
from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from wharfinger.api.registry import Document
from wharfinger.client.controller import Controller
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.systems.resource_class.device_agent import dra_api as api
from wharfinger.systems.resource_class.device_agent.cdi import CdiFiles, cdi_name, container_edits
from wharfinger.systems.resource_class.device_agent.inventory import ReportedDevice
from wharfinger.systems.resource_class.device_agent.plugins import PluginError, PluginRegistry
from wharfinger.systems.resource_class.device_agent.slices import PluginDevice, device_names, pool_devices, pool_slices

log = logging.getLogger(__name__)

_PUBLISH = "publish"
_DOCUMENT: type[Document] = dict


class CannotPrepare(Exception):
    """The devices of a claim cannot be prepared; the message goes to the kubelet."""


class DraDriver(Controller[str]):
    """Publishes slices. The only key stands for all of them."""

    name = "dra-driver"

    def __init__(
        self,
        client: Client,
        informers: InformerSet,
        node: str,
        driver: str,
        *,
        plugins: Path,
        kubelet: Path,
        cdi: Path,
    ) -> None:
        """`plugins` is the folder where device plugins register, `kubelet` the root folder of the kubelet, `cdi` the folder
        of CDI files."""
        super().__init__()
        self._client = client
        self._node = node
        self._driver = driver
        self._reported: dict[str, dict[str, ReportedDevice]] = {}
        self.plugins = PluginRegistry(plugins, self._devices_reported, self._disconnected)
        self._kubelet = _KubeletSide(driver, kubelet, self._prepare_claim, self._unprepare_claim)
        self._files = CdiFiles(cdi, driver)
        selector = f"spec.nodeName={node},spec.driver={driver}"
        self._slices = informers.of(RESOURCE_SLICES, _DOCUMENT, field_selector=selector)
        self._nodes = informers.of(NODES, _DOCUMENT, field_selector=f"metadata.name={node}")
        self._slices.add_handler(self._slice_seen, lambda old, new: self._slice_seen(new), self._slice_gone)
        self._unseen: dict[str, Document] = {}  # slices that were written and may not be in the informer yet
        self._deleted: set[str] = set()  # slices that were deleted and may be in the informer still
        self._nodes.add_handler(lambda new: self._again())

    async def prepare(self) -> None:
        await self.plugins.start()
        await self._kubelet.start()
        self._again()

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self._kubelet.stop()
            await self.plugins.stop()

    def _again(self) -> None:
        self.queue.add(_PUBLISH)

    def _slice_seen(self, slice: Document) -> None:
        written = self._unseen.get(slice["metadata"]["name"])
        if written is not None and _version(slice) >= _version(written):
            del self._unseen[slice["metadata"]["name"]]
        self._again()

    def _slice_gone(self, slice: Document) -> None:
        self._unseen.pop(slice["metadata"]["name"], None)
        self._deleted.discard(slice["metadata"]["name"])
        self._again()

    def _devices_reported(self, resource: str, devices: dict[str, ReportedDevice]) -> None:
        self._reported[resource] = devices
        self._again()

    def _disconnected(self, resource: str) -> None:
        """Its devices stay, tainted, until the plugin is back: claims may have them."""
        known = self._reported.get(resource, {})
        self._reported[resource] = {id: ReportedDevice(False, each.properties) for id, each in known.items()}
        self._again()

    # -- publishing

    async def reconcile(self, key: str) -> None:
        node = self._nodes.get(self._node)
        if node is None:
            return  # its coming brings this back
        published = {each["metadata"]["name"]: each for each in self._slices}
        published = {name: each for name, each in published.items() if name not in self._deleted} | self._unseen
        if not self._reported and published:
            return  # after a restart, what is published stays until plugins have registered
        generation = max((_pool(each)["generation"] for each in published.values()), default=0)
        devices = pool_devices(self._reported)
        wanted = list(pool_slices(self._driver, node, devices, generation))
        if generation and _same(wanted, published):
            return
        for document in pool_slices(self._driver, node, devices, generation + 1):
            await self._write(document, published.pop(document["metadata"]["name"], None))
        for name in published:
            await self._delete(name)
        log.info("published %d devices in generation %d", len(devices), generation + 1)

    async def _write(self, document: Document, published: Document | None) -> None:
        name = document["metadata"]["name"]
        if published is None:
            self._unseen[name] = await self._client.create(RESOURCE_SLICES, document)
            self._deleted.discard(name)
        else:
            self._unseen[name] = await self._client.update(RESOURCE_SLICES, {**published, "spec": document["spec"]})

    async def _delete(self, name: str) -> None:
        self._unseen.pop(name, None)
        self._deleted.add(name)
        try:
            await self._client.delete(RESOURCE_SLICES, name)
        except NotFound:
            return

    # -- preparing

    async def _prepare_claim(self, claim: Any) -> Message:
        """What the kubelet is told about the devices of a claim. Raises CannotPrepare."""
        try:
            found = await self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        except ApiError as error:
            raise CannotPrepare(f"cannot read claim {claim.namespace}/{claim.name}: {error}") from error
        if found["metadata"].get("uid") != claim.uid:
            raise CannotPrepare(f"claim {claim.namespace}/{claim.name} was replaced by another of that name")
        results = [each for each in allocation_results(found) if each.get("driver") == self._driver]
        requests = list(dict.fromkeys(str(each["request"]) for each in results))
        edits = {name: await self._edits([each for each in results if each["request"] == name]) for name in requests}
        self._files.write(claim.uid, edits)
        prepared = api.Prepared()
        for each in results:
            device = prepared.devices.add(
                request_names=[each["request"]],
                pool_name=each["pool"],
                device_name=each["device"],
                share_id=each.get("shareID") or "",
            )
            if each["request"] in requests:  # the devices of a request are prepared together
                requests.remove(each["request"])
                device.cdi_device_ids.append(cdi_name(self._driver, claim.uid, each["request"]))
        return prepared  # type: ignore[no-any-return]  # classes of messages are made at run time

    async def _edits(self, results: Sequence[Document]) -> Document:
        known = {name: device for device, name in device_names(self._reported).items()}
        by_resource: dict[str, list[PluginDevice]] = {}
        for each in results:
            device = known.get(each["device"])
            if device is None:
                raise CannotPrepare(f"no plugin has device {each['device']}")
            by_resource.setdefault(device.resource, []).append(device)
        answers = []
        for resource, devices in by_resource.items():
            plugin = self.plugins.connection(resource)
            if plugin is None:
                raise CannotPrepare(f"the device plugin of {resource} is not registered")
            try:
                answers.append(await plugin.allocate([each.id for each in devices]))
            except PluginError as error:
                raise CannotPrepare(str(error)) from error
        return container_edits(answers, (each["device"] for each in results))

    async def _unprepare_claim(self, claim: Any) -> None:
        self._files.remove(claim.uid)


def _version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def _pool(slice: Document) -> Document:
    found: Document = slice["spec"]["pool"]
    return found


def _same(wanted: Iterable[Document], published: dict[str, Document]) -> bool:
    """Whether the slices are published as they are wanted; the server may have added defaults to devices."""
    documents = {each["metadata"]["name"]: each for each in wanted}
    return documents.keys() == published.keys() and all(
        _covers(published[name]["spec"], document["spec"]) for name, document in documents.items()
    )


def _covers(stored: Any, wanted: Any) -> bool:
    """Whether stored content has everything that is wanted, and in lists nothing else. Times of taints are added."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        optional = {"timeAdded"}
        return wanted.keys() <= stored.keys() and all(
            (key in optional) if key not in wanted else _covers(value, wanted[key]) for key, value in stored.items()
        )
    if isinstance(wanted, list) and isinstance(stored, list):
        return len(wanted) == len(stored) and all(map(_covers, stored, wanted))
    return bool(stored == wanted)


class _KubeletSide:
    """The sockets that a kubelet connects to: one where it learns of the driver, and one for claims."""

    def __init__(self, driver: str, root: Path, prepare: Any, unprepare: Any) -> None:
        self._driver = driver
        self._folder = root / "plugins" / driver
        self._registration = root / "plugins_registry" / f"{driver}-reg.sock"
        self._prepare = prepare
        self._unprepare = unprepare
        self._servers: list[Any] = []

    @property
    def _endpoint(self) -> Path:
        return self._folder / "dra.sock"

    async def start(self) -> None:
        """The kubelet calls as soon as it sees the socket of the registration, so that comes last."""
        claims = {"NodePrepareResources": self._prepare_all, "NodeUnprepareResources": self._unprepare_all}
        registration = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified}
        await self._serve(self._endpoint, api.DRA_SERVICE, claims)
        await self._serve(self._registration, api.REGISTRATION_SERVICE, registration)

    async def stop(self) -> None:
        _make_room(self._registration)
        for server in self._servers:
            await server.stop(0)
        self._servers.clear()
        _make_room(self._endpoint)

    async def _serve(self, socket: Path, service: str, methods: dict[str, Any]) -> None:
        _make_room(socket)
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(method, response_serializer=_encode)
            for name, method in methods.items()
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._servers.append(server)

    async def _info(self, data: bytes, context: Any) -> Message:
        info: Message = api.PluginInfo(
            type=api.PLUGIN_TYPE, name=self._driver, endpoint=str(self._endpoint), supported_versions=[api.SUPPORTED]
        )
        return info

    async def _notified(self, data: bytes, context: Any) -> Message:
        status = api.RegistrationStatus.FromString(data)
        if status.plugin_registered:
            log.info("the kubelet registered driver %s", self._driver)
        else:
            log.error("the kubelet refused driver %s: %s", self._driver, status.error)
        done: Message = api.RegistrationStatusResponse()
        return done

    async def _prepare_all(self, data: bytes, context: Any) -> Message:
        response = api.NodePrepareResourcesResponse()
        for claim in await _claims(data, context):
            try:
                prepared = await self._prepare(claim)
            except CannotPrepare as error:
                log.warning("claim %s/%s: %s", claim.namespace, claim.name, error)
                prepared = api.Prepared(error=str(error))
            response.claims.add(key=claim.uid, value=prepared)
        return response  # type: ignore[no-any-return]  # classes of messages are made at run time

    async def _unprepare_all(self, data: bytes, context: Any) -> Message:
        response = api.NodeUnprepareResourcesResponse()
        for claim in await _claims(data, context):
            await self._unprepare(claim)
            response.claims.add(key=claim.uid, value=api.Unprepared())
        return response  # type: ignore[no-any-return]  # classes of messages are made at run time


def _make_room(socket: Path) -> None:
    """For a socket: one that is there already was left behind."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)


async def _claims(data: bytes, context: Any) -> list[Any]:
    try:
        return list(api.ClaimsRequest.FromString(data).claims)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a request with claims: {error}")
        return []


def _encode(message: Message) -> bytes:
    return message.SerializeToString()
