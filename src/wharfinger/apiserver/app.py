"""The API server as an ASGI application: authenticates, authorizes and dispatches every request.

Requests are dispatched by dictionary look-ups on the parts of the path. Every error becomes a Kubernetes `Status`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Gauge

import wharfinger
from wharfinger.admission.authorization import Authorizer
from wharfinger.admission.rbac import MASTERS, Attributes, RbacDecision, RbacIndex
from wharfinger.api.errors import ApiError, BadRequest, InternalError
from wharfinger.api.kubernetes_version import REFERENCE, RELEASES, KubernetesVersion
from wharfinger.api.registry import Kind
from wharfinger.api.selectors import BadSelector, parse_field_selector
from wharfinger.apiserver.audit.recording import Auditor
from wharfinger.apiserver.authentication import Authenticator, impersonated
from wharfinger.apiserver.discovery import Discovery
from wharfinger.apiserver.exchange import ApiExchange, ClientGone, Receive, Scope, Send
from wharfinger.apiserver.fairness import Fairness, FairnessLimits, Flow
from wharfinger.apiserver.health import ENDPOINTS, HealthEndpoints
from wharfinger.apiserver.kubelet_proxy import KubeletProxy
from wharfinger.apiserver.negotiation import DISCOVERY, accept
from wharfinger.apiserver.openapi import OpenApi
from wharfinger.apiserver.pod_streams import PodStreams
from wharfinger.apiserver.proxy_subresources import ProxySubresources
from wharfinger.apiserver.request_info import RequestInfo, request_info
from wharfinger.apiserver.resources import ResourceHandler, UnknownPath, locate, not_allowed, unknown_path
from wharfinger.apiserver.structure import Structures
from wharfinger.apiserver.tokens import ISSUER, Lookup, TokenSigner
from wharfinger.apiserver.virtual_resources import VirtualResources
from wharfinger.apiserver.watching import Watchers
from wharfinger.http.metrics import CONTENT_TYPE, CounterSeries, HistogramSeries, Timings, exposition
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_CACHED = {"cache-control": "public, max-age=3600"}  # of what verifies tokens
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
        limits: FairnessLimits | None = None,
        auditor: Auditor | None = None,
        metrics: CollectorRegistry | None = None,
        kubernetes: KubernetesVersion = REFERENCE,
    ) -> None:
        self.store = store
        self.kubernetes = kubernetes
        self.address = ""
        self.ready = False
        self.stopping = False
        self.metrics = CollectorRegistry() if metrics is None else metrics
        self._authenticator = authenticator
        self._signer = signer
        self._authorizer = authorizer
        self._kubelets = kubelets
        self.discovery = Discovery(store.registry)
        self._openapi = OpenApi(store.registry, self.discovery)
        self._structures = Structures(store.registry)
        self._auditor = auditor
        self._requests = CounterSeries(
            "apiserver_request_total",
            "Requests by verb, resource and response code.",
            ("verb", "group", "version", "resource", "subresource", "code"),
            self.metrics,
        )
        self._seconds = HistogramSeries(
            "apiserver_request_duration_seconds",
            "Time to answer, without watches.",
            ("verb", "group", "resource"),
            self.metrics,
        )
        self._series: dict[tuple[str, ...], tuple[list[int], Timings | None]] = {}  # of known resources
        rejected = CounterSeries(
            "apiserver_flowcontrol_rejected_requests_total",
            "Requests refused because their user had too many.",
            ("reason",),
            self.metrics,
        )
        self.fairness = Fairness(limits or FairnessLimits(), rejected)
        Gauge("apiserver_current_inflight_requests", "Requests being answered.", registry=self.metrics).set_function(
            lambda: self.fairness.inflight + self._exempt
        )
        self._exempt = 0  # requests of exempt users being answered
        Gauge(
            "apiserver_flowcontrol_current_inqueue_requests", "Requests waiting for their turn.", registry=self.metrics
        ).set_function(lambda: self.fairness.queued)
        if auditor is not None:
            events = Gauge("apiserver_audit_events", "Audit events generated.", registry=self.metrics)
            events.set_function(lambda: auditor.recorded)
            lost = Gauge(
                "apiserver_audit_lost_events", "Audit events that could not be written.", registry=self.metrics
            )
            lost.set_function(lambda: auditor.log.dropped + auditor.log.failed)
        watching = Gauge(
            "apiserver_registered_watchers", "Open watches.", ("group", "version", "kind"), registry=self.metrics
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
        panic = False
        try:
            exchange = ApiExchange(scope, receive, send)
            parts = exchange.parts
            info = request_info(parts, exchange.method, exchange.query) if parts else None
            user = exchange.user = self._authenticator.authenticate(
                exchange.header(b"authorization"), parts, scope.get("client_certificate")
            )
            connection = exchange.connection
            if connection is not None and connection.owner != user.name:
                connection.claim(user.name, limited=MASTERS not in user.groups)
            if self._auditor is not None:
                exchange.audit = self._auditor.begin(exchange, user, info)
            if exchange.impersonates:
                exchange.user = impersonated(user, scope["headers"], self._authorizer)
                if exchange.audit is not None:
                    exchange.audit.impersonated = exchange.user
            if info is not None:
                self._authorize_resource(exchange, info)
            else:
                self._authorize_path(exchange)
            if MASTERS in exchange.user.groups or (parts and parts[0] in ENDPOINTS):
                self._exempt += 1
                try:
                    await self._dispatch(exchange, info)
                finally:
                    self._exempt -= 1
            else:
                await self._dispatch_in_turn(exchange, info)
        except ApiError as error:
            await self._refuse(exchange or ApiExchange({**scope, "query_string": b""}, receive, send), error, info)
        except RecursionError:
            deep = BadRequest("the object provided is nested too deeply")
            await self._refuse(exchange or ApiExchange({**scope, "query_string": b""}, receive, send), deep, info)
        except ClientGone:
            pass
        except TimeoutError:
            log.info("%s: watch dropped because the client does not read it", scope["path"])
        except Exception:
            panic = True
            log.exception("%s %s failed", scope["method"], scope["path"])
            if exchange is None or not exchange.status:
                failure = InternalError("Internal error occurred: the server log has the details")
                await self._refuse(
                    exchange or ApiExchange({**scope, "query_string": b""}, receive, send), failure, info
                )
        finally:
            self._count(exchange, info, time.perf_counter() - started)
            if self._auditor is not None and exchange is not None and exchange.audit is not None:
                exchange.audit.status = exchange.audit.status or exchange.status  # of a stream to a kubelet
                self._auditor.complete(exchange.audit, panic=panic)

    async def _dispatch_in_turn(self, exchange: ApiExchange, info: RequestInfo | None) -> None:
        """Waits for the user's turn. The body is received first: while it arrives, the request takes no seat."""
        fairness = self.fairness
        user = exchange.user.name
        flow = fairness.flow(user)
        if info is not None and info.long_running:
            fairness.begin_watch(flow)
            try:
                await self._dispatch(exchange, info)
            finally:
                fairness.end_watch(flow)
            return
        if exchange.method not in ("GET", "HEAD"):
            await self._receive_body(exchange, flow)
        if fairness.must_wait(flow):
            await fairness.wait(user, flow)
        try:
            await self._dispatch(exchange, info)
        finally:
            fairness.release(flow)

    async def _receive_body(self, exchange: ApiExchange, flow: Flow) -> None:
        limits = self.fairness.limits
        if flow.bodies >= limits.bodies:
            raise self.fairness.refusal("bodies")
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            held += size
            flow.body_bytes += size
            if flow.body_bytes > limits.body_bytes:
                raise self.fairness.refusal("bodies")

        flow.bodies += 1
        try:
            await exchange.body(hold)
        finally:
            flow.bodies -= 1
            flow.body_bytes -= held

    async def _refuse(self, exchange: ApiExchange, error: ApiError, info: RequestInfo | None) -> None:
        if self._auditor is not None and exchange.audit is None and error.code == 401:
            exchange.audit = self._auditor.begin(exchange, None, info)
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
        code = _CODES.get(exchange.status, "0") if exchange is not None else "400"
        if info is None:
            self._requests.cell((exchange.method if exchange else "", "", "", "", "", code))[0] += 1
            return
        key = (info.verb, info.group, info.version, info.plural, info.subresource, code)
        series = self._series.get(key)
        if series is None:
            series = self._new_series(info, code, key)
        series[0][0] += 1
        if series[1] is not None:
            series[1].observe(seconds)

    def _new_series(self, info: RequestInfo, code: str, key: tuple[str, ...]) -> tuple[list[int], Timings | None]:
        kind = self.store.registry.of_plural(info.group, info.plural)
        known = kind is not None and info.version in kind.versions
        verb = info.verb.upper()
        if known:
            group, version, plural = info.group, info.version, info.plural
            subresource = info.subresource if code < "4" else ""
        else:
            # Not labelled by name: clients could create any number of series by asking for unknown resources.
            group = version = plural = subresource = ""
        made = (
            self._requests.cell((verb, group, version, plural, subresource, code)),
            None if info.long_running else self._seconds.series((verb, group, plural)),
        )
        if known and subresource == info.subresource:
            self._series[key] = made
        return made

    async def _dispatch(self, exchange: ApiExchange, info: RequestInfo | None) -> None:
        """Answers a request that is authorized."""
        if info is not None:
            if not info.verb:
                raise not_allowed()
            located = locate(self.store.registry, info)
            if info.long_running and exchange.connection is not None:
                exchange.connection.set_streaming(True)
                try:
                    await self._resources.serve(exchange, located)
                finally:
                    exchange.connection.set_streaming(False)
            else:
                await self._resources.serve(exchange, located)
            return
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
        if exchange.audit is not None:
            _annotate(exchange.audit.annotations, decision)
        if not decision.allowed:
            raise asked.forbidden(decision.reason)

    def _authorize_path(self, exchange: ApiExchange) -> None:
        asked = Attributes(exchange.user, exchange.method.lower().replace("head", "get"), path=exchange.path)
        decision = self._authorizer.allowed(asked)
        if exchange.audit is not None:
            _annotate(exchange.audit.annotations, decision)
        if not decision.allowed:
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
        major, minor = str(self.kubernetes).split(".")
        await exchange.json(
            indented(
                {
                    "major": major,
                    "minor": minor,
                    "gitVersion": f"v{RELEASES[self.kubernetes]}+wharfinger.{wharfinger.__version__}",
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
            # Whoever reaches the issuer, such as a pod, reaches this, too; the address of the server may be a loopback one.
            "jwks_uri": f"{ISSUER}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }
        await exchange.json(document, headers=_CACHED)

    async def _keys(self, exchange: ApiExchange) -> None:
        if exchange.parts[1:] != ["v1", "jwks"]:
            raise unknown_path()
        await exchange.json(self._signer.keys(), media="application/jwk-set+json", headers=_CACHED)

    def kind_changed(self, kind: Kind) -> None:
        """Drops what was derived from a kind that was added, changed or removed."""
        self._structures.forget(kind)
        self._series.clear()
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


_CODES = {code: str(code) for code in range(600)}


def _annotate(annotations: dict[str, str], decision: RbacDecision) -> None:
    annotations["authorization.k8s.io/decision"] = "allow" if decision.allowed else "forbid"
    annotations["authorization.k8s.io/reason"] = decision.reason


def indented(document: Any) -> bytes:
    """Indented JSON, which kube-apiserver returns for the paths that people request by hand."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)
