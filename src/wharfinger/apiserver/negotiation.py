"""Content negotiation: the media type and representation of responses, and the media type of bodies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from wharfinger.api.errors import NotAcceptable, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"

PLAIN, TABLE, PARTIAL, DISCOVERY = "", "Table", "PartialObjectMetadata", "APIGroupDiscoveryList"
_REMEMBERED = 512  # characters of a header up to which its meaning is remembered
_META_VERSIONS = ("v1", "v1beta1")
_DISCOVERY_VERSIONS = ("v2", "v2beta1")


@dataclass(frozen=True, slots=True)
class Accepted:
    """The negotiated media type, and the representation (`as=Table` and others) with its version."""

    media: str = JSON
    shown_as: str = PLAIN
    version: str = ""


_ANY = Accepted()


def accept(header: str, *, stream: bool = False, tables: bool = True) -> Accepted:
    """The first clause of the `Accept` header that can be served, by descending `q`. Raises NotAcceptable.

    Kinds whose objects are not stored have no `tables`."""
    return (_accept if len(header) <= _REMEMBERED else _accept.__wrapped__)(header, stream, tables)


@lru_cache(maxsize=512)
def _accept(header: str, stream: bool, tables: bool) -> Accepted:
    if not header.strip():
        return _ANY
    clauses = []
    for position, part in enumerate(header.split(",")):
        media, parameters = _clause(part)
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        if quality > 0:
            clauses.append((-quality, position, media, parameters))
    for _, _, media, parameters in sorted(clauses, key=lambda clause: clause[:2]):
        if (found := _serve(media, parameters, stream=stream, tables=tables)) is not None:
            return found
    known = JSON if stream else f"{JSON}, {YAML}"
    raise NotAcceptable(f"only the following media types are accepted: {known}")


def _clause(part: str) -> tuple[str, dict[str, str]]:
    media, *rest = (piece.strip() for piece in part.split(";"))
    pairs = (piece.partition("=") for piece in rest)
    return media.lower(), {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _serve(media: str, parameters: dict[str, str], *, stream: bool, tables: bool) -> Accepted | None:
    if media in ("*/*", "application/*"):
        media = JSON
    if media != JSON and (media != YAML or stream):
        return None
    shown = parameters.get("as", "")
    if not shown:
        return Accepted(media)
    group, version = parameters.get("g", ""), parameters.get("v", "")
    if shown == DISCOVERY:
        known = group == "apidiscovery.k8s.io" and version in _DISCOVERY_VERSIONS
    else:
        shown = PARTIAL if shown == "PartialObjectMetadataList" else shown
        known = shown in (TABLE, PARTIAL) and group == "meta.k8s.io" and version in _META_VERSIONS
    return Accepted(media, shown, version) if known and (tables or shown != TABLE) else None


def content_type(header: str) -> str:
    """The media type without parameters; JSON by default."""
    return (_content_type if len(header) <= _REMEMBERED else _content_type.__wrapped__)(header)


@lru_cache(maxsize=512)
def _content_type(header: str) -> str:
    return header.partition(";")[0].strip().lower() or JSON


def require_content(media: str, *known: str) -> None:
    if media not in known:
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}"
        )
