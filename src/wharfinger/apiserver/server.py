"""Runs the API server: opens the data directory and the store, and serves the application with TLS on uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry

from wharfinger.admission.authorization import ClusterAuthorizer
from wharfinger.admission.node_authorizer import NodeAuthorizer
from wharfinger.admission.node_restriction import NodeRestrictionReviewer
from wharfinger.admission.rbac_escalation import EscalationReviewer
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from wharfinger.api.kubernetes_version import REFERENCE
from wharfinger.api.registry import Document, Kind
from wharfinger.api.views import ClusterRole, view
from wharfinger.apiserver.admission.mutating_policies import MutatingPolicyReviewer
from wharfinger.apiserver.admission.policies import PolicyReviewer
from wharfinger.apiserver.admission.real_nodes import RealNodeReviewer
from wharfinger.apiserver.admission.registration import RegistrationReviewer
from wharfinger.apiserver.admission.type_checking import PolicyTypeChecks
from wharfinger.apiserver.admission.webhooks import WebhookReviewer
from wharfinger.apiserver.api_services import ApiServices
from wharfinger.apiserver.app import ApiServerApplication
from wharfinger.apiserver.audit.log import AuditLogSettings
from wharfinger.apiserver.audit.policy import AuditPolicy, default_policy
from wharfinger.apiserver.audit.recording import Auditor
from wharfinger.apiserver.authentication import Authenticator
from wharfinger.apiserver.bootstrap import bootstrap, publish_configuration
from wharfinger.apiserver.certificates import CertificateFiles, prepare_certificates
from wharfinger.apiserver.client_certificates import KubeletTls
from wharfinger.apiserver.credentials import StaticCredentials, component_users, load_credentials
from wharfinger.apiserver.custom_kinds import DefinitionReviewer
from wharfinger.apiserver.custom_resources import CustomResources
from wharfinger.apiserver.default_roles import node_role
from wharfinger.apiserver.event_expiry import EventExpiry
from wharfinger.apiserver.fairness import FairnessLimits
from wharfinger.apiserver.files import private_directory
from wharfinger.apiserver.flow_control import FlowControlObjects
from wharfinger.apiserver.kubelet_metrics import KubeletMetrics
from wharfinger.apiserver.kubelet_proxy import KubeletProxy
from wharfinger.apiserver.kubernetes_service import KubernetesService
from wharfinger.apiserver.rbac_sync import RbacSync
from wharfinger.apiserver.resource_metrics import provide_metrics
from wharfinger.apiserver.tokens import Lookup, TokenSigner
from wharfinger.apiserver.webhook_calls import WebhookCaller
from wharfinger.client.interface import Client
from wharfinger.client.local import LocalClient
from wharfinger.client.memory import settle_heap
from wharfinger.client.timers import SystemClock, background_sleep
from wharfinger.http.connections import MAX_PER_OWNER, Connections
from wharfinger.http.file_limit import most_connections, raise_file_limit
from wharfinger.http.server import TlsServer, uvicorn_config
from wharfinger.store.chain import Chain
from wharfinger.store.default_chain import extend_chain
from wharfinger.store.store import Store
from wharfinger.system import systems

log = logging.getLogger(__name__)

DATA_FILE = "state.db"
UPKEEP_SECONDS = 5.0  # between two writes of what reviewers of systems collect
_BOUND_KINDS = {"serviceaccount": SERVICE_ACCOUNTS, "pod": PODS, "secret": SECRETS, "node": NODES}


class CannotServe(Exception):
    """The server cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ApiServerSettings:
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6443
    free_port: bool = False  # use another port if this one is taken
    configuration: Configuration = field(default_factory=Configuration)
    limits: FairnessLimits = field(default_factory=FairnessLimits)
    connections: int = MAX_PER_OWNER  # of one user, besides those of its watches
    audit_log: AuditLogSettings | None = None
    audit_policy: AuditPolicy | None = None  # the default policy if there is none


@asynccontextmanager
async def open_application(
    store: Store,
    credentials: StaticCredentials,
    signer: TokenSigner,
    pki: Path,
    configuration: Configuration,
    *,
    limits: FairnessLimits | None = None,
    auditor: Auditor | None = None,
) -> AsyncIterator[ApiServerApplication]:
    """The application for a store, with its bootstrap objects created and its background tasks running.

    `pki` is the folder of our certificate authority.
    """
    now = SystemClock().now
    keeper = RbacSync(store)
    metrics = CollectorRegistry()
    upkeep = extend_chain(store.chain, store, configuration=configuration, rbac=keeper.index, metrics=metrics)
    authorizer = ClusterAuthorizer(NodeAuthorizer(store, view(node_role(), ClusterRole)), keeper.index)
    store.chain.mutating += [NodeRestrictionReviewer(store, authorizer), RealNodeReviewer()]
    store.chain.validating += [
        EscalationReviewer(keeper.index),
        DefinitionReviewer(),
        RegistrationReviewer(),
        PolicyReviewer(store, authorizer.allowed),
    ]
    await bootstrap(store)
    for system in systems():
        await system.bootstrap(LocalClient(store))
    await publish_configuration(store, configuration)
    await keeper.start()
    lookup = _lookup(store)
    authenticator = Authenticator(credentials.users, signer, lookup, now)
    kubelets = KubeletProxy(KubeletTls(pki))
    application = ApiServerApplication(
        store,
        authenticator=authenticator,
        signer=signer,
        rbac=keeper.index,
        authorizer=authorizer,
        lookup=lookup,
        kubelets=kubelets,
        now=now,
        limits=limits,
        auditor=auditor,
        metrics=metrics,
        kubernetes=configuration.kubernetes or REFERENCE,
    )
    caller = WebhookCaller(store)
    mutating = WebhookReviewer(store, authorizer.allowed, caller, mutating=True)
    validating = WebhookReviewer(store, authorizer.allowed, caller, mutating=False)
    store.chain.remote_mutating += [MutatingPolicyReviewer(store, authorizer.allowed), mutating]
    store.chain.remote_validating.append(validating)
    measured = KubeletMetrics(store, kubelets, now)
    provide_metrics(store, now, real=measured)
    services = ApiServices(store, application.discovery)

    def kind_changed(kind: Kind) -> None:
        application.kind_changed(kind)
        services.again()

    custom = CustomResources(store, kind_changed, caller)
    await custom.start()
    keepers = (FlowControlObjects(store), PolicyTypeChecks(store), services)
    for one in keepers:
        await one.start()
    expiry = EventExpiry(store, now)
    expiry.start()
    measured.start()
    keeping = asyncio.create_task(_keep_up(upkeep, LocalClient(store)), name="upkeep of systems")
    application.ready = True
    try:
        yield application
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await measured.stop()
        await expiry.stop()
        for one in keepers:
            await one.stop()
        await custom.stop()
        await caller.close()
        await keeper.stop()


async def _keep_up(upkeep: Sequence[Callable[[Client], Awaitable[None]]], client: Client) -> None:
    """Lets systems write what they collect in reviews."""
    while True:
        await background_sleep(UPKEEP_SECONDS)
        for each in upkeep:
            try:
                await each(client)
            except Exception:
                # One system must not end the upkeep of the others.
                log.exception("cannot write what reviewers collected")


def _lookup(store: Store) -> Lookup:
    def lookup(kind: str, namespace: str, name: str) -> Document | None:
        found = store.peek(_BOUND_KINDS[kind], name, namespace)
        return None if found is None else found.document()

    return lookup


async def serve(settings: ApiServerSettings, started: Callable[[str, Path], None]) -> None:
    """Serves until a signal arrives. `started` is called with the address and the administrator's kubeconfig."""
    directory = private_directory(settings.data_dir)
    listener = listen(settings)
    try:
        certificates = prepare_certificates(directory / "pki", hosts=tuple({"127.0.0.1", "::1", settings.host}))
        credentials = load_credentials(directory)
        signer = TokenSigner.load(directory / "pki" / "sa.key")
        store = Store.open(directory / DATA_FILE, registry(), chain=Chain(), equal_writes=True)
        try:
            async with (
                _auditing(settings) as auditor,
                open_application(
                    store,
                    credentials,
                    signer,
                    directory / "pki",
                    settings.configuration,
                    limits=settings.limits,
                    auditor=auditor,
                ) as application,
            ):
                host, port = listener.getsockname()[:2]
                application.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                kubeconfig = credentials.write_kubeconfigs(f"https://{application.address}", certificates.authority)
                config = uvicorn_config(
                    application,
                    graceful_shutdown=5,
                    connections=Connections(per_owner=settings.connections, total=most_connections()),
                )
                published = KubernetesService(store, host, port)
                published.start()
                settle_heap()
                try:
                    server = ApiServer(
                        config, _tls(certificates), application, lambda: started(application.address, kubeconfig)
                    )
                    await server.serve([listener])
                finally:
                    await published.stop()
        finally:
            await store.close()
    finally:
        listener.close()


def _tls(certificates: CertificateFiles) -> ssl.SSLContext:
    """Clients may authenticate with a certificate that our authority issued."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificates.certificate, certificates.key)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(certificates.authority)
    return context


@asynccontextmanager
async def _auditing(settings: ApiServerSettings) -> AsyncIterator[Auditor | None]:
    """Writes the audit log until the block ends."""
    if settings.audit_log is None:
        yield None
        return
    policy = settings.audit_policy or default_policy(user.name for user in component_users().values())
    auditor = Auditor(policy, settings.audit_log)
    try:
        auditor.log.start()
    except OSError as error:
        raise CannotServe(f"cannot write the audit log {settings.audit_log.path}: {error.strerror}") from error
    try:
        yield auditor
    finally:
        await auditor.log.stop()


class ApiServer(TlsServer):
    """Reports when it listens, and ends watches before it waits for requests to finish."""

    def __init__(
        self,
        config: uvicorn.Config,
        tls: ssl.SSLContext,
        application: ApiServerApplication,
        started: Callable[[], None],
    ) -> None:
        super().__init__(config, tls)
        self._application = application
        self._started = started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals only stop the server. uvicorn would raise them again, before the store is closed."""
        loop = asyncio.get_running_loop()
        main = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stop()
        await super().shutdown(sockets)


def listen(settings: ApiServerSettings) -> socket.socket:
    """A listening socket on the loopback interface; the server is not reachable from other machines."""
    try:
        address = ipaddress.ip_address(settings.host)
    except ValueError:
        raise CannotServe(f"{settings.host} is not an address; use 127.0.0.1 or ::1") from None
    if not address.is_loopback:
        raise CannotServe(f"{settings.host} is not a loopback address: the server only serves this machine")
    listener = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind((settings.host, settings.port))
        except OSError:
            if not settings.free_port:
                raise
            listener.bind((settings.host, 0))
    except OSError as error:
        listener.close()
        raise CannotServe(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another --port (0 for any free port)"
        ) from error
    listener.setblocking(False)
    return listener


def run(settings: ApiServerSettings, started: Callable[[str, Path], None]) -> None:
    """Runs the server, on uvloop if it is installed. Its files are readable by their owner only."""
    os.umask(0o077)
    raise_file_limit()
    with contextlib.suppress(ImportError):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, started))
        return
    asyncio.run(serve(settings, started))
