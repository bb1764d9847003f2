"""What an administrator chooses about an installation, and the names that all manifests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import wharfinger
from wharfinger.api.registry import Document
from wharfinger.contributions import InstallComponent
from wharfinger.install.components import system_processes

NAME = "wharfinger"
MANAGED_BY = {"app.kubernetes.io/managed-by": NAME}
CLUSTER_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
"""Namespaces that every cluster has: never ours to label or delete."""


@dataclass(frozen=True, slots=True)
class InstallOptions:
    components: Sequence[InstallComponent]
    namespace: str = "wharfinger-system"
    image: str = f"wharfinger:{wharfinger.__version__}"
    replicas: int = 2
    enforce: bool = False
    scheduler_names: str = "wharfinger"
    node_selector: str = ""  # the nodes to schedule onto
    pod_node_selector: Mapping[str, str] = field(default_factory=dict)  # the nodes that our pods run on
    memory: Mapping[str, str] = field(default_factory=dict)  # limits by process, instead of the shipped ones
    issuer: str = ""  # of cert-manager, as KIND/NAME; empty: the webhook issues its certificates itself
    own_namespace: bool = True  # whether the namespace is one of ours, to be created and labelled
    foreign: frozenset[str] = frozenset()  # names of definitions that others installed
    taken_over: frozenset[tuple[str, str]] = (
        frozenset()
    )  # kind and name of shipped roles and bindings that an administrator maintains
    configuration: Mapping[str, Any] = field(default_factory=dict)  # the WharfingerConfiguration of the administrator

    @property
    def processes(self) -> list[str]:
        wanted = {process for component in self.components for process in component.processes}
        return [process for process in known_processes() if process in wanted]


def known_processes() -> list[str]:
    return ["scheduler", "controllers", *system_processes(), "webhook", "dashboard"]


def full_name(process: str) -> str:
    return f"{NAME}-{process}"


def selector(process: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": process}


def labelled(document: Document, **labels: str) -> Document:
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **MANAGED_BY, **labels}}}
