"""Scheduling policies on the dashboard: who may ask for what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from wharfinger.admission.rbac import RbacIndex
from wharfinger.admission.request import User, service_account
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from wharfinger.api.registry import Document, Resource
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.lint import EVERYONE, Identity
from wharfinger.systems.scheduling_policy.rules.lookup import PolicySet, usable_by
from wharfinger.systems.scheduling_policy.rules.shipped import only_reports, switches_on

RBAC = (CLUSTER_ROLES, ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS)

Objects = Callable[[Resource], Sequence[Document]]


def policy_view(objects: Objects, now: float) -> dict[str, list[Document]]:
    """The policies with their demands and violations, and for each subject the policies that it may use."""
    documents = sorted(objects(SCHEDULING_POLICIES), key=lambda each: str(each["metadata"]["name"]))
    return {"policies": [_policy(each) for each in documents], "subjects": _subjects(objects, documents)}


def _policy(document: Document) -> Document:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    return {
        "name": document["metadata"]["name"],
        "required": spec.get("required") or {},
        "allowed": spec.get("allowed") or {},
        "default": spec.get("default") or {},
        "own": switches_on(document),
        "onlyReports": only_reports(document),
        "violations": int(status.get("violations") or 0),
        "problems": [
            str(each.get("message"))
            for each in status.get("conditions") or ()
            if each.get("type") == "Valid" and each.get("status") == "False"
        ],
    }


def _subjects(objects: Objects, documents: Sequence[Document]) -> list[Document]:
    index = RbacIndex()
    for resource in RBAC:
        for document in objects(resource):
            try:
                index.upsert({"kind": resource.kind, **document})
            except msgspec.ValidationError:
                continue
    names = PolicySet(documents).names
    rows: dict[tuple[str, str], Document] = {}
    for identity in _identities(objects):
        usable = sorted(usable_by(index, identity.user, identity.namespace, names))
        if usable:
            rows[identity.title, identity.namespace] = {
                "subject": identity.title,
                "namespace": identity.namespace,
                "policies": usable,
            }
    return sorted(rows.values(), key=lambda row: (row["namespace"], row["subject"]))


def _identities(objects: Objects) -> Iterator[Identity]:
    """Everyone that a role is bound to."""
    yield Identity("every service account", EVERYONE)
    for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
        for binding in objects(resource):
            place = binding["metadata"].get("namespace") or ""
            for subject in binding.get("subjects") or ():
                name = str(subject.get("name") or "")
                if subject.get("kind") == "ServiceAccount":
                    namespace = str(subject.get("namespace") or place)
                    user = service_account(namespace, name)
                    yield Identity(f"service account {namespace}/{name}", user, place)
                elif subject.get("kind") == "Group":
                    yield Identity(f"group {name}", User("", (name, "system:authenticated")), place)
                elif subject.get("kind") == "User":
                    yield Identity(f"user {name}", User(name, ("system:authenticated",)), place)
