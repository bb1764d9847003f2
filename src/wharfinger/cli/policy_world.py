"""What `wharf policy` and `wharf explain admission` judge by: manifests, a live cluster, or one laid over the other."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import yaml

from wharfinger.admission.rbac import RbacIndex, as_view
from wharfinger.admission.request import Request, User, service_account
from wharfinger.admission.scheduling_policy import shipped
from wharfinger.admission.scheduling_policy.reviewer import SchedulingPolicyReviewer
from wharfinger.admission.scheduling_policy.subjects import TEMPLATES
from wharfinger.admission.scheduling_policy.world import FixedWorld
from wharfinger.api.configuration import BadConfiguration, SchedulingPolicySettings, load_configuration
from wharfinger.api.fields import describe
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.scheduling_policy_validation import validate_policy
from wharfinger.api.registry import Document

if TYPE_CHECKING:
    from wharfinger.client.interface import Client

_RBAC = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_JUDGED = {"Pod", "Binding"}


class BadInput(click.ClickException):
    exit_code = 2


def read_files(paths: Iterable[str]) -> list[Document]:
    """All documents of files and folders (`-`: standard input), lists taken apart. The design document's slips in
    apiVersion and `Kind` are mended, as an API server would not."""
    found: list[Document] = []
    for path in paths:
        for source, text in _texts(path):
            try:
                documents = list(yaml.load_all(text, yaml.CSafeLoader))
            except yaml.YAMLError as error:
                raise BadInput(f"{source}: {error}") from error
            for number, document in enumerate(documents, 1):
                if document is not None:
                    found += _objects(document, f"{source}, document {number}")
    return found


def _texts(path: str) -> Iterable[tuple[str, str]]:
    if path == "-":
        return [("standard input", sys.stdin.read())]
    place = Path(path)
    try:
        if place.is_dir():
            files = sorted(each for each in place.rglob("*") if each.suffix in (".yaml", ".yml", ".json"))
            return [(str(each), each.read_text()) for each in files]
        return [(path, place.read_text())]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error


def _objects(document: Any, where: str) -> list[Document]:
    if not isinstance(document, dict):
        raise BadInput(f"{where}: not a Kubernetes object")
    if "Kind" in document and "kind" not in document:
        document["kind"] = document.pop("Kind")
    if document.get("apiVersion") == "extensions/valpha1" or (
        document.get("kind") == "SchedulingPolicy" and not document.get("apiVersion")
    ):
        document["apiVersion"] = "extensions/v1alpha1"
    if not isinstance(document.get("kind"), str) or not isinstance(document.get("apiVersion"), str):
        raise BadInput(f"{where}: apiVersion and kind are required")
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        # The items of a list of one kind need not name it.
        named = {"apiVersion": document["apiVersion"], "kind": document["kind"].removesuffix("List")}
        return [
            one for item in document["items"] for one in _objects({**(named if named["kind"] else {}), **item}, where)
        ]
    if not isinstance(document.setdefault("metadata", {}), dict):
        raise BadInput(f"{where}: metadata must be an object")
    return [document]


@dataclass(slots=True)
class PolicyWorld:
    """All that decisions need, as documents; later ones of the same name replace earlier ones."""

    settings: SchedulingPolicySettings = field(default_factory=SchedulingPolicySettings)
    policies: dict[str, Document] = field(default_factory=dict)
    rbac: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    classes: dict[str, Document] = field(default_factory=dict)
    accounts: set[tuple[str, str]] = field(default_factory=set)  # namespace and name
    pods: list[Document] = field(default_factory=list)  # what runs
    judged: list[Document] = field(default_factory=list)  # what files ask about

    def add(self, document: Document, *, live: bool = False) -> None:
        kind, metadata = document["kind"], document["metadata"]
        name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
        if kind == "SchedulingPolicy":
            if not live and (faults := validate_policy(document)):
                raise BadInput(f"SchedulingPolicy {name}: {describe(faults)}")
            self.policies[name] = document
        elif kind in _RBAC:
            try:
                as_view(document)
            except msgspec.ValidationError as error:
                raise BadInput(f"{kind} {name}: {error}") from error
            self.rbac[kind, namespace, name] = document
        elif kind == "Namespace":
            self.namespaces[name] = metadata.get("labels") or {}
        elif kind == "PriorityClass":
            self.classes[name] = document
        elif kind == "ServiceAccount":
            self.accounts.add((namespace, name))
        elif kind == "WharfingerConfiguration":
            try:
                self.settings = load_configuration(document).scheduling_policy
            except BadConfiguration as error:
                raise BadInput(str(error)) from error
        elif live:
            self.pods.append(document)
        elif kind in _JUDGED or _template_kind(document):
            self.judged.append(document)

    def build(self) -> FixedWorld:
        defaults = [each for each in self.classes.values() if each.get("globalDefault")]
        return FixedWorld(
            self.policies.values(),
            RbacIndex(self.rbac.values()),
            namespaces=self.namespaces,
            global_priority_class=self.global_class(defaults),
        )

    def global_class(self, defaults: list[Document] | None = None) -> str:
        if defaults is None:
            defaults = [each for each in self.classes.values() if each.get("globalDefault")]
        lowest = min(defaults, key=lambda each: int(each.get("value") or 0), default=None)
        return "" if lowest is None else str(lowest["metadata"]["name"])


def _template_kind(document: Document) -> bool:
    resource = registry().resource_of(document)
    return resource is not None and (resource.group, resource.plural) in TEMPLATES


def world_of_files(documents: Iterable[Document]) -> PolicyWorld:
    """The world that files describe, with what is shipped beneath them."""
    world = PolicyWorld()
    for document in [*shipped.policies(), *shipped.roles(), *shipped.bindings(), *documents]:
        world.add(document)
    return world


async def world_of_cluster(client: Client, documents: Iterable[Document], *, pods_of: str | None = None) -> PolicyWorld:
    """What a cluster holds, with files laid over it. `pods_of` also reads the pods of a namespace (empty: of all)."""
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
    from wharfinger.api.kinds.ours import SCHEDULING_POLICIES

    world = PolicyWorld()
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
                break  # the kind is not installed there
            for item in page.items:
                world.add({**item, "apiVersion": resource.api_version, "kind": resource.kind}, live=True)
            token = page.continue_token
            if not token:
                break
    for document in documents:
        world.add(document)
    return world


# Judging


@dataclass(frozen=True, slots=True)
class Asker:
    """Who makes the request, and what is taken in place of what a manifest leaves open."""

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


def request_for(document: Document, who: Asker) -> Request:
    """The request that would create this object."""
    resource = registry().resource_of(document)
    if resource is None:
        raise BadInput(f"{document['apiVersion']} {document['kind']} is not a kind we know")
    metadata = document["metadata"]
    namespace = str(metadata.get("namespace") or who.namespace or "default") if resource.namespaced else ""
    if who.service_account:
        _set_account(document, TEMPLATES.get((resource.group, resource.plural), ""), who.service_account)
    return Request("CREATE", resource, namespace, str(metadata.get("name") or ""), who.user, document)


def _set_account(document: Document, template: str, account: str) -> None:
    spec: Any = document
    for part in (*template.split("."), "spec") if template else ("spec",):
        spec = spec.setdefault(part, {}) if isinstance(spec, dict) else {}
    if isinstance(spec, dict):
        spec["serviceAccountName"] = account


def explain(world: FixedWorld, settings: SchedulingPolicySettings, request: Request) -> dict[str, Any]:
    """What would become of a request, why, and by which policy: as it is now, and as it would be if enforced."""
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
