"""Who may read the metrics of a process: bearer tokens are checked by the API server, as for its own `/metrics`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import User
from wharfinger.api.errors import ApiError, Forbidden, Unauthorized
from wharfinger.api.kinds.builtin import TOKEN_REVIEWS
from wharfinger.client.access_reviews import is_allowed
from wharfinger.client.interface import Client

HOLDS = 60.0  # seconds for which an answer is cached
_MOST = 256  # answers in the cache
_AT_ONCE = 4  # questions to the API server at the same time: anyone can send tokens


class MetricsAccess:
    """Lets users with the right to `get` the path `/metrics` pass, such as those in the group `system:monitoring`."""

    def __init__(self, client: Client, now: Callable[[], float] | None = None) -> None:
        self._client = client
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._known: dict[bytes, tuple[float, ApiError | None]] = {}  # by hash of the token
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def check(self, authorization: str) -> ApiError | None:
        """The error for a request with this header; None if it may read."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Unauthorized("metrics need a bearer token")
        key = hashlib.sha256(token.encode()).digest()
        async with self._limit:
            known = self._known.get(key)
            if known is not None and self._now() < known[0]:
                return known[1]
            answer = await self._ask(token)
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]  # the oldest
            self._known[key] = (self._now() + HOLDS, answer)
        return answer

    async def _ask(self, token: str) -> ApiError | None:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": {"token": token},
        }
        status = (await self._client.create(TOKEN_REVIEWS, review)).get("status") or {}
        if not status.get("authenticated"):
            return Unauthorized("the token is not valid")
        found = status.get("user") or {}
        extra = {key: tuple(values) for key, values in (found.get("extra") or {}).items()}
        user = User(
            str(found.get("username") or ""), tuple(found.get("groups") or ()), str(found.get("uid") or ""), extra
        )
        asked = Attributes(user, "get", path="/metrics")
        return None if await is_allowed(self._client, asked) else Forbidden(asked.denial())
