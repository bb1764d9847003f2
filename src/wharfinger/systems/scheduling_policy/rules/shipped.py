"""The shipped policies, roles and bindings, and how to tell an administrator's policies from them."""

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
        }
    },
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
    return [
        {
            "apiVersion": SCHEDULING_POLICIES.api_version,
            "kind": SCHEDULING_POLICIES.kind,
            "metadata": _metadata(name),
            "spec": deepcopy(spec),
        }
        for name, spec in SPECS.items()
    ]


def roles() -> list[Document]:
    """A ClusterRole for each policy. It names both API groups, so that checks under either one find the grant."""
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": _metadata(f"sp:{name}"),
            "rules": [
                {
                    "apiGroups": [SIGS, DOCUMENT_GROUP],
                    "resources": [SCHEDULING_POLICIES.plural],
                    "verbs": ["use"],
                    "resourceNames": [name],
                }
            ],
        }
        for name in SPECS
    ]


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
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    }


def _binding(kind: str, metadata: Document, role: str, group: str) -> Document:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": reference,
        "subjects": [subject],
    }


def is_shipped(policy: Document) -> bool:
    """Whether this is a shipped policy, unmodified."""
    metadata = policy.get("metadata") or {}
    spec: Any = SPECS.get(metadata.get("name") or "")
    return spec is not None and strip_nulls(policy.get("spec")) == spec


def only_reports(policy: Document) -> bool:
    """Whether this policy is in audit mode."""
    annotations = (policy.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(MODE_KEY) == "audit")


def switches_on(policy: Document) -> bool:
    """Whether this policy turns mode `auto` into enforcement: it is an administrator's and not in audit mode."""
    return not is_shipped(policy) and not only_reports(policy)
