"""The endpoints that read: one for each screen, and what screens ask for beside."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

import wharfinger
from wharfinger.api.errors import BadRequest, Forbidden, ServiceUnavailable, not_found
from wharfinger.api.kinds.builtin import EVENTS, NAMESPACES, NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.dashboard.context import Dashboard, mark_kinds, screen_kinds
from wharfinger.dashboard.endpoints.registry import Handler, endpoint
from wharfinger.dashboard.sessions import Caller
from wharfinger.dashboard.state import Visible
from wharfinger.dashboard.views.nodes import node_columns, node_detail
from wharfinger.dashboard.views.objects import event_row, place
from wharfinger.dashboard.views.overview import counts, overview, refused_requests
from wharfinger.dashboard.views.waiting import waiting_pods
from wharfinger.system import ordered_systems

LISTED = 200  # names that are listed for choosing one
SCREENS = ("promises", "units", "fleet", "policy")


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
    visible = await dashboard.visible(caller, NODES, PODS, NAMESPACES, EVENTS)
    rows = waiting_pods(visible.usage(), await dashboard.verdicts_for(caller))
    screens = {
        name: dashboard.screen(name, await dashboard.visible(caller, *screen_kinds(name)))
        for name in ("promises", "units")
    }
    return overview(visible, rows, screens)


@endpoint("GET", "/api/counts", "How many nodes, pods and waiting pods there are.")
async def counts_of(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    return counts(await dashboard.visible(caller, NODES, PODS, NAMESPACES))


@endpoint("GET", "/api/nodes", "Every node, in columns: how full it is, what is reserved there, its labels.")
async def nodes(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    visible = await dashboard.visible(caller, NODES, PODS, *mark_kinds())
    return node_columns(visible.nodes(), visible.usage(), dashboard.marks(visible))


@endpoint("GET", "/api/nodes/{name}", "One node: its pods, reservations and devices.")
async def node(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    name = request.path_params["name"]
    visible = await dashboard.visible(caller, NODES, PODS, *mark_kinds())
    found = node_detail(name, visible, dashboard.marks(visible).get(name, {}))
    if found is None:
        raise not_found("", "nodes", name)
    return found


@endpoint("GET", "/api/waiting", "Each waiting pod: whether it can start, the reasons, its place in the queue.")
async def waiting(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    visible = await dashboard.visible(caller, PODS)
    verdicts = await dashboard.verdicts_for(caller)
    return {"pods": waiting_pods(visible.usage(), verdicts), "judged": verdicts is not None}


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
        for each in visible.events()
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


@endpoint("GET", "/api/policy", "Scheduling policies, who may use which, and the latest refused requests.")
async def policy(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    found = dashboard.screen("policy", await dashboard.visible(caller, *screen_kinds("policy")))
    return {**found, "refused": refused_requests(await dashboard.visible(caller, EVENTS))}


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
    visible = await _recorded(dashboard, caller)
    rows = sorted(map(event_row, visible.events()), key=lambda row: row["time"])
    samples = dashboard.history.samples
    series = ("time", "nodes", "waiting", "running", "cpu", "memory")
    return {**{name: [each[name] for each in samples] for name in series}, "events": rows[-1000:]}


@endpoint(
    "GET",
    "/api/timeline/nodes",
    "How full each node was, in percent of CPU, at a moment of the recorded past.",
    parameters={"time": "in seconds since the epoch"},
)
async def timeline_nodes(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    await _recorded(dashboard, caller)
    try:
        moment = float(request.query_params.get("time", ""))
    except ValueError:
        raise BadRequest("time must be a number of seconds since the epoch") from None
    return dashboard.history.nodes_at(moment)


async def _recorded(dashboard: Dashboard, caller: Caller) -> Visible:
    if not await dashboard.sees_all(caller):
        raise Forbidden("the time line counts every pod and node, so it needs the right to list them in all namespaces")
    return await dashboard.visible(caller, EVENTS, NODES)


@endpoint(
    "GET",
    "/api/objects",
    "The names of objects of a kind, for the editor; the first ones of all that match.",
    parameters={"kind": "such as deployments", "search": "a part of namespace/name"},
)
async def objects(dashboard: Dashboard, caller: Caller, request: Request) -> Document:
    kind = dashboard.state.registry.find(request.query_params.get("kind", ""))
    if kind is None:
        raise BadRequest("no such kind")
    visible = await dashboard.visible(caller, kind.storage)
    wanted = request.query_params.get("search", "").lower()
    found = [each for each in visible.objects(kind.storage) if wanted in "/".join(place(each).values()).lower()]
    rows = [
        {**place(each), **({"replicas": (each.get("spec") or {}).get("replicas", 1)} if kind.scale is not None else {})}
        for each in sorted(found, key=lambda each: tuple(place(each).values()))[:LISTED]
    ]
    return {"kind": kind.kind, "objects": rows, "count": len(found)}


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
