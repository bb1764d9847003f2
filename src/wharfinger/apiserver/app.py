"""The API server as an ASGI application: authenticates, authorizes and dispatches every request.

Requests are dispatched by dictionary look-ups on the parts of the path. Every error becomes a Kubernetes `Status`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

import wharfinger
from wharfinger.admission.authorization import Authorizer
from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.api.errors import ApiError, BadRequest, InternalError, TooManyRequests
from wharfinger.api.registry import Kind
from wharfinger.api.selectors import BadSelector, parse_field_selector
from wharfinger.apiserver.authentication import Authenticator, impersonated
from wharfinger.apiserver.discovery import Discovery
from wharfinger.apiserver.exchange import ApiExchange, ClientGone, Receive, Scope, Send
from wharfinger.apiserver.health import ENDPOINTS, HealthEndpoints
from wharfinger.apiserver.kubelet_proxy import KubeletProxy
from wharfinger.apiserver.negotiation import DISCOVERY, accept
from wharfinger.apiserver.openapi import OpenApi
from wharfinger.apiserver.pod_streams import PodStreams
from wharfinger.apiserver.proxy_subresources import ProxySubresources
from wharfinger.apiserver.request_info import LONG_RUNNING, RequestInfo, request_info
from wharfinger.apiserver.resources import ResourceHandler, UnknownPath, locate, not_allowed, unknown_path
from wharfinger.apiserver.structure import Structures
from wharfinger.apiserver.tokens import ISSUER, Lookup, TokenSigner
from wharfinger.apiserver.virtual_resources import VirtualResources
from wharfinger.apiserver.watching import Watchers
from wharfinger.http.metrics import CONTENT_TYPE, LATENCY_BUCKETS, LabelledSeries, exposition
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

KUBERNETES = ("1", "36", "v1.36.4")  # the version of Kubernetes whose behaviour is implemented
MAX_INFLIGHT = 600  # without watches; kube-apiserver has 400 for reads and 200 for writes

_SELECTING = frozenset(("list", "watch", "deletecollection"))

Handler = Callable[[ApiExchange], Awaitable[None]]


class ApiServerApplication:
    """One for each store. `address` is where clients reach it; set when the socket listens."""

    def __init__(
        self,
        store: Store,
        *,
        authenticator: Authenticator,
        signer: TokenSigner,
        rbac: RbacIndex,
        authorizer: Authorizer,
        lookup: Lookup,
        kubelets: KubeletProxy,
        now: Callable[[], float] = time.time,
        max_inflight: int = MAX_INFLIGHT,
    ) -> None:
        self.store = store
        self.address = ""
        self.ready = False
        self.stopping = False
        self.metrics = CollectorRegistry()
        self._authenticator = authenticator
        self._signer = signer
        self._authorizer = authorizer
        self._kubelets = kubelets
        self.discovery = Discovery(store.registry)
        self._openapi = OpenApi(store.registry, self.discovery)
        self._structures = Structures(store.registry)
        self.max_inflight = max_inflight
        self._inflight = 0
        self._requests = LabelledSeries(
            Counter(
                "apiserver_request_total",
                "Requests by verb, resource and response code.",
                ("verb", "group", "version", "resource", "subresource", "code"),
                registry=self.metrics,
            )
        )
        self._seconds = LabelledSeries(
            Histogram(
                "apiserver_request_duration_seconds",
                "Time to answer, without watches.",
                ("verb", "group", "resource"),
                registry=self.metrics,
                buckets=LATENCY_BUCKETS,
            )
        )
        Gauge("apiserver_current_inflight_requests", "Requests being answered.", registry=self.metrics).set_function(
            lambda: self._inflight
        )
        watching = Gauge(
            "apiserver_registered_watchers", "Open watches.", ("group", "version", "kind"), registry=self.metrics
        )
        self._rejected = Counter(
            "apiserver_request_terminations_total",
            "Requests refused because too many were in flight.",
            registry=self.metrics,
        )
        Gauge("apiserver_resource_version", "The latest resource version.", registry=self.metrics).set_function(
            lambda: store.version
        )
        self.watchers = Watchers(watching, now)
        reviews = VirtualResources(rbac, authorizer, authenticator, signer, lookup, now)
        streams = PodStreams(store, authorizer.allowed, kubelets, self.watchers, now)
        proxy = ProxySubresources(store, kubelets)
        self._resources = ResourceHandler(store, self._structures, reviews, self.watchers, streams, proxy, now)
        self._health = HealthEndpoints(
            {"ping": lambda: "", "store": lambda: store.fault},
            {
                "poststarthook/rbac/bootstrap-roles": lambda: "" if self.ready else "not finished",
                "shutdown": lambda: "process is shutting down" if self.stopping else "",
            },
        )
        self._paths: dict[str, Handler] = {
            "version": self._version,
            "metrics": self._metrics,
            "openapi": self._serve_openapi,
            ".well-known": self._issuer,
            "openid": self._keys,
            **dict.fromkeys(ENDPOINTS, self._health.serve),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        exchange: ApiExchange | None = None
        info: RequestInfo | None = None
        counted = False
        try:
            exchange = ApiExchange(scope, receive, send)
            exchange.user = self._authenticator.authenticate(
                exchange.header(b"authorization"), exchange.parts, scope.get("client_certificate")
            )
            info = request_info(exchange.parts, exchange.method, exchange.query) if exchange.parts else None
            if info is None or (info.verb != "watch" and info.subresource not in LONG_RUNNING):
                if self._inflight >= self.max_inflight:
                    self._rejected.inc()
                    raise TooManyRequests("Too many requests, please try again later.", retry_after=1)
                self._inflight += 1
                counted = True
            if exchange.impersonates:
                exchange.user = impersonated(exchange.user, scope["headers"], self._authorizer)
            await self._dispatch(exchange, info)
        except ApiError as error:
            await self._refuse(exchange or ApiExchange({**scope, "query_string": b""}, receive, send), error)
        except RecursionError:
            deep = BadRequest("the object provided is nested too deeply")
            await self._refuse(exchange or ApiExchange({**scope, "query_string": b""}, receive, send), deep)
        except ClientGone:
            pass
        except TimeoutError:
            log.info("%s: watch dropped because the client does not read it", scope["path"])
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if exchange is None or not exchange.status:
                failure = InternalError("Internal error occurred: the server log has the details")
                await self._refuse(exchange or ApiExchange({**scope, "query_string": b""}, receive, send), failure)
        finally:
            if counted:
                self._inflight -= 1
            self._count(exchange, info, time.perf_counter() - started)

    async def _refuse(self, exchange: ApiExchange, error: ApiError) -> None:
        if exchange.status:  # the response has started; it cannot become an error
            log.warning("%s %s aborted: %s", exchange.method, exchange.path, error)
            return
        if isinstance(error, UnknownPath) and self._is_outside(exchange.parts):
            await exchange.answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
            return
        await exchange.error(error)

    def _is_outside(self, parts: list[str]) -> bool:
        """Whether a path belongs to no API; for these, kube-apiserver's 404 is plain text."""
        if parts[:1] == ["apis"]:
            return len(parts) > 1 and self.discovery.group(parts[1]) is None
        return parts[:1] != ["api"]

    def _count(self, exchange: ApiExchange | None, info: RequestInfo | None, seconds: float) -> None:
        code = str(exchange.status) if exchange is not None else "400"
        if info is None:
            self._requests[exchange.method if exchange else "", "", "", "", "", code].inc()
            return
        kind = self.store.registry.of_plural(info.group, info.plural)
        if kind is not None and info.version in kind.versions:
            group, version, plural = info.group, info.version, info.plural
            subresource = info.subresource if code < "4" else ""
        else:
            # Not labelled by name: clients could create any number of series by asking for unknown resources.
            group = version = plural = subresource = ""
        verb = info.verb.upper()
        self._requests[verb, group, version, plural, subresource, code].inc()
        if verb != "WATCH" and subresource not in LONG_RUNNING:
            self._seconds[verb, group, plural].observe(seconds)

    async def _dispatch(self, exchange: ApiExchange, info: RequestInfo | None) -> None:
        if info is not None:
            self._authorize_resource(exchange, info)
            if not info.verb:
                raise not_allowed()
            await self._resources.serve(exchange, locate(self.store.registry, info))
            return
        self._authorize_path(exchange)
        first = exchange.parts[0] if exchange.parts else ""
        if exchange.method not in ("GET", "HEAD"):
            raise not_allowed() if first in self._paths or first in ("api", "apis", "") else unknown_path()
        if first in ("api", "apis"):
            await self._discover(exchange)
        elif not first:
            await exchange.json(indented({"paths": self._openapi.root_paths()}))
        elif first in self._paths:
            await self._paths[first](exchange)
        else:
            raise unknown_path()

    def _authorize_resource(self, exchange: ApiExchange, info: RequestInfo) -> None:
        asked = Attributes(
            exchange.user,
            info.verb,
            info.group,
            info.plural,
            info.subresource,
            info.name,
            info.namespace,
        )
        if info.verb in _SELECTING and exchange.query.has("fieldSelector"):
            asked = _with_selector(asked, exchange.query.text("fieldSelector"))
        decision = self._authorizer.allowed(asked)
        if not decision.allowed:
            raise asked.forbidden(decision.reason)

    def _authorize_path(self, exchange: ApiExchange) -> None:
        asked = Attributes(exchange.user, exchange.method.lower().replace("head", "get"), path=exchange.path)
        if not self._authorizer.allowed(asked).allowed:
            error = asked.forbidden()
            raise ApiError(f"forbidden: {asked.denial()}", code=error.code, reason=error.reason)

    async def _discover(self, exchange: ApiExchange) -> None:
        parts, accepted = exchange.parts, accept(exchange.header(b"accept"))
        found: dict[str, Any] | None
        if len(parts) == 1 and accepted.shown_as == DISCOVERY:
            found = self.discovery.aggregated(accepted.version, core=parts[0] == "api")
            media = f"application/json;g=apidiscovery.k8s.io;v={accepted.version};as={DISCOVERY}"
            await exchange.json(found, media=media, headers={"vary": "Accept"})
            return
        if parts[0] == "api":
            if len(parts) == 1:
                found = self.discovery.core_versions(self.address)
            else:
                found = self.discovery.resource_list("", parts[1])
        elif len(parts) == 1:
            found = self.discovery.group_list()
        elif len(parts) == 2:
            found = self.discovery.group(parts[1])
        else:
            found = self.discovery.resource_list(parts[1], parts[2])
        if found is None:
            raise unknown_path()
        await exchange.json(found, media=accepted.media)

    async def _version(self, exchange: ApiExchange) -> None:
        major, minor, text = KUBERNETES
        await exchange.json(
            indented(
                {
                    "major": major,
                    "minor": minor,
                    "gitVersion": f"{text}+wharfinger.{wharfinger.__version__}",
                    "gitCommit": "",
                    "gitTreeState": "clean",
                    "buildDate": "1970-01-01T00:00:00Z",
                    "goVersion": "",
                    "compiler": "python",
                    "platform": "any",
                }
            )
        )

    async def _metrics(self, exchange: ApiExchange) -> None:
        await exchange.answer(200, exposition(self.metrics), CONTENT_TYPE)

    async def _serve_openapi(self, exchange: ApiExchange) -> None:
        await self._openapi.serve(exchange)

    async def _issuer(self, exchange: ApiExchange) -> None:
        if exchange.parts[1:] != ["openid-configuration"]:
            raise unknown_path()
        document = {
            "issuer": ISSUER,
            "jwks_uri": f"https://{self.address}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }
        await exchange.json(document)

    async def _keys(self, exchange: ApiExchange) -> None:
        if exchange.parts[1:] != ["v1", "jwks"]:
            raise unknown_path()
        await exchange.json(self._signer.keys(), media="application/jwk-set+json")

    def kind_changed(self, kind: Kind) -> None:
        """Drops what was derived from a kind that was added, changed or removed."""
        self._structures.forget(kind)
        self._openapi.forget()

    def stop(self) -> None:
        """Ends all watches and connections to kubelets, so that clients reconnect."""
        self.stopping = True
        self.watchers.close()
        self._kubelets.close()


def _with_selector(asked: Attributes, text: str) -> Attributes:
    """The attributes with the field selector of the request. One that asks for a single name counts as that name."""
    try:
        fields = parse_field_selector(text)
    except BadSelector:
        return asked  # refused when it is used
    named = next((one.value for one in fields if one.equal and one.path == "metadata.name"), "")
    return msgspec.structs.replace(asked, fields=fields, name=asked.name or named)


def indented(document: Any) -> bytes:
    """Indented JSON, which kube-apiserver returns for the paths that people request by hand."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)
