"""A whole control plane in one process and in virtual time: the in-memory store, its admission chain, and every
component."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wharfinger.admission.rbac import Attributes, RbacDecision
from wharfinger.admission.request import SYSTEM, User, service_account
from wharfinger.admission.stored_rbac import StoredRbac
from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ApiError
from wharfinger.api.kinds import registry as all_kinds
from wharfinger.api.kinds.builtin import EVENTS, LEASES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from wharfinger.api.manifests import Manifest
from wharfinger.api.registry import Document, Kind, Resource
from wharfinger.api.views import Pod, view
from wharfinger.apiserver.admission.policies import PolicyReviewer
from wharfinger.apiserver.admission.registration import RegistrationReviewer
from wharfinger.apiserver.bootstrap import bootstrap
from wharfinger.apiserver.credentials import CONTROLLERS, SCHEDULER
from wharfinger.apiserver.custom_kinds import DefinitionReviewer
from wharfinger.apiserver.custom_resources import CustomResources
from wharfinger.apiserver.resource_metrics import provide_metrics
from wharfinger.client.local import LocalClient
from wharfinger.client.timers import LoopClock
from wharfinger.client.workqueue import WorkQueue
from wharfinger.controllers.provision_faults import ProvisionFaults
from wharfinger.node.annotations import DOWN
from wharfinger.node.samples import NodeSample, sample_node
from wharfinger.scenario.document import COMPONENTS, Expectation, ScenarioFault
from wharfinger.scenario.expectations import ExpectationOutcome, check
from wharfinger.scenario.extension import Extensions
from wharfinger.scenario.faults import BindFaults
from wharfinger.simulate.loop import VirtualLoop
from wharfinger.simulate.processes import ProcessClient, ProcessFaults, ProcessRun, SkewedClock
from wharfinger.store import Store
from wharfinger.store.default_chain import extend_chain
from wharfinger.store.objects import StoredObject
from wharfinger.system import systems

if TYPE_CHECKING:
    from wharfinger.client.events import EventRecorder
    from wharfinger.client.interface import Client
    from wharfinger.scheduler.scheduler import Scheduler
    from wharfinger.simulate.webhook import WebhookLink

log = logging.getLogger(__name__)

_EXPLAINED = 3  # pods of a failed expectation that are explained
_SCHEDULERS = ("scheduler", "standby")


class SimulatedCluster:
    """Implements `wharfinger.scenario.runner.Stage`. Everything runs on `loop`."""

    short_ways = True  # skip what nobody can observe; a test compares the outcome with that of the full way

    def __init__(
        self,
        configuration: Configuration,
        *,
        start: float,
        seed: int = 0,
        controllers: Sequence[str] = ("*",),
        events: bool = True,
    ) -> None:
        """`controllers` are those that run, as in `wharf controllers --controllers`. Without `events`, none are recorded."""
        self.configuration = configuration
        self._controllers = controllers
        self._records_events = events
        self.loop = VirtualLoop(self._size, self._revision)
        self.clock = LoopClock(start, self.loop)
        self.registry = all_kinds()
        self.store = Store(
            self.registry,
            now=self.clock.now,
            source=random.Random(f"store {seed}"),
            keep_identity=True,
            short_ways=self.short_ways,
        )
        self.scheduler: Scheduler | None = None
        self._seed = seed
        self.unseen_kinds: frozenset[str] = frozenset()  # of which a snapshot may lack objects
        self._unseen_owners: frozenset[str] = frozenset()
        self._admin = LocalClient(self.store)
        self._faults = BindFaults()
        self._provision_faults = ProvisionFaults()
        self.process_faults = ProcessFaults(self._killed, self._stand_still)
        self.runs: dict[str, ProcessRun] = {}  # the current run of each component
        self.on_scheduler: Callable[[Scheduler, ProcessRun], None] | None = None  # called with each new one
        self.on_review: Callable[[ProcessRun, Document], None] = lambda run, request: None  # by a separate webhook
        self._schedulers: dict[str, Scheduler] = {}
        self._clocks = {part: SkewedClock(self.clock) for part in COMPONENTS}
        self._elections = False  # whether schedulers take part in a leader election
        self._dying: set[asyncio.Task[Any]] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._queues: list[WorkQueue[Any]] = []  # of the controllers
        self._retried_at = 0  # what `_changes` was when controllers last tried again what had failed
        self._parts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "controllers": self._run_controllers,
            "nodes": self._run_nodes,
            "scheduler": self._run_scheduler,
        }
        self._roles = StoredRbac(self.store)
        self.webhook: WebhookLink | None = None  # set once it is a process of its own
        self._build_chain()
        provide_metrics(self.store, self.clock.now, everything=True)
        self.loop.complete(bootstrap(self.store))
        self.loop.complete(CustomResources(self.store, lambda kind: None).start())
        for system in systems():
            self.loop.complete(system.bootstrap(self._admin))
        self._initial = {(kind.group, kind.plural): self._versions(kind.storage) for kind in self.registry}

    def _build_chain(self) -> None:
        chain = self.store.chain
        for reviewers in (chain.mutating, chain.checking, chain.validating, chain.final, chain.on_bind):
            reviewers.clear()
        webhook = self.webhook is not None
        extend_chain(chain, self.store, complete=False, configuration=self.configuration, webhook=webhook)
        chain.validating += [
            DefinitionReviewer(),
            RegistrationReviewer(),
            PolicyReviewer(self.store, self._allowed),
        ]

    def _allowed(self, asked: Attributes) -> RbacDecision:
        return self._roles.index().allowed(asked)

    def note_owners(self, manifests: Iterable[Manifest]) -> None:
        """Owners that the manifests refer to but do not contain are assumed to exist."""
        self._unseen_owners = unseen_owners(manifest.outline for manifest in manifests)

    def start(self, *, scheduler: bool = True) -> None:
        """Starts all components that do not run yet, with or without the scheduler."""
        for part in self._parts:
            if part not in self._running and (scheduler or part != "scheduler"):
                self._start(part)

    def close(self) -> None:
        self.loop.shut_down()

    # -- the stage

    def client(self, user: str, on_warning: Callable[[str], None]) -> LocalClient:
        return self._admin.as_user(user_named(user), on_warning)

    async def ensure_namespace(self, name: str) -> None:
        """Scenarios and snapshots may use namespaces without creating them."""
        if name and self.store.peek(NAMESPACES, name) is None:
            await self._admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def ensure_priority_class(self, pod: Document) -> None:
        """Recreates the priority class of a pod from a snapshot, from the priority in the pod, if the snapshot lacks
        the class."""
        metadata, spec = pod.get("metadata"), pod.get("spec")
        if not isinstance(metadata, dict) or not metadata.get("uid") or not isinstance(spec, dict):
            return
        name, value = spec.get("priorityClassName"), spec.get("priority")
        if isinstance(name, str) and isinstance(value, int) and self.store.peek(PRIORITY_CLASSES, name) is None:
            made = {
                "apiVersion": PRIORITY_CLASSES.api_version,
                "kind": PRIORITY_CLASSES.kind,
                "metadata": {"name": name},
            }
            if policy := spec.get("preemptionPolicy"):
                made["preemptionPolicy"] = policy
            with suppress(ApiError):  # not a valid class name: the pod will be refused
                await self._admin.create(PRIORITY_CLASSES, {**made, "value": value})

    async def create_nodes(self) -> None:
        """The sample nodes that the configuration asks for."""
        for index in range(self.configuration.nodes.count):
            await self._admin.create(NODES, sample_node(NodeSample(), index))

    async def advance(self, moment: float) -> None:
        await self.loop.moment(moment)
        self.process_faults.note(self.loop.time(), self.store.version)

    async def settle(self) -> None:
        """Until idle. Controllers retry ever less often what the API refuses; they do so once more when something else has
        changed since, such as a quota."""
        await self.loop.idle()
        while (changes := self._changes()) != self._retried_at:
            if not sum(queue.retry_now() for queue in self._queues):
                break
            size = self._size()
            await self.loop.idle()
            self._retried_at = changes if self._size() != size else self._changes()

    def _changes(self) -> int:
        """A number that grows with every change of an object other than an event."""
        return self.store.version - sum(
            self.store.revision(kind.storage) for kind in self.registry if kind.plural == EVENTS.plural
        )

    async def fault(self, fault: ScenarioFault) -> None:
        if fault.bind:
            self._faults.add(fault)
        elif fault.provision == "fail":
            self._provision_faults.failures += fault.count
        elif fault.restart:
            for part in self._parts if fault.restart == "all" else (fault.restart,):
                await self._restart(part)
        elif fault.node:
            change = {"metadata": {"annotations": {DOWN: "true" if fault.down else None}}}
            await self._admin.patch(NODES, fault.node, change)
        elif fault.request or fault.watch:
            self.process_faults.arm(fault)
        elif fault.crash:
            await self._crash(fault)
        elif fault.pause:
            self._pause(fault)
        elif fault.skew:
            self._clocks[fault.skew].skew = -fault.delay if fault.behind else fault.delay
        elif fault.standby:
            await self._stand_by()
        elif fault.separate:
            await self._separate_webhook()
        else:
            await Extensions().simulate_fault(fault, self._admin, self.clock.now())

    def end_faults(self) -> None:
        """Requests, watches and provisioning work again, and clocks agree. Processes that are down or paused come back by
        themselves."""
        self.process_faults.clear()
        self._provision_faults.failures = 0
        for run in self.runs.values():
            run.writes_left = run.writes_before_pause = None
        for clock in self._clocks.values():
            clock.skew = 0.0

    async def expect(self, expectations: Sequence[Expectation]) -> list[ExpectationOutcome]:
        return [await self._expect(expectation) for expectation in expectations]

    async def _expect(self, expectation: Expectation) -> ExpectationOutcome:
        until = self.loop.time() + (expectation.within or 0.0)
        while True:
            outcome = check(expectation, self.objects(expectation.resource))
            if outcome.ok:
                return outcome
            if self.loop.time() >= until:
                return replace(outcome, explanation=self._explanation(outcome))
            await self.loop.next_moment(until)

    def _explanation(self, outcome: ExpectationOutcome) -> tuple[str, ...]:
        """Why the pods that fail an expectation are where they are."""
        if self.scheduler is None or outcome.expectation.resource != PODS:
            return ()
        from wharfinger.simulate.explaining import brief

        pods = [view(document, Pod) for document in outcome.culprits[:_EXPLAINED]]
        return tuple(line for pod in pods for line in brief(self.scheduler.engine, pod))

    # -- what there is

    def objects(self, resource: Resource) -> list[Document]:
        """All objects of a kind; none of a kind that is not served."""
        if self.registry.of_plural(resource.group, resource.plural) is None:
            return []
        return [stored.document() for stored in self.store.scan(resource)]

    def waiting(self) -> tuple[int, int]:
        """The number of pods in the active queue, and the number of all pods, according to the scheduler."""
        if self.scheduler is None:
            return 0, 0
        return self.scheduler.active, self.scheduler.pods_known

    def leading_scheduler(self) -> Scheduler | None:
        """The scheduler that decides now; of two candidates, the leader."""
        return next((each for each in self._schedulers.values() if each.state.acting), None)

    def broken(self) -> list[str]:
        """The components that ended by themselves, which none should."""
        return [f"the simulated {part} ended" for part, task in self._running.items() if task.done()]

    def final_objects(self) -> list[StoredObject]:
        """All objects except events and unchanged objects from before anything was applied."""
        return [stored for _, stored in self.changed_objects()]

    def changed_objects(self) -> Iterator[tuple[Kind, StoredObject]]:
        """The final objects with their kinds."""
        for kind in self.registry:
            if kind.storage == EVENTS or (kind.group, kind.plural) == ("events.k8s.io", "events"):
                continue
            initial = self._initial.get((kind.group, kind.plural), {})
            for stored in self.store.scan(kind.storage):
                if initial.get((stored.namespace, stored.name)) != stored.version:
                    yield kind, stored

    def is_initial(self, resource: Resource, namespace: str, name: str) -> bool:
        """Whether an object has not changed since before anything was applied."""
        stored = self.store.peek(resource, name, namespace)
        initial = self._initial.get((resource.group, resource.plural), {})
        return stored is not None and initial.get((stored.namespace, stored.name)) == stored.version

    def _size(self) -> int:
        """The number of objects, without events: those of a loop would hide it."""
        return sum(self.store.number(kind.storage) for kind in self.registry if kind.plural != EVENTS.plural)

    def _revision(self) -> int:
        """How often anything has changed that may let in pods that were refused. Workloads, events and leases may not."""
        return sum(
            self.store.revision(kind.storage)
            for kind in self.registry
            if kind.plural not in (EVENTS.plural, LEASES.plural)
            and not (kind.builtin and kind.pod_template.startswith("spec."))
        )

    def _versions(self, resource: Resource) -> dict[tuple[str, str], int]:
        return {(stored.namespace, stored.name): stored.version for stored in self.store.scan(resource)}

    # -- the parts

    def _start(self, part: str) -> None:
        if part not in self._running:
            number = self.runs[part].number + 1 if part in self.runs else 0
            self.runs[part] = ProcessRun(part, number)
            self._running[part] = self.loop.start_process(self._guard(part), part)

    async def _guard(self, part: str) -> None:
        try:
            await self._parts[part]()
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException:
            if self.runs[part].alive:
                log.exception("the simulated %s broke", part)
            raise

    async def _restart(self, part: str) -> None:
        if part in self._running:
            task = self._running.pop(part)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._start(part)

    # -- crashes

    async def _crash(self, fault: ScenarioFault) -> None:
        part = fault.crash
        run = self.runs.get(part)
        if run is None or part not in self._running:
            return
        if fault.after:
            run.writes_left, run.down_for = fault.after, fault.delay
        else:
            run.down_for = fault.delay
            self._killed(run)

    def _pause(self, fault: ScenarioFault) -> None:
        run = self.runs.get(fault.pause)
        if run is None or fault.pause not in self._running:
            return
        run.pause_for = fault.delay
        if fault.after:
            run.writes_before_pause = fault.after
        else:
            self._stand_still(run)

    def _stand_still(self, run: ProcessRun) -> None:
        self.loop.pause(run.name)
        self.loop.call_later(run.pause_for, self.loop.resume, run.name)

    def _killed(self, run: ProcessRun) -> None:
        """The process is gone at once; its tasks are cancelled, and what they still try does not leave it."""
        if not run.alive:
            return
        run.alive = False
        self.loop.resume(run.name)
        task = self._running.pop(run.name)
        task.cancel()
        self._dying.add(task)
        task.add_done_callback(self._dying.discard)
        self._schedulers.pop(run.name, None)
        self.loop.call_later(run.down_for, self._start, run.name)

    async def _stand_by(self) -> None:
        if not self._elections:
            self._elections = True
            self._parts["standby"] = self._run_standby
            await self._restart("scheduler")
            self._start("standby")

    async def _separate_webhook(self) -> None:
        """From now on, a process of its own does what webhooks do on a real cluster."""
        if self.webhook is not None:
            return
        from wharfinger.apiserver.admission.webhooks import WebhookReviewer
        from wharfinger.simulate.webhook import LinkedCaller, WebhookLink, register

        link = self.webhook = WebhookLink(self.loop, self.on_review)
        await register(self._admin, self.configuration, self.registry)
        self._build_chain()
        chain = self.store.chain
        caller = LinkedCaller(self.store, link)
        chain.remote_mutating.append(WebhookReviewer(self.store, self._allowed, caller, mutating=True))
        chain.remote_validating.append(WebhookReviewer(self.store, self._allowed, caller, mutating=False))
        self._parts["webhook"] = self._run_webhook
        self._start("webhook")

    async def _run_webhook(self) -> None:
        from wharfinger.simulate.webhook import WebhookClient, run_webhook

        assert self.webhook is not None
        client = WebhookClient(self._admin, self.process_faults, self.runs["webhook"], self._roles.index)
        await run_webhook(client, self.configuration, self.registry, self._source("webhook"), self.webhook)

    def _client(self, part: str, user: User) -> ProcessClient:
        return ProcessClient(
            self._admin.as_user(user), self._faults, self.process_faults, self.runs[part], part in _SCHEDULERS
        )

    def _source(self, part: str) -> random.Random:
        """The random source of a component; a restarted component gets a new one."""
        return random.Random(f"{part} {self._seed}")

    async def _run_scheduler(self) -> None:
        await self._schedule("scheduler")

    async def _run_standby(self) -> None:
        await self._schedule("standby")

    async def _schedule(self, part: str) -> None:
        from wharfinger.simulate.components import lead_scheduler, make_scheduler, recorder_type, run_scheduler

        run, clock, recorder = self.runs[part], self._clocks[part], recorder_type(self._records_events)

        def make(client: Client) -> tuple[Scheduler, EventRecorder]:
            rng = self._source(part)
            made = make_scheduler(client, clock, self.configuration, self.registry, self._seed, rng, recorder)
            self._schedulers[part] = made[0]
            if part == "scheduler":
                self.scheduler = made[0]
            if self.on_scheduler is not None:
                self.on_scheduler(made[0], run)
            return made

        client = self._client(part, SCHEDULER)
        if self._elections:
            await lead_scheduler(client, f"{part}-{run.number}", clock, self.loop.time, self._source(part), make)
        else:
            await run_scheduler(*make(client))

    async def _run_controllers(self) -> None:
        from wharfinger.simulate.components import recorder_type, run_all_controllers

        await run_all_controllers(
            self._client("controllers", CONTROLLERS),
            self._clocks["controllers"],
            self.configuration,
            self.registry,
            self._source("controllers"),
            provision_faults=self._provision_faults,
            unseen_owners=self._unseen_owners,
            unseen_kinds=self.unseen_kinds,
            queues=self._queues,
            names=self._controllers,
            recorder=recorder_type(self._records_events),
        )

    async def _run_nodes(self) -> None:
        from wharfinger.simulate.components import run_nodes

        await run_nodes(self._client("nodes", SYSTEM), self._clocks["nodes"], self.configuration, self._source("nodes"))


def unseen_owners(documents: Iterable[Document]) -> frozenset[str]:
    """The uids of owners that a snapshot refers to but does not contain; they must not be treated as deleted."""
    held: set[str] = set()
    named: set[str] = set()
    for document in documents:
        metadata = document.get("metadata") or {}
        held.add(str(metadata.get("uid")))
        named.update(str(owner.get("uid")) for owner in metadata.get("ownerReferences") or ())
    return frozenset(named - held)


def user_named(name: str) -> User:
    """The user of that name; the administrator if it is empty."""
    if not name or name == SYSTEM.name:
        return SYSTEM
    prefix, _, rest = name.partition("system:serviceaccount:")
    if not prefix and rest.count(":") == 1:
        return service_account(*rest.split(":"))
    return User(name, ("system:authenticated",))
