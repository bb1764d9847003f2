"""What the endpoints answer from."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.errors import Forbidden
from wharfinger.api.kinds.builtin import NODES, PODS, RESOURCE_QUOTAS
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.registry import Document, Resource
from wharfinger.dashboard.follower import Follower
from wharfinger.dashboard.history import History
from wharfinger.dashboard.pacing import PacedAnswers
from wharfinger.dashboard.sessions import Caller, Sessions
from wharfinger.dashboard.starts import WaitingStarts
from wharfinger.dashboard.state import ClusterState, Visible
from wharfinger.dashboard.verdicts import Verdicts
from wharfinger.dashboard.views.quotas import quota_rows
from wharfinger.dashboard.workers import Workers
from wharfinger.system import ordered_systems

Marks = dict[str, dict[str, Any]]
"""What systems keep on each node."""


@dataclass(slots=True, eq=False)
class Dashboard:
    state: ClusterState
    sessions: Sessions
    workers: Workers
    history: History
    config: str = ""  # the configuration file, for what-ifs
    server: str = ""  # the address of the API server, as shown
    kubernetes: KubernetesVersion = REFERENCE  # of the API server
    follower: Follower | None = None  # None: not everything can be read, so nothing can be explained
    verdicts: Verdicts | None = None  # of the follower
    starts: WaitingStarts = field(init=False)
    paced: PacedAnswers = field(init=False)

    def __post_init__(self) -> None:
        self.starts = WaitingStarts(lambda: self.ask_worker("starts", {}, self.state.snapshot()))
        self.paced = PacedAnswers(lambda: self.state.announce(NODES, ""))

    def follow(self, follower: Follower) -> None:
        """Starts explaining."""
        self.follower = follower
        self.verdicts = Verdicts(
            follower.verdict, lambda: follower.revision, lambda namespace: self.state.announce(PODS, namespace)
        )
        follower.start(lambda: self.state.announce(PODS, ""))

    async def stop(self) -> None:
        if self.verdicts is not None:
            await self.verdicts.stop()
        if self.follower is not None:
            await self.follower.stop()

    async def ask_worker(self, task: str, arguments: Document, snapshot: Iterable[Document]) -> Any:
        return await self.workers.run(
            task, {**arguments, "config": self.config, "kubernetes": str(self.kubernetes)}, snapshot
        )

    async def visible(self, caller: Caller, *resources: Resource) -> Visible:
        return await Visible.of(self.state, caller.rights, resources)

    async def verdicts_for(self, caller: Caller) -> Verdicts | None:
        """Verdicts on pods, for callers who may see everything that an explanation is made of. There are none yet while
        the cluster is loaded."""
        return self.verdicts if await self.sees_all(caller) else None

    async def sees_all(self, caller: Caller) -> bool:
        answers = [await caller.rights.may("list", each) for each in (PODS, NODES)]
        return all(answers)

    async def demand_all(self, caller: Caller, what: str) -> None:
        """Raises Forbidden unless the caller may see all pods and nodes: an answer would tell about them."""
        for resource in (PODS, NODES):
            reason = f"{what} looks at every pod and node, so it needs that right"
            await caller.rights.demand("list", resource, reason=reason)
        if not self.state.whole:
            raise Forbidden(f"{what} is not possible with this kubeconfig: {'; '.join(self.not_read()[:5])}")

    def not_read(self) -> list[str]:
        """Why some kinds are not read, so that answers may lack what depends on them."""
        return sorted(kind.refused for kind in self.state.kinds.values() if kind.refused)

    def marks(self, visible: Visible) -> Marks:
        def make() -> Marks:
            merged: Marks = {}
            for system in ordered_systems():
                for node, mark in system.report().node_marks(visible.objects).items():
                    merged.setdefault(node, {}).update(mark)
            return merged

        return self.paced.get(("marks", visible.scope), visible.revision, make)

    def screen(self, name: str, visible: Visible) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            found: dict[str, Any] = {}
            for system in ordered_systems():
                report = system.report()
                if report.screen == name:
                    found.update(report.screen_view(visible.objects, time.time()))
            if name == "promises":
                found["quotas"] = quota_rows(visible.objects(RESOURCE_QUOTAS))
            return found

        return self.paced.get((name, visible.scope), visible.revision, make)


def screen_kinds(*names: str) -> list[Resource]:
    found = [
        each
        for system in ordered_systems()
        if (report := system.report()).screen in names
        for each in report.screen_kinds
    ]
    return [*dict.fromkeys(found), *((RESOURCE_QUOTAS,) if "promises" in names else ())]


def mark_kinds() -> list[Resource]:
    return list(dict.fromkeys(each for system in ordered_systems() for each in system.report().screen_kinds))
