"""The paths of OpenAPI documents: the operations of each kind and their parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wharfinger.api.registry import Document, Kind
from wharfinger.api.schema.definitions import META
from wharfinger.apiserver.discovery import CONNECTED, subresources
from wharfinger.store.patches import patch_media


@dataclass(frozen=True, slots=True, eq=False)
class Flavour:
    """What differs between OpenAPI 2 and 3."""

    prefix: str


TWO = Flavour("#/definitions/")
THREE = Flavour("#/components/schemas/")

SchemaOf = Callable[[str, str, str, Kind], str]

_SELECT = {
    "continue": ("string", "The token of the previous answer: the next part of a list in chunks."),
    "fieldSelector": ("string", "Only objects whose fields match."),
    "labelSelector": ("string", "Only objects whose labels match."),
    "limit": ("integer", "At most this many objects in one answer."),
    "resourceVersion": ("string", "The version that the answer is to show, or to begin after."),
    "resourceVersionMatch": ("string", "How resourceVersion is to be understood: Exact or NotOlderThan."),
    "sendInitialEvents": ("boolean", "Begin a watch with the present state, and mark where it ends."),
    "timeoutSeconds": ("integer", "End the request after this time."),
}
_WATCH = {
    "allowWatchBookmarks": ("boolean", "Send bookmarks."),
    "watch": ("boolean", "Watch for changes instead of a list."),
}
_WRITE = {
    "dryRun": ("string", "All: go through every step but do not store."),
    "fieldManager": ("string", "Who makes this change."),
    "fieldValidation": ("string", "What to do with unknown or repeated fields: Ignore, Warn or Strict."),
}
_APPLY = {"force": ("boolean", "Take over fields that others manage.")}
_DELETE = {
    "dryRun": ("string", "All: go through every step but do not store."),
    "gracePeriodSeconds": ("integer", "How long the object may take to end."),
    "orphanDependents": ("boolean", "Leave dependents; deprecated, see propagationPolicy."),
    "propagationPolicy": ("string", "What happens to dependents: Orphan, Background or Foreground."),
}
_PATH = {"name": "name of the object", "namespace": "object name and auth scope, such as for teams and projects"}
_PRETTY = {"pretty": ("string", "Indent the answer.")}

_METHODS = {"get": "get", "list": "get", "create": "post", "update": "put", "patch": "patch", "delete": "delete"}
_ACTIONS = {"create": "post", "update": "put"}
Parameters = dict[str, tuple[str, str]]


def operations(flavour: Flavour, kind: Kind, group: str, version: str, schema_of: SchemaOf) -> Document:
    """All paths of a kind in one group and version."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    base = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    name = schema_of(group, version, kind.kind, kind)
    own = _Describer(flavour, (group, version, kind.kind), name, kind)
    paths: Document = {}
    if kind.namespaced and "list" in kind.verbs:
        paths[f"{root}/{kind.plural}"] = own.path(("list",), (), everywhere=True)
    scope = ("namespace",) if kind.namespaced else ()
    collection = tuple(verb for verb in ("list", "create", "deletecollection") if verb in kind.verbs)
    paths[base] = own.path(collection, scope)
    single = tuple(verb for verb in ("get", "update", "patch", "delete") if verb in kind.verbs)
    if single:
        paths[f"{base}/{{name}}"] = own.path(single, (*scope, "name"))
    for part, (part_group, part_version, part_kind, verbs) in subresources(kind, group, version).items():
        if part in CONNECTED:
            paths[f"{base}/{{name}}/{part}"] = own.connection(part, part_kind, verbs, (*scope, "name"))
            continue
        part_name = name if part_kind == kind.kind else schema_of(part_group, part_version, part_kind, kind)
        other = _Describer(flavour, (part_group, part_version, part_kind), part_name, kind, part)
        paths[f"{base}/{{name}}/{part}"] = other.path(verbs, (*scope, "name"))
    return paths


class _Describer:
    def __init__(
        self, flavour: Flavour, named: tuple[str, str, str], schema: str, kind: Kind, subresource: str = ""
    ) -> None:
        self._flavour = flavour
        self._named = dict(zip(("group", "version", "kind"), named))
        self._schema = schema
        self._kind = kind
        self._subresource = subresource

    def path(self, verbs: tuple[str, ...], inside: tuple[str, ...], *, everywhere: bool = False) -> Document:
        made: Document = {}
        for verb in verbs:
            method = "delete" if verb == "deletecollection" else _METHODS[verb]
            made[method] = self._operation(verb, inside, everywhere)
        made["parameters"] = [
            *(self._path_parameter(name) for name in inside),
            *self._query_parameters(_PRETTY),
        ]
        return made

    def connection(self, part: str, kind: str, verbs: tuple[str, ...], inside: tuple[str, ...]) -> Document:
        """The path of a subresource that is a stream to and from a kubelet."""
        named = {**self._named, "kind": kind}
        owner = "".join(word.capitalize() for word in (named["group"].split(".")[0] or "core", named["version"]))
        answer: Document = {"description": "OK"}
        if self._flavour is TWO:
            answer["schema"] = {"type": "string"}
        else:
            answer["content"] = {"*/*": {"schema": {"type": "string"}}}
        made: Document = {}
        for verb in verbs:
            method = _METHODS[verb]
            word = "read" if part == "log" else f"connect{method.capitalize()}"
            made[method] = {
                "operationId": f"{word}{owner}Namespaced{self._kind.kind}{part.capitalize()}",
                "description": f"connect to {part} of {self._kind.kind}",
                "tags": [f"{named['group'].split('.')[0] or 'core'}_{named['version']}"],
                "x-kubernetes-action": "get" if part == "log" else "connect",
                "x-kubernetes-group-version-kind": named,
                "responses": {"200": answer, "401": {"description": "Unauthorized"}},
                **({"consumes": ["*/*"], "produces": ["*/*"], "schemes": ["https"]} if self._flavour is TWO else {}),
            }
        made["parameters"] = [self._path_parameter(name) for name in inside]
        return made

    def _operation(self, verb: str, inside: tuple[str, ...], everywhere: bool) -> Document:
        group, version, kind = self._named["group"], self._named["version"], self._named["kind"]
        scope = "Namespaced" if "namespace" in inside else ""
        words = {"deletecollection": "deleteCollection", "get": "read", "update": "replace"}
        owner = "".join(part.capitalize() for part in (group.split(".")[0] or "core", version))
        operation: Document = {
            "operationId": f"{words.get(verb, verb)}{owner}{scope}{self._kind.kind}"
            f"{self._subresource.capitalize()}{'ForAllNamespaces' if everywhere else ''}",
            "description": f"{words.get(verb, verb)} {kind}",
            "tags": [f"{group.split('.')[0] or 'core'}_{version}"],
            "x-kubernetes-action": _ACTIONS.get(verb, verb),
            "x-kubernetes-group-version-kind": self._named,
        }
        parameters = self._query_parameters(_query(verb, self._kind))
        shown = self._schema
        if verb == "list":
            shown = shown.removesuffix(kind) + self._kind.list_kind
        if verb in ("delete", "deletecollection"):
            shown = META + "Status"
        body = {"create": self._schema, "update": self._schema, "patch": META + "Patch"}.get(verb)
        if verb in ("delete", "deletecollection"):
            body = META + "DeleteOptions"
        codes = {"create": ("200", "201", "202"), "update": ("200", "201"), "patch": ("200", "201")}
        if self._flavour is TWO:
            if body:
                required = verb not in ("delete", "deletecollection")
                parameters.append({"name": "body", "in": "body", "required": required, "schema": self._ref(body)})
            operation["consumes"] = patch_media(self._kind) if verb == "patch" else ["*/*"]
            operation["produces"] = ["application/json", "application/yaml"]
            operation["schemes"] = ["https"]
            answer: Document = {"description": "OK", "schema": self._ref(shown)}
        else:
            if body:
                media = patch_media(self._kind) if verb == "patch" else ["application/json", "application/yaml"]
                operation["requestBody"] = {
                    "content": {name: {"schema": self._ref(body)} for name in media},
                    "required": verb not in ("delete", "deletecollection"),
                }
            content = {name: {"schema": self._ref(shown)} for name in ("application/json", "application/yaml")}
            answer = {"description": "OK", "content": content}
        operation["parameters"] = parameters
        operation["responses"] = dict.fromkeys(codes.get(verb, ("200",)), answer)
        operation["responses"]["401"] = {"description": "Unauthorized"}
        return operation

    def _ref(self, name: str) -> Document:
        return {"$ref": self._flavour.prefix + name}

    def _query_parameters(self, parameters: Parameters) -> list[Document]:
        return [
            {"name": name, "in": "query", "description": about, **self._typed(type)}
            for name, (type, about) in parameters.items()
        ]

    def _path_parameter(self, name: str) -> Document:
        return {"name": name, "in": "path", "required": True, "description": _PATH[name], **self._typed("string")}

    def _typed(self, type: str) -> Document:
        typed = {"type": type, "uniqueItems": True}
        return typed if self._flavour is TWO else {"schema": typed}


def _query(verb: str, kind: Kind) -> Parameters:
    match verb:
        case "list":
            return {**_SELECT, **_WATCH} if "watch" in kind.verbs else _SELECT
        case "create" | "update":
            return _WRITE
        case "patch":
            return {**_WRITE, **_APPLY}
        case "delete":
            return _DELETE
        case "deletecollection":
            return {**_SELECT, **_DELETE}
        case _:
            return {}
