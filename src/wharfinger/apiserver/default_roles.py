"""The roles and bindings every cluster has from its first start: those of Kubernetes that matter here, and ours.

They carry `rbac.authorization.kubernetes.io/autoupdate: "true"` and are restored at every start, unless an administrator
sets that to "false"; what they were given beyond is kept (upstream's reconciliation).
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.groups import SIGS
from wharfinger.api.registry import Document
from wharfinger.systems.placement.kinds.names import OCM
from wharfinger.systems.reservation.kinds.names import KOORDINATOR

GROUP = "rbac.authorization.k8s.io"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE = f"{GROUP}/aggregate-to-"

_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = f"{_READ} {_WRITE}"
_EVENTS = ("events.k8s.io", "events", "create patch update")
_CORE_EVENTS = ("", "events", "create patch update")
_REVIEWS = (
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
)
_OUR_NAMESPACED = (
    (SIGS, "resourcepolicies resourcepolicies/status"),
    (OCM, "placements placements/status placementdecisions placementdecisions/status addonplacementscores"),
)

Rule = tuple[str, str, str]
"""Group, resources and verbs, the latter two separated by blanks."""


def _rule(group: str, resources: str, verbs: str, names: tuple[str, ...] = ()) -> Document:
    rule: Document = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**rule, "resourceNames": list(names)} if names else rule


def _urls(*urls: str, verbs: str = "get") -> Document:
    return {"nonResourceURLs": list(urls), "verbs": verbs.split()}


def _metadata(name: str, labels: dict[str, str] | None = None) -> Document:
    return {"name": name, "labels": {**_BOOTSTRAPPING, **(labels or {})}, "annotations": {AUTOUPDATE: "true"}}


def _role(name: str, *rules: Rule | Document, aggregate_to: str = "") -> Document:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(name, {_AGGREGATE + aggregate_to: "true"} if aggregate_to else None),
        "rules": [rule if isinstance(rule, dict) else _rule(*rule) for rule in rules],
    }


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
    return [*_user_roles(), *_system_roles(), *_component_roles()]


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
            (GROUP, "rolebindings roles", _ALL),
            aggregate_to="admin",
        ),
        _role(
            "system:aggregate-to-edit",
            ("", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", _READ),
            ("", "serviceaccounts", "impersonate"),
            ("", "pods pods/attach pods/exec pods/portforward pods/proxy", _WRITE),
            ("", "pods/eviction", "create"),
            (
                "",
                f"configmaps persistentvolumeclaims replicationcontrollers {workloads} secrets serviceaccounts "
                "services services/proxy",
                _WRITE,
            ),
            ("", "serviceaccounts/token", "create"),
            ("", "events", _WRITE),
            ("events.k8s.io", "events", _WRITE),
            ("apps", f"{apps} deployments/rollback", _WRITE),
            ("autoscaling", "horizontalpodautoscalers", _WRITE),
            ("batch", "cronjobs jobs", _WRITE),
            ("policy", "poddisruptionbudgets", _WRITE),
            ("networking.k8s.io", "ingresses networkpolicies", _WRITE),
            ("coordination.k8s.io", "leases", _ALL),
            ("resource.k8s.io", "resourceclaims resourceclaimtemplates", _WRITE),
            *((group, resources.replace("/status", ""), _WRITE) for group, resources in _writable()),
            aggregate_to="edit",
        ),
        _role(
            "system:aggregate-to-view",
            (
                "",
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
                f"replicationcontrollers {workloads} serviceaccounts services services/status",
                _READ,
            ),
            (
                "",
                "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
                "resourcequotas resourcequotas/status",
                _READ,
            ),
            ("", "namespaces", _READ),
            ("", "events", _READ),
            ("events.k8s.io", "events", _READ),
            ("discovery.k8s.io", "endpointslices", _READ),
            ("apps", f"controllerrevisions {apps} daemonsets/status deployments/status", _READ),
            ("apps", "replicasets/status statefulsets/status", _READ),
            ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", _READ),
            ("batch", "cronjobs cronjobs/status jobs jobs/status", _READ),
            ("policy", "poddisruptionbudgets poddisruptionbudgets/status", _READ),
            ("networking.k8s.io", "ingresses ingresses/status networkpolicies", _READ),
            ("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", _READ),
            *((group, resources, _READ) for group, resources in _OUR_NAMESPACED),
            aggregate_to="view",
        ),
    ]


def _writable() -> tuple[tuple[str, str], ...]:
    """Ours that a namespace's editor may write: a policy says what others may do, so it is not among them."""
    return ((OCM, "placements"),)


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
        _role("system:auth-delegator", *_REVIEWS),
        _role(
            "system:service-account-issuer-discovery",
            _urls(
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/",
            ),
        ),
        _role(
            "system:node",
            *_REVIEWS,
            ("authorization.k8s.io", "localsubjectaccessreviews", "create"),
            ("", "services", _READ),
            ("", "nodes", f"create patch update {_READ}"),
            ("", "nodes/status", "patch update"),
            _CORE_EVENTS,
            _EVENTS,
            ("", "pods", f"create delete {_READ}"),
            ("", "pods/status", "patch update"),
            ("", "pods/eviction", "create"),
            ("", "configmaps secrets", _READ),
            ("", "persistentvolumeclaims persistentvolumes endpoints serviceaccounts", "get"),
            ("", "persistentvolumeclaims/status", "get patch update"),
            ("", "serviceaccounts/token", "create"),
            ("coordination.k8s.io", "leases", "create delete get patch update"),
            ("storage.k8s.io", "volumeattachments", "get"),
            ("storage.k8s.io", "csidrivers", _READ),
            ("storage.k8s.io", "csinodes", "create delete get patch update"),
            ("node.k8s.io", "runtimeclasses", _READ),
        ),
        _role(
            "system:kube-scheduler",
            _CORE_EVENTS,
            _EVENTS,
            ("coordination.k8s.io", "leases", "create"),
            _rule("coordination.k8s.io", "leases", "get list update watch", ("kube-scheduler",)),
            ("", "nodes namespaces replicationcontrollers services persistentvolumeclaims persistentvolumes", _READ),
            ("", "pods", f"delete {_READ}"),
            ("", "bindings pods/binding", "create"),
            ("", "pods/status", "patch update"),
            ("", "pods/finalizers", "update"),
            ("apps", "replicasets statefulsets", _READ),
            ("policy", "poddisruptionbudgets", _READ),
            *_REVIEWS,
            ("storage.k8s.io", "csinodes csidrivers csistoragecapacities volumeattachments", _READ),
        ),
        _role(
            "system:volume-scheduler",
            ("", "persistentvolumes persistentvolumeclaims", f"patch update {_READ}"),
            ("storage.k8s.io", "storageclasses", _READ),
        ),
        _role(
            "system:kube-controller-manager",
            _CORE_EVENTS,
            _EVENTS,
            ("coordination.k8s.io", "leases", "create"),
            _rule("coordination.k8s.io", "leases", "get update", ("kube-controller-manager",)),
            ("", "secrets serviceaccounts", "create update"),
            ("", "secrets", "delete"),
            ("", "configmaps namespaces secrets serviceaccounts", "get"),
            *_REVIEWS,
            ("*", "*", "list watch"),
            ("", "serviceaccounts/token", "create"),
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
            ("", "resourcequotas configmaps", _READ),
            ("apps", "deployments daemonsets", _READ),
            ("batch", "jobs", _READ),
            ("scheduling.k8s.io", "priorityclasses", _READ),
            ("storage.k8s.io", "storageclasses", _READ),
            (SIGS, "*", f"patch update {_READ}"),
            (KOORDINATOR, "*", f"create delete patch update {_READ}"),
            ("wharfinger.dev", "*", f"patch update {_READ}"),
        ),
        # One process runs all controllers here, garbage collection and the end of namespaces among them: any object may
        # have to be read, changed or deleted. Granting (escalate, bind, impersonate) is not part of it.
        _role("system:wharfinger:controllers", ("*", "*", _ALL), ("", "pods/eviction", "create")),
        # A set of simulated nodes stands for many kubelets, and for whoever starts and removes machines.
        _role(
            "system:wharfinger:nodes",
            leases,
            ("", "nodes nodes/status pods pods/status", _ALL),
            _CORE_EVENTS,
            _EVENTS,
            ("", "configmaps namespaces persistentvolumeclaims persistentvolumes", _READ),
            ("storage.k8s.io", "csinodes", _ALL),
            (SIGS, "nodecomputeresources nodecomputeresources/status", _ALL),
            (SIGS, "resourceclasses", _READ),
        ),
        _role(
            "system:wharfinger:placement",
            leases,
            _CORE_EVENTS,
            _EVENTS,
            ("", "namespaces", f"create {_READ}"),
            *_REVIEWS,
            (OCM, "*", _ALL),
        ),
    ]


def cluster_role_bindings() -> list[Document]:
    return [
        _binding("cluster-admin", "Group", "system:masters"),
        _binding("system:basic-user", "Group", "system:authenticated"),
        _binding("system:discovery", "Group", "system:authenticated"),
        _binding("system:public-info-viewer", "Group", "system:authenticated", "system:unauthenticated"),
        _binding("system:monitoring", "Group", "system:monitoring"),
        _binding("system:service-account-issuer-discovery", "Group", "system:serviceaccounts"),
        _binding("system:node", "Group"),
        _binding("system:kube-scheduler", "User", "system:kube-scheduler"),
        _binding("system:volume-scheduler", "User", "system:kube-scheduler"),
        _binding("system:kube-controller-manager", "User", "system:kube-controller-manager"),
        _binding("system:wharfinger:scheduler", "User", "system:kube-scheduler"),
        _binding("system:wharfinger:controllers", "User", "system:kube-controller-manager"),
        _binding("system:wharfinger:nodes", "User", "system:wharfinger:nodes"),
        _binding("system:wharfinger:placement", "User", "system:wharfinger:placement"),
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
