"""What a caller may do, as the API server answers it: access reviews with the caller's own credentials, cached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from wharfinger.api.errors import ApiError, Forbidden
from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document, Resource
from wharfinger.client.interface import Client

KEPT = 60.0  # seconds that an answer counts
_AT_ONCE = 16  # reviews in flight


def _review(kind: str) -> Resource:
    found = registry().find(kind)
    assert found is not None, f"{kind} is a kind of Kubernetes"
    return found.storage


class Rights:
    """The answers for one caller. One review for each verb, kind and namespace, not for each object."""

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now = now
        self._answers: dict[tuple[str, str, str, str], tuple[float, asyncio.Future[bool]]] = {}
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        """An empty namespace means all of them."""
        key = (verb, resource.group, resource.plural, namespace)
        known = self._answers.get(key)
        if known is None or known[0] < self._now():
            asked = asyncio.ensure_future(self._ask(verb, resource, namespace))
            known = self._answers[key] = (self._now() + KEPT, asked)
        try:
            return await asyncio.shield(known[1])
        except ApiError:
            self._answers.pop(key, None)  # an error is no answer
            raise

    async def demand(self, verb: str, resource: Resource, namespace: str = "", *, reason: str = "") -> None:
        if not await self.may(verb, resource, namespace):
            where = (
                f'namespace "{namespace}"' if namespace else "all namespaces" if resource.namespaced else "the cluster"
            )
            raise Forbidden(f"you may not {verb} {resource.group_plural} in {where}{reason and '; '}{reason}")

    async def _ask(self, verb: str, resource: Resource, namespace: str) -> bool:
        attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
        kind = _review("selfsubjectaccessreview")
        review = _document(kind, {"resourceAttributes": attributes})
        async with self._limit:
            answer = await self._client.create(kind, review)
        return (answer.get("status") or {}).get("allowed") is True

    async def user(self) -> str:
        """The name under which the API server knows the caller. Raises Unauthorized if it does not."""
        kind = _review("selfsubjectreview")
        answer = await self._client.create(kind, _document(kind, None))
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username") or "")


def _document(kind: Resource, spec: Document | None) -> Document:
    made: Document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    return made if spec is None else {**made, "spec": spec}
