"""Random faults of requests, watches, processes, nodes and agents, and what the hands of others do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainHistory, node_of
from wharfinger.fuzz.steps import FuzzStep, applied, disturbed, faulted, patched, two_candidates
from wharfinger.scenario.document import REQUEST_FAULTS, WATCH_FAULTS

_BY = ("scheduler", "scheduler", "controllers", "nodes", "")
_TO = ("pods/binding", "pods", "pods/status", "reservations", "reservations/status", "")
_LISTED = ("pods", "nodes", "reservations", "reservations", "resourcepolicies", "persistentvolumeclaims")
_WATCHED = ("pods", "pods", "nodes", "reservations", "resourcepolicies", "persistentvolumeclaims", "")


class RandomFaults:
    def __init__(
        self, rng: random.Random, history: PlainHistory, create_pod: Callable[[], FuzzStep | None], *, standby: bool
    ) -> None:
        """With `standby`, there are two candidates from the start."""
        self._rng = rng
        self._history = history
        self._create_pod = create_pod
        self._standby = standby
        self.planned: list[Callable[[], FuzzStep | None]] = []  # steps that come next, at the same time

    def table(self) -> Iterable[tuple[str, Callable[[], FuzzStep | None]]]:
        """Every kind of fault with its group."""
        for kind in REQUEST_FAULTS:
            yield "requests", lambda kind=kind: self._request(kind)  # type: ignore[misc]  # bound now
        for kind in WATCH_FAULTS:
            yield "watches", lambda kind=kind: self._watch(kind)  # type: ignore[misc]  # bound now
        for part in ("scheduler", "controllers", "nodes"):
            yield "processes", lambda part=part: self._crash(part)  # type: ignore[misc]  # bound now
            yield "processes", lambda part=part: self._pause(part)  # type: ignore[misc]  # bound now
            yield "processes", lambda part=part: self._skew(part)  # type: ignore[misc]  # bound now
        yield "processes", self._leaders
        yield "starts", self._slow_start
        yield "leaders", self._frozen_leader
        yield "nodes", self._node_down
        yield "nodes", self._node_shrunk
        yield "hands", self._foreign_pod
        yield "hands", self._rivals
        yield "hands", self._edited_record
        yield "hands", self._provision
        yield "agents", self._agent_stopped
        yield "agents", self._stale_inventory

    # -- requests, watches and processes

    def _request(self, kind: str) -> FuzzStep:
        return self._traffic("request", kind, _TO, (0.05, 0.7, 5.0, 20.0) if kind in ("slow", "late") else ())

    def _watch(self, kind: str) -> FuzzStep:
        return self._traffic("watch", kind, _WATCHED, (0.05, 1.0, 10.0, 40.0) if kind in ("delay", "stale") else ())

    def _traffic(self, what: str, kind: str, to: Sequence[str], delays: Sequence[float]) -> FuzzStep:
        rng = self._rng
        fault: Document = {what: kind, "by": rng.choice(_BY), "to": rng.choice(to), "count": rng.randint(1, 4)}
        if delays:
            fault["delay"] = rng.choice(delays)
        return faulted(f"{what} {kind}", **_given(fault))

    def _crash(self, part: str) -> FuzzStep:
        rng = self._rng
        if self._standby and part == "scheduler":
            part = rng.choice(("scheduler", "standby"))
        fault: Document = {"crash": part, "delay": rng.choice((0.0, 0.0, 0.5, 5.0, 60.0))}
        if rng.random() < 0.6:
            fault["after"] = rng.randint(1, 6)
        return faulted(f"crash {part}", **fault)

    def _pause(self, part: str) -> FuzzStep:
        rng = self._rng
        if self._standby and part == "scheduler":
            part = rng.choice(("scheduler", "standby"))
        fault: Document = {"pause": part, "delay": rng.choice((0.5, 5.0, 14.0, 40.0))}
        if rng.random() < 0.6:
            fault["after"] = rng.randint(1, 6)
        return faulted(f"pause {part}", **fault)

    def _leaders(self) -> FuzzStep | None:
        if self._standby:
            return None
        self._standby = True
        return two_candidates()

    def _frozen_leader(self) -> FuzzStep | None:
        """A candidate stands still in the middle of its work for longer than a lease lasts."""
        if not self._standby:
            return None
        rng = self._rng
        self.planned = [self._create_pod, self._create_pod, self._create_pod]
        return faulted(
            "frozen leader",
            pause=rng.choice(("scheduler", "standby")),
            after=rng.randint(1, 4),
            delay=rng.choice((20.0, 40.0)),
        )

    def _skew(self, part: str) -> FuzzStep:
        rng = self._rng
        return faulted(f"skew {part}", skew=part, delay=rng.choice((0.0, 2.0, 30.0)), behind=rng.random() < 0.5)

    def _slow_start(self) -> FuzzStep:
        """A scheduler starts anew, and some of its lists come late, while pods arrive."""
        self.planned = [self._create_pod, self._create_pod]
        slow = {"request": "slow", "by": "scheduler", "to": self._rng.choice(_LISTED), "count": 1, "delay": 5.0}
        crash = {"crash": "scheduler", "delay": self._rng.choice((0.0, 5.0))}
        return disturbed("slow start", slow, crash)

    # -- nodes

    def _one(self, plural: str, filter: Callable[[Document], bool] = lambda document: True) -> Document | None:
        found = [each for each in self._history.of(plural) if filter(each)]
        return self._rng.choice(found) if found else None

    def _node_down(self) -> FuzzStep | None:
        node = self._one("nodes")
        if node is None:
            return None
        return faulted("node down", node=node["metadata"]["name"], down=self._rng.random() < 0.6)

    def _node_shrunk(self) -> FuzzStep | None:
        node = self._one("nodes")
        if node is None:
            return None
        room = {"cpu": str(self._rng.randint(0, 3)), "pods": self._rng.choice(("1", "3"))}
        return patched("shrink node", NODES, node, {"status": {"allocatable": room}})

    # -- the hands of others

    def _foreign_pod(self) -> FuzzStep | None:
        """Another scheduler has bound a pod of its own."""
        node = self._one("nodes")
        if node is None:
            return None
        number = len(self._history.decisions) + self._rng.randint(0, 10**6)
        spec: Document = {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": self._rng.choice("123")}}}],
            "nodeName": node["metadata"]["name"],
            "schedulerName": self._rng.choice(("other", "default-scheduler")),
        }
        metadata = {"name": f"foreign{number}", "namespace": "default", "labels": {"app": "web"}}
        return applied("foreign pod", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def _rivals(self) -> FuzzStep:
        """Another scheduler binds a pod of ours, and rather one that we are just binding, which takes long."""
        self.planned = [self._create_pod, self._rival_binds]
        return faulted("slow binding", request="slow", by="scheduler", to="pods/binding", delay=5.0)

    def _rival_binds(self) -> FuzzStep | None:
        waiting = [each for each in self._history.of("pods") if not node_of(each)]
        decided = [each for each in waiting if each["metadata"]["uid"] in self._history.decisions]
        if not waiting:
            return None
        metadata = self._rng.choice(decided or waiting)["metadata"]
        ours = self._history.decisions.get(metadata["uid"])
        node = self._one("nodes", lambda each: ours is None or each["metadata"]["name"] != ours.node)
        if node is None:
            return None
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {name: metadata[name] for name in ("name", "namespace")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"]},
        }
        return applied("rival binds", binding)

    def _edited_record(self) -> FuzzStep | None:
        pod = self._one("pods", lambda each: bool(node_of(each)))
        if pod is None:
            return None
        names = (
            "scheduling.koordinator.sh/reservation-allocated",
            "scheduling.sigs.x-k8s.io/allocated-compute-resources",
            "controller.kubernetes.io/pod-deletion-cost",
        )
        value = self._rng.choice((None, "{}", "7"))
        return patched("edit record", PODS, pod, {"metadata": {"annotations": {self._rng.choice(names): value}}})

    def _provision(self) -> FuzzStep:
        return faulted("provisioning fails", provision="fail", count=self._rng.randint(1, 3))

    # -- agents

    def _agent_stopped(self) -> FuzzStep | None:
        cluster = self._one("managedclusters")
        if cluster is None:
            return None
        return faulted("agent stopped", agent=cluster["metadata"]["name"], stopped=self._rng.random() < 0.6)

    def _stale_inventory(self) -> FuzzStep | None:
        """The device agent of a node reports fewer devices, or none."""
        node = self._one("nodes", lambda each: bool(each["status"].get("computeResources")))
        if node is None:
            return None
        resources = [dict(each) for each in node["status"]["computeResources"]]
        chosen = self._rng.choice(resources)
        devices = list(chosen.get("devices") or ())
        chosen["allocatableDevices"] = devices[: self._rng.randint(0, len(devices))]
        return patched("stale inventory", NODES, node, {"status": {"computeResources": resources}})


def _given(fault: Document) -> Document:
    return {name: value for name, value in fault.items() if value != ""}
