"""Who may use which policy on a real cluster. RBAC informers select the candidates, a SubjectAccessReview confirms
each.

The API server decides, since it may run other authorizers than RBAC or see newer roles than our informers. Its answers
are cached for some seconds. A denial of what the roles we know allow is cached for one second only: usually the API
server has not seen a new role yet. While it cannot be reached, nothing is confirmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.request import User
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
)
from wharfinger.api.views.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from wharfinger.client.access_reviews import is_allowed
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.tasks import ON_DEMAND
from wharfinger.client.timers import background_sleep
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.lookup import GROUPS, usable_by

log = logging.getLogger(__name__)

HOLDS = 20.0  # seconds for which an answer of the API server is cached
DENIAL_HOLDS = 1.0  # the same for a denial that contradicts the roles we know
REFRESH = 10.0  # an answer this old is renewed in the background, so that creating a pod never waits for it
FORGET = 300.0
AT_ONCE = 32  # access reviews in flight at the same time


class Unconfirmed(Exception):
    """Access is not known yet; await `confirm` first."""

    def __init__(self, user: User, namespace: str, names: Collection[str]) -> None:
        super().__init__(f"whether {user.name} may use policies in {namespace!r}")
        self.user = user
        self.namespace = namespace
        self.names = names


@dataclass(slots=True)
class _Known:
    """The answers for one user in one namespace: whether each policy may be used, and when that was answered."""

    answers: dict[str, tuple[bool, float]] = field(default_factory=dict)
    used: float = 0.0
    asking: dict[str, asyncio.Task[None]] = field(
        default_factory=dict
    )  # reviews in flight; any number of callers may await them
    refreshing: asyncio.Task[None] | None = None
    usable: frozenset[str] = frozenset()  # the last result, valid while nothing below has changed
    oldest: float = 0.0  # time of the oldest answer behind it
    until: float = 0.0  # when the first of them expires
    revision: int = -1  # revision of the RBAC index
    names: Collection[str] = ()  # the policies in question


class PolicyAccess:
    def __init__(
        self, client: Client, informers: InformerSet, *, holds: float = HOLDS, refresh: float = REFRESH
    ) -> None:
        self._client = client
        self._holds = holds
        self._refresh = refresh
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._known: dict[tuple[str, tuple[str, ...], str], _Known] = {}
        self._swept = 0.0
        self.asked = 0  # access reviews sent
        self.index = RbacIndex()
        self._follow(informers.of(ROLES, Role))
        self._follow(informers.of(CLUSTER_ROLES, ClusterRole))
        self._follow(informers.of(ROLE_BINDINGS, RoleBinding))
        self._follow(informers.of(CLUSTER_ROLE_BINDINGS, ClusterRoleBinding))

    def _follow(
        self, informer: Informer[Role] | Informer[ClusterRole] | Informer[RoleBinding] | Informer[ClusterRoleBinding]
    ) -> None:
        informer.add_handler(
            on_add=self.index.upsert, on_update=lambda old, new: self.index.upsert(new), on_delete=self.index.remove
        )

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        """Answers from the cache; raises Unconfirmed where the cache does not suffice."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(_key(user, namespace))
        if known is not None and known.names is names and known.revision == self.index.revision:
            if now <= known.until:
                return self._used(known, user, namespace, now)
        candidates = usable_by(self.index, user, namespace, names)
        if not candidates:
            return candidates
        if known is None:
            raise Unconfirmed(user, namespace, candidates)
        allowed, oldest, until = [], now, now + self._holds
        for name in candidates:
            answer = known.answers.get(name)
            if answer is None or now > self._end(answer):
                raise Unconfirmed(user, namespace, candidates)
            oldest, until = min(oldest, answer[1]), min(until, self._end(answer))
            if answer[0]:
                allowed.append(name)
        known.usable, known.oldest, known.until = frozenset(allowed), oldest, until
        known.names, known.revision = names, self.index.revision
        return self._used(known, user, namespace, now)

    def _end(self, answer: tuple[bool, float]) -> float:
        """When an answer expires."""
        allowed, asked = answer
        return asked + (self._holds if allowed else min(DENIAL_HOLDS, self._holds))

    def _used(self, known: _Known, user: User, namespace: str, now: float) -> frozenset[str]:
        known.used = now
        if now - known.oldest > self._refresh and known.refreshing is None:
            known.refreshing = asyncio.create_task(self._renew(known, user, namespace), name=ON_DEMAND)
        return known.usable

    async def confirm(self, user: User, namespace: str, names: Collection[str]) -> None:
        """Asks the API server about each policy without a recent answer. Raises ApiError when it cannot be reached."""
        now = asyncio.get_running_loop().time()
        self._sweep(now)
        known = self._known.setdefault(_key(user, namespace), _Known(used=now))
        missing = [
            name
            for name in names
            if (answer := known.answers.get(name)) is None
            or now - answer[1] > self._holds / 2
            or now > self._end(answer)
        ]
        for name in missing:
            if name not in known.asking:
                known.asking[name] = asyncio.create_task(self._learn(known, user, namespace, name))
        # A cancelled caller must not cancel the review that others await.
        await asyncio.gather(*(asyncio.shield(known.asking[name]) for name in missing))

    async def _learn(self, known: _Known, user: User, namespace: str, name: str) -> None:
        asked = asyncio.get_running_loop().time()  # when the review was sent: its answer may be no newer
        try:
            known.answers[name] = (await self._ask(user, namespace, name), asked)
        finally:
            del known.asking[name]

    async def _renew(self, known: _Known, user: User, namespace: str) -> None:
        """Renews answers one by one; a burst would slow down admission."""
        loop = asyncio.get_running_loop()
        names = [name for name, (_, at) in known.answers.items() if loop.time() - at <= self._holds]
        pause = (self._holds - self._refresh) / 4 / max(1, len(names))
        try:
            for name in names:
                asked = loop.time()
                known.answers[name] = (await self._ask(user, namespace, name), asked)
                await background_sleep(pause)
            known.answers = {name: known.answers[name] for name in names}
            known.revision = -1
        except ApiError as error:
            log.warning("cannot renew what %s may use in %s: %s", user.name, namespace, error)
            await background_sleep(1.0)
        finally:
            known.refreshing = None

    async def _ask(self, user: User, namespace: str, name: str) -> bool:
        async with self._limit:
            for group in GROUPS:
                self.asked += 1
                asked = Attributes(user, "use", group, SCHEDULING_POLICIES.plural, name=name, namespace=namespace)
                if await is_allowed(self._client, asked):
                    return True
        return False

    def _sweep(self, now: float) -> None:
        """Forgets users that have created nothing for a while."""
        if now - self._swept > FORGET:
            self._swept = now
            self._known = {key: known for key, known in self._known.items() if now - known.used <= FORGET}


def _key(user: User, namespace: str) -> tuple[str, tuple[str, ...], str]:
    return (user.name, user.groups, namespace)
