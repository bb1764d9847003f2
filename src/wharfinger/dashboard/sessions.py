"""Who calls: one-time links, sessions in cookies, and bearer tokens.

A link works once, as Jupyter's does: it opens a session that acts with the kubeconfig of the server. A bearer token acts
with its own rights, from a header or from a session that was opened with it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from wharfinger.api.errors import ApiError, Unauthorized
from wharfinger.apiserver.files import write_private
from wharfinger.client.access import FixedCredentials, Impersonation
from wharfinger.client.http import HttpClient
from wharfinger.client.interface import Client
from wharfinger.dashboard.rights import Rights

SESSION_SECONDS = 12 * 3600.0
IDLE_SECONDS = 4 * 3600.0
LINK_SECONDS = 24 * 3600.0
CALLERS = 1000  # tokens whose answers are kept
_TOKEN_BYTES = 32


@dataclass(slots=True, eq=False)
class Caller:
    """An identity: its client and its rights."""

    client: Client
    rights: Rights
    name: str = ""


@dataclass(slots=True)
class Session:
    caller: Caller
    expires: float
    seen: float


class Sessions:
    """`own` is the caller whose kubeconfig the server was started with; None if only tokens count (in a cluster)."""

    def __init__(
        self,
        client: HttpClient,
        *,
        links: bool = True,
        link_file: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._now = now
        self._sessions: dict[bytes, Session] = {}
        self._callers: dict[bytes, Caller] = {}
        self._link_file = link_file
        self._link = ""  # the token of the link that was not used yet
        self._link_until = 0.0
        self.own = Caller(client, Rights(client)) if links else None
        self.address = ""  # set when the server is listening

    # -- links

    def link(self) -> str:
        """The address of a new one-time link; an unused one stops working."""
        assert self.own is not None, "only a server with a kubeconfig of its own gives out links"
        self._link, self._link_until = secrets.token_urlsafe(_TOKEN_BYTES), self._now() + LINK_SECONDS
        found = f"{self.address}/open?token={self._link}"
        if self._link_file is not None:
            write_private(self._link_file, f"{found}\n")
        return found

    def open(self, token: str) -> str:
        """Opens a session for the token of a link and returns its cookie. Raises Unauthorized."""
        known = self._link
        if (
            self.own is None
            or not known
            or self._now() > self._link_until
            or not hmac.compare_digest(known.encode(), token.encode())
        ):
            raise Unauthorized("this link was used already or has expired")
        cookie = self._begin(self.own)
        self.link()
        return cookie

    # -- sessions

    def _begin(self, caller: Caller) -> str:
        now = self._now()
        self._sessions = {key: each for key, each in self._sessions.items() if self._valid(each)}
        cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[_digest(cookie)] = Session(caller, now + SESSION_SECONDS, now)
        return cookie

    async def log_in(self, token: str) -> str:
        """Opens a session for a bearer token. Raises Unauthorized if the API server does not accept it."""
        caller = await self.bearer(token)
        return self._begin(caller)

    def log_out(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)

    def of_cookie(self, cookie: str) -> Caller:
        found = self._sessions.get(_digest(cookie))
        if found is None or not self._valid(found):
            raise Unauthorized("the session has expired; open a new link or log in again")
        found.seen = self._now()
        return found.caller

    def _valid(self, session: Session) -> bool:
        now = self._now()
        return now < session.expires and now < session.seen + IDLE_SECONDS

    # -- tokens

    async def bearer(self, token: str) -> Caller:
        key = _digest(token)
        known = self._callers.get(key)
        if known is None:
            credentials = FixedCredentials(token)
            access = replace(self._client.access, credentials=credentials, impersonate=Impersonation())
            client = HttpClient(access, component="dashboard")
            known = Caller(client, Rights(client))
            try:
                known.name = await known.rights.user()
            except ApiError:
                await client.close()
                raise
            while len(self._callers) >= CALLERS:
                oldest = self._callers.pop(next(iter(self._callers)))
                await oldest.client.close()
            self._callers[key] = known
        return known

    async def close(self) -> None:
        for caller in self._callers.values():
            await caller.client.close()
        if self._link_file is not None:
            self._link_file.unlink(missing_ok=True)


def _digest(secret: str) -> bytes:
    """Secrets are looked up by digest, so that the time of a look-up tells nothing about them."""
    return hashlib.sha256(secret.encode()).digest()
