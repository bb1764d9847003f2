"""Which part of a request policies apply to: the pod, or the pod template of a workload, and as whom it will run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from wharfinger.admission.request import Request, User, service_account
from wharfinger.admission.requesters import requester_of
from wharfinger.api.defaults.walk import value_at
from wharfinger.api.kinds import pod_templates
from wharfinger.systems.scheduling_policy.rules.evaluate import PolicySubject

MIRROR = "kubernetes.io/config.mirror"
NODES, NODE = "system:nodes", "system:node:"
DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
CONTROLLER_MANAGER = "system:kube-controller-manager"


def is_mirror(request: Request) -> bool:
    """Whether a node reports a static pod. Nodes are recognised by group and name, as in upstream's node identifier."""
    is_node = NODES in request.user.groups and request.user.name.startswith(NODE)
    return is_node and MIRROR in (value_at(request.object, "metadata.annotations") or ())


def sent_by_daemon_set_controller(request: Request) -> bool:
    """Whether the DaemonSet controller created this pod. Owner references alone prove nothing, since anyone can write
    them. They count only in requests of the controller manager, which may run all its controllers under one identity.
    """
    if request.user.name == DAEMON_SET_CONTROLLER:
        return True
    owners = value_at(request.object, "metadata.ownerReferences")
    return request.user.name == CONTROLLER_MANAGER and any(
        isinstance(owner, dict) and owner.get("kind") == "DaemonSet" and owner.get("controller") is True
        for owner in (owners if isinstance(owners, list) else ())
    )


def pod_subject(request: Request, *, with_requester: bool, global_class: str, injecting: bool) -> PolicySubject:
    spec = value_at(request.object, "spec")
    old = None
    if request.operation == "UPDATE":
        before = value_at(request.old, "spec")
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


def acting_user(request: Request, controllers: Collection[str]) -> User:
    """The user on whose behalf the request is made: for one of our controllers, the requester that admission noted."""
    noted = requester_of(request.object) if request.user.name in controllers else None
    return request.user if noted is None else noted


def template_subject(
    request: Request, *, with_requester: bool, global_class: str, controllers: Collection[str] = ()
) -> PolicySubject | None:
    """The template to judge; None when there is none, or an update does not change it."""
    kind = pod_templates().get((request.resource.group, request.resource.plural))
    if kind is None:
        return None
    path = kind.pod_template
    template = value_at(request.object, path)
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    spec = template["spec"]
    if request.operation == "UPDATE" and value_at(request.old, f"{path}.spec") == spec:
        return None
    if kind.pod_template_identity == "requester":
        namespace = value_at(template, "metadata.namespace") or "default"
        return PolicySubject(
            spec,
            (acting_user(request, controllers),),
            str(namespace),
            f"{path}.spec",
            migration=request.user.name in controllers,
            numeric_priority=True,
            global_class=global_class,
        )
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
