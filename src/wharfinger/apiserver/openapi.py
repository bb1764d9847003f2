"""OpenAPI documents, versions 3 and 2: schemas of everything served, for `kubectl explain` and validation by clients.

Built-in schemas come from `wharfinger.api.schema.definitions`, those of other kinds from the registry. Documents are
generated on first use and cached until the registry changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

import wharfinger
from wharfinger.api.errors import NotAcceptable
from wharfinger.api.kubernetes_version import REFERENCE, RELEASES
from wharfinger.api.registry import Document, Kind, Registry
from wharfinger.api.schema.definitions import META, PREFIX, definition_name, definitions
from wharfinger.apiserver import openapi_custom, openapi_protobuf
from wharfinger.apiserver.discovery import Discovery, subresources
from wharfinger.apiserver.exchange import ApiExchange
from wharfinger.apiserver.negotiation import JSON, accept
from wharfinger.apiserver.openapi_paths import THREE, TWO, Flavour, operations
from wharfinger.apiserver.resources import unknown_path

_INFO = {"title": "Wharfinger", "version": f"v{RELEASES[REFERENCE]}"}
_STANDARD = ("DeleteOptions", "Status", "APIResourceList", "WatchEvent", "Patch")


class _Published:
    """A document as bytes, with its tag."""

    __slots__ = ("data", "tag")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tag = f'"{hashlib.sha256(data).hexdigest()[:32].upper()}"'


class OpenApi:
    def __init__(self, registry: Registry, discovery: Discovery) -> None:
        self._registry = registry
        self._discovery = discovery
        self._made: dict[str, _Published] = {}
        self._hashes: dict[str, str] = {}

    def forget(self) -> None:
        """Drops cached documents after a change of the registry."""
        self._made.clear()
        self._hashes.clear()

    def root_paths(self) -> list[str]:
        """What `GET /` lists."""
        paths = {"/api", "/apis", "/healthz", "/livez", "/readyz", "/metrics", "/openapi/v2", "/openapi/v3", "/version"}
        paths.update(f"/{path}" for path in self._group_versions())
        paths.update(f"/apis/{group}" for group in self._discovery.groups())
        paths.update(f"/openapi/v3/{path}" for path in self._group_versions())
        return sorted(paths)

    async def serve(self, exchange: ApiExchange) -> None:
        rest = exchange.parts[1:]
        if rest == ["v2"] and openapi_protobuf.accepted(exchange.header(b"accept")):
            await self._cached(exchange, "v2 protobuf", self._v2, openapi_protobuf.encode, openapi_protobuf.MEDIA)
        elif rest == ["v2"]:
            self._check_accept(exchange)
            await self._cached(exchange, "v2", self._v2)
        elif rest == ["v3"]:
            await exchange.json({"paths": self._index()})
        elif rest and rest[0] == "v3" and "/".join(rest[1:]) in self._group_versions():
            self._check_accept(exchange)
            path = "/".join(rest[1:])
            await self._cached(exchange, path, lambda: self._v3(path))
        else:
            raise unknown_path()

    def _check_accept(self, exchange: ApiExchange) -> None:
        try:
            accept(exchange.header(b"accept"), stream=True)
        except NotAcceptable:
            # Protobuf has a media type of its own here, and is not served for version 3.
            raise NotAcceptable(f"only the following media types are accepted: {JSON}") from None

    async def _cached(
        self,
        exchange: ApiExchange,
        key: str,
        make: Callable[[], Document],
        encode: Callable[[Document], bytes] = msgspec.json.encode,
        media: str = JSON,
    ) -> None:
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = _Published(encode(make()))
        if exchange.header(b"if-none-match") == made.tag:
            await exchange.answer(304, b"", media, {"etag": made.tag})
        elif media == JSON:
            await exchange.json(made.data, headers={"etag": made.tag, "vary": "Accept"})
        else:
            await exchange.answer(200, made.data, media, {"etag": made.tag, "vary": "Accept"})

    def _group_versions(self) -> list[str]:
        groups = self._discovery.groups()
        return ["api/v1", *(f"apis/{group}/{version}" for group, versions in groups.items() for version in versions)]

    def _index(self) -> Document:
        return {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hash(path)}"}
            for path in self._group_versions()
        }

    def _hash(self, path: str) -> str:
        """A hash of the inputs of the document, which need not be generated for it."""
        if path not in self._hashes:
            group, version = _split(path)
            parts: list[Any] = [wharfinger.__version__]
            for kind in self._kinds(group, version):
                schema = kind.schema(version) if kind.schema is not None else None
                parts.append([kind.kind, kind.verbs, list(subresources(kind, group, version)), schema])
            self._hashes[path] = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32].upper()
        return self._hashes[path]

    def _kinds(self, group: str, version: str) -> list[Kind]:
        found = [
            kind for kind in self._registry if group in (kind.group, *kind.alias_groups) and version in kind.versions
        ]
        return sorted(found, key=lambda kind: kind.plural)

    def _v3(self, path: str) -> Document:
        group, version = _split(path)
        schemas = _Schemas(THREE)
        paths: Document = {}
        for kind in self._kinds(group, version):
            paths |= operations(THREE, kind, group, version, schemas.of_kind)
        for name in _STANDARD:
            schemas.add(META + name)
        scheme = {
            "type": "apiKey",
            "description": "Bearer Token authentication",
            "name": "authorization",
            "in": "header",
        }
        return {
            "openapi": "3.0.0",
            "info": _INFO,
            "paths": paths,
            "components": {"schemas": schemas.complete(), "securitySchemes": {"BearerToken": scheme}},
        }

    def _v2(self) -> Document:
        schemas = _Schemas(TWO)
        paths: Document = {}
        for path in self._group_versions():
            group, version = _split(path)
            for kind in self._kinds(group, version):
                paths |= operations(TWO, kind, group, version, schemas.of_kind)
        for name in _STANDARD:
            schemas.add(META + name)
        return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": schemas.complete()}


def _split(path: str) -> tuple[str, str]:
    parts = path.split("/")
    return ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])


class _Schemas:
    """The schemas of one document: those requested and all that they refer to."""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour
        self._found: dict[str, Document] = {}
        self._queue: list[str] = []

    def add(self, name: str) -> None:
        if name not in self._found:
            self._found[name] = {}
            self._queue.append(name)

    def of_kind(self, group: str, version: str, kind_name: str, kind: Kind) -> str:
        """The name of a kind's schema; adds the schema and that of its list to the document."""
        name = definition_name(group, version, kind_name)
        if name is not None:
            self.add(name)
            if name + "List" in definitions():
                self.add(name + "List")
            return name
        name = ".".join((*reversed(group.split(".")), version, kind_name))
        if name not in self._found:
            self._found[name] = self._own(group, version, kind)
            listed = name.removesuffix(kind_name) + kind.list_kind
            self._found[listed] = self._list(group, version, kind, name)
        return name

    def complete(self) -> dict[str, Document]:
        known = definitions()
        while self._queue:
            name = self._queue.pop()
            self._found[name] = self._translated(_special(name, self._flavour) or known[name])
        return dict(sorted(self._found.items()))

    def _own(self, group: str, version: str, kind: Kind) -> Document:
        """The schema of a kind that is not built in."""
        schema = kind.schema(version) if kind.schema is not None else None
        named = {"group": group, "version": version, "kind": kind.kind}
        return self._object(openapi_custom.object_schema(schema, named, version_2=self._flavour is TWO))

    def _list(self, group: str, version: str, kind: Kind, item: str) -> Document:
        named = {"group": group, "version": version, "kind": kind.list_kind}
        return self._object(openapi_custom.list_schema(kind.kind, kind.plural, item, named))

    def _object(self, schema: Document) -> Document:
        made: Document = self._translated(schema)
        return made

    def _translated(self, schema: Any) -> Any:
        """A schema with the references of this version; adds the schemas that it refers to."""
        if isinstance(schema, list):
            return [self._translated(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        ref = schema.get("$ref")
        if isinstance(ref, str):
            name = ref[len(PREFIX) :]
            if name in definitions():
                self.add(name)
            link = {"$ref": self._flavour.prefix + name}
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            if not rest:
                return link
            # Version 3 ignores siblings of a reference.
            return {"allOf": [link], **rest} if self._flavour is THREE else {**link, **rest}
        return {key: self._translated(value) for key, value in schema.items()}


def _special(name: str, flavour: Flavour) -> Document | None:
    """Types with more than one JSON type; in version 2 they are strings."""
    if flavour is not THREE:
        return None
    about = definitions()[name].get("description", "")
    if name.endswith("util.intstr.IntOrString"):
        return {"description": about, "format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if name.endswith("api.resource.Quantity"):
        return {"description": about, "oneOf": [{"type": "string"}, {"type": "number"}]}
    return None
