"""Follows a live cluster and writes what it sees into the files of `wharfinger.replay.segments`.

Memory holds one reduced copy of each object that exists, and a bounded number of rows. A recorder that is started again
on the same folder continues: it watches from the version where it stopped, and lists only what the server has
forgotten.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from wharfinger.api.errors import ApiError, Forbidden, NotFound, ServiceUnavailable, TooManyRequests
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.times import format_micro_time
from wharfinger.client.backoff import Backoff
from wharfinger.client.informer import RETRY_BASE, RETRY_LIMIT, Informer
from wharfinger.client.interface import Client, EventType
from wharfinger.client.running_configuration import running_configuration
from wharfinger.client.server_version import version_to_follow
from wharfinger.client.timers import Clock
from wharfinger.replay.reduction import reduced
from wharfinger.replay.segments import ROWS_PER_SEGMENT, RecordedRow, SegmentWriter, recorded_rows
from wharfinger.replay.tables import API_VERSION, EVENTS, FILE, KIND, read_header
from wharfinger.simulate.inputs import BadInput

log = logging.getLogger(__name__)

FLUSH_SECONDS = 1.0
STATE = "state.json"
WORKLOADS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})  # kinds that default spreading asks for
_NEVER = frozenset(  # secret, or nothing that a replay could ask
    {
        "Secret",
        "ConfigMap",
        "CustomResourceDefinition",
        "APIService",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    }
)


@dataclass(slots=True)
class RecordingState:
    """What is known from an earlier run: the last version of each kind, and the objects that existed."""

    versions: dict[str, int] = field(default_factory=dict)
    objects: dict[str, dict[tuple[str, str], Document]] = field(default_factory=dict)


class FollowedKind(Informer[Document]):
    """An informer that can start from a known state, and that knows at which version an object was deleted."""

    def __init__(self, client: Client, resource: Resource) -> None:
        super().__init__(client, resource, dict)
        self.optional = resource not in (PODS, NODES)
        self.deleted_at = 0

    def resume(self, objects: Iterable[Document], version: int) -> None:
        """Goes on from a version, or with a list if it is 0; no handler is called for these objects."""
        for document in objects:
            metadata = document["metadata"]
            self._objects[metadata.get("namespace") or "", metadata["name"]] = document
        if version:
            self._version = str(version)
            self._synced.set()

    def _put(self, key: ObjectKey, item: Document, old: Document | None) -> None:
        """Keeps only what is recorded."""
        resource = self.resource
        super()._put(key, reduced({"apiVersion": resource.api_version, "kind": resource.kind, **item}), old)

    def _apply(self, type: EventType, item: Document) -> None:
        self.deleted_at = _version(item) if type is EventType.DELETED else 0
        super()._apply(type, item)
        self.deleted_at = 0


class ClusterRecorder:
    def __init__(
        self, client: Client, registry: Registry, folder: Path, clock: Clock, *, rows: int = ROWS_PER_SEGMENT
    ) -> None:
        self._client = client
        self._registry = registry
        self._folder = folder
        self._clock = clock
        self._rows = rows
        self._digests: dict[tuple[str, str, str], bytes] = {}
        self._followed: list[FollowedKind] = []
        self._first = False  # what is listed now was there before
        self._lists: dict[str, int] = {}
        self._saved: dict[str, int] = {}
        self.not_read: list[str] = []  # kinds that this user may not read
        self.counts = {"rows": 0, "pods": 0, "nodes": 0}

    async def run(self) -> None:
        """Records until cancelled."""
        state = await self._open()
        self._writer = SegmentWriter(self._folder, self._rows)
        try:
            self._mark("started")
            await self._follow(state)
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                self._save()
        finally:
            await asyncio.gather(*(each.stop() for each in self._followed))
            self._mark("stopped")
            self._save()
            self._writer.close()

    # -- starting

    async def _open(self) -> RecordingState:
        """Makes the folder a trace, or reads what an earlier run wrote."""
        if (self._folder / FILE).exists():
            if read_header(self._folder).format != EVENTS:
                raise BadInput([f"{self._folder}: this trace was not written by `wharf record`"])
            return _earlier(self._folder)
        if self._folder.exists() and any(self._folder.iterdir()):
            raise BadInput([f"{self._folder}: the folder is neither empty nor a trace"])
        configuration = await running_configuration(self._client)
        version = await version_to_follow(self._client, refusals=1)
        header: Document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "format": EVENTS,
            "start": format_micro_time(self._clock.now()),
            "kubernetesVersion": str(version),
        }
        if configuration is not None:
            header["configuration"] = configuration.document()
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / FILE).write_text(yaml.safe_dump(header, sort_keys=False), encoding="utf-8")
        return RecordingState()

    async def _follow(self, state: RecordingState) -> None:
        """Follows every kind that decisions depend on and that this user may read."""
        for resource in self._resources():
            if not await self._readable(resource):
                continue
            informer = FollowedKind(self._client, resource)
            known = state.objects.get(resource.kind, {})
            for key, document in known.items():
                self._digests[resource.kind, *key] = _digest(document)
            informer.resume(known.values(), state.versions.get(resource.kind, 0))
            self._listen(informer)
            self._followed.append(informer)
        self._first = not state.versions and not state.objects
        for informer in self._followed:
            informer.start()
        await asyncio.gather(*(each.wait_synced() for each in self._followed))
        self._first = False
        self._lists = {each.resource.kind: each.lists for each in self._followed}

    def _resources(self) -> list[Resource]:
        kinds = [
            kind.storage
            for kind in self._registry
            if kind.stored and kind.in_snapshots and "watch" in kind.verbs and kind.kind not in _NEVER
        ]
        # Nodes before pods, so that a pod that is there has its node.
        return sorted(kinds, key=lambda each: (each == PODS, each != NODES))

    async def _readable(self, resource: Resource) -> bool:
        """Waits for a server that cannot be reached: it may be restarting."""
        backoff = Backoff(RETRY_BASE, RETRY_LIMIT)
        while True:
            try:
                return await self._may_be_listed(resource)
            except (ServiceUnavailable, TooManyRequests) as error:
                delay = backoff.next()
                log.warning("cannot list %s, retrying in %.1f s: %s", resource.group_plural, delay, error)
                await asyncio.sleep(delay)

    async def _may_be_listed(self, resource: Resource) -> bool:
        try:
            await self._client.list(resource, limit=1)
        except NotFound:
            return False
        except Forbidden as error:
            if resource in (PODS, NODES):
                raise
            self.not_read.append(f"{resource.kind}: {error.message}")
            return False
        except ApiError as error:
            if error.code == 405:
                return False
            raise
        return True

    # -- changes

    def _listen(self, informer: FollowedKind) -> None:
        resource = informer.resource

        def seen(document: Document) -> None:
            self._seen(resource, document)

        def gone(document: Document) -> None:
            metadata = document["metadata"]
            key = (metadata.get("namespace") or "", metadata["name"])
            if self._digests.pop((resource.kind, *key), None) is not None:
                self._write("deleted", informer.deleted_at, resource, metadata, "")

        informer.add_handler(seen, lambda old, new: seen(new), gone)

    def _seen(self, resource: Resource, document: Document) -> None:
        """Records an object that is new or has changed in something that is recorded."""
        metadata = document["metadata"]
        key = (resource.kind, metadata.get("namespace") or "", metadata["name"])
        digest, before = _digest(document), self._digests.get(key)
        if digest == before or _is_made_here(document):
            return
        self._digests[key] = digest
        type = "present" if self._first else "added" if before is None else "modified"
        self._write(type, _version(document), resource, metadata, msgspec.json.encode(document).decode())

    def _write(self, type: str, version: int, resource: Resource, metadata: Document, data: str) -> None:
        self._writer.write(
            RecordedRow(
                self._clock.now(),
                version,
                type,
                resource.api_version,
                resource.kind,
                metadata.get("namespace") or "",
                metadata["name"],
                metadata.get("uid") or "",
                data,
            )
        )
        self.counts["rows"] += 1
        if type in ("present", "added") and resource in (PODS, NODES):
            self.counts[resource.plural] += 1

    def _mark(self, type: str, kind: str = "") -> None:
        self._writer.write(RecordedRow(self._clock.now(), 0, type, kind=kind))

    # -- saving

    def _save(self) -> None:
        """Rows first, then the versions up to which they are complete."""
        for informer in self._followed:
            kind = informer.resource.kind
            if informer.lists > self._lists.get(kind, informer.lists):
                self._mark("listed", kind)
            self._lists[kind] = informer.lists
        self._writer.flush()
        versions = {each.resource.kind: each.version for each in self._followed if each.synced}
        if versions != self._saved:
            partial = self._folder / f".{STATE}.partial"
            partial.write_bytes(msgspec.json.encode(versions))
            partial.replace(self._folder / STATE)
            self._saved = versions


def _earlier(folder: Path) -> RecordingState:
    state = RecordingState()
    path = folder / STATE
    if path.exists():
        state.versions = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    try:
        for _, row in recorded_rows(folder):
            if row.kind and row.type == "deleted":
                state.objects.get(row.kind, {}).pop((row.namespace, row.name), None)
            elif row.object:
                found = msgspec.json.decode(row.object)
                state.objects.setdefault(row.kind, {})[row.namespace, row.name] = found
    except (ValueError, msgspec.DecodeError) as error:
        raise BadInput([str(error)]) from error
    return state


def _is_made_here(document: Document) -> bool:
    """Whether a controller that also runs in a replay makes this object from another one."""
    return document["kind"] not in (*WORKLOADS, "Pod") and controller_of(document) is not None


def _version(document: Document) -> int:
    text = str((document.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0


def _digest(document: Document) -> bytes:
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return hashlib.blake2s(
        msgspec.json.encode({**document, "metadata": metadata}, order="sorted"), digest_size=12
    ).digest()
