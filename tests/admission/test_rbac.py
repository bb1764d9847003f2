"""RBAC decisions: rules, bindings, subjects, and their changes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.admission.rbac_objects import ANN, binding, role, rule

from wharfinger.admission.rbac import Attributes, RbacIndex, aggregated_rules, as_view
from wharfinger.admission.request import SYSTEM, User, service_account
from wharfinger.api.views.rbac import ClusterRole


@pytest.mark.parametrize(
    ("granted", "asked", "expected"),
    [
        (rule("get", "pods"), {"verb": "get", "resource": "pods"}, True),
        (rule("get", "pods"), {"verb": "list", "resource": "pods"}, False),
        (rule("*", "pods"), {"verb": "list", "resource": "pods"}, True),
        (rule("get", "pods"), {"verb": "get", "resource": "pods", "group": "metrics"}, False),
        (rule("get", "pods", "*"), {"verb": "get", "resource": "pods", "group": "metrics"}, True),
        (rule("get", "pods"), {"verb": "get", "resource": "pods", "subresource": "log"}, False),
        (rule("get", "pods/log"), {"verb": "get", "resource": "pods", "subresource": "log"}, True),
        (rule("get", "*/log"), {"verb": "get", "resource": "pods", "subresource": "log"}, True),
        (rule("get", "*/log"), {"verb": "get", "resource": "pods"}, False),
        (rule("get", "*"), {"verb": "get", "resource": "pods", "subresource": "log"}, True),
        # As upstream: `pods/*` is a literal, not a wildcard.
        (rule("get", "pods/*"), {"verb": "get", "resource": "pods", "subresource": "log"}, False),
        (rule("get", "pods", names=("a",)), {"verb": "get", "resource": "pods", "name": "a"}, True),
        (rule("get", "pods", names=("a",)), {"verb": "get", "resource": "pods", "name": "b"}, False),
        (rule("list", "pods", names=("a",)), {"verb": "list", "resource": "pods"}, False),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}, {"verb": "get", "path": "/healthz"}, True),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}, {"verb": "get", "path": "/healthz/x"}, False),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}, {"verb": "get", "path": "/healthz/x"}, True),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, {"verb": "get", "path": "/anything"}, True),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, {"verb": "put", "path": "/anything"}, False),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, {"verb": "get", "resource": "pods"}, False),
    ],
)
def test_a_rule_allows_what_kubernetes_would(granted: dict[str, Any], asked: dict[str, Any], expected: bool) -> None:
    index = RbacIndex([role("r", granted), binding("b", "r", ("User", "ann"))])
    assert index.allowed(Attributes(ANN, **asked)).allowed is expected


@pytest.mark.parametrize(
    ("bound", "user", "namespace", "expected"),
    [
        (binding("b", "r", ("User", "ann")), ANN, "", True),
        (binding("b", "r", ("User", "bob")), ANN, "", False),
        (binding("b", "r", ("Group", "devs")), ANN, "a", True),
        (binding("b", "r", ("Group", "devs"), namespace="a"), ANN, "a", True),
        (binding("b", "r", ("Group", "devs"), namespace="a"), ANN, "b", False),
        (binding("b", "r", ("Group", "devs"), namespace="a"), ANN, "", False),
        (binding("b", "r", ("ServiceAccount", "sa", "x"), namespace="a"), service_account("x", "sa"), "a", True),
        (binding("b", "r", ("ServiceAccount", "sa"), namespace="a"), service_account("a", "sa"), "a", True),
        (binding("b", "r", ("ServiceAccount", "sa")), service_account("", "sa"), "", False),
        (binding("b", "r", ("Group", "system:serviceaccounts:x")), service_account("x", "sa"), "a", True),
        (binding("b", "absent", ("User", "ann")), ANN, "", False),
        (binding("b", "r", ("User", "ann"), kind="Role"), ANN, "a", False),
        (binding("b", "local", ("User", "ann"), namespace="a", kind="Role"), ANN, "a", True),
        (binding("b", "local", ("User", "ann"), namespace="b", kind="Role"), ANN, "b", False),
    ],
)
def test_a_binding_applies_to_its_subjects_in_its_namespace(
    bound: Any, user: User, namespace: str, expected: bool
) -> None:
    pods = rule("get", "pods")
    index = RbacIndex([role("r", pods), role("local", pods, namespace="a"), bound])
    assert index.allowed(Attributes(user, "get", resource="pods", namespace=namespace)).allowed is expected


def test_the_reason_names_binding_role_and_subject() -> None:
    index = RbacIndex([role("r", rule("get", "pods")), binding("b", "r", ("ServiceAccount", "sa", "x"), namespace="a")])
    decision = index.allowed(Attributes(service_account("x", "sa"), "get", resource="pods", namespace="a"))
    assert decision.reason == 'RBAC: allowed by RoleBinding "b/a" of ClusterRole "r" to ServiceAccount "sa/x"'


def test_masters_may_do_everything() -> None:
    assert RbacIndex().allowed(Attributes(SYSTEM, "delete", resource="nodes")).allowed


def test_the_text_of_a_denial() -> None:
    asked = Attributes(ANN, "create", "apps", "deployments", "scale", name="web", namespace="a")
    assert asked.forbidden().message == (
        'deployments.apps "web" is forbidden: User "ann" cannot create resource "deployments/scale" in API group '
        '"apps" in the namespace "a"'
    )
    assert Attributes(ANN, "get", path="/x").denial() == 'User "ann" cannot get path "/x"'
    assert Attributes(ANN, "list", resource="nodes").denial().endswith("at the cluster scope")


def test_changes_of_roles_and_bindings_take_effect() -> None:
    asked = Attributes(ANN, "get", resource="pods")
    index = RbacIndex([binding("b", "r", ("User", "ann"))])
    assert not index.allowed(asked).allowed
    index.upsert(role("r", rule("get", "pods")))
    assert index.allowed(asked).allowed
    index.upsert(role("r", rule("get", "nodes")))
    assert not index.allowed(asked).allowed
    index.upsert(role("r", rule("get", "pods")))
    index.upsert(binding("b", "r", ("User", "bob")))
    assert not index.allowed(asked).allowed
    index.upsert(binding("b", "r", ("Group", "devs")))
    assert index.allowed(asked).allowed
    index.remove(binding("b", "r"))
    assert not index.allowed(asked).allowed
    index.upsert(binding("b", "r", ("Group", "devs")))
    index.remove(role("r"))
    assert not index.allowed(asked).allowed


def test_names_allowed_merges_all_grants() -> None:
    asked = Attributes(ANN, "use", "g", "policies", namespace="a")
    index = RbacIndex(
        [
            role("one", rule("use", "policies", "g", ("x",))),
            role("two", rule("*", "policies", "*", ("y",))),
            role("other", rule("use", "policies", "h", ("z",))),
            binding("b1", "one", ("User", "ann"), namespace="a"),
            binding("b2", "two", ("Group", "devs")),
            binding("b3", "other", ("Group", "devs")),
        ]
    )
    assert index.names_allowed(asked) == {"x", "y"}
    assert index.names_allowed(Attributes(ANN, "use", "g", "policies", namespace="b")) == {"y"}
    index.upsert(role("two", rule("use", "policies", "g")))
    assert index.names_allowed(asked) is None


def test_rules_for_counts_a_binding_once() -> None:
    index = RbacIndex([role("r", rule("get", "pods")), binding("b", "r", ("User", "ann"), ("Group", "devs"))])
    assert [item.verbs for item in index.rules_for(ANN, "a")] == [("get",)]


def test_aggregated_rules_are_those_of_selected_roles_without_duplicates() -> None:
    def labelled(name: str, *rules: dict[str, Any]) -> ClusterRole:
        document = role(name, *rules)
        document["metadata"]["labels"] = {"to": "view"}
        found = as_view(document)
        assert isinstance(found, ClusterRole)
        return found

    document = role("view", rule("get", "old"))
    document["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}
    aggregate = as_view(document)
    assert isinstance(aggregate, ClusterRole)
    others = [labelled("b", rule("get", "pods"), rule("get", "nodes")), labelled("a", rule("get", "pods")), aggregate]
    assert [item.resources for item in aggregated_rules(aggregate, others)] == [("pods",), ("nodes",)]
