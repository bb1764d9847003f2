"""The shipped policies, roles and bindings, how to tell an administrator's policies from them, and optional presets.

Presets have defaults, which would also act on holders of wildcard rights. So they are not provisioned: an administrator
adds them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from wharfinger.api.groups import SIGS
from wharfinger.api.registry import Document
from wharfinger.api.views import strip_nulls
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.kinds.scheduling_policy import DOCUMENT_GROUP
from wharfinger.systems.scheduling_policy.kinds.views import HARD, MODE_KEY

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_RBAC = "rbac.authorization.k8s.io"
OUR_SCHEDULERS = ["default-scheduler", "wharfinger"]
_ARCHITECTURES = ["amd64", "arm64"]
_SYSTEMS = ["linux", "windows"]


def _pattern(key: str, values: list[str]) -> Document:
    return {"matchExpressions": [{"keys": [key], "operators": ["In"], "values": values}]}


def _term(key: str, value: str) -> Document:
    return {"key": key, "operator": "In", "values": [value]}


SPECS: dict[str, Document] = {
    "restricted": {"allowed": {"schedulerNames": OUR_SCHEDULERS}},
    "privileged": {
        "allowed": {
            "schedulerNames": [],
            "priorityClasseNames": [],
            "nodeSelectors": {},
            "tolerations": [],
            "affinities": {},
            "runtimeClassNames": [],
            "topologySpreadConstraints": [],
        }
    },
}
_ADDED = ("runtimeClassNames", "topologySpreadConstraints")
"""Components that policies did not have in earlier versions."""

PRESETS: dict[str, Document] = {
    "restricted-multiarch-by-node-selector": {
        "required": {
            "schedulerNames": OUR_SCHEDULERS,
            "nodeSelectors": {"kubernetes.io/arch": _ARCHITECTURES, "kubernetes.io/os": _SYSTEMS},
        },
        "default": {
            "schedulerName": "default-scheduler",
            "nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
        },
    },
    "restricted-multiarch-by-affinity": {
        "required": {
            "schedulerNames": OUR_SCHEDULERS,
            "affinities": {
                "nodeAffinities": {
                    HARD: {
                        "nodeSelectorTerms": [
                            _pattern("kubernetes.io/arch", _ARCHITECTURES),
                            _pattern("kubernetes.io/os", _SYSTEMS),
                        ]
                    }
                }
            },
        },
        "default": {
            "schedulerName": "default-scheduler",
            "affinity": {
                "nodeAffinity": {
                    HARD: {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    _term("kubernetes.io/arch", "amd64"),
                                    _term("kubernetes.io/os", "linux"),
                                ]
                            }
                        ]
                    }
                }
            },
        },
    },
}


def policies() -> list[Document]:
    return [_policy(_metadata(name), spec) for name, spec in SPECS.items()]


def _policy(metadata: Document, spec: Document) -> Document:
    return {
        "apiVersion": SCHEDULING_POLICIES.api_version,
        "kind": SCHEDULING_POLICIES.kind,
        "metadata": metadata,
        "spec": deepcopy(spec),
    }


def roles() -> list[Document]:
    """A ClusterRole for each policy."""
    return [{**use_role(name), "metadata": _metadata(f"sp:{name}")} for name in SPECS]


def use_role(policy: str) -> Document:
    """The ClusterRole to use a policy. It names both API groups, so that checks under either one find the grant."""
    rule = {
        "apiGroups": [SIGS, DOCUMENT_GROUP],
        "resources": [SCHEDULING_POLICIES.plural],
        "verbs": ["use"],
        "resourceNames": [policy],
    }
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": f"sp:{policy}"}, "rules": [rule]}


def use_binding(policy: str, namespace: str) -> Document:
    """The RoleBinding that lets all service accounts of a namespace use a policy there."""
    metadata = {"name": f"sp:{policy}", "namespace": namespace}
    return _binding("RoleBinding", metadata, f"sp:{policy}", f"system:serviceaccounts:{namespace}")


def preset(name: str, namespace: str) -> list[Document]:
    """The manifests of an optional policy, for the service accounts of a namespace."""
    return [_policy({"name": name}, PRESETS[name]), use_role(name), use_binding(name, namespace)]


def bindings() -> list[Document]:
    """Everyone may use `restricted`; pods in kube-system may use `privileged`."""
    return [
        _binding("ClusterRoleBinding", _metadata("sp:restricted"), "sp:restricted", "system:authenticated"),
        _binding(
            "RoleBinding",
            {**_metadata("sp:kube-system-privileged"), "namespace": "kube-system"},
            "sp:privileged",
            "system:serviceaccounts:kube-system",
        ),
    ]


def _metadata(name: str) -> Document:
    return {
        "name": name,
        "annotations": {AUTOUPDATE: "true"},
        "labels": dict(_BOOTSTRAPPING),
    }


def _binding(kind: str, metadata: Document, role: str, group: str) -> Document:
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": _RBAC, "kind": "Group", "name": group}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": reference,
        "subjects": [subject],
    }


def is_shipped(policy: Document) -> bool:
    """Whether this is a shipped policy, unmodified. Presets were shipped once: those are known by their label, while
    those that an administrator added are theirs."""
    metadata = policy.get("metadata") or {}
    name = metadata.get("name") or ""
    spec: Any = SPECS.get(name)
    if spec is None and _BOOTSTRAPPING.items() <= (metadata.get("labels") or {}).items():
        spec = PRESETS.get(name)
    return spec is not None and strip_nulls(policy.get("spec")) in (spec, _earlier(spec))


def _earlier(spec: Document) -> Document:
    """The policy as earlier versions shipped it. It is restored at the next start, and must not count as changed until
    then."""
    allowed = {name: value for name, value in (spec.get("allowed") or {}).items() if name not in _ADDED}
    return {**spec, "allowed": allowed} if allowed else spec


def only_reports(policy: Document) -> bool:
    """Whether this policy is in audit mode."""
    annotations = (policy.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(MODE_KEY) == "audit")


def switches_on(policy: Document) -> bool:
    """Whether this policy turns mode `auto` into enforcement: it is an administrator's and not in audit mode."""
    return not is_shipped(policy) and not only_reports(policy)
