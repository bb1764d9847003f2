"""The roles and bindings every cluster has from its first start: those of Kubernetes that matter here, and ours.

They carry `rbac.authorization.kubernetes.io/autoupdate: "true"` and are restored at every start, unless an administrator
sets that to "false"; what they were given beyond is kept (upstream's reconciliation).
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.certificate_requests import KUBE_APISERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN
from wharfinger.api.registry import Document
from wharfinger.api.rights import AUTOUPDATE, CRUD, EVENTS, READ, REVIEWS, WRITE
from wharfinger.api.rights import RBAC as GROUP
from wharfinger.contributions import EmbeddedAccess, RoleRule, SystemProcess
from wharfinger.system import ordered_systems

_CERTIFICATES = "certificates.k8s.io"
_NODE_REQUESTS = f"system:{_CERTIFICATES}:certificatesigningrequests"

_BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE = f"{GROUP}/aggregate-to-"

KUBELET_CALLER = "system:wharfinger:kubelet-client"
"""The user as which this server calls kubelets."""

Rule = tuple[str, str, str] | RoleRule | Document
"""Group, resources and verbs as in `RoleRule`, or a whole rule."""


def _access() -> list[EmbeddedAccess]:
    return [system.installation().embedded for system in ordered_systems()]


def _processes() -> list[SystemProcess]:
    return [process for system in ordered_systems() for process in system.installation().processes]


def _urls(*urls: str, verbs: str = "get") -> Document:
    return {"nonResourceURLs": list(urls), "verbs": verbs.split()}


def _metadata(name: str, labels: dict[str, str] | None = None) -> Document:
    return {"name": name, "labels": {**_BOOTSTRAPPING, **(labels or {})}, "annotations": {AUTOUPDATE: "true"}}


def _role(name: str, *rules: Rule, aggregate_to: str = "") -> Document:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(name, {_AGGREGATE + aggregate_to: "true"} if aggregate_to else None),
        "rules": [_document(rule) for rule in rules],
    }


def _document(rule: Rule) -> Document:
    if isinstance(rule, dict):
        return rule
    return rule.document() if isinstance(rule, RoleRule) else RoleRule(*rule).document()


def _aggregated(name: str, aggregate_to: str = "") -> Document:
    selectors = [{"matchLabels": {_AGGREGATE + name: "true"}}]
    return {**_role(name, aggregate_to=aggregate_to), "aggregationRule": {"clusterRoleSelectors": selectors}}


def _binding(role: str, kind: str, *names: str) -> Document:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(role),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": kind, "name": name} for name in names],
    }


def cluster_roles() -> list[Document]:
    return [*_user_roles(), *_system_roles(), *_certificate_roles(), *_metrics_roles(), *_component_roles()]


def _user_roles() -> list[Document]:
    """What an administrator binds people to."""
    workloads = "replicationcontrollers/scale"
    apps = "daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"
    return [
        _role("cluster-admin", ("*", "*", "*"), _urls("*", verbs="*")),
        _aggregated("admin"),
        _aggregated("edit", aggregate_to="admin"),
        _aggregated("view", aggregate_to="edit"),
        _role(
            "system:aggregate-to-admin",
            ("authorization.k8s.io", "localsubjectaccessreviews", "create"),
            (GROUP, "rolebindings roles", CRUD),
            aggregate_to="admin",
        ),
        _role(
            "system:aggregate-to-edit",
            ("", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", READ),
            ("", "serviceaccounts", "impersonate"),
            ("", "pods pods/attach pods/exec pods/portforward pods/proxy", WRITE),
            ("", "pods/eviction", "create"),
            (
                "",
                f"configmaps persistentvolumeclaims replicationcontrollers {workloads} secrets serviceaccounts "
                "services services/proxy",
                WRITE,
            ),
            ("", "serviceaccounts/token", "create"),
            ("", "events", WRITE),
            ("events.k8s.io", "events", WRITE),
            ("apps", f"{apps} deployments/rollback", WRITE),
            ("autoscaling", "horizontalpodautoscalers", WRITE),
            ("batch", "cronjobs jobs", WRITE),
            ("policy", "poddisruptionbudgets", WRITE),
            ("networking.k8s.io", "ingresses networkpolicies", WRITE),
            ("coordination.k8s.io", "leases", CRUD),
            ("resource.k8s.io", "resourceclaims resourceclaimtemplates", WRITE),
            *(rule for access in _access() for rule in access.edit),
            aggregate_to="edit",
        ),
        _role(
            "system:aggregate-to-view",
            (
                "",
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
                f"replicationcontrollers {workloads} serviceaccounts services services/status",
                READ,
            ),
            (
                "",
                "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
                "resourcequotas resourcequotas/status",
                READ,
            ),
            ("", "namespaces", READ),
            ("", "events", READ),
            ("events.k8s.io", "events", READ),
            ("discovery.k8s.io", "endpointslices", READ),
            ("apps", f"controllerrevisions {apps} daemonsets/status deployments/status", READ),
            ("apps", "replicasets/status statefulsets/status", READ),
            ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", READ),
            ("batch", "cronjobs cronjobs/status jobs jobs/status", READ),
            ("policy", "poddisruptionbudgets poddisruptionbudgets/status", READ),
            ("networking.k8s.io", "ingresses ingresses/status networkpolicies", READ),
            ("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", READ),
            *(rule for access in _access() for rule in access.view),
            aggregate_to="view",
        ),
    ]


def _system_roles() -> list[Document]:
    discovery = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
    health = ("/healthz", "/livez", "/readyz", "/version", "/version/")
    return [
        _role(
            "system:basic-user",
            ("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
            ("authentication.k8s.io", "selfsubjectreviews", "create"),
        ),
        _role("system:discovery", _urls(*discovery, *health)),
        _role("system:public-info-viewer", _urls(*health)),
        _role(
            "system:monitoring",
            _urls("/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz", "/readyz/*"),
        ),
        _role("system:auth-delegator", *REVIEWS),
        _role(
            "system:service-account-issuer-discovery",
            _urls(
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/",
            ),
        ),
        node_role(),
        # The verbs of the kubelet's own API.
        _role(
            "system:kubelet-api-admin",
            ("", "nodes", READ),
            ("", "nodes", "proxy"),
            ("", "nodes/log nodes/metrics nodes/proxy nodes/stats", "*"),
            ("", "nodes/configz nodes/healthz nodes/pods", "*"),
        ),
        _role(
            "system:node-proxier",
            ("", "endpoints services", "list watch"),
            ("", "nodes", READ),
            *EVENTS,
            ("networking.k8s.io", "servicecidrs", "list watch"),
            ("discovery.k8s.io", "endpointslices", "list watch"),
        ),
        _role(
            "system:kube-scheduler",
            *EVENTS,
            ("coordination.k8s.io", "leases", "create"),
            RoleRule("coordination.k8s.io", "leases", "get list update watch", ("kube-scheduler",)),
            ("", "nodes namespaces replicationcontrollers services persistentvolumeclaims persistentvolumes", READ),
            ("", "pods", f"delete {READ}"),
            ("", "bindings pods/binding", "create"),
            ("", "pods/status", "patch update"),
            ("", "pods/finalizers", "update"),
            ("apps", "replicasets statefulsets", READ),
            ("policy", "poddisruptionbudgets", READ),
            *REVIEWS,
            ("resource.k8s.io", "deviceclasses", READ),
            ("resource.k8s.io", "resourceclaims", f"patch update {READ}"),
            ("resource.k8s.io", "resourceclaims/status", f"patch update {READ}"),
            ("resource.k8s.io", "resourceslices", READ),
            ("resource.k8s.io", "resourceclaims", "create delete"),
            ("resource.k8s.io", "devicetaintrules", READ),
            ("resource.k8s.io", "resourceclaims/binding", "patch update"),
            ("storage.k8s.io", "csinodes csidrivers csistoragecapacities volumeattachments", READ),
        ),
        _role(
            "system:volume-scheduler",
            ("", "persistentvolumes persistentvolumeclaims", f"patch update {READ}"),
            ("storage.k8s.io", "storageclasses", READ),
        ),
        _role(
            "system:kube-controller-manager",
            *EVENTS,
            ("coordination.k8s.io", "leases", "create"),
            RoleRule("coordination.k8s.io", "leases", "get update", ("kube-controller-manager",)),
            ("", "secrets serviceaccounts", "create update"),
            ("", "secrets", "delete"),
            ("", "configmaps namespaces secrets serviceaccounts", "get"),
            *REVIEWS,
            ("*", "*", "list watch"),
            ("", "serviceaccounts/token", "create"),
        ),
    ]


def _metrics_roles() -> list[Document]:
    """What the manifests of a metrics server install."""
    return [_role("system:aggregated-metrics-reader", ("metrics.k8s.io", "nodes pods", READ), aggregate_to="view")]


def node_role() -> Document:
    """The rights of kubelets, which the Node authorizer divides among them."""
    return _role(
        "system:node",
        *REVIEWS,
        ("authorization.k8s.io", "localsubjectaccessreviews", "create"),
        ("", "services", READ),
        ("", "nodes", f"create {READ}"),
        ("", "nodes/status", "patch update"),
        ("", "nodes", "patch update"),
        *EVENTS,
        ("", "pods", READ),
        ("", "pods", "create delete"),
        ("", "pods/status", "patch update"),
        ("", "pods/eviction", "create"),
        ("", "configmaps secrets", READ),
        ("", "persistentvolumeclaims persistentvolumes", "get"),
        ("", "endpoints", "get"),
        (_CERTIFICATES, "certificatesigningrequests", f"create {READ}"),
        ("coordination.k8s.io", "leases", "create delete get patch update"),
        ("storage.k8s.io", "volumeattachments", "get"),
        ("", "serviceaccounts/token", "create"),
        ("", "persistentvolumeclaims/status", "get patch update"),
        ("storage.k8s.io", "csidrivers", READ),
        ("storage.k8s.io", "csinodes", "create delete get patch update"),
        ("node.k8s.io", "runtimeclasses", READ),
        ("resource.k8s.io", "resourceclaims", "get"),
        ("resource.k8s.io", "resourceslices", "deletecollection"),
        ("", "serviceaccounts", "get"),
        (_CERTIFICATES, "clustertrustbundles", READ),
        (_CERTIFICATES, "podcertificaterequests", f"create {READ}"),
    )


def _certificate_roles() -> list[Document]:
    """What an administrator binds nodes and those who approve certificates to."""
    prefix, requests = f"system:{_CERTIFICATES}", "certificatesigningrequests"
    approvers = {
        "legacy-unknown": LEGACY_UNKNOWN,
        "kubelet-serving": KUBELET_SERVING,
        "kube-apiserver-client": KUBE_APISERVER_CLIENT,
        "kube-apiserver-client-kubelet": KUBELET_CLIENT,
    }
    return [
        _role("system:cluster-trust-bundle-discovery", (_CERTIFICATES, "clustertrustbundles", READ)),
        _role("system:node-bootstrapper", (_CERTIFICATES, requests, f"create {READ}")),
        _role(f"{prefix}:{requests}:nodeclient", (_CERTIFICATES, f"{requests}/nodeclient", "create")),
        _role(f"{prefix}:{requests}:selfnodeclient", (_CERTIFICATES, f"{requests}/selfnodeclient", "create")),
        *(
            _role(f"{prefix}:{name}-approver", RoleRule(_CERTIFICATES, "signers", "approve", (signer,)))
            for name, signer in approvers.items()
        ),
    ]


def _component_roles() -> list[Document]:
    """What our components need beyond the stock roles of their names."""
    leases = ("coordination.k8s.io", "leases", "create delete get list patch update watch")
    return [
        _role(
            "system:wharfinger:scheduler",
            leases,
            ("", "pods pods/status", "patch update"),
            ("", "pods/eviction", "create"),
            ("", "resourcequotas configmaps", READ),
            ("apps", "deployments daemonsets", READ),
            ("batch", "jobs", READ),
            ("scheduling.k8s.io", "priorityclasses", READ),
            ("storage.k8s.io", "storageclasses", READ),
            ("resource.k8s.io", "resourceclaimtemplates", READ),
            *dict.fromkeys(rule for access in _access() for rule in access.scheduler),
            ("wharfinger.dev", "*", f"patch update {READ}"),
        ),
        # One process runs all controllers here, garbage collection and the end of namespaces among them: any object may
        # have to be read, changed or deleted. Granting (escalate, bind, impersonate) is not part of it.
        _role(
            "system:wharfinger:controllers",
            ("*", "*", CRUD),
            ("", "pods/eviction", "create"),
            RoleRule(_CERTIFICATES, "signers", "approve", (KUBELET_CLIENT,)),
            RoleRule(
                _CERTIFICATES,
                "signers",
                "sign",
                (LEGACY_UNKNOWN, KUBE_APISERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING),
            ),
        ),
        # A set of simulated nodes stands for many kubelets, and for whoever starts and removes machines.
        _role(
            "system:wharfinger:nodes",
            leases,
            ("", "nodes nodes/status pods pods/status", CRUD),
            *EVENTS,
            ("", "configmaps namespaces persistentvolumeclaims persistentvolumes", READ),
            ("resource.k8s.io", "resourceclaims", READ),
            ("storage.k8s.io", "csinodes", CRUD),
            *(rule for access in _access() for rule in access.nodes),
        ),
        *(_role(process.user, *process.embedded_rules) for process in _processes()),
    ]


def cluster_role_bindings() -> list[Document]:
    return [
        _binding("cluster-admin", "Group", "system:masters"),
        _binding("system:basic-user", "Group", "system:authenticated"),
        _binding("system:discovery", "Group", "system:authenticated"),
        _binding("system:public-info-viewer", "Group", "system:authenticated", "system:unauthenticated"),
        _binding("system:monitoring", "Group", "system:monitoring"),
        _binding("system:service-account-issuer-discovery", "Group", "system:serviceaccounts"),
        _binding("system:cluster-trust-bundle-discovery", "Group", "system:serviceaccounts"),
        _binding("system:node", "Group"),
        _binding("system:node-proxier", "User", "system:kube-proxy"),
        # As kubeadm does: certificates of nodes are approved without an administrator.
        _binding("system:node-bootstrapper", "Group", "system:bootstrappers"),
        _binding(f"{_NODE_REQUESTS}:nodeclient", "Group", "system:bootstrappers"),
        _binding(f"{_NODE_REQUESTS}:selfnodeclient", "Group", "system:nodes"),
        _binding("system:kubelet-api-admin", "User", KUBELET_CALLER),
        _binding("system:kube-scheduler", "User", "system:kube-scheduler"),
        _binding("system:volume-scheduler", "User", "system:kube-scheduler"),
        _binding("system:kube-controller-manager", "User", "system:kube-controller-manager"),
        _binding("system:wharfinger:scheduler", "User", "system:kube-scheduler"),
        _binding("system:wharfinger:controllers", "User", "system:kube-controller-manager"),
        _binding("system:wharfinger:nodes", "User", "system:wharfinger:nodes"),
        *(_binding(process.user, "User", process.user) for process in _processes()),
    ]


def reconciled(wanted: Document, found: Document) -> Document | None:
    """The object to write so that it holds what the default has; None when it does already, or is not to be touched."""
    metadata = found.get("metadata") or {}
    if (metadata.get("annotations") or {}).get(AUTOUPDATE) == "false":
        return None
    merged = {**found, "metadata": dict(metadata)}
    for part in ("labels", "annotations"):
        merged["metadata"][part] = {**(metadata.get(part) or {}), **wanted["metadata"].get(part, {})}
    if "aggregationRule" in wanted:
        merged["aggregationRule"] = _extended(
            found.get("aggregationRule"), wanted["aggregationRule"], "clusterRoleSelectors"
        )
    elif "rules" in wanted:
        merged = _extended(merged, wanted, "rules")
    if "subjects" in wanted:
        merged = _extended(merged, wanted, "subjects")
    return None if merged == found else merged


def _extended(found: Document | None, wanted: Document, field: str) -> Document:
    """`found` with those entries of the list that only the default has."""
    present: list[Any] = list((found or {}).get(field) or [])
    missing = [entry for entry in wanted[field] if entry not in present]
    return {**(found or {}), field: present + missing} if missing else dict(found or {})
