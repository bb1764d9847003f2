"""The verbs on resources: from a request to calls of the store and back to a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from wharfinger.admission.request import Request
from wharfinger.api.errors import ApiError, BadRequest, MethodNotAllowed, NotFound, TooLarge
from wharfinger.api.registry import Document, Kind, Registry, Resource
from wharfinger.api.requests import ApiRequest, PatchType, Verb
from wharfinger.api.schema.decoding import OutOfRange, WrongType
from wharfinger.api.schema.definitions import definition_name
from wharfinger.api.selectors import FieldRequirement
from wharfinger.apiserver import tables
from wharfinger.apiserver.discovery import CONNECTED, subresources
from wharfinger.apiserver.exchange import ApiExchange, Body, decode, object_body
from wharfinger.apiserver.negotiation import JSON, PARTIAL, TABLE, Accepted, accept, content_type, require_content
from wharfinger.apiserver.options import Deletion, WriteOptions, deletion, list_options, write_options
from wharfinger.apiserver.patching import (
    Finish,
    checked_result,
    decode_patch,
    invalid_merge,
    rejecting,
    repeated_keys,
    restore_error,
)
from wharfinger.apiserver.pod_streams import PodStreams
from wharfinger.apiserver.proxy_subresources import ProxySubresources
from wharfinger.apiserver.request_info import RequestInfo
from wharfinger.apiserver.structure import Structure, Structures
from wharfinger.apiserver.virtual_resources import VirtualResources
from wharfinger.apiserver.watching import Watchers
from wharfinger.store.apply import Applied
from wharfinger.store.objects import StoredObject, Written
from wharfinger.store.patches import patch_media
from wharfinger.store.store import Store

_ON_ONE = frozenset(("get", "update", "patch", "delete"))
_MAX_OPERATIONS = 10_000
_OF_ALL_GROUPS = ("CreateOptions", "DeleteOptions", "List", "Status", "WatchEvent")


class UnknownPath(NotFound):
    """Nothing is served under this path."""


def unknown_path() -> NotFound:
    return UnknownPath("the server could not find the requested resource", details={})


def not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource")


class Located(msgspec.Struct, frozen=True):
    """A request for a resource that exists: its kind, the resource in the requested group and version, and the group,
    version and kind that a body must have."""

    info: RequestInfo
    kind: Kind
    resource: Resource
    body: tuple[str, str, str]


def locate(registry: Registry, info: RequestInfo) -> Located:
    """Finds the kind of a request. Raises NotFound (404), or MethodNotAllowed (405) for a verb that it does not support."""
    kind = registry.of_plural(info.group, info.plural)
    if kind is None:
        raise unknown_path()
    resource, body = _endpoint(
        kind, info.group, info.version, info.subresource, info.verb, info.namespace != "", info.name != ""
    )
    return Located(info, kind, resource, body)


@lru_cache(4096)
def _endpoint(
    kind: Kind, group: str, version: str, subresource: str, verb: str, has_namespace: bool, has_name: bool
) -> tuple[Resource, tuple[str, str, str]]:
    """The resource of a request for a kind, and what its body must be."""
    if version not in kind.versions:
        raise unknown_path()
    if has_namespace and kind.plural != "namespaces" and not kind.namespaced:
        raise unknown_path()
    if kind.namespaced and not has_namespace:
        if has_name:
            raise unknown_path()
        if verb not in ("list", "watch"):
            raise not_allowed()
    resource = kind.resource(version, group)
    if subresource:
        known = subresources(kind, group, version).get(subresource)
        if known is None:
            raise unknown_path()
        if verb not in known[3]:
            raise not_allowed()
        return resource, known[:3]
    if verb not in kind.verbs or ((verb in _ON_ONE) != has_name and verb != "watch"):
        raise not_allowed()
    return resource, (resource.group, resource.version, kind.kind)


@dataclass(frozen=True, slots=True)
class ResourceHandler:
    """Serves all verbs on all resources."""

    store: Store
    structures: Structures
    virtual: VirtualResources
    watchers: Watchers
    pod_streams: PodStreams
    proxy: ProxySubresources
    now: Callable[[], float]

    async def serve(self, exchange: ApiExchange, located: Located) -> None:
        if located.kind.deprecated:
            exchange.warnings.append(located.kind.deprecated)
        if located.info.subresource == "proxy":
            await self.proxy.serve(exchange, located.info)
            return
        if located.info.subresource in CONNECTED:
            await self.pod_streams.serve(exchange, located.info)
            return
        await _VERBS[located.info.verb](self, exchange, located)

    # Reading

    async def _get(self, exchange: ApiExchange, at: Located) -> None:
        accepted = accept(exchange.header(b"accept"))
        namespace = _namespace(at)
        if at.info.subresource == "scale":
            document = await self.store.get_subresource(at.resource, at.info.name, namespace, "scale")
            await exchange.json(document, media=accepted.media)
            return
        stored = await self.store.get(at.resource, at.info.name, namespace)
        await self._show(exchange, at, stored, accepted)

    async def _show(self, exchange: ApiExchange, at: Located, stored: StoredObject, accepted: Accepted) -> None:
        if accepted.shown_as == TABLE:
            await exchange.json(self._table(exchange, at, [stored], accepted, {"resourceVersion": str(stored.version)}))
        elif accepted.shown_as == PARTIAL:
            await exchange.json(tables.partial(stored.data, accepted.version))
        else:
            await exchange.json(stored.data, media=accepted.media)

    async def _list(self, exchange: ApiExchange, at: Located) -> None:
        query = exchange.query
        accepted = accept(exchange.header(b"accept"))
        options = list_options(query, watch=False)
        listing = await self.store.list(
            at.resource,
            _namespace(at),
            labels=query.labels(),
            fields=query.fields(),
            limit=options.limit,
            continue_token=options.continue_token,
            version=options.version,
            version_match=options.version_match,
        )
        metadata: Document = {"resourceVersion": str(listing.version)}
        if listing.continue_token:
            metadata["continue"] = listing.continue_token
            if listing.remaining is not None:
                metadata["remainingItemCount"] = listing.remaining
        if accepted.shown_as == TABLE:
            await exchange.json(self._table(exchange, at, listing.items, accepted, metadata))
        elif accepted.shown_as == PARTIAL:
            rows = [tables.partial(item.data, accepted.version) for item in listing.items]
            version = f"meta.k8s.io/{accepted.version}"
            await exchange.json(list_bytes("PartialObjectMetadataList", version, metadata, rows), media=accepted.media)
        else:
            await exchange.json(_list_of(at, listing.items, metadata), media=accepted.media)

    def _table(
        self, exchange: ApiExchange, at: Located, items: list[StoredObject], accepted: Accepted, metadata: Document
    ) -> Document:
        columns, now = tables.columns_of(at.kind), self.now()
        include = exchange.query.text("includeObject", "Metadata")
        rows = [tables.row(columns, item.document(), now, accepted.version, include) for item in items]
        return tables.table(accepted.version, tables.definitions(columns), rows, metadata)

    async def _watch(self, exchange: ApiExchange, at: Located) -> None:
        query = exchange.query
        accepted = accept(exchange.header(b"accept"), stream=True)
        options = list_options(query, watch=True)
        fields = query.fields()
        if at.info.name:
            fields = (*fields, FieldRequirement("metadata.name", at.info.name))
        after = int(options.version) if options.version not in ("", "0") else None
        if options.initial_events is False and after is None:
            after = self.store.version
        watch: Any
        try:
            watch = self.store.watch(
                at.resource,
                _namespace(at),
                after=after,
                labels=query.labels(),
                fields=fields,
                bookmarks=options.bookmarks,
                initial_events=bool(options.initial_events),
            )
        except ApiError as error:
            if error.code != 410:
                raise
            watch = error
        await self.watchers.serve(exchange, at.resource, at.kind, watch, options, accepted)

    # Writing

    async def _create(self, exchange: ApiExchange, at: Located) -> None:
        accepted = accept(exchange.header(b"accept"), tables=at.kind.stored)
        options = write_options(exchange.query, "CreateOptions", exchange.header(b"user-agent"))
        body = await object_body(exchange, _wanted(at)[0])
        structure = self._structure(at)
        _check_kind(self.store.registry, body.value, at)
        if structure is not None:
            exchange.warnings += structure.check(body.value, body.data, validation=options.validation)
        namespace, subresource = _namespace(at), at.info.subresource
        if not at.kind.stored and at.kind.kind != "Binding":
            body.value.setdefault("kind", at.kind.kind)
            body.value.setdefault("apiVersion", at.resource.api_version)
            await exchange.json(self.virtual.answer(at.kind.kind, body.value, exchange.user, namespace), 201)
            return
        if subresource == "token":
            await exchange.json(await self._token(exchange, at, body.value), 201)
            return
        written = await self.store.send(
            _write(at, "create", body.value, field_manager=options.manager, dry_run=options.dry_run),
            user=exchange.user,
            audit=exchange.annotations,
            given_away=body.media == JSON and b"null" not in body.data,
        )
        await self._written(exchange, at, written, accepted, 201)

    async def _token(self, exchange: ApiExchange, at: Located, document: Document) -> Document:
        """Answers a TokenRequest, which admission reviews like a write."""
        namespace, name = _namespace(at), at.info.name
        review = Request("CREATE", at.resource, namespace, name, exchange.user, document, None, at.info.subresource)
        await self.store.chain.mutate(review, exchange.warnings)
        review.object = self.virtual.prepare_token(review.object or document, namespace, name)
        await self.store.chain.validate(review, exchange.warnings)
        return self.virtual.issue_token(review.object)

    async def _update(self, exchange: ApiExchange, at: Located) -> None:
        accepted = accept(exchange.header(b"accept"))
        options = write_options(exchange.query, "UpdateOptions", exchange.header(b"user-agent"))
        body = await object_body(exchange, _wanted(at)[0])
        _check_kind(self.store.registry, body.value, at)
        structure = self._structure(at)
        if structure is not None:
            exchange.warnings += structure.check(body.value, body.data, validation=options.validation)
        written = await self.store.send(
            _write(at, "update", body.value, field_manager=options.manager, dry_run=options.dry_run),
            user=exchange.user,
            audit=exchange.annotations,
        )
        await self._written(exchange, at, written, accepted, 201 if written.created else 200)

    async def _patch(self, exchange: ApiExchange, at: Located) -> None:
        accepted = accept(exchange.header(b"accept"))
        media = content_type(exchange.header(b"content-type"))
        require_content(media, *patch_media(at.kind))
        type = PatchType(media)
        agent = exchange.header(b"user-agent")
        options = write_options(exchange.query, "PatchOptions", agent, apply=type is PatchType.APPLY)
        data = await exchange.body()
        patch = decode_patch(data, type)
        if exchange.audit is not None:
            exchange.audit.patched(patch, data)
        structure = self._structure(at)
        finish: Finish | None = None
        if type is PatchType.JSON and len(patch) > _MAX_OPERATIONS:
            raise TooLarge(f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(patch)}")
        if type is PatchType.APPLY and options.validation != "Ignore" and (repeated := repeated_keys(data, patch)):
            if options.validation == "Strict":
                raise BadRequest(f"error strict decoding YAML: {repeated}")
            exchange.warnings.append(repeated)
        if type is PatchType.STRATEGIC and at.kind.builtin:
            for name in ("kind", "apiVersion"):  # ignored: a patch cannot change them
                if isinstance(patch.get(name), str | None):
                    patch.pop(name, None)
        if structure is None:
            pass
        elif type is PatchType.JSON:
            finish = checked_result(structure, options.validation, exchange.warnings)
        elif type is PatchType.APPLY:
            if at.info.subresource:
                await self._must_exist(at)
            exchange.warnings += self._check_applied(at, patch, structure, options)
        else:
            try:
                faults = structure.walk(patch, patch=True)
                why = f"strict decoding error: {', '.join(faults)}" if faults and options.validation == "Strict" else ""
            except WrongType as error:
                faults, why = [], restore_error(error) if type is PatchType.STRATEGIC else str(error)
            if why and type is PatchType.STRATEGIC:
                await self._must_exist(at)
                raise invalid_merge(decode_patch(data, type), why)
            if why:
                patch, finish = decode_patch(data, type), rejecting(why)
            elif options.validation == "Warn":
                exchange.warnings += faults
        request = _write(
            at,
            "patch",
            patch,
            patch_type=type,
            field_manager=options.manager,
            force=options.force,
            dry_run=options.dry_run,
        )
        written = await self.store.send(request, user=exchange.user, finish=finish, audit=exchange.annotations)
        await self._written(exchange, at, written, accepted, 201 if written.created else 200)

    def _check_applied(self, at: Located, patch: Document, structure: Structure, options: WriteOptions) -> list[str]:
        if at.info.subresource in ("", "status"):
            # kube-apiserver checks the type and name of the object before it decodes it.
            Applied(at.resource, at.kind, patch, options.manager, options.force).check(at.info.name)
        try:
            faults = structure.walk(patch, patch=True)
        except OutOfRange as error:
            raise BadRequest(f"error decoding patch: {error}") from None
        except WrongType as error:
            what = f"{at.resource.group}/{at.resource.version}, Kind={at.kind.kind}"
            name = f"{(patch.get('metadata') or {}).get('namespace') or ''}/{at.info.name}"
            text = f"failed to convert new object ({name}; {what}) to proper version: "
            text += f"unable to convert unstructured object to {what}: {error}"
            raise ApiError(text, code=500, reason="") from None
        if faults and options.validation == "Strict":
            raise BadRequest(f"strict decoding error: {', '.join(faults)}")
        return faults if options.validation == "Warn" else []

    async def _must_exist(self, at: Located) -> None:
        await self.store.get(at.resource, at.info.name, _namespace(at))

    async def _written(
        self, exchange: ApiExchange, at: Located, written: Written, accepted: Accepted, code: int
    ) -> None:
        exchange.warnings += written.warnings
        if accepted.shown_as and "metadata" in written.document and written.document.get("kind") == at.kind.kind:
            if accepted.shown_as == TABLE:
                columns = tables.columns_of(at.kind)
                include = exchange.query.text("includeObject", "Metadata")
                rows = [tables.row(columns, written.document, self.now(), accepted.version, include)]
                version = written.document["metadata"].get("resourceVersion", "")
                shown = tables.table(accepted.version, tables.definitions(columns), rows, {"resourceVersion": version})
                await exchange.json(shown, code)
            else:
                await exchange.json(tables.partial(written.data, accepted.version), code)
            return
        await exchange.json(written.data, code, accepted.media)

    async def _delete(self, exchange: ApiExchange, at: Located) -> None:
        accepted = accept(exchange.header(b"accept"))
        asked = await self._deletion(exchange)
        request = _write(at, "delete", delete_options=asked.options, dry_run=asked.dry_run)
        written = await self.store.send(request, user=exchange.user, audit=exchange.annotations)
        if written.deleted and not at.kind.returns_deleted:
            exchange.warnings += written.warnings
            await exchange.json(_success(at, written.document), media=accepted.media)
            return
        await self._written(exchange, at, written, accepted, 200)

    async def _delete_collection(self, exchange: ApiExchange, at: Located) -> None:
        accepted = accept(exchange.header(b"accept"))
        query = exchange.query
        asked = await self._deletion(exchange)
        gone = await self.store.delete_collection(
            at.resource,
            _namespace(at),
            labels=query.labels(),
            fields=query.fields(),
            options=asked.options,
            user=exchange.user,
            dry_run=asked.dry_run,
            audit=exchange.annotations,
        )
        metadata = {"resourceVersion": str(self.store.version)}
        await exchange.json(_list_of(at, gone, metadata), media=accepted.media)

    async def _deletion(self, exchange: ApiExchange) -> Deletion:
        data = await exchange.body()
        if not data.strip():
            return deletion(exchange.query, None)
        media = content_type(exchange.header(b"content-type"))
        body = Body(decode(data, media, "DeleteOptions"), data)
        if not isinstance(body.value, dict):
            raise BadRequest("the object provided is unrecognized (must be of type DeleteOptions)")
        structure = self.structures.delete_options()
        structure.check(body.value, msgspec.json.encode(body.value), validation="Ignore")
        return deletion(exchange.query, body.value)

    def _structure(self, at: Located) -> Structure | None:
        return self.structures.of(*at.body)


_VERBS: dict[str, Callable[[ResourceHandler, ApiExchange, Located], Awaitable[None]]] = {
    "get": ResourceHandler._get,
    "list": ResourceHandler._list,
    "watch": ResourceHandler._watch,
    "create": ResourceHandler._create,
    "update": ResourceHandler._update,
    "patch": ResourceHandler._patch,
    "delete": ResourceHandler._delete,
    "deletecollection": ResourceHandler._delete_collection,
}


def _namespace(at: Located) -> str:
    return at.info.namespace if at.kind.namespaced else ""


def _write(at: Located, verb: Verb, body: Any = None, **options: Any) -> ApiRequest[Document]:
    info = at.info
    return ApiRequest(verb, at.resource, _namespace(at), info.name, info.subresource, body, **options)


def _list_of(at: Located, items: Sequence[StoredObject], metadata: Document) -> bytes:
    """A list of a kind. As in Kubernetes, items of built-in kinds have no apiVersion and kind; custom resources have."""
    kind, version = at.kind.list_kind, at.resource.api_version
    if definition_name(at.resource.group, at.resource.version, at.kind.kind) is None:
        return list_bytes(kind, version, metadata, [item.data for item in items])
    head = b'{"apiVersion":"%s","kind":"%s",' % (
        version.encode(),
        at.kind.kind.encode(),
    )  # the beginning of stored objects
    start = len(head)
    chunks = (  # few items in each, so that memory is reused
        b",".join(
            [
                b"{" + item.data[start:] if item.data.startswith(head) else item.data
                for item in items[first : first + 64]
            ]
        )
        for first in range(0, len(items), 64)
    )
    return list_bytes(kind, version, metadata, chunks)


def list_bytes(kind: str, api_version: str, metadata: Document, items: Iterable[bytes]) -> bytes:
    head = msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})[:-1] + b',"items":['
    parts = list(items) or [b""]
    parts[0] = head + parts[0]  # so that joining is the only copy of the whole
    parts[-1] += b"]}"
    return b",".join(parts)


def _wanted(at: Located) -> tuple[str, str]:
    """The kind and apiVersion that the body must have."""
    group, version, kind = at.body
    return kind, f"{group}/{version}" if group else version


def _unconvertible(registry: Registry, api_version: str, kind: str, at: Located) -> str:
    """kube-apiserver's reason why one kind cannot be converted to another; it knows built-in kinds and their lists."""
    if not at.kind.builtin:
        return ""
    version = api_version.rpartition("/")[2]
    found = registry.of_object(api_version, kind) or registry.of_object(api_version, kind.removesuffix("List"))
    known = kind in _OF_ALL_GROUPS or (found is not None and found.builtin)
    if not known or "apiextensions.k8s.io" in (at.resource.group, api_version.partition("/")[0]):
        return f': no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
    group = at.resource.group
    package = "core" if group in ("", "events.k8s.io") else group.partition(".")[0]
    return f": converting ({version}.{kind}) to ({package}.{_wanted(at)[0]}): unknown conversion"


def _check_kind(registry: Registry, document: Document, at: Located) -> None:
    """Rejects a body of another kind than the path serves. This comes before the check of its structure."""
    kind, version = document.get("kind"), document.get("apiVersion")
    wanted, api_version = _wanted(at)
    if (kind and not isinstance(kind, str)) or (version and not isinstance(version, str)):
        raise BadRequest("the object provided is unrecognized: apiVersion and kind must be strings")
    if kind and kind != wanted:
        shown = (version or api_version).rpartition("/")[2]
        why = _unconvertible(registry, version or api_version, kind, at)
        raise BadRequest(f'{kind} in version "{shown}" cannot be handled as a {wanted}{why}')
    if version and version != api_version and not at.info.subresource:
        raise BadRequest(
            f"the API version in the data ({version}) does not match the expected API version ({api_version})"
        )


def _success(at: Located, document: Document) -> Document:
    metadata = document.get("metadata") or {}
    details = {"name": metadata.get("name", ""), "group": at.resource.group, "kind": at.kind.plural}
    details["uid"] = metadata.get("uid", "")
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
