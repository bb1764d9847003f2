"""The objects by which `wharf policy` and `wharf explain admission` judge: manifests, a live cluster, or manifests laid
over a live cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.admission.rbac import RbacIndex, aggregated, as_view
from wharfinger.admission.request import Request, User, service_account
from wharfinger.api.configuration import Configuration
from wharfinger.api.fields import describe
from wharfinger.api.kinds import pod_templates, registry
from wharfinger.api.object_meta import is_controlled_by
from wharfinger.api.registry import Document
from wharfinger.api.views import view
from wharfinger.api.views.rbac import ClusterRole
from wharfinger.api.wording import decoding_fault
from wharfinger.cli.exit_status import InputError
from wharfinger.simulate.inputs import BadInput, Inputs, files_of, read_inputs
from wharfinger.systems.scheduling_policy.admission.reviewer import SchedulingPolicyReviewer
from wharfinger.systems.scheduling_policy.kinds.validation import validate_policy
from wharfinger.systems.scheduling_policy.rules import shipped
from wharfinger.systems.scheduling_policy.rules.lint import EVERYONE, Identity
from wharfinger.systems.scheduling_policy.rules.lookup import FixedPolicies
from wharfinger.systems.scheduling_policy.rules.subjects import DAEMON_SET_CONTROLLER, template_subject
from wharfinger.systems.scheduling_policy.rules.suggest import default_class
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

if TYPE_CHECKING:
    from wharfinger.client.interface import Client

_RBAC = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


class InvalidQuestion(InputError):
    pass


def read_files(paths: Iterable[str]) -> Inputs:
    """Everything in files and folders (`-`: standard input), read as `wharf simulate` reads it."""
    try:
        return read_inputs(files_of(paths, sys.stdin.buffer), registry())
    except BadInput as error:
        raise InvalidQuestion(str(error)) from error


@dataclass(slots=True)
class PolicyWorld:
    """All objects that decisions need; a later document replaces an earlier one of the same name."""

    settings: SchedulingPolicySettings = field(default_factory=SchedulingPolicySettings)
    policies: dict[str, Document] = field(default_factory=dict)
    rbac: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    classes: dict[str, Document] = field(default_factory=dict)
    accounts: set[tuple[str, str]] = field(default_factory=set)  # namespace and name
    pods: list[Document] = field(default_factory=list)  # what runs today
    judged: list[Document] = field(default_factory=list)  # what the files ask about

    def add(self, document: Document, *, live: bool = False) -> None:
        kind, metadata = document["kind"], document["metadata"]
        name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
        if kind == "SchedulingPolicy":
            if not live and (faults := validate_policy(document)):
                raise InvalidQuestion(f"SchedulingPolicy {name}: {describe(faults)}")
            self.policies[name] = document
        elif kind in _RBAC:
            try:
                as_view(document)
            except msgspec.ValidationError as error:
                raise InvalidQuestion(f"{kind} {name}: {decoding_fault(error)}") from error
            self.rbac[kind, namespace, name] = document
        elif kind == "Namespace":
            self.namespaces[name] = metadata.get("labels") or {}
        elif kind == "PriorityClass":
            self.classes[name] = document
        elif kind == "ServiceAccount":
            self.accounts.add((namespace, name))
        elif live:
            self.pods.append(document)
        elif is_judged(document):
            self.judged.append(document)

    def lay_over(self, inputs: Inputs) -> None:
        if inputs.configuration != Configuration():
            self.settings = inputs.configuration.of(SchedulingPolicySettings)
        for manifest in inputs.manifests:
            document = manifest.document
            if not isinstance(document.setdefault("metadata", {}), dict):
                raise InvalidQuestion(f"{manifest.source}: metadata must be an object")
            self.add(document)

    def build(self) -> FixedPolicies:
        index = RbacIndex(self.rbac.values())
        # In files, aggregated roles lack the rules that a controller fills in on a cluster.
        for role in aggregated(
            view(each, ClusterRole) for (kind, *_), each in self.rbac.items() if kind == "ClusterRole"
        ):
            index.upsert(role)
        return FixedPolicies(
            self.policies.values(),
            index,
            namespaces=self.namespaces,
            global_priority_class=self.global_class(),
            priorities=self._priorities(),
        )

    def _priorities(self) -> dict[str, int]:
        return {name: int(each.get("value") or 0) for name, each in self.classes.items()}

    def global_class(self) -> str:
        return default_class(self.classes.values())


def bound_identities(world: PolicyWorld) -> list[Identity]:
    """Those that roles are bound to and that policies look at: service accounts and their groups, and where the requester
    counts too, users and other groups."""
    found = [Identity("every service account", EVERYONE)]
    everyone = world.settings.identity == "ServiceAccountOrUser"
    for (kind, place, _), binding in sorted(world.rbac.items()):
        for subject in (binding.get("subjects") or ()) if kind.endswith("Binding") else ():
            name = str(subject.get("name") or "")
            if subject.get("kind") == "ServiceAccount":
                namespace = str(subject.get("namespace") or place)
                user = service_account(namespace, name)
                found.append(Identity(f"service account {namespace}/{name}", user, place or namespace))
            elif subject.get("kind") == "Group" and name.startswith("system:serviceaccounts:"):
                namespace = name.removeprefix("system:serviceaccounts:")
                groups = (name, *EVERYONE.groups)
                found.append(Identity(f"every service account of {namespace}", User("", groups), place or namespace))
            elif subject.get("kind") == "Group" and (everyone or name in EVERYONE.groups):
                found.append(Identity(f"group {name}", User("", (name, "system:authenticated")), place))
            elif subject.get("kind") == "User" and (everyone or name.startswith("system:serviceaccount:")):
                found.append(Identity(f"user {name}", User(name, ("system:authenticated",)), place))
    unique: dict[tuple[str, str], Identity] = {}
    for each in found:
        unique.setdefault((each.title, each.namespace), each)
    return list(unique.values())


def is_judged(document: Document) -> bool:
    """Whether policies apply to this kind of object."""
    resource = registry().resource_of(document)
    return resource is not None and (resource.group, resource.plural) in (("", "pods"), *pod_templates())


def world_of_files(inputs: Inputs) -> PolicyWorld:
    """The objects of the files, together with the shipped policies."""
    world = PolicyWorld()
    for document in [*shipped.policies(), *shipped.roles(), *shipped.bindings()]:
        world.add(document)
    world.lay_over(inputs)
    return world


async def world_of_cluster(client: Client, inputs: Inputs, *, pods_of: str | None = None) -> PolicyWorld:
    """The objects of a cluster with files laid over them. `pods_of` also reads the pods of a namespace (empty: of all)."""
    from wharfinger.api.errors import NotFound
    from wharfinger.api.kinds.builtin import (
        CLUSTER_ROLE_BINDINGS,
        CLUSTER_ROLES,
        NAMESPACES,
        PODS,
        PRIORITY_CLASSES,
        ROLE_BINDINGS,
        ROLES,
        SERVICE_ACCOUNTS,
    )
    from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES

    world = PolicyWorld(await _settings(client))
    kinds = [
        SCHEDULING_POLICIES,
        ROLES,
        CLUSTER_ROLES,
        ROLE_BINDINGS,
        CLUSTER_ROLE_BINDINGS,
        NAMESPACES,
        PRIORITY_CLASSES,
        SERVICE_ACCOUNTS,
    ]
    for resource in kinds if pods_of is None else [*kinds, PODS]:
        token = ""
        while True:
            try:
                page = await client.list(
                    resource, (pods_of or "") if resource is PODS else "", limit=500, continue_token=token
                )
            except NotFound:
                break  # the cluster does not serve the kind
            for item in page.items:
                world.add({**item, "apiVersion": resource.api_version, "kind": resource.kind}, live=True)
            token = page.continue_token
            if not token:
                break
    world.lay_over(inputs)
    return world


async def _settings(client: Client) -> SchedulingPolicySettings:
    """The settings that the webhook of a real cluster publishes, or those of a running `wharf up`; the defaults where
    there is neither."""
    from wharfinger.api.errors import Forbidden, NotFound
    from wharfinger.api.kinds.builtin import VALIDATING_WEBHOOKS
    from wharfinger.client.running_configuration import running_configuration
    from wharfinger.systems.scheduling_policy.admission.webhook import SETTINGS
    from wharfinger.webhook.configurations import NAME

    with suppress(NotFound, Forbidden, msgspec.ValidationError, KeyError):
        found = await client.get(VALIDATING_WEBHOOKS, NAME)
        return msgspec.json.decode(found["metadata"]["annotations"][SETTINGS], type=SchedulingPolicySettings)
    running = await running_configuration(client)
    return SchedulingPolicySettings() if running is None else running.of(SchedulingPolicySettings)


# Judging


@dataclass(frozen=True, slots=True)
class Asker:
    """Who makes the request, and what stands in for fields that a manifest leaves out."""

    user: User
    namespace: str = ""
    service_account: str = ""


def asker(name: str, groups: Iterable[str], namespace: str, account: str) -> Asker:
    parts = name.split(":")
    if len(parts) == 4 and parts[:2] == ["system", "serviceaccount"]:
        user = service_account(parts[2], parts[3])
        user = User(user.name, (*user.groups, *groups))
        return Asker(user, namespace or parts[2], account)
    return Asker(User(name, (*groups, "system:authenticated")), namespace, account)


RESERVING = ("Reservation", "ReservationSet")
"""Kinds whose pods do not run yet: the requester is judged."""


def namespace_of(document: Document, otherwise: str = "") -> str:
    """The namespace in which policies must be usable for an object."""
    subject = template_subject(request_for(document, Asker(User(""), otherwise)), with_requester=False, global_class="")
    if document["kind"] in RESERVING and subject is not None:
        return subject.namespace
    return str(document["metadata"].get("namespace") or otherwise or "default")


def request_for(document: Document, who: Asker) -> Request:
    """The request that would create this object. A pod read from a cluster is judged as it was created: without the
    node that a scheduler wrote, and as a request of the DaemonSet controller where that created it."""
    resource = registry().resource_of(document)
    if resource is None:
        raise InvalidQuestion(f"{document['apiVersion']} {document['kind']} is not a kind we know")
    metadata = document["metadata"]
    namespace = str(metadata.get("namespace") or who.namespace or "default") if resource.namespaced else ""
    if who.service_account:
        template = pod_templates().get((resource.group, resource.plural))
        _set_account(document, "" if template is None else template.pod_template, who.service_account)
    user = who.user
    if document["kind"] == "Pod" and metadata.get("uid") and isinstance(document.get("spec"), dict):
        document["spec"].pop("nodeName", None)
        if is_controlled_by(document, "DaemonSet"):
            user = User(DAEMON_SET_CONTROLLER)
    return Request("CREATE", resource, namespace, str(metadata.get("name") or ""), user, document)


def pod_of(document: Document) -> Document | None:
    """The pod itself, or a pod as the workload would create it."""
    request = request_for(document, Asker(User("")))
    if request.resource.plural == "pods":
        return document
    subject = template_subject(request, with_requester=False, global_class="")
    return None if subject is None else {"metadata": {"namespace": subject.namespace}, "spec": subject.spec}


def _set_account(document: Document, template: str, account: str) -> None:
    spec: Any = document
    for part in (*template.split("."), "spec") if template else ("spec",):
        spec = spec.setdefault(part, {}) if isinstance(spec, dict) else {}
    if isinstance(spec, dict):
        spec["serviceAccountName"] = account


def explain(world: FixedPolicies, settings: SchedulingPolicySettings, request: Request) -> dict[str, Any]:
    """The answer to a request with its reasons and policies: as things are, and as if policies were enforced."""
    mode = SchedulingPolicyReviewer(world, settings, mutating=True).mode(request.namespace)
    strict = msgspec.structs.replace(settings, mode="enforce", namespace_mode_label=False)
    mutating, validating = (SchedulingPolicyReviewer(world, strict, mutating=phase) for phase in (True, False))
    is_pod = request.resource.plural == "pods" and not request.subresource
    outcome = (mutating if is_pod else validating).judge(request)
    found = outcome.evaluation
    denied = outcome.review.denied
    return {
        "object": f"{request.resource.kind} {request.namespace + '/' if request.namespace else ''}{request.name}",
        "requester": request.user.name,
        "identities": [user.name for user in found.users] if found else [],
        "namespace": found.namespace if found else request.namespace,
        "mode": mode,
        "admitted": denied is None or mode != "enforce",
        "admittedWhenEnforced": denied is None,
        "podsAdmittedWhenEnforced": found is None or not found.refused,
        "notJudged": outcome.skipped,
        "policies": list(found.policies) if found else [],
        "auditedPolicies": list(found.audited) if found else [],
        "injected": [{"path": each.path, "value": each.value, "policy": each.policy} for each in found.injections]
        if found and is_pod
        else [],
        "violations": [
            {"path": each.path, "message": each.error.message, "policies": list(each.policies)}
            for each in found.violations
        ]
        if found
        else [],
        "setAside": list(found.set_aside) if found else [],
        "auditReport": next(
            (value for key, value in outcome.review.audit.items() if key.endswith("/audit-policies")), ""
        ),
        "warnings": list(outcome.review.warnings),
        "message": "" if denied is None else denied.message,
    }
