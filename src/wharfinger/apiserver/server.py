"""The embedded server as a process: the data directory, the store, TLS, and uvicorn around the application."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from wharfinger.admission.rbac_escalation import EscalationReviewer
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from wharfinger.api.registry import Document
from wharfinger.apiserver.admission.policies import PolicyReviewer
from wharfinger.apiserver.admission.registration import RegistrationReviewer
from wharfinger.apiserver.admission.webhooks import WebhookReviewer
from wharfinger.apiserver.app import Application
from wharfinger.apiserver.authentication import Authenticator
from wharfinger.apiserver.bootstrap import bootstrap
from wharfinger.apiserver.certificates import prepare_certificates
from wharfinger.apiserver.credentials import Credentials, load_credentials
from wharfinger.apiserver.custom_kinds import DefinitionReviewer
from wharfinger.apiserver.custom_resources import CustomResources
from wharfinger.apiserver.event_expiry import EventExpiry
from wharfinger.apiserver.files import private_directory
from wharfinger.apiserver.rbac_keeper import RbacKeeper
from wharfinger.apiserver.tokens import Lookup, TokenSigner
from wharfinger.client.local import LocalClient
from wharfinger.client.memory import settle_heap
from wharfinger.client.timers import SystemClock
from wharfinger.http.server import uvicorn_config
from wharfinger.store.chain import Chain
from wharfinger.store.default_chain import extend_chain
from wharfinger.store.store import Store
from wharfinger.system import systems

log = logging.getLogger(__name__)

DATA_FILE = "state.db"
_BOUND_KINDS = {"serviceaccount": SERVICE_ACCOUNTS, "pod": PODS, "secret": SECRETS, "node": NODES}


class CannotServe(Exception):
    """The server cannot start here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6443
    free_port: bool = False  # take another port when this one is in use
    configuration: Configuration = field(default_factory=Configuration)


@asynccontextmanager
async def open_application(
    store: Store, credentials: Credentials, signer: TokenSigner, configuration: Configuration
) -> AsyncIterator[Application]:
    """An application over a store: what must exist is made, and the index of roles follows the store."""
    now = SystemClock().now
    keeper = RbacKeeper(store)
    extend_chain(store.chain, store, configuration=configuration, rbac=keeper.index)
    store.chain.validating += [
        EscalationReviewer(keeper.index),
        DefinitionReviewer(),
        RegistrationReviewer(),
        PolicyReviewer(store, keeper.index.allowed),
    ]
    await bootstrap(store)
    for system in systems():
        await system.bootstrap(LocalClient(store))
    await keeper.start()
    lookup = _lookup(store)
    authenticator = Authenticator(credentials.users, signer, lookup, now)
    application = Application(
        store, authenticator=authenticator, signer=signer, rbac=keeper.index, lookup=lookup, now=now
    )
    mutating = WebhookReviewer(store, keeper.index.allowed, mutating=True)
    validating = WebhookReviewer(store, keeper.index.allowed, mutating=False)
    store.chain.remote_mutating.append(mutating)
    store.chain.remote_validating.append(validating)
    custom = CustomResources(store, application.kind_changed)
    await custom.start()
    expiry = EventExpiry(store, now)
    expiry.start()
    application.ready = True
    try:
        yield application
    finally:
        await expiry.stop()
        await custom.stop()
        await mutating.close()
        await validating.close()
        await keeper.stop()


def _lookup(store: Store) -> Lookup:
    def lookup(kind: str, namespace: str, name: str) -> Document | None:
        found = store.peek(_BOUND_KINDS[kind], name, namespace)
        return None if found is None else found.document()

    return lookup


async def serve(settings: Settings, started: Callable[[str, Path], None]) -> None:
    """Serves until a signal ends it. `started` is told the address and the administrator's kubeconfig."""
    directory = private_directory(settings.data_dir)
    listener = listen(settings)
    try:
        certificates = prepare_certificates(directory / "pki", hosts=tuple({"127.0.0.1", "::1", settings.host}))
        credentials = load_credentials(directory)
        signer = TokenSigner.load(directory / "pki" / "sa.key")
        store = Store.open(directory / DATA_FILE, registry(), chain=Chain())
        try:
            async with open_application(store, credentials, signer, settings.configuration) as application:
                host, port = listener.getsockname()[:2]
                application.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                kubeconfig = credentials.write_kubeconfigs(f"https://{application.address}", certificates.authority)
                config = uvicorn_config(
                    application,
                    graceful_shutdown=5,
                    ssl_certfile=str(certificates.certificate),
                    ssl_keyfile=str(certificates.key),
                )
                settle_heap()
                await Server(config, application, lambda: started(application.address, kubeconfig)).serve([listener])
        finally:
            await store.close()
    finally:
        listener.close()


class Server(uvicorn.Server):
    """uvicorn's server, which says when it listens and ends watches before it waits for requests to finish."""

    def __init__(self, config: uvicorn.Config, application: Application, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._application = application
        self._started = started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the server and nothing more: uvicorn would raise them again and cut short what must be closed."""
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
        if self.started:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stop()
        await super().shutdown(sockets)


def listen(settings: Settings) -> socket.socket:
    """A socket on the loopback interface: the server is for this machine only."""
    try:
        address = ipaddress.ip_address(settings.host)
    except ValueError:
        raise CannotServe(f"{settings.host} is not an address; use 127.0.0.1 or ::1") from None
    if not address.is_loopback:
        raise CannotServe(f"{settings.host} is not a loopback address: the server is for this machine only")
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
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; another --port (0 for any free one) helps"
        ) from error
    listener.setblocking(False)
    return listener


def run(settings: Settings, started: Callable[[str, Path], None]) -> None:
    """Runs the server on uvloop where there is one. No file it makes is for others to read."""
    os.umask(0o077)
    with contextlib.suppress(ImportError):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, started))
        return
    asyncio.run(serve(settings, started))
