"""The subresources of pods that are streams: log, exec, attach and portforward.

A request for a pod on a real node goes to its kubelet (`kubelet_proxy`). The containers of a simulated node do not run:
their log is the history of their states, and everything else is refused.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from wharfinger.admission.rbac import Attributes, RbacDecision
from wharfinger.api.errors import ApiError, BadRequest, ServiceUnavailable, invalid_object, not_found
from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.selectors import FieldRequirement
from wharfinger.api.times import BadTime, parse_time
from wharfinger.apiserver.connection_reviews import review_connection
from wharfinger.apiserver.exchange import ApiExchange
from wharfinger.apiserver.kubelet_proxy import KubeletProxy
from wharfinger.apiserver.request_info import QueryParameters, RequestInfo
from wharfinger.apiserver.watching import Watchers
from wharfinger.node import logs
from wharfinger.node.annotations import DOWN, is_true, node_is_simulated
from wharfinger.store.objects import DELETED
from wharfinger.store.store import Store

_FOLLOW_SECONDS = (4 * 3600.0, 5 * 3600.0)  # a kubelet ends streams after four hours
_STREAMS = ("All", "Stdout", "Stderr")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The query of a request for a log, as upstream's PodLogOptions."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    tail_lines: int | None = None
    limit_bytes: int | None = None
    stream: str = "All"

    def kubelet_query(self) -> str:
        """The query for the kubelet."""
        asked = {
            "follow": "true" if self.follow else "",
            "previous": "true" if self.previous else "",
            "timestamps": "true" if self.timestamps else "",
            "sinceSeconds": _text(self.since_seconds),
            "sinceTime": self.since_time,
            "tailLines": _text(self.tail_lines),
            "limitBytes": _text(self.limit_bytes),
            "stream": self.stream,
        }
        return urlencode({name: value for name, value in sorted(asked.items()) if value})


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


@dataclass(frozen=True, slots=True)
class PodStreams:
    """Serves the streams of pods, whichever node they are on."""

    store: Store
    allowed: Callable[[Attributes], RbacDecision]
    kubelets: KubeletProxy
    watchers: Watchers
    now: Callable[[], float]

    async def serve(self, exchange: ApiExchange, info: RequestInfo) -> None:
        if info.subresource == "log":
            await self._log(exchange, info)
        else:
            await self._connect(exchange, info)

    # Log

    async def _log(self, exchange: ApiExchange, info: RequestInfo) -> None:
        options = log_options(exchange.query, info.name)
        pod = (await self.store.get(PODS, info.name, info.namespace)).document()
        container = chosen_container(pod, options.container)
        node_name = pod["spec"].get("nodeName") or ""
        if not node_name:
            await exchange.answer(204, b"")
            return
        node = self._node(node_name)
        if not node_is_simulated(node):
            path = f"/containerLogs/{info.namespace}/{info.name}/{container}"
            await self.kubelets.forward(exchange, node, path, options.kubelet_query(), upgrade=False)
            return
        _check_up(node)
        found = self._lines(pod, container, options)
        chosen = _chosen(found, options, self.now())
        await exchange.start_stream("text/plain")
        writer = _LogWriter(exchange, options)
        await writer.write(chosen)
        if options.follow and not options.previous and logs.is_running(pod, container):
            await self._follow(exchange, info, container, options, writer, found)
        await exchange.stream(b"", more=False)

    def _lines(self, pod: Document, container: str, options: LogOptions) -> list[logs.LogLine]:
        try:
            return logs.lines(pod, container, previous=options.previous)
        except logs.NoLog as error:
            raise BadRequest(str(error)) from None

    async def _follow(
        self,
        exchange: ApiExchange,
        info: RequestInfo,
        container: str,
        options: LogOptions,
        writer: _LogWriter,
        seen: list[logs.LogLine],
    ) -> None:
        """Sends further lines until the container ends, its pod is deleted or the client leaves."""
        restarts = None
        watch = self.store.watch(
            PODS, info.namespace, after=None, fields=(FieldRequirement("metadata.name", info.name),)
        )
        timer = asyncio.get_running_loop().call_later(random.uniform(*_FOLLOW_SECONDS), watch.close)
        leaving = asyncio.ensure_future(exchange.gone())
        leaving.add_done_callback(lambda _: watch.close())
        self.watchers.add(watch)
        try:
            await exchange.stream(b"")
            async for event in watch:
                if leaving.done():
                    return
                if event.object is None:
                    continue
                pod = event.object.document()
                attempt = logs.restart_count(pod, container)
                if restarts is not None and attempt != restarts:
                    return
                restarts = attempt
                found = logs.lines(pod, container)
                if event.type == DELETED and logs.is_running(pod, container):
                    found.append(logs.stopped_line(pod, container, self.now()))
                await writer.write([line for line in found if line not in seen])
                seen = [*seen, *found]
                if event.type == DELETED or writer.full or not logs.is_running(pod, container):
                    return
        except (ApiError, logs.NoLog):  # the watch fell behind, or the pod was replaced by one of the same name
            return
        finally:
            self.watchers.discard(watch)
            timer.cancel()
            leaving.cancel()
            watch.close()

    # Connections

    async def _connect(self, exchange: ApiExchange, info: RequestInfo) -> None:
        # Whoever may only read cannot open a connection, whichever method the client uses for it.
        asked = Attributes(exchange.user, "create", "", "pods", info.subresource, info.name, info.namespace)
        if not self.allowed(asked).allowed:
            raise asked.forbidden()
        await review_connection(self.store.chain, exchange, info)
        pod = (await self.store.get(PODS, info.name, info.namespace)).document()
        path = f"/{_PATHS[info.subresource]}/{info.namespace}/{info.name}"
        if info.subresource != "portforward":
            path += f"/{chosen_container(pod, exchange.query.text('container'))}"
        node_name = pod["spec"].get("nodeName") or ""
        if not node_name:
            raise BadRequest(f"pod {info.name} does not have a host assigned")
        node = self._node(node_name)
        if node_is_simulated(node):
            raise BadRequest(
                f"{_ACTIONS[info.subresource]} pod {info.namespace}/{info.name} is not possible: "
                f"node {node_name} is simulated, so no container of the pod runs"
            )
        await self.kubelets.forward(exchange, node, path, _kubelet_query(exchange, info.subresource), upgrade=True)

    def _node(self, name: str) -> Document:
        found = self.store.peek(NODES, name)
        if found is None:
            raise not_found("", "nodes", name)
        return found.document()


_PATHS = {"exec": "exec", "attach": "attach", "portforward": "portForward"}
_ACTIONS = {
    "exec": "executing a command in",
    "attach": "attaching to",
    "portforward": "forwarding ports to",
}


def _check_up(node: Document) -> None:
    metadata = node["metadata"]
    if is_true((metadata.get("annotations") or {}).get(DOWN)):
        raise ServiceUnavailable(f"the kubelet of node {metadata['name']} does not answer: the node is marked as down")


def _kubelet_query(exchange: ApiExchange, subresource: str) -> str:
    """The query of exec, attach and portforward in the form that a kubelet expects."""
    pairs = parse_qsl(exchange.raw_query.decode("ascii"), keep_blank_values=True)
    if subresource == "portforward":
        ports = [value for name, value in pairs if name == "ports"]
        return urlencode([("port", ",".join(ports))] if ports else [])
    flags = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
    asked = [(kubelet, "1") for name, kubelet in flags if exchange.query.flag(name)]
    if subresource == "exec":
        asked += [pair for pair in pairs if pair[0] == "command"]
    return urlencode(sorted(asked, key=lambda pair: pair[0]))


def chosen_container(pod: Document, name: str) -> str:
    """The container of a request, which may leave it out if there is only one."""
    spec, pod_name = pod["spec"], pod["metadata"]["name"]
    groups = ("initContainers", "containers", "ephemeralContainers")
    names = [container["name"] for group in groups for container in spec.get(group) or ()]
    if name:
        if name not in names:
            raise BadRequest(f"container {name} is not valid for pod {pod_name}")
        return name
    containers = spec.get("containers") or []
    if len(containers) == 1:
        only: str = containers[0]["name"]
        return only
    if not containers:
        raise BadRequest(f"a container name must be specified for pod {pod_name}")
    raise BadRequest(f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(names)}]")


def log_options(query: QueryParameters, pod: str) -> LogOptions:
    """Raises ApiError for values that upstream refuses."""
    stream = query.text("stream")
    options = LogOptions(
        query.text("container"),
        query.flag("follow"),
        query.flag("previous"),
        query.flag("timestamps"),
        query.number("sinceSeconds"),
        query.text("sinceTime"),
        query.number("tailLines"),
        query.number("limitBytes"),
        stream or "All",
    )
    if options.since_time:
        try:
            parse_time(options.since_time)
        except BadTime as error:
            raise BadRequest(str(error)) from None
    if faults := _faults(options):
        raise invalid_object("", "PodLogOptions", pod, faults)
    return options


def _faults(options: LogOptions) -> list[FieldError]:
    faults = []
    if options.tail_lines is not None and options.tail_lines < 0:
        faults.append(invalid("tailLines", options.tail_lines, "must be greater than or equal to 0"))
    if options.limit_bytes is not None and options.limit_bytes < 1:
        faults.append(invalid("limitBytes", options.limit_bytes, "must be greater than 0"))
    if options.since_seconds is not None and options.since_time:
        faults.append(forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif options.since_seconds is not None and options.since_seconds < 1:
        faults.append(invalid("sinceSeconds", options.since_seconds, "must be greater than 0"))
    if options.stream not in _STREAMS:
        faults.append(not_supported("stream", options.stream, _STREAMS))
    if options.stream != "All" and options.tail_lines is not None:
        faults.append(forbidden("", "`tailLines` and specific `stream` are mutually exclusive for now"))
    return faults


def _chosen(found: list[logs.LogLine], options: LogOptions, now: float) -> list[logs.LogLine]:
    """The lines that a request asks for. As a kubelet does, the last lines are counted before old ones are left out."""
    if options.stream == "Stderr":
        return []
    if options.tail_lines is not None:
        found = found[len(found) - min(len(found), options.tail_lines) :]
    since = 0.0
    if options.since_time:
        since = parse_time(options.since_time)
    elif options.since_seconds is not None:
        since = now - options.since_seconds
    return [line for line in found if line.time >= since]


@dataclass(slots=True)
class _LogWriter:
    """Writes lines to the client, up to the limit of bytes."""

    exchange: ApiExchange
    options: LogOptions
    written: int = 0

    @property
    def full(self) -> bool:
        return self.options.limit_bytes is not None and self.written >= self.options.limit_bytes

    async def write(self, found: list[logs.LogLine]) -> None:
        if self.options.stream == "Stderr":
            return
        data = "".join(line.text(timestamp=self.options.timestamps) for line in found).encode()
        if self.options.limit_bytes is not None:
            data = data[: self.options.limit_bytes - self.written]
        if data:
            self.written += len(data)
            await self.exchange.stream(data)
