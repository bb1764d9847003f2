"""Which part of a request policies apply to: the pod, or the pod template of a workload, and as whom it will run."""

from __future__ import annotations

from typing import Any

from wharfinger.admission.request import Request, User, service_account
from wharfinger.api.kinds import pod_templates
from wharfinger.api.registry import Document
from wharfinger.systems.scheduling_policy.rules.evaluate import PolicySubject

MIRROR = "kubernetes.io/config.mirror"
NODES, NODE = "system:nodes", "system:node:"
DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
CONTROLLER_MANAGER = "system:kube-controller-manager"


def is_mirror(request: Request) -> bool:
    """Whether a node reports a static pod. Nodes are recognised by group and name, as in upstream's node identifier."""
    is_node = NODES in request.user.groups and request.user.name.startswith(NODE)
    return is_node and _at(request.object, "metadata.annotations", MIRROR) is not None


def sent_by_daemon_set_controller(request: Request) -> bool:
    """Whether the DaemonSet controller created this pod. Owner references alone prove nothing, since anyone can write
    them. They count only in requests of the controller manager, which may run all its controllers under one identity.
    """
    if request.user.name == DAEMON_SET_CONTROLLER:
        return True
    owners = _at(request.object, "metadata.ownerReferences")
    return request.user.name == CONTROLLER_MANAGER and any(
        isinstance(owner, dict) and owner.get("kind") == "DaemonSet" and owner.get("controller") is True
        for owner in (owners if isinstance(owners, list) else ())
    )


def pod_subject(request: Request, *, with_requester: bool, global_class: str, injecting: bool) -> PolicySubject:
    spec = _at(request.object, "spec")
    old = None
    if request.operation == "UPDATE":
        before = _at(request.old, "spec")
        old = before if isinstance(before, dict) else {}
    users = (service_account(request.namespace, account_of(spec)),)
    return PolicySubject(
        spec,
        (*users, request.user) if with_requester and request.user not in users else users,
        request.namespace,
        old=old,
        injecting=injecting,
        daemon=sent_by_daemon_set_controller(request),
        global_class=global_class,
    )


def template_subject(request: Request, *, with_requester: bool, global_class: str) -> PolicySubject | None:
    """The template to judge; None when there is none, or an update does not change it."""
    kind = pod_templates().get((request.resource.group, request.resource.plural))
    if kind is None:
        return None
    path = kind.pod_template
    template = _at(request.object, path)
    nested = _at(template, "spec.template")
    if isinstance(nested, dict):
        path, template = f"{path}.spec.template", nested  # the template of a reservation
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    spec = template["spec"]
    if request.operation == "UPDATE" and _at(request.old, f"{path}.spec") == spec:
        return None
    if kind.pod_template_identity == "requester":
        namespace = _at(template, "metadata.namespace") or "default"
        return PolicySubject(spec, (request.user,), str(namespace), f"{path}.spec", global_class=global_class)
    users: tuple[User, ...] = (service_account(request.namespace, account_of(spec)),)
    if with_requester and request.user not in users:
        users = (*users, request.user)
    return PolicySubject(spec, users, request.namespace, f"{path}.spec", global_class=global_class)


def account_of(spec: Any) -> str:
    """The service account of a pod spec. Malformed values count as absent; evaluation refuses them anyway."""
    if isinstance(spec, dict):
        for name in ("serviceAccountName", "serviceAccount"):
            if isinstance(spec.get(name), str) and spec[name]:
                return str(spec[name])
    return "default"


def _at(document: Document | None, path: str, *last: str) -> Any:
    found: Any = document
    for part in (*path.split("."), *last):
        found = found.get(part) if isinstance(found, dict) else None
    return found
