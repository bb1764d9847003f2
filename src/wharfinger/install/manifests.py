"""The manifests that a cluster needs to run the chosen components, for `kubectl apply --server-side -f -`.

Pure. The webhook configurations are printed without webhooks: the webhook adds them when it is ready, so that
requests never wait for a program that is still starting, and applying again removes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

import wharfinger
from wharfinger.api.configuration import API_VERSION, KIND, PUBLISHED_KEY, PUBLISHED_NAME
from wharfinger.api.registry import Document, Registry
from wharfinger.api.rights import LEASES, RBAC
from wharfinger.api.schema.crds import crd
from wharfinger.contributions import InstallComponent, RoleRule
from wharfinger.install.components import GRAFANA, system_processes
from wharfinger.install.grafana import grafana_dashboards
from wharfinger.install.roles import cluster_rules
from wharfinger.system import cluster_configuration

NAME = "wharfinger"
MANAGED_BY = {"app.kubernetes.io/managed-by": NAME}
LEASE_NAMESPACE = "kube-system"
CONFIG_HASH = "wharfinger.dev/config-hash"
METRICS_PORT, WEBHOOK_PORT, DASHBOARD_PORT = 10290, 9443, 8080


@dataclass(frozen=True, slots=True)
class InstallOptions:
    components: Sequence[InstallComponent]
    namespace: str = "wharfinger-system"
    image: str = f"wharfinger:{wharfinger.__version__}"
    replicas: int = 2
    enforce: bool = False
    scheduler_names: str = "wharfinger"
    node_selector: str = ""
    foreign: frozenset[str] = frozenset()  # names of definitions that others installed
    taken_over: frozenset[tuple[str, str]] = (
        frozenset()
    )  # kind and name of shipped roles and bindings that an administrator maintains
    configuration: Mapping[str, Any] = field(default_factory=dict)  # the WharfingerConfiguration of the administrator

    @property
    def processes(self) -> list[str]:
        wanted = {process for component in self.components for process in component.processes}
        known = ("scheduler", "controllers", *system_processes(), "webhook", "dashboard")
        return [process for process in known if process in wanted]


def manifests(options: InstallOptions, registry: Registry) -> list[Document]:
    """All manifests, each after those it depends on."""
    made = [_labelled({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": options.namespace}})]
    made += definitions(options, registry)
    for component in options.components:
        rights = component.objects
        made += [each for each in rights if (each["kind"], each["metadata"]["name"]) not in options.taken_over]
    made.append(_configuration(options))
    if GRAFANA in options.components:
        made += map(_labelled, grafana_dashboards(options.namespace))
    for process in options.processes:
        made += _access(process, options)
    made += _flow_schemas(options)
    if "webhook" in options.processes:
        made += [_service("webhook", options), *_webhook_configurations()]
    if "dashboard" in options.processes:
        made.append(_service("dashboard", options))
    for process in options.processes:
        made += [_deployment(process, options), _budget(process, options)]
    return made


def definitions(options: InstallOptions, registry: Registry) -> list[Document]:
    """The CustomResourceDefinitions, except those that others installed."""
    found = []
    for component in options.components:
        for group, plural in component.kinds:
            kind = registry.of_plural(group, plural)
            if kind is not None and f"{plural}.{group}" not in options.foreign:
                found.append(_labelled(crd(kind)))
    return found


def _labelled(document: Document, **labels: str) -> Document:
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **MANAGED_BY, **labels}}}


def _full(process: str) -> str:
    return f"{NAME}-{process}"


def _configuration(options: InstallOptions) -> Document:
    scheduler = ""
    if "scheduler" in options.processes:
        scheduler = f"system:serviceaccount:{options.namespace}:{_full('scheduler')}"
    document = cluster_configuration(
        {"apiVersion": API_VERSION, "kind": KIND, **options.configuration},
        enforce=options.enforce,
        scheduler=scheduler,
    )
    text = msgspec.yaml.encode(document).decode()
    metadata = {"name": PUBLISHED_NAME, "namespace": options.namespace}
    return _labelled({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {PUBLISHED_KEY: text}})


def _hash(options: InstallOptions) -> str:
    """Programs read their configuration when they start, so a change must restart their pods."""
    text: str = _configuration(options)["data"]["config.yaml"]
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _access(process: str, options: InstallOptions) -> list[Document]:
    """A service account with its cluster-wide and namespaced roles."""
    name = _full(process)
    account = {"kind": "ServiceAccount", "name": name, "namespace": options.namespace}
    made: list[Document] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": options.namespace}},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"system:{NAME}:{process}"},
            "rules": cluster_rules(process, options.components, NAME),
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"system:{NAME}:{process}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": f"system:{NAME}:{process}"},
            "subjects": [account],
        },
    ]
    if process == "webhook":
        rules = (RoleRule("", "secrets", "create"), RoleRule("", "secrets", "get patch update", (name,)))
        made += _local_role(name, options.namespace, rules, account)
    elif process != "dashboard":
        own = system_processes().get(process)
        lease = own.lease if own is not None else name
        rules = (RoleRule(LEASES, "leases", "create"), RoleRule(LEASES, "leases", "get patch update", (lease,)))
        made += _local_role(name, LEASE_NAMESPACE, rules, account)
    return [_labelled(document) for document in made]


def _local_role(name: str, namespace: str, rules: Sequence[RoleRule], account: Document) -> list[Document]:
    metadata = {"name": name, "namespace": namespace}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [each.document() for each in rules],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [account],
        },
    ]


def _flow_schemas(options: InstallOptions) -> list[Document]:
    """Without them, accounts outside kube-system share a low priority level, and a busy tenant would starve the
    scheduler."""
    subjects = [
        {"kind": "ServiceAccount", "serviceAccount": {"name": _full(process), "namespace": options.namespace}}
        for process in options.processes
    ]
    leases = {"apiGroups": [LEASES], "resources": ["leases"], "verbs": ["create", "get", "patch", "update"]}
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "clusterScope": True}
    return [
        _flow_schema(f"{NAME}-leader-election", "leader-election", 190, subjects, leases),
        _flow_schema(NAME, "workload-high", 790, subjects, everything),
    ]


def _flow_schema(name: str, level: str, precedence: int, subjects: list[Document], rules: Document) -> Document:
    return _labelled(
        {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": name},
            "spec": {
                "distinguisherMethod": {"type": "ByUser"},
                "matchingPrecedence": precedence,
                "priorityLevelConfiguration": {"name": level},
                "rules": [{"subjects": subjects, "resourceRules": [{**rules, "namespaces": ["*"]}]}],
            },
        }
    )


def _service(process: str, options: InstallOptions) -> Document:
    name, port = ("https", 443) if process == "webhook" else ("http", 80)
    return _labelled(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _full(process), "namespace": options.namespace},
            "spec": {
                "selector": _selector(process),
                "ports": [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"}],
            },
        }
    )


def _webhook_configurations() -> list[Document]:
    version = "admissionregistration.k8s.io/v1"
    return [
        _labelled({"apiVersion": version, "kind": kind, "metadata": {"name": NAME}})
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ]


def _selector(process: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": process}


def _arguments(process: str, options: InstallOptions) -> list[str]:
    made = [process, "--config", "/etc/wharfinger/config.yaml"]
    if process == "webhook":
        made += ["--namespace", options.namespace, "--service", _full("webhook"), "--secret", _full("webhook")]
        return [*made, "--bind", f"0.0.0.0:{WEBHOOK_PORT}"]
    if process == "dashboard":
        made += ["--scheduler-names", options.scheduler_names]
        return [*made, "--tokens-only", "--host", "0.0.0.0", "--port", str(DASHBOARD_PORT)]
    made += ["--leader-elect", "--metrics-host", "0.0.0.0", "--metrics-port", str(METRICS_PORT)]
    if process == "scheduler":
        made += ["--scheduler-names", options.scheduler_names]
        made += ["--node-selector", options.node_selector] if options.node_selector else []
    if process == "controllers":
        names = [name for component in options.components for name in component.controllers]
        made += ["--controllers", ",".join(names)]
    return made


def _deployment(process: str, options: InstallOptions) -> Document:
    name, labels = _full(process), _selector(process)
    return _labelled(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": options.namespace, "labels": labels},
            "spec": {
                "replicas": 1 if process == "dashboard" else options.replicas,  # sessions are in its memory
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": {**labels, **MANAGED_BY}, "annotations": {CONFIG_HASH: _hash(options)}},
                    "spec": _pod(process, options),
                },
            },
        }
    )


def _pod(process: str, options: InstallOptions) -> Document:
    same = {"labelSelector": {"matchLabels": _selector(process)}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": same}]}
    serves = process == "webhook"
    ports = {"webhook": ("https", WEBHOOK_PORT), "dashboard": ("http", DASHBOARD_PORT)}
    port_name, number = ports.get(process, ("metrics", METRICS_PORT))
    port = {"name": port_name, "containerPort": number}
    # Only the webhook serves requests; replicas of other programs that wait for the lease are ready, too.
    live = {"path": "/healthz", "port": port["name"], "scheme": "HTTPS" if serves else "HTTP"}
    ready = {**live, "path": "/readyz"} if serves else live
    container = {
        "name": process,
        "image": options.image,
        "args": _arguments(process, options),
        "ports": [{**port, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": live, "initialDelaySeconds": 15, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {"httpGet": ready, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/wharfinger", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    return {
        "serviceAccountName": _full(process),
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": apart},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": f"{NAME}-config"}}, {"name": "tmp", "emptyDir": {}}],
    }


def _budget(process: str, options: InstallOptions) -> Document:
    return _labelled(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": _full(process), "namespace": options.namespace},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _selector(process)}},
        }
    )
