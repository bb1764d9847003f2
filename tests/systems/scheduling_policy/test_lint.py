"""What lint finds, what holds for an account and where it comes from, and how violations are counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.systems.scheduling_policy.policies import allowing_all, grant, policy, world

from wharfinger.admission.request import SYSTEM, Request, service_account
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, PODS
from wharfinger.client.local import LocalClient
from wharfinger.store import Store
from wharfinger.store.default_chain import extend_chain
from wharfinger.systems.scheduling_policy.admission.reviewer import SchedulingPolicyReviewer
from wharfinger.systems.scheduling_policy.admission.violation_counts import ViolationCounts
from wharfinger.systems.scheduling_policy.commands.policy_world import PolicyWorld, bound_identities
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.effective import effective_rules
from wharfinger.systems.scheduling_policy.rules.evaluate import PolicySubject, evaluate
from wharfinger.systems.scheduling_policy.rules.lint import lint
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

Document = dict[str, Any]
ACCOUNT = ("ServiceAccount", "web", "shop")
EVERYTHING = [
    {"kind": "ClusterRole", "metadata": {"name": "all"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
    {"kind": "ClusterRoleBinding", "metadata": {"name": "all"}, "roleRef": {"kind": "ClusterRole", "name": "all"}, "subjects": [{"kind": "ServiceAccount", "namespace": "ops", "name": "root"}]},
]  # fmt: skip


def found(policies: list[Document], rbac: list[Document], strategy: Any = "deep") -> set[tuple[str, str]]:
    made = PolicyWorld(SchedulingPolicySettings(merge_strategy=strategy))
    for each in (*policies, *({"apiVersion": "rbac.authorization.k8s.io/v1", **each} for each in rbac)):
        made.add(each, live=True)
    return {(each.rule, each.policy) for each in lint(made.build(), bound_identities(made), strategy)}


def test_sound_policies_have_no_findings() -> None:
    assert found([policy("a", allowing_all())], grant("a")) == set()


def test_wildcard_holders_are_found() -> None:
    assert found([policy("a", allowing_all())], [*grant("a"), *EVERYTHING]) == {("wildcard", "")}


def test_policies_that_nobody_may_use_or_that_are_invalid_are_found() -> None:
    broken = policy("b", {"required": {"schedulerNames": []}})
    assert found([policy("a", allowing_all()), broken], grant("b")) == {("unused", "a"), ("invalid", "b")}


def test_policies_that_are_dead_under_first_are_found() -> None:
    policies = [policy(name, allowing_all()) for name in ("a", "b", "c")]
    rbac = [*grant("a"), *grant("b"), *grant("c", ("User", "system:serviceaccount:x:y"))]
    assert found(policies, rbac, "first") >= {("dead", "b")}
    assert ("dead", "a") not in found(policies, rbac, "first")
    assert not {each for each in found(policies, rbac) if each[0] == "dead"}


@pytest.mark.parametrize(
    ("spec", "breaks"),
    [
        ({"required": {"nodeSelectors": {"arch": ["amd64"]}}, "default": {"nodeSelector": {"arch": "arm64"}}}, True),
        ({"required": {"nodeSelectors": {"arch": ["amd64"]}}, "default": {"nodeSelector": {"arch": "amd64"}}}, False),
        ({"required": {"nodeSelectors": {"arch": ["amd64"]}}}, False),  # nothing is injected, so no default is to blame
        ({"required": {"runtimeClassNames": ["a"]}, "default": {"runtimeClassName": "b"}}, True),
        ({"required": {"tolerations": [{"keys": ["a"]}]}, "default": {"tolerations": [{"key": "b", "operator": "Exists"}]}}, True),
    ],
)  # fmt: skip
def test_defaults_that_break_requirements_are_found(spec: Document, breaks: bool) -> None:
    spec = {"allowed": {"schedulerNames": []}, **spec}
    assert (("default", "a") in found([policy("a", spec)], grant("a"))) == breaks


def test_defaults_that_break_the_requirements_of_another_policy_are_found() -> None:
    first = policy("a", {"allowed": {"schedulerNames": []}, "required": {"nodeSelectors": {"arch": ["amd64"]}}})
    second = policy("b", {"default": {"nodeSelector": {"arch": "arm64"}}})
    assert ("default", "b") in found([first, second], [*grant("a"), *grant("b")])


def test_effective_rules_have_origins() -> None:
    where = world(
        {"allowed": {"schedulerNames": ["x"], "nodeSelectors": {"disk": ["ssd"]}}, "default": {"schedulerName": "x"}},
        {"allowed": {"schedulerNames": ["x", "y"], "tolerations": []}, "required": {"runtimeClassNames": ["gvisor"]}},
    )
    known = where.policies()
    for strategy, expected in (
        ("deep", {("allowed", "schedulerNames", "x"): ("p0", "p1"), ("allowed", "schedulerNames", "y"): ("p1",), ("allowed", "tolerations", "*"): ("p1",), ("required", "runtimeClassNames", "['gvisor']"): ("p1",), ("default", "schedulerName", "x"): ("p0",)}),
        ("first", {("allowed", "schedulerNames", "x"): ("p0",), ("default", "schedulerName", "x"): ("p0",)}),
        ("simple", {("allowed", "schedulerNames", "x"): ("p0",), ("allowed", "tolerations", "*"): ("p1",)}),
    ):  # fmt: skip
        merged = known.merged(known.names, strategy)  # type: ignore[arg-type]
        rules = effective_rules(known.policies.values(), merged, strategy)  # type: ignore[arg-type]
        told = {(each.section, each.component, str(each.value)): each.policies for each in rules}
        assert expected.items() <= told.items()
        assert strategy == "deep" or ("allowed", "schedulerNames", "y") not in told


@pytest.mark.parametrize(("strategy", "warned"), [("first", True), ("deep", False)])
@pytest.mark.parametrize(
    ("name", "words"), [("a", "so these never apply: m, z"), ("p", "everyone gets m and never this policy")]
)
def test_a_policy_that_silences_others_is_warned_about(strategy: Any, warned: bool, name: str, words: str) -> None:
    rbac = [item for each in ("a", "m", "p") for item in grant(each)]
    made = world(("m", allowing_all()), ("z", allowing_all()), rbac=rbac)
    reviewer = SchedulingPolicyReviewer(made, SchedulingPolicySettings(merge_strategy=strategy), mutating=False)
    review = reviewer.review(Request("CREATE", SCHEDULING_POLICIES, "", name, SYSTEM, policy(name, allowing_all())))
    assert any(words in each for each in review.warnings) == warned


def test_violations_are_counted_for_each_policy_since_it_changed() -> None:
    async def main() -> None:
        client = LocalClient(Store(registry()))
        await client.create(SCHEDULING_POLICIES, policy("p0", {"allowed": {"schedulerNames": []}}))
        where = world({"allowed": {"schedulerNames": []}})
        subject = PolicySubject({"nodeSelector": {"a": "b"}}, (service_account("shop", "web"),), "shop")
        evaluation = evaluate(where, subject)
        assert evaluation.refused
        metrics = CollectorRegistry()
        counts = ViolationCounts(metrics, lambda: 0.0)

        async def status() -> Document:
            found: Document = (await client.get(SCHEDULING_POLICIES, "p0")).get("status") or {}
            return found

        for expected in (2, 4):
            counts.note(evaluation, "warn")
            counts.note(evaluation, "warn")
            await counts.write(client)
            await counts.write(client)  # nothing new
            assert (await status())["violations"] == expected
        assert (
            metrics.get_sample_value("wharfinger_scheduling_policy_violations_total", {"policy": "p0", "mode": "warn"})
            == 4
        )
        await client.patch(SCHEDULING_POLICIES, "p0", {"spec": {"allowed": {"tolerations": []}}})
        counts.note(evaluation, "warn")
        await counts.write(client)
        assert (await status())["violations"] == 1
        await client.delete(SCHEDULING_POLICIES, "p0")
        counts.note(evaluation, "warn")
        await counts.write(client)

    asyncio.run(main())


def test_the_embedded_server_counts_violations_of_requests_that_are_not_dry_runs() -> None:
    async def main() -> None:
        store, metrics = Store(registry()), CollectorRegistry()
        settings = Configuration().having(SchedulingPolicySettings(mode="warn"))
        upkeep = extend_chain(store.chain, store, complete=False, configuration=settings, metrics=metrics)
        client = LocalClient(store)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        await client.create(SCHEDULING_POLICIES, policy("p0", {"allowed": {"schedulerNames": ["other"]}}))
        for document in grant("p0"):
            await client.create(CLUSTER_ROLES if document["kind"] == "ClusterRole" else CLUSTER_ROLE_BINDINGS, document)
        for name, dry_run in (("a", False), ("b", True), ("c", False)):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "c", "image": "i"}]},
            }
            await client.create(PODS, pod, "shop", dry_run=dry_run)
        for each in upkeep:
            await each(client)
        found = await client.get(SCHEDULING_POLICIES, "p0")
        assert found["status"]["violations"] == 2
        labels = {"policy": "p0", "mode": "warn"}
        assert metrics.get_sample_value("wharfinger_scheduling_policy_violations_total", labels) == 2

    asyncio.run(main())
