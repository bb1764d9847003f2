"""Users may grant only permissions that they have."""

from __future__ import annotations

from typing import Any

import pytest
from tests.admission.rbac_objects import ANN, binding, role, rule

from wharfinger.admission.rbac import RbacIndex
from wharfinger.admission.rbac_escalation import EscalationReviewer, describe, uncovered
from wharfinger.admission.request import SYSTEM, Request, Review, User
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from wharfinger.api.views import view
from wharfinger.api.views.rbac import PolicyRule

RBAC = "rbac.authorization.k8s.io"


def url(verbs: str, path: str) -> dict[str, Any]:
    return {"verbs": verbs.split(","), "nonResourceURLs": [path]}


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        ([rule("get,list", "pods")], rule("get", "pods"), []),
        ([rule("get", "pods"), rule("list", "pods")], rule("get,list", "pods"), []),
        ([rule("get", "pods")], rule("get,list", "pods"), ['{APIGroups:[""], Resources:["pods"], Verbs:["list"]}']),
        ([rule("*", "*", "*")], rule("get", "pods/log"), []),
        ([rule("get", "*/log")], rule("get", "pods/log"), []),
        ([rule("get", "pods")], rule("get", "pods/log"), ['{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}']),
        ([rule("get", "pods")], rule("get", "pods", names=("a",)), []),
        (
            [rule("get", "pods", names=("a",))],
            rule("get", "pods"),
            ['{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'],
        ),
        (
            [rule("get", "pods", names=("a",))],
            rule("get", "pods", names=("a", "b")),
            ['{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}'],
        ),
        ([rule("get", "pods")], rule("*", "pods"), ['{APIGroups:[""], Resources:["pods"], Verbs:["*"]}']),
        ([url("get", "/a/*")], url("get", "/a/b"), []),
        ([url("get", "/a")], url("get", "/a/*"), ['{NonResourceURLs:["/a/*"], Verbs:["get"]}']),
    ],
)
def test_uncovered(held: list[dict[str, Any]], wanted: dict[str, Any], missing: list[str]) -> None:
    owned = [view(item, PolicyRule) for item in held]
    assert [describe(part) for part in uncovered(owned, [view(wanted, PolicyRule)])] == missing


def ask(index: RbacIndex, resource: Any, document: dict[str, Any], user: User = ANN, old: Any = None) -> Review:
    metadata = document["metadata"]
    request = Request(
        "UPDATE" if old else "CREATE", resource, metadata["namespace"], metadata["name"], user, document, old
    )
    return EscalationReviewer(index).review(request)


HOLDS = [role("mine", rule("get", "pods")), binding("b", "mine", ("User", "ann"))]


def test_a_role_with_permissions_that_the_user_lacks_is_refused() -> None:
    review = ask(RbacIndex(HOLDS), ROLES, role("r", rule("get,list,watch", "pods"), namespace="a"))
    assert review.denied is not None
    assert review.denied.message == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "ann" (groups=["devs" "system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}'
    )


def test_a_role_with_permissions_of_the_user_passes() -> None:
    assert ask(RbacIndex(HOLDS), ROLES, role("r", rule("get", "pods"), namespace="a")).denied is None


def test_the_escalate_verb_and_masters_pass() -> None:
    wanted = role("r", rule("delete", "nodes"))
    assert ask(RbacIndex(HOLDS), CLUSTER_ROLES, wanted, SYSTEM).denied is None
    held = [role("e", rule("escalate", "clusterroles", RBAC)), binding("b2", "e", ("User", "ann"))]
    assert ask(RbacIndex(held), CLUSTER_ROLES, wanted).denied is None


def test_an_aggregation_rule_requires_full_permissions() -> None:
    document = {**role("r"), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    denied = ask(RbacIndex(HOLDS), CLUSTER_ROLES, document).denied
    assert denied is not None and "must have cluster-admin privileges to use the aggregationRule" in denied.message
    everything = role("all", rule("*", "*", "*"), url("*", "*"))
    assert ask(RbacIndex([everything, binding("b", "all", ("User", "ann"))]), CLUSTER_ROLES, document).denied is None


@pytest.mark.parametrize(
    ("held", "resource", "document", "refused"),
    [
        ([], ROLE_BINDINGS, binding("x", "mine", ("User", "bob"), namespace="a"), ""),
        ([], ROLE_BINDINGS, binding("x", "big", ("User", "bob"), namespace="a"), "not currently held"),
        ([], CLUSTER_ROLE_BINDINGS, binding("x", "big", ("User", "bob")), "not currently held"),
        (
            [],
            CLUSTER_ROLE_BINDINGS,
            binding("x", "none", ("User", "bob")),
            'clusterroles.rbac.authorization.k8s.io "none" not found',
        ),
        (
            [rule("bind", "clusterroles", RBAC, ("big",))],
            CLUSTER_ROLE_BINDINGS,
            binding("x", "big", ("User", "bob")),
            "",
        ),
        (
            [rule("bind", "clusterroles", RBAC, ("mine",))],
            CLUSTER_ROLE_BINDINGS,
            binding("x", "big"),
            "not currently held",
        ),
    ],
)
def test_binding_a_role(held: list[dict[str, Any]], resource: Any, document: dict[str, Any], refused: str) -> None:
    objects = [*HOLDS, role("big", rule("delete", "nodes")), role("held", *held), binding("h", "held", ("User", "ann"))]
    denied = ask(RbacIndex(objects), resource, document).denied
    assert (denied is not None) is bool(refused)
    assert denied is None or refused in denied.message


def test_updates_by_the_garbage_collector_pass() -> None:
    old = role("r", rule("delete", "nodes"))
    new = {**old, "metadata": {**old["metadata"], "finalizers": ["x"], "resourceVersion": "2"}}
    assert ask(RbacIndex(), CLUSTER_ROLES, new, old=old).denied is None
    assert ask(RbacIndex(), CLUSTER_ROLES, {**new, "rules": [rule("get", "pods")]}, old=old).denied is not None
