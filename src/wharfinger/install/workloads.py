"""The Deployment of each program, and what belongs to its pods: Service, network policy, disruption budget."""

from __future__ import annotations

from wharfinger.api.registry import Document
from wharfinger.install.components import systems_of
from wharfinger.install.options import MANAGED_BY, NAME, InstallOptions, full_name, labelled, selector
from wharfinger.system import ENABLED

CONFIG_HASH = "wharfinger.dev/config-hash"
METRICS_PORT, WEBHOOK_PORT, DASHBOARD_PORT = 10290, 9443, 8080
PORTS = {"webhook": ("https", WEBHOOK_PORT), "dashboard": ("http", DASHBOARD_PORT)}
CERTIFICATES = "/etc/wharfinger-tls"
CONFIGURATION = "/etc/wharfinger"
USER = 65532
# After `make bench-memory`, see docs/kubernetes.md: the scheduler and the controllers keep all nodes and pods, the webhook and
# placement neither. A what-if of the dashboard may use 4 GiB.
MEMORY = {"placement": "1Gi", "webhook": "1Gi", "dashboard": "5Gi"}
OTHER_MEMORY = "2Gi"
REQUESTS = {"cpu": "100m", "memory": "256Mi"}


def port_of(process: str) -> tuple[str, int]:
    return PORTS.get(process, ("metrics", METRICS_PORT))


def service(process: str, options: InstallOptions) -> Document:
    name, port = ("https", 443) if process == "webhook" else ("http", 80)
    return labelled(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": full_name(process), "namespace": options.namespace},
            "spec": {
                "selector": selector(process),
                "ports": [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"}],
            },
        }
    )


def network_policy(process: str, options: InstallOptions) -> Document:
    """Pods are reached at their one port only. From where is left open: API servers and kubelets have addresses that no
    selector names. So is where pods connect to, for the same reason."""
    return labelled(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": full_name(process), "namespace": options.namespace},
            "spec": {
                "podSelector": {"matchLabels": selector(process)},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": port_of(process)[1], "protocol": "TCP"}]}],
            },
        }
    )


def budget(process: str, options: InstallOptions) -> Document:
    return labelled(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": full_name(process), "namespace": options.namespace},
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": selector(process)},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",  # a pod that never starts must not block a drain
            },
        }
    )


def certificate(options: InstallOptions) -> Document:
    """cert-manager keeps the webhook's certificate in a Secret, and renews it."""
    kind, _, name = options.issuer.rpartition("/")
    service_name = f"{full_name('webhook')}.{options.namespace}.svc"
    return labelled(
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": {"name": full_name("webhook"), "namespace": options.namespace},
            "spec": {
                "secretName": full_name("webhook"),
                "dnsNames": [service_name, f"{service_name}.cluster.local"],
                "issuerRef": {"group": "cert-manager.io", "kind": kind or "ClusterIssuer", "name": name},
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            },
        }
    )


def deployment(process: str, options: InstallOptions, config_hash: str) -> Document:
    """Programs read their configuration when they start, so a change of its hash must restart their pods."""
    labels = selector(process)
    return labelled(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": full_name(process), "namespace": options.namespace, "labels": labels},
            "spec": {
                "replicas": 1 if process == "dashboard" else options.replicas,  # sessions are in its memory
                "selector": {"matchLabels": labels},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {**labels, **MANAGED_BY}, "annotations": {CONFIG_HASH: config_hash}},
                    "spec": _pod(process, options),
                },
            },
        }
    )


def _pod(process: str, options: InstallOptions) -> Document:
    mine = {"labelSelector": {"matchLabels": selector(process)}}
    apart = {"weight": 100, "podAffinityTerm": {**mine, "topologyKey": "kubernetes.io/hostname"}}
    zones = {**mine, "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    spec = {
        "serviceAccountName": full_name(process),
        "automountServiceAccountToken": True,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "topologySpreadConstraints": [zones],
        "containers": [_container(process, options)],
        "volumes": _volumes(process, options),
    }
    return spec | ({"nodeSelector": dict(options.pod_node_selector)} if options.pod_node_selector else {})


def _volumes(process: str, options: InstallOptions) -> list[Document]:
    # Programs hand the keys of their certificates to the TLS library in files: these stay in memory.
    temporary = {} if process == "dashboard" else {"medium": "Memory", "sizeLimit": "16Mi"}
    made: list[Document] = [
        {"name": "config", "configMap": {"name": f"{NAME}-config"}},
        {"name": "tmp", "emptyDir": temporary},
    ]
    if process == "webhook" and options.issuer:
        made.append({"name": "tls", "secret": {"secretName": full_name("webhook"), "defaultMode": 0o440}})
    return made


def _container(process: str, options: InstallOptions) -> Document:
    port_name, number = port_of(process)
    health = {"port": port_name, "scheme": "HTTP" if process == "dashboard" else "HTTPS"}
    live = {**health, "path": "/healthz"}
    # Ready means that the cluster is loaded, for replicas that wait for the lease, too: in a rollout the next leader is
    # prepared before the last one goes.
    ready = {**health, "path": "/healthz" if process == "dashboard" else "/readyz"}
    mounts = [
        {"name": "config", "mountPath": CONFIGURATION, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    if process == "webhook" and options.issuer:
        mounts.append({"name": "tls", "mountPath": CERTIFICATES, "readOnly": True})
    memory = options.memory.get(process) or MEMORY.get(process, OTHER_MEMORY)
    return {
        "name": process,
        "image": options.image,
        "args": _arguments(process, options),
        **_environment(process, options),
        "ports": [{"name": port_name, "containerPort": number, "protocol": "TCP"}],
        "startupProbe": {"httpGet": live, "periodSeconds": 2, "failureThreshold": 150, "timeoutSeconds": 5},
        "livenessProbe": {"httpGet": live, "periodSeconds": 10, "failureThreshold": 6, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": ready, "periodSeconds": 5, "timeoutSeconds": 5},
        "resources": {"requests": REQUESTS, "limits": {"memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _environment(process: str, options: InstallOptions) -> Document:
    """Programs leave out the systems that are not installed: they have no right to read their objects, which stay when an
    upgrade installs fewer components. The dashboard reads with the rights of its users."""
    if process == "dashboard":
        return {}
    return {"env": [{"name": ENABLED, "value": ",".join(systems_of(options.components))}]}


def _arguments(process: str, options: InstallOptions) -> list[str]:
    made = [process, "--config", f"{CONFIGURATION}/config.yaml"]
    if process == "webhook":
        made += ["--namespace", options.namespace, "--service", full_name("webhook")]
        if options.issuer:
            made += ["--cert-file", f"{CERTIFICATES}/tls.crt", "--key-file", f"{CERTIFICATES}/tls.key"]
            made += ["--ca-file", f"{CERTIFICATES}/ca.crt"]
        else:
            made += ["--secret", full_name("webhook")]
        return [*made, "--bind", f"0.0.0.0:{WEBHOOK_PORT}"]
    if process == "dashboard":
        made += ["--scheduler-names", options.scheduler_names]
        return [*made, "--tokens-only", "--host", "0.0.0.0", "--port", str(DASHBOARD_PORT)]
    made += ["--leader-elect", "--metrics-host", "0.0.0.0", "--metrics-port", str(METRICS_PORT), "--metrics-tls"]
    if process == "scheduler":
        made += ["--scheduler-names", options.scheduler_names]
        made += ["--node-selector", options.node_selector] if options.node_selector else []
    if process == "controllers":
        names = [name for component in options.components for name in component.controllers]
        made += ["--controllers", ",".join(names)]
    return made
