"""Builders of RBAC documents."""

from __future__ import annotations

from typing import Any

from wharfinger.admission.request import User


def role(name: str, *rules: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    kind = "Role" if namespace else "ClusterRole"
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": list(rules)}


def rule(verbs: str, resources: str, group: str = "", names: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "verbs": verbs.split(","),
        "apiGroups": [group],
        "resources": resources.split(","),
        "resourceNames": list(names),
    }


def binding(
    name: str, role_name: str, *subjects: tuple[str, ...], namespace: str = "", kind: str = "ClusterRole"
) -> Any:
    return {
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role_name},
        "subjects": [
            {"kind": kind, "name": name, **({"namespace": rest[0]} if rest else {})} for kind, name, *rest in subjects
        ],
    }


ANN = User("ann", ("devs", "system:authenticated"))
