"""Provisions the shipped policies with their roles and bindings, and records an event when mode `auto` switches.

What was deleted or changed is restored at start, unless the autoupdate annotation is `"false"`. Restoring a role only
adds rules, as Kubernetes does with its own.
"""

from __future__ import annotations

import logging
from copy import deepcopy

from wharfinger.admission.rbac_escalation import uncovered
from wharfinger.api.errors import AlreadyExists, Forbidden, NotFound
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, ROLE_BINDINGS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import strip_nulls, view
from wharfinger.api.views.rbac import ClusterRole
from wharfinger.client.interface import Client
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules import shipped
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

log = logging.getLogger(__name__)

_RBAC = {
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "RoleBinding": ROLE_BINDINGS,
}


async def provision(client: Client) -> list[str]:
    """Creates and restores the shipped objects, roles first and policies last, so that no policy exists that nobody may
    use. Returns a line for each change."""
    done = []
    for wanted in [*shipped.roles(), *shipped.bindings()]:
        done += await _ensure(client, _RBAC[wanted["kind"]], wanted)
    for wanted in shipped.policies():
        done += await _ensure(client, SCHEDULING_POLICIES, wanted)
    return done


async def provision_if_allowed(client: Client) -> None:
    """Provisions where the program may grant permissions; otherwise the embedded server or `wharf install` does."""
    try:
        for line in await provision(client):
            log.info(line)
    except Forbidden as error:
        log.info("the shipped policies are left to those who may hand out permissions")
        log.debug("what we may not: %s", error)


async def _ensure(client: Client, resource: Resource, wanted: Document) -> list[str]:
    name, namespace = wanted["metadata"]["name"], wanted["metadata"].get("namespace", "")
    try:
        current = await client.get(resource, name, namespace)
    except NotFound:
        await _create(client, resource, wanted, namespace)
        return [f"created {resource.kind} {name}"]
    annotations = current.get("metadata", {}).get("annotations") or {}
    if annotations.get(shipped.AUTOUPDATE) == "false":
        return []
    restored = _restored(current, wanted)
    if restored is None:
        return []
    if resource.kind.endswith("Binding") and current.get("roleRef") != wanted["roleRef"]:
        # The role of a binding is immutable, so the binding is created anew.
        await client.delete(resource, name, namespace)
        await client.create(resource, wanted, namespace)
    else:
        await client.update(resource, restored, namespace)
    log.info("restored %s %s, which differed from what is shipped", resource.kind, name)
    return [f"restored {resource.kind} {name}"]


async def _create(client: Client, resource: Resource, wanted: Document, namespace: str) -> None:
    try:
        await client.create(resource, wanted, namespace)
    except NotFound:
        if not namespace:
            raise
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await client.create(NAMESPACES, document)
        await client.create(resource, wanted, namespace)
    except AlreadyExists:
        log.debug("%s %s was made by someone else meanwhile", resource.kind, wanted["metadata"]["name"])


def _restored(current: Document, wanted: Document) -> Document | None:
    """The object as it should be, or None when it is as it should be."""
    restored = deepcopy(current)
    match wanted["kind"]:
        case "ClusterRole":
            missing = uncovered(view(current, ClusterRole).rules, view(wanted, ClusterRole).rules)
            if not missing:
                return None
            restored["rules"] = [*(current.get("rules") or ()), *wanted["rules"]]
        case "SchedulingPolicy":
            if shipped.is_shipped(current) and strip_nulls(current.get("spec")) == wanted["spec"]:
                return None
            restored["spec"] = wanted["spec"]
        case _:
            subjects = current.get("subjects") or []
            missing_subjects = [subject for subject in wanted["subjects"] if subject not in subjects]
            if not missing_subjects and current.get("roleRef") == wanted["roleRef"]:
                return None
            restored["subjects"] = [*subjects, *missing_subjects]
    return restored


class SchedulingPolicyController(ContextController[str]):
    """Records an event when the first policy of an administrator switches enforcement on, or the last one is gone."""

    name = "schedulingpolicy"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._policies = context.documents(SCHEDULING_POLICIES)
        self._enforcing: bool | None = None
        self._policies.add_handler(
            on_add=lambda policy: self.queue.add("mode"),
            on_update=lambda old, new: self.queue.add("mode"),
            on_delete=lambda policy: self.queue.add("mode"),
        )

    async def prepare(self) -> None:
        await provision_if_allowed(self.context.client)
        self._enforcing = self._switched_on() is not None

    async def reconcile(self, key: str) -> None:
        if self.context.configuration.of(SchedulingPolicySettings).mode != "auto":
            return
        policy = self._switched_on()
        before, self._enforcing = self._enforcing, policy is not None
        if before == self._enforcing:
            return
        record = self.context.recorder.event
        if policy is not None:
            message = "scheduling policies are enforced from now on, since this one is not among the shipped ones"
            record(SCHEDULING_POLICIES, policy, "Normal", "EnforcementStarted", message)
        else:
            message = "scheduling policies are no longer enforced: only the shipped ones are left, unmodified"
            shipped_one = self._policies.get("restricted") or shipped.policies()[0]
            record(SCHEDULING_POLICIES, shipped_one, "Warning", "EnforcementStopped", message)

    def _switched_on(self) -> Document | None:
        own = [policy for policy in self._policies if shipped.switches_on(policy)]
        return min(own, key=lambda policy: str(policy["metadata"]["name"]), default=None)
