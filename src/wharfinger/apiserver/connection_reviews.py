"""Admission of requests that open a connection: exec, attach and portforward of pods, and proxy.

Webhooks and admission policies see an operation CONNECT with the options of the request as the object, as those of
kube-apiserver do (endpoints/handlers/rest.go). They can refuse it; what they change has no effect.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from wharfinger.admission.request import Request
from wharfinger.api.errors import BadRequest
from wharfinger.api.kinds.builtin import NODES, PODS, SERVICES
from wharfinger.api.registry import Document
from wharfinger.apiserver.admission.review import connected_kind
from wharfinger.apiserver.exchange import ApiExchange
from wharfinger.apiserver.request_info import RequestInfo
from wharfinger.store.chain import Chain

_RESOURCES = {each.plural: each for each in (NODES, PODS, SERVICES)}
_STREAMS = ("stdin", "stdout", "stderr", "tty")


async def review_connection(chain: Chain, exchange: ApiExchange, info: RequestInfo) -> None:
    """Raises the error of the reviewer that refuses the connection."""
    if exchange.query.has("dryRun"):
        raise BadRequest("dryRun is not supported")
    resource = _RESOURCES[info.plural]
    options = {
        "kind": connected_kind(resource, info.subresource),
        "apiVersion": "v1",
        **_options(exchange, info.subresource, info.name),
    }
    request = Request(
        "CONNECT",
        resource,
        info.namespace,
        info.name,
        exchange.user,
        options,
        subresource=info.subresource,
        audit=exchange.annotations,
    )
    await chain.connect(request, exchange.warnings)


def _options(exchange: ApiExchange, subresource: str, name: str) -> Document:
    query = exchange.query
    if subresource == "proxy":
        path = exchange.path.partition(f"/{name}/proxy")[2]
        return {"path": path} if path else {}
    repeated = parse_qsl(exchange.raw_query.decode("ascii"), keep_blank_values=True)
    if subresource == "portforward":
        ports = [int(value) for key, value in repeated if key == "ports" and value.isascii() and value.isdecimal()]
        return {"ports": ports} if ports else {}
    found: Document = {stream: True for stream in _STREAMS if query.flag(stream)}
    if container := query.text("container"):
        found["container"] = container
    command = [value for key, value in repeated if key == "command"]
    if subresource == "exec" and command:
        found["command"] = command
    return found
