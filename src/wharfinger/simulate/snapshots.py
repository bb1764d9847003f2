"""Takes snapshots of clusters, and reads and writes them as files.

A snapshot is a List with one object on each line, which any tool reads. Its last object, of kind Snapshot, says when and
how it was taken, and which kinds it holds. It has every kind that decisions
depend on, asked of the registry, and neither Secrets nor the values of environment variables: each value is replaced by
a digest with a random salt, so that equal templates stay equal and different ones different.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from wharfinger.api.errors import ApiError, Expired
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.manifests import BadContent
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.times import format_time
from wharfinger.client.interface import Client
from wharfinger.scenario.applying import LAST_APPLIED

API_VERSION, KIND = "wharfinger.dev/v1alpha1", "Snapshot"
_PAGE = 500
_OPENING = b'{"apiVersion":"v1","kind":"List","metadata":{},"items":[\n'
_CLOSING = b"\n]}\n"
_NOT_READ = (403, 404, 405)  # not permitted or not served
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"

Tell = Callable[[str, int], None]
"""Called with the plural of a kind and the number of objects taken so far."""


class SnapshotHeader(msgspec.Struct):
    time: str
    consistent: bool = True  # all kinds were read at the same version
    counts: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)  # by apiVersion and kind
    not_read: dict[tuple[str, str], str] = msgspec.field(
        default_factory=dict
    )  # kinds that are served but could not be read
    kubernetes: KubernetesVersion | None = None  # whose rules apply there

    def document(self) -> Document:
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "time": self.time,
            **({} if self.kubernetes is None else {"kubernetesVersion": str(self.kubernetes)}),
            "consistent": self.consistent,
            "kinds": [
                {"apiVersion": version, "kind": kind, "count": count} for (version, kind), count in self.counts.items()
            ],
            "notRead": [
                {"apiVersion": version, "kind": kind, "why": why} for (version, kind), why in self.not_read.items()
            ],
        }


async def take(
    client: Client, registry: Registry, now: float, sink: Callable[[Document], None], tell: Tell | None = None
) -> SnapshotHeader:
    """Hands every object that decisions depend on to `sink`, all as of one moment if the server still knows it."""
    header = SnapshotHeader(format_time(now))
    version = (await client.list(NAMESPACES, limit=1)).resource_version
    taken = 0
    for kind in registry:
        if not kind.stored or not kind.in_snapshots or "list" not in kind.verbs:
            continue
        resource = kind.storage
        key = (resource.api_version, resource.kind)
        pages = _Pages(client, resource, version)
        try:
            while (items := await pages.next()) is not None:
                for item in items:
                    sink({"apiVersion": resource.api_version, "kind": resource.kind, **item})
                header.counts[key] = header.counts.get(key, 0) + len(items)
                taken += len(items)
                if tell is not None:
                    tell(resource.plural, taken)
        except ApiError as error:
            if error.code not in _NOT_READ:
                raise
            if error.code == 403:
                header.not_read[key] = error.message
        header.consistent = header.consistent and pages.exact
    return header


class _Pages:
    """The objects of one kind at one version. If the server has forgotten it, the latest ones instead."""

    def __init__(self, client: Client, resource: Resource, version: str) -> None:
        self._client = client
        self._resource = resource
        self._version = version
        self._token: str | None = ""
        self.exact = True

    async def next(self) -> list[Document] | None:
        """The next page; None after the last."""
        if self._token is None:
            return None
        try:
            if self._token:
                page = await self._client.list(self._resource, limit=_PAGE, continue_token=self._token)
            elif self.exact:
                page = await self._client.list(
                    self._resource, limit=_PAGE, resource_version=self._version, version_match="Exact"
                )
            else:
                page = await self._client.list(self._resource, limit=_PAGE)
        except Expired:
            if not self.exact or self._token:
                raise
            self.exact = False
            return await self.next()
        self._token = page.continue_token or None
        return list(page.items)


class Redactor:
    """Replaces values of environment variables, in pods, templates, revisions and records of what was applied."""

    def __init__(self, salt: bytes | None = None) -> None:
        self._salt = os.urandom(16) if salt is None else salt

    def __call__(self, document: Document) -> Document:
        metadata = document.get("metadata") or {}
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations") or {}
        if applied := annotations.get(LAST_APPLIED):
            try:
                annotations[LAST_APPLIED] = msgspec.json.encode(self._redacted(msgspec.json.decode(applied))).decode()
            except msgspec.DecodeError:
                del annotations[LAST_APPLIED]
        for part in ("spec", "data", "template"):
            if part in document:
                document[part] = self._redacted(document[part])
        return document

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, dict):
            for key, item in value.items():
                if key == "env" and isinstance(item, list):
                    for variable in item:
                        if isinstance(variable, dict) and isinstance(variable.get("value"), str):
                            variable["value"] = self._digest(variable["value"])
                else:
                    self._redacted(item)
        elif isinstance(value, list):
            for item in value:
                self._redacted(item)
        return value

    def _digest(self, text: str) -> str:
        return f"redacted-{hashlib.blake2s(text.encode(), key=self._salt, digest_size=6).hexdigest()}" if text else ""


class SnapshotWriter:
    """Writes objects to a file, compressed as its name says (`.gz` or `.zst`). Nothing is left of an unfinished one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._file: IO[bytes] = _compressed(self._partial, path.suffix)
        self._file.write(_OPENING)
        self._first = True

    def write(self, document: Document) -> None:
        self._file.write((b"" if self._first else b",\n") + msgspec.json.encode(document))
        self._first = False

    def finish(self, header: SnapshotHeader) -> None:
        self.write(header.document())
        self._file.write(_CLOSING)
        self._file.close()
        self._partial.replace(self._path)

    def discard(self) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)


def _compressed(path: Path, suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return io.BufferedWriter(gzip.open(path, "wb", compresslevel=3), 1 << 20)
    if suffix == ".zst":
        import zstandard

        return io.BufferedWriter(zstandard.open(path, "wb"), 1 << 20)
    return path.open("wb", buffering=1 << 20)


class BadCompression(BadContent):
    """A file whose compressed data is damaged."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the compressed data is damaged: {why}")


def decompressed(data: bytes) -> bytes:
    """The content of a file that may be compressed with gzip or Zstandard. Raises BadCompression."""
    if not data.startswith((_GZIP, _ZSTD)):
        return data
    with _decompressing(io.BytesIO(data)) as stream:
        return _read(stream)


class SnapshotLines:
    """The objects of a file that `wharf snapshot` wrote, one in each line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> Iterator[bytes]:
        with self._path.open("rb") as file, _decompressing(file) as stream, _damage():
            stream.readline()
            for line in stream:
                if line.rstrip() == _CLOSING.strip():
                    return
                yield line.rstrip(b",\r\n")
            raise BadContent("the file ends in the middle of the snapshot")

    def read(self) -> bytes:
        with self._path.open("rb") as file, _decompressing(file) as stream:
            return _read(stream)


def content_of(path: Path) -> bytes | SnapshotLines:
    """The content of a file that may be compressed; a snapshot can be read line by line. Raises BadCompression."""
    if not path.is_file():
        return decompressed(path.read_bytes())  # a pipe, which can be read only once
    with path.open("rb") as file, _decompressing(file) as stream, _damage():
        start = stream.read(len(_OPENING))
        if not start and stream is not file:
            raise BadCompression("it is cut off")  # a reader of Zstandard ends silently there
        return SnapshotLines(path) if start == _OPENING else start + stream.read()


def _decompressing(file: IO[bytes]) -> IO[bytes]:
    """A stream of the decompressed content, from the beginning of a file."""
    start = file.read(len(_ZSTD))
    file.seek(0)
    if start.startswith(_GZIP):
        return io.BufferedReader(gzip.GzipFile(fileobj=file), 1 << 20)
    if start == _ZSTD:
        import zstandard

        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return io.BufferedReader(reader, 1 << 20)
    return file


def _read(stream: IO[bytes]) -> bytes:
    with _damage():
        return stream.read()


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise BadCompression(str(error)) from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # its module is imported only if it is needed
            raise
        raise BadCompression(str(error)) from error


def is_header(document: Document) -> bool:
    return (document.get("apiVersion"), document.get("kind")) == (API_VERSION, KIND)


def lacking_kinds(header: Document) -> Iterable[str]:
    """What a snapshot says that it could not read."""
    for each in header.get("notRead") or ():
        yield f"{each.get('kind')}: could not be read: {each.get('why')}"
