"""Whether a binding whose request failed was carried out all the same.

An answer can be lost, and a client or a proxy may send a request twice, of which the second then finds the work done.
Forgetting the assumed pod before that is clear would offer its room to others, until the watch reports the binding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from wharfinger.api.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound, TooManyRequests, Unauthorized
from wharfinger.client.backoff import Backoff
from wharfinger.client.leases import NotLeading

T = TypeVar("T")

_DEFINITE = (BadRequest, Forbidden, Invalid, NotFound, NotLeading, TooManyRequests, Unauthorized)
"""Errors after which nothing was carried out."""
_RETRY_BASE, _RETRY_LIMIT = 0.2, 10.0  # seconds


async def took_effect(error: ApiError, is_so: Callable[[], Awaitable[T]]) -> T | None:
    """Asks the API server with `is_so` until it answers, and returns its answer; None if the object is gone, or if the error
    itself says that nothing was carried out."""
    if isinstance(error, _DEFINITE):
        return None
    backoff = Backoff(_RETRY_BASE, _RETRY_LIMIT, jitter=0.0)
    while True:
        try:
            return await is_so()
        except NotFound:
            return None
        except ApiError:
            await asyncio.sleep(backoff.next())
