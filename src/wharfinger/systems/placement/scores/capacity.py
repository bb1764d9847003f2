"""The capacity agent of a member cluster: answers how many pods of a workload fit there.

It follows the member with the scheduler's own engine, reads the questions in its namespace on the hub and writes the
answers beside them. Traffic is bounded: there is at most one round per interval, a round writes only what has changed, and
a number that rises is told only when it has held for a while.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.node_groups import GROUP_LABEL, NodeGroup
from wharfinger.api.registry import Document, Registry
from wharfinger.api.views import Pod
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, SystemClock, background, background_sleep
from wharfinger.engine import Engine
from wharfinger.framework.events import ClusterEvent
from wharfinger.scheduler import profiles
from wharfinger.scheduler.feed import Feed
from wharfinger.systems.placement.kinds.names import ADDON_PLACEMENT_SCORES
from wharfinger.systems.placement.kinds.views import AddOnPlacementScore
from wharfinger.systems.placement.rules.capacity import (
    ANSWER,
    FITS,
    QUESTION,
    CapacityAnswer,
    CapacityQuestion,
    digest,
    read_answer,
    read_question,
    write_answer,
)
from wharfinger.systems.placement.rules.fitting import answer_question, example_pod
from wharfinger.systems.placement.scores.publish import FAILURES, ScorePublisher

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CapacityTiming:
    """All in seconds."""

    interval: float = 10.0  # between two rounds, at least
    settle: float = 30.0  # for which a number must have risen before it is told
    valid_for: float = 300.0  # without a renewal

    @property
    def longest_wait(self) -> float:
        """After which a round happens even if nothing has changed, to renew answers."""
        return max(self.interval, self.valid_for / 4)


@dataclass(slots=True)
class SteadyCount:
    """A number that falls at once and rises only after it has held for `settle` seconds, and then to the lowest value
    in that time. So pods that come and go do not make clusters come and go."""

    settle: float
    told: int = -1
    rising_since: float = math.inf
    lowest: int = 0

    def update(self, count: int, now: float) -> int:
        if self.told < 0 or count <= self.told:
            self.told, self.rising_since = count, math.inf
            return self.told
        if self.rising_since == math.inf:
            self.rising_since, self.lowest = now, count
        self.lowest = min(self.lowest, count)
        if now >= self.rising_since + self.settle:
            self.told, self.rising_since = self.lowest, math.inf
            if count > self.told:
                self.rising_since, self.lowest = now, count
        return self.told

    @property
    def due(self) -> float:
        return self.rising_since + self.settle


class MemberState:
    """The member as its scheduler sees it. `version` moves with everything that can change an answer."""

    def __init__(self, informers: InformerSet, registry: Registry, configuration: Configuration | None = None) -> None:
        self.version = 0
        self.news = asyncio.Event()
        loaded = profiles.load({}, settings=configuration or Configuration())
        self.engine = Engine(loaded.profiles, kubernetes=loaded.kubernetes)
        self._informers = informers
        self._feed = Feed(informers, registry, self.engine, self)

    def group_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for node in self._feed.nodes:
            group = node.metadata.labels.get(GROUP_LABEL, "")
            sizes[group] = sizes.get(group, 0) + 1
        return sizes

    @property
    def doubtful(self) -> bool:
        """Whether a watch has failed and told nothing since."""
        return any(informer.last_error is not None for informer in (self._feed.nodes, self._feed.pods))

    # What the feed tells

    def pending(self, old: Pod | None, new: Pod | None) -> None:
        """Pods without a node take no room yet."""

    def assigned(self, pod: Pod) -> None:
        """Followed by `happened`."""

    def changed(self, kind: str, old: Any, new: Any) -> None:
        """Followed by `happened`."""

    def happened(self, event: ClusterEvent) -> None:
        self.version += 1
        self.news.set()


@dataclass(slots=True)
class _AskedQuestion:
    """A question with what is known about its answer."""

    text: str
    question: CapacityQuestion
    pod: Pod
    now: SteadyCount
    after: SteadyCount
    computed: CapacityAnswer | None = None
    version: int = -1  # of the member when it was computed

    @property
    def due(self) -> float:
        return min(self.now.due, self.after.due)


class FollowedClusters:
    """The member, and the questions on the hub, both followed by informers."""

    def __init__(
        self,
        cluster: str,
        member: Client,
        hub: Client,
        registry: Registry,
        kubernetes: KubernetesVersion = REFERENCE,
    ) -> None:
        self._client = member
        self._member = InformerSet(member)
        self.state = MemberState(self._member, registry, Configuration(kubernetes=kubernetes))
        self.questions = Informer(hub, ADDON_PLACEMENT_SCORES, AddOnPlacementScore, namespace=cluster)
        self.questions.add_handler(self._asked, self._changed)

    def _asked(self, score: AddOnPlacementScore) -> None:
        if QUESTION in score.metadata.annotations:
            self.state.news.set()

    def _changed(self, old: AddOnPlacementScore, new: AddOnPlacementScore) -> None:
        if old.metadata.annotations.get(QUESTION) != new.metadata.annotations.get(QUESTION):
            self._asked(new)

    async def check(self) -> None:
        """Raises ApiError if the member does not answer."""
        if self.state.doubtful:
            await self._client.list(NODES, limit=1)

    async def __aenter__(self) -> FollowedClusters:
        self._member.start()
        self.questions.start()
        await self._member.wait_synced()
        await self.questions.wait_synced()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.questions.stop()
        await self._member.stop()


@dataclass(slots=True)
class CapacityAgent:
    """Answers the questions to one cluster. `member` and `hub` are clients of the two API servers."""

    cluster: str
    member: Client
    hub: Client
    registry: Registry
    groups: Sequence[NodeGroup] = ()
    timing: CapacityTiming = field(default_factory=CapacityTiming)
    clock: Clock = field(default_factory=SystemClock)
    writes: int = 0  # requests that changed something on the hub
    _asked: dict[str, _AskedQuestion] = field(default_factory=dict)  # by the name of the AddOnPlacementScore
    _publishers: dict[str, ScorePublisher] = field(default_factory=dict)

    async def _followed(self) -> FollowedClusters:
        try:
            kubernetes = await self.member.kubernetes_version()
        except ApiError:
            kubernetes = REFERENCE  # the member does not answer; following it goes on until it does
        return FollowedClusters(self.cluster, self.member, self.hub, self.registry, kubernetes)

    async def run(self) -> None:
        """Answers until cancelled."""
        async with await self._followed() as followed:
            while True:
                followed.state.news.clear()
                await self._round(followed)
                await background_sleep(self.timing.interval)
                await self._wait(followed.state.news)

    async def once(self) -> list[str]:
        """Answers all present questions, and returns their names."""
        async with await self._followed() as followed:
            return await self._round(followed, strict=True)

    async def _wait(self, news: asyncio.Event) -> None:
        """Waits for a change, for the end of a settling time, or for the next renewal."""
        due = min((each.due for each in self._asked.values()), default=math.inf) - self.clock.now()
        left = min(max(due, 0.0), self.timing.longest_wait - self.timing.interval)
        try:
            with background():
                async with asyncio.timeout(max(left, 0.0)):
                    await news.wait()
        except TimeoutError:
            return

    async def _round(self, followed: FollowedClusters, *, strict: bool = False) -> list[str]:
        try:
            await followed.check()
        except FAILURES as error:
            if strict:
                raise
            # What is known of the member may be old: answers are not renewed, and expire if that lasts.
            log.warning("cannot follow the cluster: %s", error)
            return []
        scores = {score.metadata.name: score for score in followed.questions if QUESTION in score.metadata.annotations}
        for name in self._asked.keys() - scores.keys():
            del self._asked[name]
            self._publishers.pop(name, None)
        for name, score in sorted(scores.items()):
            try:
                await self._answer(followed.state, name, score)
            except NotFound:
                continue  # nobody asks any more
            except FAILURES as error:
                if strict:
                    raise
                log.warning("cannot answer %s: %s", name, error)
        return sorted(scores)

    async def _answer(self, state: MemberState, name: str, score: AddOnPlacementScore) -> None:
        text = score.metadata.annotations[QUESTION]
        asked = self._asked.get(name)
        if asked is None or asked.text != text:
            question = read_question(score.metadata.annotations)
            if question is None or question.replicas < 1:
                raise ValueError("the question cannot be read")
            now, after = SteadyCount(self.timing.settle), SteadyCount(self.timing.settle)
            asked = _AskedQuestion(text, question, example_pod(question, self.registry), now, after)
            previous = read_answer(score)
            if previous is not None:  # an agent that restarts does not forget what it has told
                asked.now.told, asked.after.told = previous.now, previous.after_scale_up
            self._asked[name] = asked
        if asked.computed is None or asked.version != state.version:
            asked.version = state.version
            asked.computed = answer_question(
                state.engine, asked.question, asked.pod, self.groups, state.group_sizes(), digest=digest(text)
            )
        moment = self.clock.now()
        fitting = asked.now.update(asked.computed.now, moment)
        after_scale_up = asked.after.update(asked.computed.after_scale_up, moment)
        answer = replace(asked.computed, now=fitting, after_scale_up=max(fitting, after_scale_up))
        if read_answer(score) != answer:
            change = {"metadata": {"annotations": {ANSWER: write_answer(answer)}}}
            await self.hub.patch(ADDON_PLACEMENT_SCORES, name, change, self.cluster)
            self.writes += 1
        await self._publish(name, answer)

    async def _publish(self, name: str, answer: CapacityAnswer) -> None:
        publisher = self._publishers.get(name)
        if publisher is None:
            publisher = self._publishers[name] = ScorePublisher(
                self.hub, name, valid_for=self.timing.valid_for, create=False, clock=self.clock
            )
        condition: Document = {
            "type": FITS,
            "status": "True" if answer.verdict == "FitsNow" else "False",
            "reason": answer.verdict,
            "message": answer.text,
        }
        self.writes += await publisher.publish(
            self.cluster, answer.scores, again_in=self.timing.longest_wait, condition=condition
        )
