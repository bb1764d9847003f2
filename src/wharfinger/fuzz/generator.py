"""Draws the steps of a history from a seed: operations of users and operators, faults, and the passing of time.

Which operations are used, how often, and the probability of each kind of fault are drawn anew for each seed, so that
histories with a single kind of fault happen, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from wharfinger.api.configuration import API_VERSION, KIND
from wharfinger.api.registry import Document, Registry
from wharfinger.fuzz.faults import DeviceAgentFaults, RandomFaults, WebhookFaults
from wharfinger.fuzz.history import PlainHistory
from wharfinger.fuzz.objects import NAMESPACES, PRIORITIES, USERS, RandomObjects
from wharfinger.fuzz.operations import RandomOperations
from wharfinger.fuzz.profiles import FuzzProfile
from wharfinger.fuzz.steps import FuzzStep, applied, rest, two_candidates, waited

ALIKE, TOGETHER = 5, 50  # residents of large clusters: so many alike, and so many in one step
RUNNING = 70.0  # seconds after which they run
_LIKELY = ("leaders", "starts")  # groups of one kind of fault each
_PAUSES = (0.0, 0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 15.0, 90.0, 700.0)  # seconds between steps, and...
_PAUSE_WEIGHTS = (30, 20, 20, 20, 20, 20, 10, 5, 2, 1)  # ...how often


class HistoryGenerator:
    def __init__(self, seed: int, profile: FuzzProfile, history: PlainHistory, registry: Registry) -> None:
        self._rng = rng = random.Random(f"history {profile.name} {seed}")
        self._profile = profile
        self._enforced = "admission" in profile.operations and rng.random() < 0.5
        share = rng.choice((0.4, 0.7, 1.0))  # of the groups that take part: with few, there is more of each
        swarm = {each for each in sorted(profile.operations) if rng.random() < share} or set(profile.operations)
        if "pods" in profile.operations:
            swarm.add("pods")
        self._groups = swarm
        self._objects = RandomObjects(
            rng,
            cpus=profile.cpus,
            devices="devices" in swarm,
            volumes="volumes" in swarm,
            claims="claims" in swarm,
            affinities=rng.random() < 0.5,
        )
        operations = RandomOperations(rng, self._objects, history, registry, profile.most_pods, self._enforced)
        self._operations: list[Callable[[], FuzzStep | None]] = []
        self._weights: list[float] = []
        for group, weight, operation in operations.table():
            if group in swarm and rng.random() < 0.85:
                self._operations.append(operation)
                self._weights.append(weight * rng.choice((0.3, 1.0, 1.0, 2.5)))
        self._random_faults = faults = RandomFaults(rng, history, operations.create_pod, standby=profile.standby)
        self._faults: list[tuple[float, Callable[[], FuzzStep | None]]] = [
            (max(rng.choice(profile.rates), 0.01 if group in _LIKELY else 0.0), fault)
            for group, fault in faults.table()
            if group in profile.faults and rng.random() < (0.8 if group in _LIKELY else 0.4)
        ]
        self._separate_faults: list[WebhookFaults | DeviceAgentFaults] = []  # drawn apart from all else
        apart = random.Random(f"separate {profile.name} {seed}")
        if self._enforced and "webhook" in profile.faults:
            self._separate_faults.append(WebhookFaults(apart, faults, profile.rates))
        if "devices" in swarm and "agents" in profile.faults:
            self._separate_faults.append(DeviceAgentFaults(apart, faults, history, profile.rates))
        self._now = 0.0
        self._waited = False  # the last step let time pass

    def configuration(self) -> Document:
        """The WharfingerConfiguration of the cluster."""
        document: Document = {"apiVersion": API_VERSION, "kind": KIND}
        if self._enforced:
            document["schedulingPolicy"] = {"mode": "enforce"}
        return document

    def setup(self) -> list[FuzzStep]:
        """The first steps: what every history begins with."""
        rng, objects = self._rng, self._objects
        first: list[Document] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in NAMESPACES
            if name != "default"
        ]
        first += [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in PRIORITIES.items()
        ]
        first += [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            for name, provisioner in (("late", "kubernetes.io/no-provisioner"), ("made", "example.com/made"))
        ]
        if "claims" in self._groups:
            first.append(objects.device_class())
        if self._enforced:
            first += _rights()
        steps = [applied("setup", *first)]
        if self._groups != {"placement"}:
            number = min(
                rng.randint(*self._profile.nodes), rng.randint(*self._profile.nodes)
            )  # rather few: room is short
            steps.append(applied("nodes", *(objects.node(f"n{i}") for i in range(number))))
        count = rng.randint(*self._profile.pods) if "pods" in self._groups else 0
        residents: list[Document] = []
        for _ in range(0, self._profile.residents, ALIKE):
            residents += objects.residents(rng.choice(NAMESPACES), ALIKE)
        steps += [applied("pods", *residents[i : i + TOGETHER]) for i in range(0, len(residents), TOGETHER)]
        for _ in range(count):
            steps.append(applied("create pod", objects.pod(rng.choice(NAMESPACES))))
        if "placement" in self._groups:
            steps.append(applied("create cluster", *(objects.cluster(f"c{i}") for i in range(3))))
        if self._profile.standby:
            steps.append(two_candidates())
        for step in steps:
            step.at = 0.0
        if residents:
            self._now = RUNNING
            steps.append(waited())
            steps[-1].at = RUNNING
        return steps

    def next(self) -> FuzzStep:
        """The next step; it depends on what there is now."""
        rng = self._rng
        if (planned := self._planned()) is not None:
            return planned
        if rng.random() < 1 / self._profile.rest_every:
            return rest()
        if not self._waited and (pause := rng.choices(_PAUSES, _PAUSE_WEIGHTS)[0]):
            self._now = round(self._now + pause, 3)
            step = waited()
        else:
            step = self._fault() or self._operation()
        self._waited = step.label == "wait"
        step.at = self._now
        return step

    def _planned(self) -> FuzzStep | None:
        """What a fault wants to happen next."""
        while self._random_faults.planned:
            if (step := self._random_faults.planned.pop(0)()) is not None:
                step.at = self._now
                return step
        return None

    def synchronize(self, now: float) -> None:
        """Time does not go back: a rest lets some pass."""
        self._now = max(self._now, round(now + 0.0005, 3))

    def _fault(self) -> FuzzStep | None:
        for separate in self._separate_faults:
            if (step := separate.next()) is not None:
                return step
        for probability, fault in self._faults:
            if self._rng.random() < probability and (step := fault()) is not None:
                return step
        return None

    def _operation(self) -> FuzzStep:
        for _ in range(5):
            if not self._operations:
                break
            operation = self._rng.choices(self._operations, self._weights)[0]
            if (step := operation()) is not None:
                return step
        return waited()


def _rights() -> list[Document]:
    """Two tenants, who may use one scheduling policy each; the service accounts of a namespace may use one, too."""
    group = "rbac.authorization.k8s.io"
    found: list[Document] = []
    for index, user in enumerate(USERS):
        rule = {
            "apiGroups": ["scheduling.sigs.x-k8s.io"],
            "resources": ["schedulingpolicies"],
            "resourceNames": [f"policy{index}"],
            "verbs": ["use"],
        }
        subjects = [
            {"kind": "User", "apiGroup": group, "name": user},
            {"kind": "Group", "apiGroup": group, "name": f"system:serviceaccounts:{NAMESPACES[index + 1]}"},
        ]
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": f"use{index}"}
        found += [
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": f"use{index}"}, "rules": [rule]},
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"use{index}"},
                "roleRef": reference,
                "subjects": subjects,
            },
        ]
    return found
