"""Manifest files: JSON or YAML with any number of documents and lists, with the location of every fault.

`load` takes file names and texts and returns objects that know their location; it raises `BadManifests` with all faults
of all files. Some mistakes that are common in design documents, such as curly quotes, are repaired and reported in
`Loaded.repaired`; an API server would refuse them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec

from wharfinger.api.fields import show
from wharfinger.api.pod_texts import PodText, PodTexts
from wharfinger.api.registry import Document, Registry
from wharfinger.api.shared_strings import SharedStrings
from wharfinger.api.yaml_reader import BadYaml, DocumentReader, Reading, read

_CHECKED_JSON = 8 << 20  # bytes; larger JSON files are generated, and not searched for duplicate keys


@dataclass(frozen=True, slots=True)
class Source:
    """The location of an object: the file, the document in it (from 1), its first line, its index in a list."""

    file: str
    document: int
    line: int
    prefix: str = ""  # `items[3]` inside a list
    text: str = field(default="", repr=False, compare=False)

    def line_of(self, path: str) -> int:
        """The line of a field, or of its nearest parent that exists."""
        if not self.text:
            return self.line
        lines = _lines(self.text, self.line)
        wanted = ".".join(filter(None, (self.prefix, path)))
        while wanted and wanted not in lines:
            wanted = re.sub(r"(\.[^.\[]*|\[[^\[]*\]|^[^.\[]*)$", "", wanted)
        return lines.get(wanted, self.line)

    def __str__(self) -> str:
        return f"{self.file}, document {self.document}, line {self.line}"


@lru_cache(maxsize=1)  # a list may have thousands of objects with faults
def _lines(text: str, first_line: int) -> dict[str, int]:
    """The lines of all fields of a document; none if it cannot be read."""
    try:
        return read(text, first_line=first_line, with_lines=True).lines
    except BadYaml:
        return {}


class Manifest(msgspec.Struct, frozen=True):
    content: Document | PodText
    source: Source

    @property
    def document(self) -> Document:
        """The object; a new document at each access if the manifest holds the text of a pod."""
        return self.content.document() if isinstance(self.content, PodText) else self.content

    @property
    def outline(self) -> Document:
        """The document, or as much of it as a pod that is held as text has in common with others. Not to be changed."""
        return self.content.outline() if isinstance(self.content, PodText) else self.content

    @property
    def name(self) -> str:
        metadata = self.outline.get("metadata")
        return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


class ManifestFault(msgspec.Struct, frozen=True):
    """`str(fault)` reads like `pods.yaml, document 2, line 14: spec.containers: key "image" already set in map`."""

    source: Source
    path: str
    message: str
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.source.file}, document {self.source.document}, line {self.line or self.source.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class BadManifests(ValueError):
    """Some files are not valid manifests; has all faults."""

    def __init__(self, faults: list[ManifestFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class Loaded(msgspec.Struct):
    manifests: list[Manifest] = msgspec.field(default_factory=list)
    faults: list[ManifestFault] = msgspec.field(default_factory=list)
    repaired: list[ManifestFault] = msgspec.field(default_factory=list)  # mistakes that were corrected


class BadContent(ValueError):
    """The content of a file cannot be read; the message says why."""


class ItemLines(Protocol):
    """The content of a large JSON list with an item in each line, as `wharf snapshot` writes it: it is read line by line,
    so that only its objects are in memory."""

    def lines(self) -> Iterator[bytes]:
        """The lines of the items, without the commas between them. Raises BadContent."""
        ...

    def read(self) -> bytes:
        """Everything. Raises BadContent."""
        ...


Content = str | bytes | ItemLines


def load(files: Iterable[tuple[str, Content]], registry: Registry | None = None) -> list[Manifest]:
    """The objects of all files, in order. With a registry, unknown kinds are faults."""
    loaded = load_all(files, registry)
    if loaded.faults:
        raise BadManifests(loaded.faults)
    return loaded.manifests


def load_all(files: Iterable[tuple[str, Content]], registry: Registry | None = None) -> Loaded:
    """Like `load`, but returns the faults together with the objects."""
    loaded = Loaded()
    for file, content in files:
        if not isinstance(content, str | bytes):
            try:
                if _load_lines(file, content, loaded, registry):
                    continue
                content = content.read()
            except BadContent as error:
                loaded.faults.append(ManifestFault(Source(file, 1, 1), "", str(error)))
                continue
        if isinstance(content, bytes) and len(content) > _CHECKED_JSON and _load_large(file, content, loaded, registry):
            continue
        try:
            text = content if isinstance(content, str) else content.decode()
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = f"not UTF-8 text: {error.reason} at byte {error.start}"
            loaded.faults.append(ManifestFault(Source(file, 1, line), "", message))
            continue
        _load_text(file, text.removeprefix("\ufeff"), loaded, registry)
    return loaded


def _load_lines(file: str, content: ItemLines, loaded: Loaded, registry: Registry | None) -> bool:
    """Whether every line was an object; if one was not, nothing is loaded."""
    sources = ((line, Source(file, 1, number + 2, f"items[{number}]")) for number, line in enumerate(content.lines()))
    return _load_items(sources, loaded, registry)


class _Items(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A List whose items are not decoded."""

    apiVersion: Literal["v1"]  # noqa: N815 - as on the wire
    kind: Literal["List"]
    items: list[msgspec.Raw]
    metadata: dict[str, Any] | None = None


_decode_items = msgspec.json.Decoder(_Items).decode


def _load_large(file: str, content: bytes, loaded: Loaded, registry: Registry | None) -> bool:
    """Loads a large JSON file without a copy of it as text. Returns whether it is JSON."""
    if content.lstrip()[:1] not in (b"{", b"["):
        return False
    source = Source(file, 1, 1)
    try:
        items = _decode_items(content).items
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        items = []
    sources = ((bytes(item), _within(source, f"items[{index}]")) for index, item in enumerate(items))
    if items and _load_items(sources, loaded, registry):
        return True
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    SharedStrings().share(value)
    _accept(value, source, loaded, registry)
    return True


def _load_items(items: Iterable[tuple[bytes, Source]], loaded: Loaded, registry: Registry | None) -> bool:
    """Whether every item was JSON; if one was not, nothing is loaded. Running pods stay texts."""
    decoder, strings, pods, found = msgspec.json.Decoder(), SharedStrings(), PodTexts(), Loaded()
    try:
        for item, source in items:
            pod = pods.read(item)
            if pod is not None:
                found.manifests.append(Manifest(pod, source))
                continue
            value = decoder.decode(item)
            strings.share(value)
            _accept(value, source, found, registry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    loaded.manifests += found.manifests
    loaded.faults += found.faults
    loaded.repaired += found.repaired
    return True


def _load_text(file: str, text: str, loaded: Loaded, registry: Registry | None) -> None:
    values = _json_values(text)
    if values is not None:
        for number, value in enumerate(values, 1):
            source = Source(file, number, 1)
            for line, path, message in _duplicates(text) if number == 1 else ():
                loaded.faults.append(ManifestFault(source, path, message, line))
            _accept(value, source, loaded, registry)
        return
    reader = DocumentReader()
    for number, (line, part) in enumerate(_documents(text), 1):
        source = Source(file, number, line, text=part)
        reading = _read(reader, part, source, loaded)
        if reading is None or reading.empty or reading.value is None:
            continue
        loaded.faults += [ManifestFault(source, path, message, at) for at, path, message in reading.faults]
        loaded.repaired += [ManifestFault(source, "", message, at) for at, message in reading.repaired]
        _accept(reading.value, source, loaded, registry)


def _json_values(text: str) -> list[Any] | None:
    """The values of a JSON text, of which there may be several in sequence; None if it is not JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return [msgspec.json.decode(text)]
    except RecursionError:
        return None  # the YAML reader reports excessive depth
    except msgspec.DecodeError:
        pass
    decoder, values, position = json.JSONDecoder(), [], 0
    body = text.strip()
    try:
        while position < len(body):
            value, position = decoder.raw_decode(body, position)
            values.append(value)
            while position < len(body) and body[position].isspace():
                position += 1
    except (ValueError, RecursionError):
        return None
    return values


def _duplicates(text: str) -> list[tuple[int, str, str]]:
    """Line, path and message of every duplicate key."""
    if len(text) > _CHECKED_JSON:
        return []
    doubled = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal doubled
        made = dict(items)
        doubled = doubled or len(made) != len(items)
        return made

    try:
        json.loads(text, object_pairs_hook=pairs)
        # JSON is YAML, and the YAML reader knows line numbers.
        return read(text).faults if doubled else []
    except (ValueError, RecursionError):
        return []


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """The documents of a YAML stream with their first lines. Each is read on its own: a broken one does not hide others."""
    if not any(f"\n{mark}" in text or text.startswith(mark) for mark in ("---", "%")):
        # A single document, such as a snapshot: no need to search for separators.
        if _CONTENT.search(text) is not None:
            yield 1, text
        return
    part: list[str] = []
    first = 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if line.startswith("---") and (len(line.rstrip()) == 3 or line[3] in " \t"):
            if _has_content(part):
                yield first, "".join(part)
            part, first = [line[3:]] if line[3:].strip() else ["\n"], number
        elif not (line.startswith("%") and not _has_content(part)):
            part.append(line)
        else:
            part.append("\n")
    if _has_content(part):
        yield first, "".join(part)


_CONTENT = re.compile(r"^[^\S\n]*[^\s#]", re.MULTILINE)


def _has_content(lines: list[str]) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in lines)


def _read(reader: DocumentReader, part: str, source: Source, loaded: Loaded) -> Reading | None:
    try:
        return reader.read(part, first_line=source.line)
    except BadYaml as error:
        straight = part.translate({ord(c): '"' for c in "“”"} | {ord(c): "'" for c in "‘’"})
        if straight != part:
            try:
                reading = reader.read(straight, first_line=source.line)
            except BadYaml:
                pass
            else:
                loaded.repaired.append(ManifestFault(source, "", "curly quotes read as plain ones"))
                return reading
        loaded.faults.append(ManifestFault(source, "", str(error), error.line))
        return None


_TOP = {"piVersion": "apiVersion", "ApiVersion": "apiVersion", "APIVersion": "apiVersion", "apiversion": "apiVersion", "Kind": "kind", "Metadata": "metadata", "Spec": "spec"}  # fmt: skip
_ALPHA = re.compile(r"(^|/)valpha(\d+)$")


def _accept(value: Any, source: Source, loaded: Loaded, registry: Registry | None) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _accept(item, _within(source, f"[{index}]"), loaded, registry)
        return
    if not isinstance(value, dict):
        loaded.faults.append(ManifestFault(source, source.prefix, f"an object is wanted, not {type(value).__name__}"))
        return
    _mend_top(value, source, loaded)
    kind, items = value.get("kind"), value.get("items")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if kind != "List" and isinstance(item, dict):
                # Items of a typed list may omit apiVersion and kind.
                item.setdefault("apiVersion", value.get("apiVersion"))
                item.setdefault("kind", kind.removesuffix("List"))
            _accept(item, _within(source, f"items[{index}]"), loaded, registry)
        return
    faults = [name for name in ("apiVersion", "kind") if not isinstance(value.get(name), str) or not value[name]]
    for name in faults:
        loaded.faults.append(ManifestFault(source, _join(source.prefix, name), "Required value"))
    faults += _metadata_faults(value, source, loaded)
    if faults:
        return
    if registry is not None and registry.of_object(value["apiVersion"], value["kind"]) is None:
        message = f'no matches for kind "{value["kind"]}" in version "{value["apiVersion"]}"'
        loaded.faults.append(ManifestFault(source, _join(source.prefix, "kind"), message, source.line_of("kind")))
        return
    _mend_kind(value, source, loaded)
    loaded.manifests.append(Manifest(value, source))


def _metadata_faults(value: Document, source: Source, loaded: Loaded) -> list[str]:
    """Faults of the fields that identify an object; the API validates everything else."""
    metadata = value.get("metadata")
    wrong = []
    if metadata is not None and not isinstance(metadata, dict):
        wrong.append(("metadata", f"an object is wanted, not {show(metadata)}"))
    for name in ("name", "generateName", "namespace"):
        text = metadata.get(name) if isinstance(metadata, dict) else None
        if not isinstance(text, str | None):
            wrong.append((f"metadata.{name}", f"a string is wanted, not {show(text)}"))
    for path, message in wrong:
        loaded.faults.append(ManifestFault(source, _join(source.prefix, path), message, source.line_of(path)))
    return [path for path, _ in wrong]


def _within(source: Source, part: str) -> Source:
    joined = source.prefix + part if part.startswith("[") else _join(source.prefix, part)
    return Source(source.file, source.document, source.line, joined, source.text)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _mend_top(value: Document, source: Source, loaded: Loaded) -> None:
    for slip, right in _TOP.items():
        if slip in value and right not in value:
            value[right] = value.pop(slip)
            _note(loaded, source, slip, f"read as {right}")
    version = value.get("apiVersion")
    if isinstance(version, str) and (match := _ALPHA.search(version)):
        value["apiVersion"] = version[: match.start()] + f"{match[1]}v1alpha{match[2]}"
        _note(loaded, source, "apiVersion", f"{version} read as {value['apiVersion']}")


def _mend_kind(value: Document, source: Source, loaded: Loaded) -> None:
    if value["kind"] == "ResourceQuota":
        spec = value.get("spec")
        if isinstance(spec, dict) and "Hard" in spec and "hard" not in spec:
            spec["hard"] = spec.pop("Hard")
            _note(loaded, source, "spec.Hard", "read as hard")
    elif value["kind"] == "AddOnPlacementScore":
        status = value.get("status")
        scores = status.get("scores") if isinstance(status, dict) else None
        for index, score in enumerate(scores if isinstance(scores, list) else ()):
            if isinstance(score, dict) and "prioritizer" in score and "name" not in score:
                score["name"] = score.pop("prioritizer")
                _note(loaded, source, f"status.scores[{index}].prioritizer", "read as name")


def _note(loaded: Loaded, source: Source, path: str, message: str) -> None:
    loaded.repaired.append(ManifestFault(source, _join(source.prefix, path), message, source.line_of(path)))
