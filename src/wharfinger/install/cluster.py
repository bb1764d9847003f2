"""What a cluster already has: definitions and controllers of other projects for the same kinds, and users' objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    ROLE_BINDINGS,
    STATEFUL_SETS,
)
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.rights import AUTOUPDATE
from wharfinger.api.wording import object_name
from wharfinger.client.interface import Client
from wharfinger.contributions import InstallComponent
from wharfinger.install.options import CLUSTER_NAMESPACES, MANAGED_BY

_RBAC = {each.kind: each for each in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS)}


@dataclass(frozen=True, slots=True)
class Findings:
    foreign: frozenset[str] = frozenset()  # names of definitions that others installed
    refusals: list[str] = field(default_factory=list)  # why a component cannot be installed
    taken_over: frozenset[tuple[str, str]] = frozenset()  # shipped roles and bindings that an administrator maintains
    own_namespace: bool = True  # whether the namespace is ours, or does not exist yet


async def look(client: Client, components: Sequence[InstallComponent], registry: Registry, namespace: str) -> Findings:
    workloads = await _workloads(client)
    foreign: set[str] = set()
    refusals = []
    for component in components:
        for workload in _rivals(component, workloads):
            refusals.append(
                f"{component.name}: {workload} already controls the same kinds; stop it first, or leave {component.name} out"
            )
        for group, plural in component.kinds:
            found = await _definition(client, f"{plural}.{group}")
            if found is None or is_ours(found, component):
                continue
            foreign.add(f"{plural}.{group}")
            kind = registry.of_plural(group, plural)
            served = {version["name"] for version in found["spec"]["versions"] if version.get("served")}
            if kind is not None and kind.storage.version not in served:
                refusals.append(
                    f"{component.name}: the cluster's definition {plural}.{group} does not serve {kind.storage.version}"
                )
    taken_over = await _taken_over(client, components)
    return Findings(frozenset(foreign), refusals, taken_over, await _is_own(client, namespace))


async def _is_own(client: Client, namespace: str) -> bool:
    """Whether a namespace may be labelled by us now, and deleted later: not if somebody else created it."""
    if namespace in CLUSTER_NAMESPACES:
        return False
    try:
        found = await client.get(NAMESPACES, namespace)
    except NotFound:
        return True
    return MANAGED_BY.items() <= (found["metadata"].get("labels") or {}).items()


async def _taken_over(client: Client, components: Iterable[InstallComponent]) -> frozenset[tuple[str, str]]:
    """Kind and name of the roles and bindings that an administrator maintains."""
    found = set()
    for wanted in (each for component in components for each in component.objects):
        resource, metadata = _RBAC[wanted["kind"]], wanted["metadata"]
        try:
            there = await client.get(resource, metadata["name"], metadata.get("namespace", ""))
        except NotFound:
            continue
        if (there["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
            found.add((wanted["kind"], metadata["name"]))
    return frozenset(found)


def is_ours(definition: Document, component: InstallComponent) -> bool:
    """Whether `wharf install` created a definition. In groups that other projects share, only the label tells."""
    if definition["spec"]["group"] not in component.shared_groups:
        return True
    labels = definition["metadata"].get("labels") or {}
    return MANAGED_BY.items() <= labels.items()


@dataclass(frozen=True, slots=True)
class Loss:
    """A definition of ours and the users' objects that are deleted with it."""

    definition: str
    objects: list[str]


async def losses(client: Client, components: Iterable[InstallComponent], registry: Registry) -> list[Loss]:
    """What uninstalling would delete: definitions that we installed, with all objects of their kinds."""
    found = []
    for component in components:
        for group, plural in component.kinds:
            name = f"{plural}.{group}"
            definition = await _definition(client, name)
            kind = registry.of_plural(group, plural)
            if definition is None or kind is None or not is_ours(definition, component):
                continue
            objects = [
                object_name(item) for item in await list_all(client, kind.storage) if not component.is_shipped(item)
            ]
            found.append(Loss(name, sorted(objects)))
    return found


async def _definition(client: Client, name: str) -> Document | None:
    try:
        return await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    except NotFound:
        return None


async def _workloads(client: Client) -> list[Document]:
    found: list[Document] = []
    for resource in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS):
        found += await list_all(client, resource)
    return found


async def list_all(client: Client, resource: Resource, label_selector: str = "") -> list[Document]:
    """In all namespaces; none if the cluster does not know the kind."""
    try:
        return list((await client.list(resource, label_selector=label_selector)).items)
    except NotFound:
        return []


def _rivals(component: InstallComponent, workloads: Iterable[Document]) -> list[str]:
    """Workloads that run a rival program: recognized by the name of the workload, a container, an image or a command."""
    found = []
    for workload in workloads:
        spec = workload.get("spec") or {}
        if spec.get("replicas") == 0:
            continue
        containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
        names = {str(workload["metadata"]["name"])}
        for container in containers:
            names.add(str(container.get("name")))
            names.add(str(container.get("image") or "").rpartition("/")[2].partition("@")[0].partition(":")[0])
            names.update(str(part).rpartition("/")[2] for part in (container.get("command") or ())[:1])
        if names & set(component.rivals):
            found.append(f"{workload['kind']} {object_name(workload)}")
    return found
