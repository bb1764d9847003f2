"""A running cluster as the stage of scenarios: expectations are polled, waits are real, and everything is restored at
the end.

The components must already run there; this only sends requests. `wharfinger.scenario.running.rules` tells beforehand
which scenarios cannot be run on a running cluster.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.kinds import registry as all_kinds
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CSI_DRIVERS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    SUBJECT_ACCESS_REVIEWS,
    VALIDATING_WEBHOOKS,
)
from wharfinger.api.manifests import Manifest
from wharfinger.api.registry import Document, Resource
from wharfinger.client.access import ClusterAccess
from wharfinger.client.http import HttpClient
from wharfinger.node.annotations import DOWN
from wharfinger.scenario.applying import namespace_of
from wharfinger.scenario.document import Expectation, Scenario, ScenarioFault
from wharfinger.scenario.expectations import ExpectationOutcome, check
from wharfinger.scenario.extension import Extensions
from wharfinger.scenario.running.client import Footprint, Place, ScenarioClient
from wharfinger.scenario.running.drivers import Drivers
from wharfinger.scenario.running.faults import BindWebhook
from wharfinger.scenario.running.rules import LEAVING, is_negative, leaving
from wharfinger.scenario.running.times import Moved, begins_at

POSITIVE, NEGATIVE = 30.0, 5.0  # seconds for an expectation to become true, and seconds that a negative one must hold
STABLE, SETTLED = 0.6, 10.0  # seconds without a change that count as settled, and the maximum wait for that
BUSY = 5.0  # the same, as a multiple of the time that reading the cluster takes
STABLE_RULES = 3.0  # the same if there are roles and policies, which take effect with a delay
COMPONENTS = ("scheduler", "controllers")  # components that a scenario may restart
LABEL = "wharfinger.dev/scenario-run"
EMBEDDED = b"+wharfinger"  # in the version of an embedded server
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_POLL = 0.2
_RULES = (ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
_RESTLESS = (NODES, LEASES, EVENTS)  # kinds that change all the time
_MOVING = (PODS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, JOBS)
_CRUD = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


class NotPlayable(Exception):
    """The scenario cannot be run on this cluster."""


class LiveStage:
    """Implements `wharfinger.scenario.runner.Stage`. One for each scenario; `run` names the test run it is part of,
    `patience` is how many seconds an expectation may take to come true, `configuration` what its components run with,
    `restart` a command that restarts the component that is added to it, `webhook` host and port on
    this machine where the API server can ask us about bindings."""

    def __init__(
        self,
        access: ClusterAccess,
        run: str,
        *,
        patience: float = POSITIVE,
        configuration: Configuration | None = None,
        restart: Sequence[str] = (),
        webhook: str = "",
    ) -> None:
        self.registry = all_kinds()
        self._access = access
        self._run = run
        self._patience = patience
        self._configuration = configuration or Configuration()
        self._restart_command = restart
        self._embedded = False
        self._webhook_address = webhook
        self._webhook: BindWebhook | None = None
        self._extensions = Extensions()
        self._finalizers: set[str] = set()  # finalizers that the scenario adds to objects
        self._admin = HttpClient(access, component="wharf-test")
        self._clients: list[HttpClient] = [self._admin]
        self._footprint = Footprint()
        self._drivers = Drivers(self._admin, (), self._footprint)
        self._kinds: set[Resource] = set()
        self._began = time.monotonic()

    async def open(self, scenario: Scenario, manifests: Sequence[Manifest]) -> tuple[Scenario, list[Document]]:
        """Reads the present objects, gives roles to the users of the scenario, and creates its namespaces. Returns
        the scenario and the manifests in the form in which they run here, starting now. Raises NotPlayable if it
        would not mean the same on this cluster."""
        documents = [manifest.document for manifest in manifests]
        documents += [document for step in scenario.steps for document in step.apply]
        self._extensions.open(self._admin, self._footprint, documents)
        written = [*documents, *(patch.merge for step in scenario.steps for patch in step.patches)]
        self._finalizers = {each for document in written for each in _finalizers(document)}
        for document in documents:
            self._as_served(document)
        kinds = {self.registry.resource_of(document) for document in documents}
        for step in scenario.steps:
            kinds |= {patch.target.resource for patch in step.patches}
            kinds |= {delete.target.resource for delete in step.deletes}
            kinds |= {expectation.resource for expectation in step.expect}
        self._kinds = {kind for kind in kinds if kind is not None} | set(_MOVING)
        for kind in self._kinds:
            for document in await self.objects(kind):
                metadata = document["metadata"]
                self._footprint.before[kind, str(metadata.get("namespace") or ""), metadata["name"]] = document
        # `wharf up`: its API server knows classes by name and applies rules at once; its controllers create any volume.
        self._embedded = EMBEDDED in await self._admin.fetch("/version")
        if not self._embedded and (reason := self._extensions.unmet(documents, self._configuration)):
            raise NotPlayable(reason)
        await self._find_drivers(scenario, documents)
        brings_nodes = any(document.get("kind") == "Node" for document in documents)
        others = [node for node in await self.objects(NODES) if not (node.get("spec") or {}).get("unschedulable")]
        if brings_nodes and others:
            name = others[0]["metadata"]["name"]
            raise NotPlayable(f"it brings its own nodes, and pods could go to others, such as {name}: cordon them")
        for target in (delete.target for step in scenario.steps for delete in step.deletes):
            if not self._footprint.may_delete((target.resource, target.namespace, target.name)):
                raise NotPlayable(f"it deletes {target.resource.kind} {target.name}, which the cluster has already")
        for user in sorted({step.user for step in scenario.steps if step.user}):
            await self._allow(user)
        for namespace in self._namespaces(documents):
            await self._ensure_namespace(namespace)
        if any(fault.bind for step in scenario.steps for fault in step.faults):
            await self._open_webhook()
        self._drivers.start()
        now = time.time()
        begin = begins_at(scenario, manifests, now)
        await asyncio.sleep(begin - now)
        self._began = time.monotonic()
        moved = Moved(begin - scenario.start)
        first = [moved.document(manifest.document) for manifest in manifests]
        return self._extensions.expected(moved.scenario(scenario)), first

    async def _open_webhook(self) -> None:
        name = f"wharf-test-{self._run}"
        self._webhook = BindWebhook(
            self._admin, name, {LABEL: self._run}, self._webhook_address, self._extensions.all_binding_requests()
        )
        try:
            await self._webhook.open(self._patience)
        except TimeoutError:
            raise NotPlayable(f"the API server does not reach the webhook at {self._webhook_address}") from None

    async def _find_drivers(self, scenario: Scenario, documents: Iterable[Document]) -> None:
        """Simulates the drivers that create volumes on demand, unless the cluster has them."""
        wanted = {str(each.get("provisioner")) for each in documents if each.get("kind") == "StorageClass"}
        wanted.discard(NO_PROVISIONER)
        there = {driver["metadata"]["name"] for driver in await self.objects(CSI_DRIVERS)} if wanted else set()
        if self._embedded or wanted & there:
            if any(fault.provision for step in scenario.steps for fault in step.faults):
                raise NotPlayable("the cluster's own storage driver cannot be made to fail")
        if not self._embedded:
            self._drivers = Drivers(self._admin, wanted - there, self._footprint)

    def _as_served(self, document: Document) -> None:
        """Replaces API groups of the design documents, which only embedded servers serve, by those of our
        definitions."""
        api_version = str(document.get("apiVersion"))
        kind = self.registry.of_object(api_version, str(document.get("kind")))
        group, _, version = api_version.rpartition("/")
        if kind is not None and kind.ours and group in kind.alias_groups:
            document["apiVersion"] = f"{kind.group}/{version}"

    # -- the stage

    def client(self, user: str, on_warning: Callable[[str], None]) -> ScenarioClient:
        extensions = self._extensions
        client = ScenarioClient(
            self._access, user, self._footprint, extensions, lambda warning: on_warning(extensions.text(warning))
        )
        self._clients.append(client)
        return client

    async def advance(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, self._began + moment - time.monotonic()))

    async def settle(self) -> None:
        """Waits until no object of the kinds that the scenario uses has changed for a while, which is longer on a
        busy cluster."""
        began = time.monotonic()
        stable = (
            STABLE
            if self._embedded or self._kinds.isdisjoint({*_RULES, *self._extensions.all_slow_kinds()})
            else STABLE_RULES
        )
        seen = await self._versions()
        since = time.monotonic()
        stable = max(stable, BUSY * (since - began))
        end = since + max(SETTLED, 2 * stable)
        while time.monotonic() < min(end, since + stable):
            await asyncio.sleep(_POLL)
            now = await self._versions()
            if now != seen:
                seen, since = now, time.monotonic()

    async def fault(self, fault: ScenarioFault) -> None:
        if fault.restart:
            await self._restart(fault.restart)
        elif fault.bind:
            assert self._webhook is not None
            self._webhook.add(fault)
        elif fault.provision:
            self._drivers.faults.failures += fault.count
        elif fault.node:
            change = {"metadata": {"annotations": {DOWN: "true" if fault.down else None}}}
            await self._admin.patch(NODES, fault.node, change)
        else:
            await self._extensions.fault(fault)

    async def _restart(self, what: str) -> None:
        for name in COMPONENTS if what == "all" else (what,):
            command = [*self._restart_command, name]
            process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
            if code := await process.wait():
                raise RuntimeError(f"{shlex.join(command)} failed (exit code {code})")

    async def expect(self, expectations: Sequence[Expectation]) -> list[ExpectationOutcome]:
        return list(await asyncio.gather(*map(self._expect, expectations)))

    async def _expect(self, expectation: Expectation) -> ExpectationOutcome:
        end = time.monotonic() + max(self._patience, expectation.within or 0.0)
        while not (outcome := await self._look(expectation)).ok and time.monotonic() < end:
            await asyncio.sleep(_POLL)
        if is_negative(expectation):
            end = time.monotonic() + NEGATIVE
            while outcome.ok and time.monotonic() < end:
                await asyncio.sleep(_POLL)
                outcome = await self._look(expectation)
        return outcome

    async def _look(self, expectation: Expectation) -> ExpectationOutcome:
        documents = await self.objects(expectation.resource, expectation.namespace)
        if not expectation.name:
            # Objects that existed before are ignored unless they are selected by name.
            documents = [document for document in documents if not self._foreign(expectation.resource, document)]
        return check(expectation, [self._extensions.observed(document) for document in documents])

    # -- what there is

    async def objects(self, resource: Resource, namespace: str = "") -> list[Document]:
        """All objects of a kind; none of a kind that is not served."""
        try:
            return list((await self._admin.list(resource, namespace)).items)
        except NotFound:
            return []

    def _foreign(self, resource: Resource, document: Document) -> bool:
        metadata = document["metadata"]
        place = (resource, str(metadata.get("namespace") or ""), metadata["name"])
        before = self._footprint.before.get(place)
        return before is not None and before["metadata"].get("uid") == metadata.get("uid")

    async def _versions(self) -> set[tuple[str, str]]:
        listed = await asyncio.gather(*(self.objects(kind) for kind in self._kinds if kind not in _RESTLESS))
        return {(item["metadata"]["uid"], item["metadata"]["resourceVersion"]) for items in listed for item in items}

    # -- before and after

    def _namespaces(self, documents: Iterable[Document]) -> list[str]:
        """Those that the scenario uses without creating them."""
        found: dict[str, None] = {}
        for document in documents:
            resource = self.registry.resource_of(document)
            if resource is not None and resource.namespaced:
                found[namespace_of(document, resource)] = None
        for document in documents:
            if document.get("kind") == "Namespace":
                found.pop(str((document.get("metadata") or {}).get("name")), None)
        return list(found)

    async def _ensure_namespace(self, name: str) -> None:
        """Created for the whole run, because deleting namespaces takes long; `tidy` deletes them."""
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LABEL: self._run}}}
        await self._make(NAMESPACES, made)
        await self._until(lambda: self._admin.get(SERVICE_ACCOUNTS, "default", name))

    async def _allow(self, user: str) -> None:
        """Gives a user a role for all requests, because simulated users may send any. It excludes the permissions
        that reviewers check, such as the use of policies and the binding of sets."""
        name = f"wharf-test-{user.replace(':', '-').lower()}"
        metadata = {"name": name, "labels": {LABEL: self._run}}
        groups: dict[str, list[str]] = {"": ["pods/binding", "pods/eviction", "bindings"]}
        for kind in self.registry:
            groups.setdefault(kind.group, []).extend((kind.plural, f"{kind.plural}/status"))
        rules = [{"apiGroups": [group], "resources": names, "verbs": _CRUD} for group, names in groups.items()]
        version = CLUSTER_ROLES.api_version
        role = {"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}
        binding = {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": CLUSTER_ROLES.group, "kind": "User", "name": user}],
        }
        await self._make(CLUSTER_ROLES, role)
        await self._make(CLUSTER_ROLE_BINDINGS, binding)
        asked = {"user": user, "resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "default"}}

        async def allowed() -> None:
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
            if not (await self._admin.create(SUBJECT_ACCESS_REVIEWS, review))["status"]["allowed"]:
                raise NotFound(f"{user} may not act yet")

        await self._until(allowed)

    async def _make(self, resource: Resource, document: Document) -> None:
        try:
            await self._admin.create(resource, document)
        except AlreadyExists:
            return

    async def _until(self, attempt: Callable[[], Awaitable[object]]) -> None:
        end = time.monotonic() + self._patience
        while True:
            try:
                await attempt()
                return
            except NotFound:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(_POLL)

    async def close(self) -> list[str]:
        """Deletes what the scenario created and restores what it changed; returns what could not be restored."""
        problems: list[str] = []
        await self._extensions.close()
        try:
            if self._webhook is not None:
                await self._webhook.close()
            for rank in range(len(LEAVING)):
                group = [each for each in self._footprint.made.items() if leaving(each[0][0]) == rank]
                problems += filter(None, await asyncio.gather(*(self._remove(*each) for each in group)))
            for (resource, namespace, name), before in self._footprint.changed.items():
                problems += await self._restore(resource, namespace, name, before)
        finally:
            await self._drivers.close()
            await asyncio.gather(*(client.close() for client in self._clients))
        return problems

    async def _remove(self, place: Place, uid: str) -> str:
        resource, namespace, name = place
        end = time.monotonic() + 2 * self._patience
        grace = 0 if resource == PODS else None
        while time.monotonic() < end:
            try:
                found = await self._admin.get(resource, name, namespace)
                if found["metadata"]["uid"] != uid:
                    return ""
                metadata = found["metadata"]
                own = self._finalizers.intersection(metadata.get("finalizers") or ())
                if own:  # nobody else removes them
                    left = [each for each in metadata["finalizers"] if each not in own]
                    await self._admin.patch(resource, name, {"metadata": {"finalizers": left}}, namespace)
                if not metadata.get("deletionTimestamp") or (grace == 0 and metadata.get("deletionGracePeriodSeconds")):
                    await self._admin.delete(
                        resource, name, namespace, uid=uid, propagation="Foreground", grace_period=grace
                    )
            except NotFound:
                return ""
            except ApiError as error:
                return f"cannot delete {resource.kind} {name}: {error.message}"
            await asyncio.sleep(_POLL)
        return f"{resource.kind} {name} does not go away"

    async def _restore(self, resource: Resource, namespace: str, name: str, before: Document) -> list[str]:
        metadata = before["metadata"]
        try:
            now = (await self._admin.get(resource, name, namespace))["metadata"]
            metadata = {**metadata, "resourceVersion": now["resourceVersion"], "uid": now["uid"]}
            await self._admin.update(resource, {**before, "metadata": metadata}, namespace)
        except NotFound:
            metadata = {key: value for key, value in metadata.items() if key not in ("resourceVersion", "uid")}
            await self._make(resource, {**before, "metadata": metadata})
        except ApiError as error:
            return [f"cannot put back {resource.kind} {name}: {error.message}"]
        return []


def _finalizers(document: Document) -> Iterable[str]:
    return (document.get("metadata") or {}).get("finalizers") or ()


async def tidy(access: ClusterAccess, run: str) -> None:
    """Deletes the namespaces, roles and webhooks that a run of scenarios created; does not wait for the namespaces."""
    client = HttpClient(access, component="wharf-test")
    try:
        for resource in (VALIDATING_WEBHOOKS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES):
            for document in (await client.list(resource, label_selector=f"{LABEL}={run}")).items:
                await client.delete(resource, document["metadata"]["name"])
    finally:
        await client.close()
