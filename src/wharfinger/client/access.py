"""How to reach a cluster: its address, its certificate authority, and our credentials, which may rotate at run time.

`kubeconfig` creates these values; the transport and the HTTP client use them.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from wharfinger.api.errors import Unauthorized
from wharfinger.api.times import BadTime, parse_time
from wharfinger.client.timers import Clock, SystemClock

REREAD_SECONDS = (
    60.0  # between reads of token and certificate files; mounted tokens are rotated well before they expire
)
EXEC_TIMEOUT = 300.0  # seconds; a plugin may prompt the user to log in


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate and its key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class CredentialSource(Protocol):
    async def token(self) -> str:
        """Returns the current bearer token; empty for none."""
        ...

    async def certificate(self) -> Certificate | None:
        """Returns the client certificate for new connections; it is compared by value."""
        ...

    def refused(self) -> bool:
        """Called after a 401; returns whether a retry may use other credentials."""
        ...


class FixedCredentials:
    """A token, a certificate, both or neither; they never change."""

    def __init__(self, token: str = "", certificate: Certificate | None = None) -> None:
        self._token = token
        self._certificate = certificate

    async def token(self) -> str:
        return self._token

    async def certificate(self) -> Certificate | None:
        return self._certificate

    def refused(self) -> bool:
        return False


class FileCredentials:
    """A token or a certificate in files that may be rotated; they are read again every minute."""

    def __init__(
        self,
        *,
        token_file: Path | None = None,
        token: str = "",
        certificate: Callable[[], Certificate | None] = lambda: None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token_file = token_file
        self._token = token
        self._read_certificate = certificate
        self._certificate: Certificate | None = None
        self._steady = steady
        self._read_at = float("-inf")

    async def token(self) -> str:
        self._refresh()
        return self._token

    async def certificate(self) -> Certificate | None:
        self._refresh()
        return self._certificate

    def refused(self) -> bool:
        before = self._token
        self._read_at = float("-inf")
        self._refresh()
        return self._token != before

    def _refresh(self) -> None:
        if self._steady() - self._read_at < REREAD_SECONDS:
            return
        if self._token_file is not None:
            try:
                self._token = self._token_file.read_text().strip()
            except OSError as error:
                if not self._token:
                    raise Unauthorized(f"cannot read the token file {self._token_file}: {error.strerror}") from error
        try:
            self._certificate = self._read_certificate()
        except ValueError as error:
            if self._certificate is None:
                raise Unauthorized(str(error)) from error
        self._read_at = self._steady()


class _ExecStatus(msgspec.Struct, rename="camel"):
    expiration_timestamp: str | None = None
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The invocation of a credential plugin."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    cluster: Mapping[str, Any] | None = None  # passed to the plugin with `provideClusterInfo`


class ExecCredentials:
    """Credentials from a plugin (client.authentication.k8s.io), cached until they expire or are rejected."""

    def __init__(self, plugin: ExecPlugin, clock: Clock | None = None) -> None:
        self._plugin = plugin
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()  # the plugin may prompt the user, so it runs once for all waiting requests
        self._token = ""
        self._certificate: Certificate | None = None
        self._valid_until = float("-inf")

    async def token(self) -> str:
        await self._refresh()
        return self._token

    async def certificate(self) -> Certificate | None:
        await self._refresh()
        return self._certificate

    def refused(self) -> bool:
        self._valid_until = float("-inf")
        return True

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock.now() >= self._valid_until:
                self._take(await self._run())

    async def _run(self) -> bytes:
        plugin = self._plugin
        interactive = self._interactive()
        spec: dict[str, Any] = {"interactive": interactive}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        env = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env=env,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"\n\n{plugin.install_hint}" if plugin.install_hint else ""
            raise _plugin_fault(f"executable {plugin.command} cannot be run: {error.strerror}{hint}") from error
        try:
            output, _ = await asyncio.wait_for(process.communicate(), EXEC_TIMEOUT)
        except TimeoutError:
            raise _plugin_fault(f"executable {plugin.command} gave no answer in {EXEC_TIMEOUT:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise _plugin_fault(f"executable {plugin.command} failed with exit code {process.returncode}")
        return output

    def _interactive(self) -> bool:
        mode = self._plugin.interactive_mode
        if mode == "Never":
            return False
        terminal = os.isatty(0)
        if mode == "Always" and not terminal:
            raise _plugin_fault(f"executable {self._plugin.command} needs a terminal (interactiveMode: Always)")
        return terminal

    def _take(self, output: bytes) -> None:
        name = self._plugin.command
        try:
            found = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise _plugin_fault(f"executable {name} printed no ExecCredential: {error}") from error
        if found.kind != "ExecCredential" or found.api_version != self._plugin.api_version:
            returned = f"{found.api_version or 'none'}, kind {found.kind or 'none'}"
            raise _plugin_fault(
                f"plugin is configured to use API version {self._plugin.api_version}, returned {returned}"
            )
        status = found.status
        if status is None:
            raise _plugin_fault(f"executable {name} returned no status field")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise _plugin_fault(f"executable {name} returned only certificate or key, not both")
        if not status.token and not status.client_certificate_data:
            raise _plugin_fault(f"executable {name} returned neither a token nor a certificate")
        self._token = status.token or ""
        self._certificate = None
        if status.client_certificate_data and status.client_key_data:
            self._certificate = Certificate(status.client_certificate_data.encode(), status.client_key_data.encode())
        try:
            self._valid_until = parse_time(status.expiration_timestamp) if status.expiration_timestamp else float("inf")
        except BadTime as error:
            raise _plugin_fault(f"executable {name}: status.expirationTimestamp: {error}") from error


def _plugin_fault(message: str) -> Unauthorized:
    return Unauthorized(f"getting credentials: exec: {message}")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user to impersonate, for those who are allowed to."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        found = [("Impersonate-User", self.user)] if self.user else []
        found += [("Impersonate-Uid", self.uid)] if self.uid else []
        found += [("Impersonate-Group", group) for group in self.groups]
        found += [(f"Impersonate-Extra-{key}", value) for key, values in self.extra.items() for value in values]
        return found


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster, and how to connect and authenticate to it."""

    server: str  # URL, possibly with a path
    ca: bytes = b""  # PEM; empty: the authorities of the system
    insecure: bool = False  # accept any server certificate
    server_name: str = ""  # the name to verify in the certificate, if not the host of `server`
    proxy: str = ""
    namespace: str = "default"  # the default of commands
    context: str = ""
    credentials: CredentialSource = field(default_factory=FixedCredentials)
    impersonate: Impersonation = Impersonation()

    def ssl_context(self, certificate: Certificate | None) -> ssl.SSLContext:
        """Raises ValueError if the authority or the certificate is unusable."""
        try:
            context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise ValueError(f"the certificate authority of {self.server} is not a PEM certificate: {error}") from error
        # Newer Python versions require extensions that many clusters' authorities lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            load_certificate(context, certificate)
        return context


def load_certificate(context: ssl.SSLContext, certificate: Certificate) -> None:
    # Python loads certificates only from files; this one is private and deleted at once.
    with tempfile.NamedTemporaryFile(prefix="wharf-") as file:
        file.write(certificate.certificate + b"\n" + certificate.key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except (ssl.SSLError, OSError) as error:
            raise ValueError(f"the client certificate and key do not match or are not PEM: {error}") from error
