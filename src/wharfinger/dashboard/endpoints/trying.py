"""The endpoints that try a change, and those that make one with the rights of the caller."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request

from wharfinger.api.errors import ApiError, BadRequest, ServiceUnavailable, not_found
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.schema.tree import Schema, schema_of
from wharfinger.dashboard.context import Dashboard
from wharfinger.dashboard.endpoints.registry import endpoint, read_body
from wharfinger.dashboard.sessions import Caller
from wharfinger.dashboard.views.remedies import helpful_change
from wharfinger.dashboard.what_if import CHANGE, WhatIf
from wharfinger.scenario.applying import namespace_of
from wharfinger.simulate.inputs import BadInput, read_inputs

FIELD_MANAGER = "wharf-dashboard"


class Text(msgspec.Struct):
    yaml: str = ""


class ApplyRequest(msgspec.Struct, rename="camel"):
    yaml: str = ""
    dry_run: bool = True
    force: bool = False


class PlayRequest(msgspec.Struct):
    yaml: str = ""
    seconds: float = 0.0
    alone: bool = False  # on an empty cluster instead of a copy of this one


_WHAT_IF_BODY = {
    "type": "object",
    "properties": {
        "yaml": {"type": "string", "description": "manifests and scenarios"},
        "scale": {"type": "array", "items": {"type": "object", "required": ["kind", "name", "replicas"]}},
        "nodes": {"type": "array", "items": {"type": "object", "required": ["like"]}},
        "deletions": {"type": "array", "items": {"type": "string", "description": "KIND/[NAMESPACE/]NAME"}},
        "drains": {"type": "array", "items": {"type": "string"}},
        "user": {"type": "string"},
    },
}
_YAML_BODY = {"type": "object", "properties": {"yaml": {"type": "string"}}}


@endpoint("POST", "/api/plan", "What a change would do. Nothing is changed.", body=_WHAT_IF_BODY)
async def plan(dashboard: Dashboard, caller: Caller, request: Request) -> Any:
    await dashboard.demand_all(caller, "a what-if")
    asked = await read_body(request, WhatIf)
    if asked.empty:
        raise BadRequest("say what changes: manifests, scale, nodes, deletions or drains")
    found = await dashboard.ask_worker("plan", msgspec.to_builtins(asked), dashboard.state.snapshot())
    found["notRead"] = dashboard.not_read()
    return found


class AskRequest(msgspec.Struct):
    yaml: str = ""
    objects: list[Document] = []
    user: str = ""


@endpoint(
    "POST",
    "/api/ask",
    "Would these pods or workloads start now, when, or never, and what would help? Nothing is created.",
    body={
        "type": "object",
        "properties": {
            "yaml": {"type": "string", "description": "manifests"},
            "objects": {"type": "array", "items": {"type": "object"}, "description": "manifests as JSON"},
            "user": {"type": "string", "description": "who would create them"},
        },
    },
)
async def ask(dashboard: Dashboard, caller: Caller, request: Request) -> Any:
    await dashboard.demand_all(caller, "an answer")
    asked = await read_body(request, AskRequest)
    text = "\n---\n".join(
        [*filter(str.strip, [asked.yaml]), *(msgspec.json.encode(each).decode() for each in asked.objects)]
    )
    if not text:
        raise BadRequest("say what would be created: yaml, or objects")
    return await dashboard.ask_worker("ask", {"yaml": text, "user": asked.user}, dashboard.state.snapshot())


@endpoint(
    "GET", "/api/remedies/{namespace}/{name}", "The smallest changes that would let a waiting pod in, each tried."
)
async def remedies(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    visible = await dashboard.visible(caller, PODS)
    if visible.get(PODS, name, namespace) is None:
        raise not_found("", "pods", f"{namespace}/{name}")
    await dashboard.demand_all(caller, "what would help")
    if dashboard.follower is None:
        raise ServiceUnavailable("explanations are not available here")
    found = dashboard.follower.remedies(namespace, name)
    return {"remedies": [helpful_change(each, dashboard.state.registry) for each in found]}


@endpoint("POST", "/api/play", "Plays a scenario in virtual time and returns a frame for each second.", body=_YAML_BODY)
async def play(dashboard: Dashboard, caller: Caller, request: Request) -> Any:
    await dashboard.demand_all(caller, "playing a scenario")
    asked = await read_body(request, PlayRequest)
    arguments = {"yaml": asked.yaml, "seconds": asked.seconds}
    return await dashboard.ask_worker("play", arguments, () if asked.alone else dashboard.state.snapshot())


@endpoint("POST", "/api/check", "The faults of manifests, with their lines.", body=_YAML_BODY)
async def check(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    asked = await read_body(request, Text)
    try:
        found = read_inputs([(CHANGE, asked.yaml)], dashboard.state.registry, strict=True)
    except BadInput as error:
        return {"faults": [_fault(each) for each in error.problems], "objects": 0}
    return {"faults": [], "objects": len(found.manifests) + len(found.scenarios)}


_AT_LINE = re.compile(rf"^{re.escape(CHANGE)}, document \d+(?:, line (\d+))?:? *")


def _fault(text: str) -> Document:
    """A fault with its line; 0 if it has none."""
    found = _AT_LINE.match(text)
    if found is None:
        return {"line": 0, "message": text}
    return {"line": int(found[1] or 0), "message": text[found.end() :] or text}


@endpoint(
    "GET",
    "/api/fields",
    "The fields that an object may have at a path, for completion.",
    parameters={"apiVersion": "of the object", "kind": "of the object", "path": "such as spec.template.spec"},
)
async def fields(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    query, registry = request.query_params, dashboard.state.registry
    kind = registry.of_object(query.get("apiVersion", ""), query.get("kind", ""))
    if kind is None:
        names = {f"{each.storage.api_version} {each.kind}" for each in registry if each.stored}
        return {"kinds": sorted(names), "fields": []}
    schema: Schema = schema_of(kind, query.get("apiVersion", "").rpartition("/")[2])
    for step in filter(None, query.get("path", "").split(".")):
        schema = schema.child(step)
        while schema.type == "list":
            schema = schema.item_schema
    return {
        "fields": [
            {
                "name": name,
                "type": each.type,
                "required": name in schema.required,
                "values": each.constraints.enum or [],
            }
            for name, each in sorted(schema.fields.items())
        ]
    }


@endpoint(
    "POST",
    "/api/apply",
    "Applies manifests with your own rights (server-side apply); a dry run unless dryRun is false.",
    body={
        "type": "object",
        "properties": {"yaml": {"type": "string"}, "dryRun": {"type": "boolean"}, "force": {"type": "boolean"}},
    },
)
async def apply(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    asked = await read_body(request, ApplyRequest)
    try:
        inputs = read_inputs([(CHANGE, asked.yaml)], dashboard.state.registry, strict=True)
    except BadInput as error:
        raise BadRequest("\n".join(error.problems)) from error
    if inputs.scenarios or inputs.configured:
        raise BadRequest("only manifests can be applied: leave scenarios and configurations out")
    results: list[Document] = []
    for manifest in inputs.manifests:
        document = manifest.document
        resource = dashboard.state.registry.resource_of(document)
        assert resource is not None, "kinds were checked above"
        place, name = namespace_of(document, resource), str((document.get("metadata") or {}).get("name") or "")
        row: Document = {"kind": resource.kind, "namespace": place, "name": name, "ok": True, "message": ""}
        try:
            await caller.client.patch(
                resource,
                name,
                document,
                place,
                type=PatchType.APPLY,
                field_manager=FIELD_MANAGER,
                force=asked.force,
                dry_run=asked.dry_run,
            )
        except ApiError as error:
            row |= {"ok": False, "message": error.message, "code": error.code}
        results.append(row)
    return {"dryRun": asked.dry_run, "results": results, "ok": all(each["ok"] for each in results)}


@endpoint(
    "DELETE",
    "/api/objects/{kind}/{name}",
    "Deletes an object with your own rights.",
    parameters={"namespace": "its namespace"},
)
async def delete(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    kind = dashboard.state.registry.find(request.path_params["kind"])
    if kind is None:
        raise BadRequest("no such kind")
    await caller.client.delete(kind.storage, request.path_params["name"], request.query_params.get("namespace", ""))
    return {"deleted": request.path_params["name"]}
