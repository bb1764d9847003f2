"""The JSON endpoints: what the page can do, `curl` can do. Each is declared with what OpenAPI says about it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

import wharfinger
from wharfinger.api.errors import ApiError, BadRequest, Forbidden, ServiceUnavailable, TooLarge, not_found
from wharfinger.api.kinds.builtin import EVENTS, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.registry import Document, Resource
from wharfinger.api.requests import PatchType
from wharfinger.api.schema.tree import Schema, schema_of
from wharfinger.dashboard.follower import Follower
from wharfinger.dashboard.history import History
from wharfinger.dashboard.sessions import Caller, Sessions
from wharfinger.dashboard.starts import WaitingStarts
from wharfinger.dashboard.state import Change, ClusterState, Visible
from wharfinger.dashboard.views.nodes import node_columns, node_detail
from wharfinger.dashboard.views.objects import event_row
from wharfinger.dashboard.views.overview import overview
from wharfinger.dashboard.views.quotas import quota_rows
from wharfinger.dashboard.views.remedies import helpful_change
from wharfinger.dashboard.views.waiting import Judge, waiting_pods
from wharfinger.dashboard.what_if import CHANGE, WhatIf
from wharfinger.dashboard.workers import Workers
from wharfinger.scenario.applying import namespace_of
from wharfinger.simulate.inputs import BadInput, read_inputs
from wharfinger.system import ordered_systems

SCREENS = ("promises", "units", "fleet", "policy")
BODY_LIMIT = 4 << 20  # bytes
COALESCE = 0.1  # seconds in which changes become one message
KEEP_ALIVE = 15.0  # seconds between messages when nothing changes
FIELD_MANAGER = "wharf-dashboard"

Handler = Callable[["Dashboard", Caller, Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    summary: str
    handler: Handler
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the query
    body: Mapping[str, Any] | None = None  # its schema


ENDPOINTS: list[Endpoint] = []


def endpoint(method: str, path: str, summary: str, **more: Any) -> Callable[[Handler], Handler]:
    def declare(handler: Handler) -> Handler:
        ENDPOINTS.append(Endpoint(method, path, summary, handler, **more))
        return handler

    return declare


@dataclass(slots=True, eq=False)
class Dashboard:
    """What the endpoints answer from."""

    state: ClusterState
    sessions: Sessions
    workers: Workers
    history: History
    follower: Follower | None = None  # None: not everything can be read, so nothing can be explained
    config: str = ""  # the configuration file, for what-ifs
    server: str = ""  # the address of the API server, as shown
    kubernetes: KubernetesVersion = REFERENCE  # of the API server
    starts: WaitingStarts = field(init=False)

    def __post_init__(self) -> None:
        self.starts = WaitingStarts(lambda: self.ask_worker("starts", {}, self.state.snapshot()))

    async def ask_worker(self, task: str, arguments: Document, snapshot: Iterable[Document]) -> Any:
        return await self.workers.run(
            task, {**arguments, "config": self.config, "kubernetes": str(self.kubernetes)}, snapshot
        )

    async def visible(self, caller: Caller, *resources: Resource) -> Visible:
        return await Visible.of(self.state, caller.rights, resources)

    async def judge(self, caller: Caller) -> Judge | None:
        """What explains pods, for callers who may see everything that an explanation is made of."""
        if self.follower is None or not self.follower.ready or not await self.sees_all(caller):
            return None
        return self.follower.verdict

    async def sees_all(self, caller: Caller) -> bool:
        answers = [await caller.rights.may("list", each) for each in (PODS, NODES)]
        return all(answers)

    async def demand_all(self, caller: Caller, what: str) -> None:
        """Raises Forbidden unless the caller may see all pods and nodes: an answer would tell about them."""
        for resource in (PODS, NODES):
            reason = f"{what} looks at every pod and node, so it needs that right"
            await caller.rights.demand("list", resource, reason=reason)
        if not self.state.whole:
            raise Forbidden(f"{what} is not possible with this kubeconfig: {'; '.join(self.not_read()[:5])}")

    def not_read(self) -> list[str]:
        """Why some kinds are not read, so that answers may lack what depends on them."""
        return sorted(kind.refused for kind in self.state.kinds.values() if kind.refused)

    async def marks(self, visible: Visible) -> dict[str, dict[str, Any]]:
        merged: dict[str, dict[str, Any]] = {}
        for system in ordered_systems():
            for node, mark in system.report().node_marks(visible.objects).items():
                merged.setdefault(node, {}).update(mark)
        return merged

    def screen(self, name: str, visible: Visible) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for system in ordered_systems():
            report = system.report()
            if report.screen == name:
                found.update(report.screen_view(visible.objects, time.time()))
        if name == "promises":
            found["quotas"] = quota_rows(visible.objects(RESOURCE_QUOTAS))
        return found


def screen_kinds(*names: str) -> list[Resource]:
    found = [
        each
        for system in ordered_systems()
        if (report := system.report()).screen in names
        for each in report.screen_kinds
    ]
    return [*dict.fromkeys(found), *((RESOURCE_QUOTAS,) if "promises" in names else ())]


def mark_kinds() -> list[Resource]:
    return list(dict.fromkeys(each for system in ordered_systems() for each in system.report().screen_kinds))


# -- reading


@endpoint("GET", "/api/session", "Who you are, which cluster this is, and what can be shown.")
async def session(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    if not caller.name:
        caller.name = await caller.rights.user()
    return {
        "user": caller.name,
        "server": dashboard.server,
        "version": wharfinger.__version__,
        "explains": dashboard.follower is not None and await dashboard.sees_all(caller),
        "ready": dashboard.follower is None or dashboard.follower.ready,
        "notRead": dashboard.not_read(),
        "screens": [name for name in SCREENS if any(system.report().screen == name for system in ordered_systems())],
    }


@endpoint("GET", "/api/overview", "What waits and why, what is promised, and what was refused or preempted.")
async def overview_of(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    visible = await dashboard.visible(caller, NODES, PODS, NAMESPACES, EVENTS, *screen_kinds("promises", "units"))
    rows = waiting_pods(visible.objects(PODS), visible.usage(), await dashboard.judge(caller))
    screens = {name: dashboard.screen(name, visible) for name in ("promises", "units")}
    return overview(visible, rows, screens)


@endpoint("GET", "/api/nodes", "Every node, in columns: how full it is, what is reserved there, its labels.")
async def nodes(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    visible = await dashboard.visible(caller, NODES, PODS, *mark_kinds())
    return node_columns(visible.objects(NODES), visible.usage(), await dashboard.marks(visible))


@endpoint("GET", "/api/nodes/{name}", "One node: its pods, reservations and devices.")
async def node(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    name = request.path_params["name"]
    visible = await dashboard.visible(caller, NODES, PODS, *mark_kinds())
    found = node_detail(name, visible, (await dashboard.marks(visible)).get(name, {}))
    if found is None:
        raise not_found("", "nodes", name)
    return found


@endpoint("GET", "/api/waiting", "Each waiting pod: whether it can start, the reasons, its place in the queue.")
async def waiting(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    visible = await dashboard.visible(caller, PODS)
    judge = await dashboard.judge(caller)
    return {"pods": waiting_pods(visible.objects(PODS), visible.usage(), judge), "judged": judge is not None}


@endpoint(
    "GET", "/api/waiting/starts", "When each waiting pod would start, if nothing changed but what has a known end."
)
async def waiting_starts(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    await dashboard.demand_all(caller, "when pods start")
    return {"pods": await dashboard.starts.get()}


@endpoint("GET", "/api/pods", "The names of all pods, for search.", parameters={"search": "a part of namespace/name"})
async def pods(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    visible = await dashboard.visible(caller, PODS)
    wanted = request.query_params.get("search", "").lower()
    found: list[Document] = []
    for pod in visible.objects(PODS):
        metadata = pod["metadata"]
        if wanted in f"{metadata['namespace']}/{metadata['name']}".lower():
            node_name = (pod.get("spec") or {}).get("nodeName") or ""
            found.append({"namespace": metadata["namespace"], "name": metadata["name"], "node": node_name})
            if len(found) >= 200:
                break
    return {"pods": sorted(found, key=lambda each: (bool(each["node"]), each["namespace"], each["name"]))}


@endpoint(
    "GET",
    "/api/explain/{namespace}/{name}",
    "One pod on every node: the refusing plugin and its reason, or every plugin's score.",
    parameters={"compare": "names of nodes to compare, separated by commas"},
)
async def explain(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    visible = await dashboard.visible(caller, PODS, EVENTS)
    if visible.get(PODS, name, namespace) is None:
        raise not_found("", "pods", f"{namespace}/{name}")
    await dashboard.demand_all(caller, "an explanation")
    if dashboard.follower is None:
        raise ServiceUnavailable("explanations are not available here")
    compared = tuple(filter(None, request.query_params.get("compare", "").split(",")))[:4]
    found = dashboard.follower.explain(namespace, name, compared)
    pod = visible.get(PODS, name, namespace)
    found["spec"] = _shown_spec(pod) if pod is not None else {}
    mine = [
        event_row(each)
        for each in visible.objects(EVENTS)
        if (each.get("involvedObject") or {}).get("name") == name
        and (each.get("involvedObject") or {}).get("namespace") == namespace
    ]
    found["events"] = sorted(mine, key=lambda row: -row["time"])[:20]
    return found


def _shown_spec(pod: Document) -> Document:
    """What a decision depends on."""
    spec = pod.get("spec") or {}
    wanted = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priority", "priorityClassName")
    shown = {key: spec[key] for key in (*wanted, "schedulerName", "schedulingGates", "resourceClaims") if spec.get(key)}
    shown["labels"] = pod["metadata"].get("labels") or {}
    shown["containers"] = [
        {"name": each.get("name"), "resources": each.get("resources") or {}} for each in spec.get("containers") or ()
    ]
    claims = [each for each in spec.get("volumes") or () if each.get("persistentVolumeClaim") or each.get("ephemeral")]
    if claims:
        shown["volumes"] = claims
    return shown


def _screen(name: str) -> Handler:
    async def answer(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
        return dashboard.screen(name, await dashboard.visible(caller, *screen_kinds(name)))

    return answer


endpoint("GET", "/api/promises", "Reservations, sets of them, migrations, classes of devices, and quota.")(
    _screen("promises")
)
endpoint("GET", "/api/units", "Resource policies: units in order, how full they are, who leaves first.")(
    _screen("units")
)
endpoint("GET", "/api/fleet", "Clusters, and for each placement the scores of every cluster.")(_screen("fleet"))
endpoint("GET", "/api/policy", "Scheduling policies, and who may use which.")(_screen("policy"))


@endpoint(
    "GET",
    "/api/policy/suggestion",
    "The tightest policy that admits what runs in a namespace, with the role and binding to use it, as YAML.",
    parameters={"namespace": "the namespace"},
)
async def policy_suggestion(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    namespace = request.query_params.get("namespace", "")
    visible = await dashboard.visible(caller, PODS, *screen_kinds("policy"))
    reports = [report for system in ordered_systems() if (report := system.report()).screen == "policy"]
    manifests = [each for report in reports for each in report.suggestion(visible.objects, namespace)]
    if not manifests:
        raise not_found("", "namespaces", f"{namespace}, or you may see no pod that runs there")
    return {"yaml": "---\n".join(msgspec.yaml.encode(each).decode() for each in manifests)}


@endpoint("GET", "/api/timeline", "Samples of queue and utilisation, and events, from the recorded past.")
async def timeline(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    visible = await dashboard.visible(caller, EVENTS, NODES)
    if not await dashboard.sees_all(caller):
        raise Forbidden("the time line counts every pod and node, so it needs the right to list them in all namespaces")
    rows = sorted((event_row(each) for each in visible.objects(EVENTS)), key=lambda row: row["time"])
    samples = list(dashboard.history.samples)
    return {
        **{name: [each[name] for each in samples] for name in ("time", "nodes", "waiting", "running", "cpu", "memory")},
        "fill": [each["fill"].hex() for each in samples],
        "names": sorted(each["metadata"]["name"] for each in visible.objects(NODES)),
        "events": rows[-1000:],
    }


@endpoint(
    "GET", "/api/objects", "The names of objects of a kind, for the editor.", parameters={"kind": "such as deployments"}
)
async def objects(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    kind = dashboard.state.registry.find(request.query_params.get("kind", ""))
    if kind is None:
        raise BadRequest("no such kind")
    visible = await dashboard.visible(caller, kind.storage)
    rows = [
        {
            "namespace": each["metadata"].get("namespace", ""),
            "name": each["metadata"]["name"],
            **({"replicas": (each.get("spec") or {}).get("replicas", 1)} if kind.scale is not None else {}),
        }
        for each in visible.objects(kind.storage)
    ]
    return {"kind": kind.kind, "objects": sorted(rows, key=lambda row: (row["namespace"], row["name"]))[:1000]}


@endpoint("GET", "/api/objects/{kind}/{name}", "One object as it is.", parameters={"namespace": "its namespace"})
async def one_object(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    kind = dashboard.state.registry.find(request.path_params["kind"])
    if kind is None:
        raise BadRequest("no such kind")
    name, namespace = request.path_params["name"], request.query_params.get("namespace", "")
    visible = await dashboard.visible(caller, kind.storage)
    found = visible.get(kind.storage, name, namespace)
    if found is None:
        raise not_found(kind.group, kind.plural, name)
    metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return {"apiVersion": kind.storage.api_version, "kind": kind.kind, **found, "metadata": metadata}


# -- what if


async def body_of(request: Request) -> bytes:
    found = bytearray()
    try:
        async for chunk in request.stream():
            found += chunk
            if len(found) > BODY_LIMIT:
                raise TooLarge(f"the request has more than {BODY_LIMIT >> 20} MB")
    except ClientDisconnect:
        raise BadRequest("the request was not sent to its end") from None
    return bytes(found)


async def read_body(request: Request, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(await body_of(request) or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body cannot be used: {error}") from error


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


# -- following


@endpoint("GET", "/api/changes", "Server-sent events: the kinds of which an object changed. Ask for the screen again.")
async def changes(dashboard: Dashboard, caller: Caller, request: Request) -> Response:
    subscription = dashboard.state.subscribe()

    async def stream() -> Any:
        try:
            yield b"retry: 2000\nevent: hello\ndata: {}\n\n"
            while True:
                changed = await subscription.take(KEEP_ALIVE)
                if not changed:
                    yield b": nothing changed\n\n"
                    continue
                await asyncio.sleep(COALESCE)
                changed |= await subscription.take(0)
                shown = await _listable(caller, changed)
                if shown:
                    yield b"event: changed\ndata: " + msgspec.json.encode(sorted(shown)) + b"\n\n"
        finally:
            subscription.close()

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


async def _listable(caller: Caller, changes: Iterable[Change]) -> set[str]:
    """The kinds of those changes that the caller may see."""
    found: set[str] = set()
    for resource, namespace in changes:
        if resource.plural not in found:
            everywhere = await caller.rights.may("list", resource)
            if everywhere or (namespace and await caller.rights.may("list", resource, namespace)):
                found.add(resource.plural)
    return found
