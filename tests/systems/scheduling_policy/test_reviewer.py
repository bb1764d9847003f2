"""What policies admit, inject and refuse: the scenarios of the semantics note, and the classic ways round."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.scheduling_policy.policies import (
    ANN,
    ENFORCE,
    admit,
    grant,
    hard,
    is_in,
    pod,
    policy,
    refusal,
    shipped_world,
    world,
)

from wharfinger.admission.request import User, service_account
from wharfinger.api.kinds.builtin import CRON_JOBS, DEPLOYMENTS
from wharfinger.systems.reservation.kinds.names import RESERVATION_SETS, RESERVATIONS
from wharfinger.systems.scheduling_policy.kinds.views import HARD, MODE_KEY, SOFT
from wharfinger.systems.scheduling_policy.settings import Exempt, SchedulingPolicySettings

ARCH, OS, DISK = "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "disk"
ANY_SCHEDULER = {"schedulerNames": []}
TOLERATION = {"key": "mykey", "operator": "Equal", "value": "value", "effect": "NoSchedule"}


def allowing(**components: Any) -> dict[str, Any]:
    return {"allowed": {**ANY_SCHEDULER, **components}}


# 1–8: which policies count


def test_without_a_usable_policy_every_pod_is_refused() -> None:
    message = refusal(world(allowing(), rbac=[]), pod())
    assert message == (
        'pods "p" is forbidden: spec: Forbidden: "system:serviceaccount:default:default" may not use any scheduling '
        'policy in namespace "default" (no scheduling policy; for "system:serviceaccount:default:default")'
    )


def test_restricted_admits_a_plain_pod_unchanged() -> None:
    review, after = admit(shipped_world(), pod())
    assert review.denied is None
    assert after == pod()


def test_restricted_refuses_a_toleration_by_path() -> None:
    message = refusal(shipped_world(), pod({"tolerations": [TOLERATION]}))
    assert "spec.tolerations[0]" in message
    assert "scheduling policies used: restricted" in message


DEFAULT_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
]


def test_the_tolerations_that_every_pod_gets_do_not_count() -> None:
    assert not refusal(shipped_world(), pod({"tolerations": DEFAULT_TOLERATIONS}))
    forever = [{key: value for key, value in one.items() if key != "tolerationSeconds"} for one in DEFAULT_TOLERATIONS]
    assert "spec.tolerations[1]" in refusal(shipped_world(), pod({"tolerations": forever}))


DAEMON = service_account("kube-system", "daemon-set-controller")
OWNED = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}]
}
DAEMON_SPEC = {
    "tolerations": [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    ],
    "affinity": hard({"matchFields": [is_in("metadata.name", "n1")]}),
}


@pytest.mark.parametrize(
    ("user", "metadata", "admitted"),
    [
        (DAEMON, {}, True),
        (User("system:kube-controller-manager"), OWNED, True),
        (User("system:kube-controller-manager"), {}, False),
        (ANN, OWNED, False),  # a forged owner reference
        (service_account("kube-system", "replicaset-controller"), OWNED, False),
    ],
)
def test_what_the_daemon_set_controller_adds_counts_only_from_that_controller(
    user: User, metadata: dict[str, Any], admitted: bool
) -> None:
    assert bool(refusal(shipped_world(), pod(DAEMON_SPEC, **metadata), user=user)) is not admitted


def test_a_daemon_pods_own_tolerations_still_count() -> None:
    spec = {**DAEMON_SPEC, "tolerations": [*DAEMON_SPEC["tolerations"], TOLERATION]}
    assert "spec.tolerations[2]" in refusal(shipped_world(), pod(spec), user=DAEMON)


def test_a_default_affinity_joins_the_node_name_of_a_daemon_pod() -> None:
    where = world({**allowing(), "default": {"affinity": hard([is_in(ARCH, "amd64")])}})
    review, after = admit(where, pod(DAEMON_SPEC), user=DAEMON)
    assert review.denied is None
    terms = after["spec"]["affinity"]["nodeAffinity"][HARD]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [is_in("metadata.name", "n1")], "matchExpressions": [is_in(ARCH, "amd64")]}]


def test_privileged_holds_in_kube_system_only() -> None:
    wishing = pod({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}, "nodeName": "n"})
    assert not refusal(shipped_world(), wishing, namespace="kube-system")
    assert refusal(shipped_world(), wishing, namespace="default")


@pytest.mark.parametrize("group", ["scheduling.sigs.x-k8s.io", "extensions"])
def test_a_role_binding_holds_in_its_namespace_under_either_group(group: str) -> None:
    where = world(("p", allowing()), rbac=grant("p", namespace="a", group=group))
    assert not refusal(where, pod(), namespace="a")
    assert refusal(where, pod(), namespace="b")


def test_the_requester_counts_only_with_the_union() -> None:
    where = world(("p", allowing()), rbac=grant("p", ("User", "ann")))
    assert refusal(where, pod())
    union = SchedulingPolicySettings(mode="enforce", identity="ServiceAccountOrUser")
    assert not refusal(where, pod(), union)


def test_the_account_is_the_pods_under_either_spelling() -> None:
    where = world(("p", allowing()), rbac=grant("p", ("ServiceAccount", "robot", "default")))
    assert not refusal(where, pod({"serviceAccountName": "robot"}))
    assert not refusal(where, pod({"serviceAccount": "robot"}))
    assert refusal(where, pod())


# 9–12: node selectors

MULTIARCH = {
    "required": {"nodeSelectors": {ARCH: ["amd64", "arm64"]}},
    "default": {"nodeSelector": {ARCH: "amd64"}},
    "allowed": {**ANY_SCHEDULER, "nodeSelectors": {DISK: ["ssd", "hdd"], "region": []}},
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {ARCH: "amd64"}),
        ({ARCH: "arm64"}, {ARCH: "arm64"}),
        ({DISK: "ssd"}, {DISK: "ssd", ARCH: "amd64"}),
        ({"region": "anything"}, {"region": "anything", ARCH: "amd64"}),
    ],
)
def test_selectors_that_pass(given: dict[str, str] | None, expected: dict[str, str]) -> None:
    review, after = admit(world(MULTIARCH), pod({"nodeSelector": given} if given else None))
    assert review.denied is None
    assert after["spec"]["nodeSelector"] == expected


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (
            {ARCH: "s390x"},
            f'spec.nodeSelector[{ARCH}]: Invalid value: "s390x": policy "p0" requires one of "amd64", "arm64"',
        ),
        ({DISK: "tape"}, f"spec.nodeSelector[{DISK}]"),
        ({"other": "x"}, "spec.nodeSelector[other]"),
    ],
)
def test_selectors_that_do_not(given: dict[str, str], refused: str) -> None:
    assert refused in refusal(world(MULTIARCH), pod({"nodeSelector": given}))


def test_every_violation_is_reported_at_once_with_causes() -> None:
    spec = {"nodeSelector": {ARCH: "s390x", DISK: "tape"}, "tolerations": [TOLERATION], "priorityClassName": "gold"}
    review, _ = admit(world(MULTIARCH), pod(spec))
    assert review.denied is not None
    assert [cause["field"] for cause in review.denied.details["causes"]] == [
        f"spec.nodeSelector[{ARCH}]",
        "spec.priorityClassName",
        f"spec.nodeSelector[{DISK}]",
        "spec.tolerations[0]",
    ]


def test_an_allow_list_demands_nothing() -> None:
    assert not refusal(world(allowing(nodeSelectors={"zone": ["a", "b"]})), pod())


# 14, 20, 21: schedulers and classes


def test_any_scheduler_of_one_policy_wins_over_the_list_of_another() -> None:
    where = world({"allowed": {"schedulerNames": ["x"]}}, {"allowed": {"schedulerNames": []}})
    assert not refusal(where, pod({"schedulerName": "z"}))


@pytest.mark.parametrize("given", [None, "", "default-scheduler"])
def test_the_default_scheduler_counts_as_unset_where_there_is_a_default(given: str | None) -> None:
    where = world({"default": {"schedulerName": "my-scheduler"}})
    review, after = admit(where, pod({} if given is None else {"schedulerName": given}))
    assert review.denied is None
    assert after["spec"]["schedulerName"] == "my-scheduler"


def test_the_default_scheduler_named_may_be_kept_by_a_setting() -> None:
    settings = SchedulingPolicySettings(mode="enforce", default_scheduler_counts_as_unset=False)
    where = world({"default": {"schedulerName": "mine"}, "allowed": {"schedulerNames": ["default-scheduler"]}})
    _, after = admit(where, pod({"schedulerName": "default-scheduler"}), settings)
    assert after["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"required": {"schedulerNames": ["a"]}, "allowed": {"schedulerNames": []}}, True),
        ({"allowed": {"schedulerNames": ["a"]}}, True),
        ({"allowed": {"priorityClasseNames": []}}, True),  # no scheduler is allowed
        ({"allowed": {"schedulerNames": ["default-scheduler"]}}, False),
    ],
)
def test_every_pod_has_a_scheduler(spec: dict[str, Any], refused: bool) -> None:
    assert ("spec.schedulerName" in refusal(world(spec), pod())) is refused


def test_a_default_class_replaces_the_priority_computed_before() -> None:
    where = world({**allowing(), "default": {"priorityClasseName": "gold"}})
    review, after = admit(where, pod({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}))
    assert review.denied is None
    assert after["spec"]["priorityClassName"] == "gold"
    assert "priority" not in after["spec"] and "preemptionPolicy" not in after["spec"]


def test_the_clusters_default_class_counts_as_none() -> None:
    where = world(allowing(), global_priority_class="std")
    assert not refusal(where, pod({"priorityClassName": "std", "priority": 5}))
    assert "spec.priorityClassName" in refusal(where, pod({"priorityClassName": "gold"}))
    forced = world({**allowing(), "default": {"priorityClasseName": "gold"}}, global_priority_class="std")
    _, after = admit(forced, pod({"priorityClassName": "std", "priority": 5}))
    assert after["spec"]["priorityClassName"] == "gold" and "priority" not in after["spec"]


@pytest.mark.parametrize(("name", "refused"), [("", True), ("bronze", False), ("gold", True)])
def test_a_required_class(name: str, refused: bool) -> None:
    where = world(
        {"required": {"priorityClasseNames": ["bronze"]}, "allowed": {**ANY_SCHEDULER, "priorityClasseNames": []}}
    )
    assert ("spec.priorityClassName" in refusal(where, pod({"priorityClassName": name}))) is refused


@pytest.mark.parametrize(("name", "refused"), [("", False), ("std", False), ("gold", True)])
def test_the_clusters_default_class_meets_a_requirement(name: str, refused: bool) -> None:
    """Whether it is written already, as on a real cluster, or will be after the defaults of policies."""
    where = world({"required": {"priorityClasseNames": ["std"]}, "allowed": ANY_SCHEDULER}, global_priority_class="std")
    spec = {"priorityClassName": name} if name else {}
    assert ("spec.priorityClassName" in refusal(where, pod(spec))) is refused


def test_a_toleration_that_the_system_may_have_added_meets_a_requirement() -> None:
    where = world({"required": {"tolerations": [{"keys": ["node.kubernetes.io/not-ready"]}]}, "allowed": ANY_SCHEDULER})
    toleration = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert not refusal(where, pod({"tolerations": [toleration]}))
    assert "spec.tolerations" in refusal(where, pod())


# 16–19: tolerations


@pytest.mark.parametrize(
    ("patterns", "toleration", "admitted"),
    [
        ([], TOLERATION, True),
        (None, TOLERATION, False),
        ([{}], {"operator": "Exists"}, True),
        ([{"keys": ["mykey"]}], TOLERATION, True),
        (
            [{"keys": ["mykey"], "operators": ["Equal"], "values": ["value"], "effects": ["NoSchedule"]}],
            TOLERATION,
            True,
        ),
        ([{"keys": ["mykey"], "operators": ["Equal"]}], {"key": "mykey", "value": "value"}, True),  # Equal by default
        ([{"keys": ["mykey"]}], {"operator": "Exists"}, False),  # an empty key tolerates every key
        ([{"keys": ["mykey"], "effects": ["NoSchedule"]}], {"key": "mykey", "operator": "Exists"}, False),
        ([{"keys": ["mykey"], "effects": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}], {"key": "mykey"}, True),
        ([{"keys": ["mykey"], "values": ["value"]}], {"key": "mykey", "operator": "Exists"}, False),
        ([{"effects": ["PreferNoSchedule"]}], {"operator": "Exists", "effect": "NoExecute"}, False),
        ([{"effects": ["PreferNoSchedule"]}], {"operator": "Exists", "effect": "PreferNoSchedule"}, True),
        ([{"keys": ["a"], "operators": ["Gt"]}], {"key": "a", "operator": "Gt", "value": "5"}, True),
        ([{"keys": ["a"]}, {"keys": ["b"]}], {"key": "b"}, True),
        (
            [{"keys": ["a"]}],
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10**6},
            True,
        ),
    ],
)
def test_tolerations(patterns: Any, toleration: dict[str, Any], admitted: bool) -> None:
    where = world(allowing(tolerations=patterns))
    assert bool(refusal(where, pod({"tolerations": [toleration]}))) is not admitted


def test_a_default_that_every_pod_has_anyway_is_not_added_once_more() -> None:
    not_ready = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}  # fmt: skip
    where = world({**allowing(), "default": {"tolerations": [not_ready, TOLERATION]}})
    _, after = admit(where, pod({"tolerations": [not_ready]}))
    assert after["spec"]["tolerations"] == [not_ready, TOLERATION]
    _, again = admit(where, after)
    assert again == after


def test_default_tolerations_make_one_for_each_value() -> None:
    where = world(
        {
            **allowing(),
            "default": {
                "tolerations": [
                    {"key": "mykey", "operator": "Equal", "values": ["value", "other_value"], "effect": "NoSchedule"},
                    {"key": "other_key", "operator": "Exists", "effect": "NoExecute"},
                ]
            },
        }
    )
    added = [
        {"key": "mykey", "operator": "Equal", "effect": "NoSchedule", "value": "value"},
        {"key": "mykey", "operator": "Equal", "effect": "NoSchedule", "value": "other_value"},
        {"key": "other_key", "operator": "Exists", "effect": "NoExecute"},
    ]
    review, after = admit(where, pod())
    assert review.denied is None
    assert after["spec"]["tolerations"] == added
    _, after = admit(where, pod({"tolerations": DEFAULT_TOLERATIONS}))
    assert after["spec"]["tolerations"] == [*DEFAULT_TOLERATIONS, *added]


def test_a_required_toleration() -> None:
    where = world({"required": {"tolerations": [{"keys": ["team"]}]}, "allowed": {**ANY_SCHEDULER, "tolerations": []}})
    assert "spec.tolerations: Required value" in refusal(where, pod({"tolerations": [TOLERATION]}))
    assert not refusal(where, pod({"tolerations": [TOLERATION, {"key": "team", "operator": "Exists"}]}))


# 22–24: affinity


def node_affinities(*patterns: dict[str, Any], hardness: str = HARD) -> dict[str, Any]:
    return {"nodeAffinities": {hardness: {"nodeSelectorTerms": [{"matchExpressions": [each]} for each in patterns]}}}


ARCH_PATTERN = {"keys": [ARCH], "operators": ["In"], "values": ["amd64", "arm64"]}
OS_PATTERN = {"keys": [OS], "operators": ["In"], "values": ["Linux", "Windows"]}


def test_every_term_must_carry_what_is_required_since_terms_are_alternatives() -> None:
    tree = {**node_affinities(ARCH_PATTERN, {"keys": ["kubernetes.io/hostname"]})}
    where = world({"required": {"affinities": node_affinities(ARCH_PATTERN)}, **allowing(affinities=tree)})
    bypass = hard([is_in(ARCH, "amd64")], [is_in("kubernetes.io/hostname", "n1")])
    path = f"spec.affinity.nodeAffinity.{HARD}.nodeSelectorTerms[1].matchExpressions"
    assert path in refusal(where, pod({"affinity": bypass}))
    both = hard([is_in(ARCH, "amd64")], [is_in("kubernetes.io/hostname", "n1"), is_in(ARCH, "arm64")])
    assert not refusal(where, pod({"affinity": both}))


def test_the_documents_affinity_policy_folds_its_default_terms() -> None:
    where = world(
        {
            "required": {
                "schedulerNames": ["default-scheduler"],
                "affinities": node_affinities(ARCH_PATTERN, OS_PATTERN),
            },
            "default": {
                "schedulerName": "default-scheduler",
                "affinity": hard([is_in(ARCH, "amd64")], [{"keys": [OS], "operators": ["In"], "values": ["Linux"]}]),
            },
        }
    )
    review, after = admit(where, pod())
    assert review.denied is None
    terms = after["spec"]["affinity"]["nodeAffinity"][HARD]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [is_in(ARCH, "amd64"), is_in(OS, "Linux")]}]


POD_TERM = {"topologyKey": "zone", "labelSelector": {}}
ANTI = {"podAntiAffinity": {HARD: [POD_TERM]}}
SOFT_ANTI = {"podAntiAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": POD_TERM}]}}
SOFT_NODE = {"nodeAffinity": {SOFT: [{"weight": 5, "preference": {"matchExpressions": [is_in(ARCH, "amd64")]}}]}}


@pytest.mark.parametrize(
    ("tree", "affinity", "admitted"),
    [
        ({}, ANTI, True),
        (None, ANTI, False),
        ({"nodeAffinities": {}}, ANTI, False),
        ({"podAntiAffinities": {}}, ANTI, True),
        ({"podAntiAffinities": {}}, SOFT_ANTI, True),
        ({"podAntiAffinities": {SOFT: {}}}, ANTI, False),
        ({"podAntiAffinities": {SOFT: {}}}, SOFT_ANTI, True),
        ({"nodeAffinities": {}}, hard({"matchFields": [is_in("metadata.name", "n")]}), True),
        (node_affinities({}), hard({"matchFields": [is_in("metadata.name", "n")]}), False),
        (node_affinities(ARCH_PATTERN), hard([is_in(ARCH, "amd64")]), True),
        (node_affinities(ARCH_PATTERN), hard([is_in(ARCH, "amd64", "s390x")]), False),
        (node_affinities(ARCH_PATTERN), hard([{"key": ARCH, "operator": "NotIn", "values": ["amd64"]}]), False),
        (node_affinities(ARCH_PATTERN, OS_PATTERN), hard([is_in(ARCH, "amd64"), is_in(OS, "Linux")]), True),
        (node_affinities(ARCH_PATTERN), SOFT_NODE, False),
        (node_affinities(ARCH_PATTERN, hardness=SOFT), SOFT_NODE, True),
        (
            {"nodeAffinities": {SOFT: [{"weight": 1, "preference": {"matchExpressions": [ARCH_PATTERN]}}]}},
            SOFT_NODE,
            True,
        ),
        ({"nodeAffinities": {SOFT: [{"preference": {"matchExpressions": [OS_PATTERN]}}]}}, SOFT_NODE, False),
        ({"nodeAffinities": {HARD: {}}}, hard([is_in("x", "y")]), True),
    ],
)
def test_affinities(tree: Any, affinity: dict[str, Any], admitted: bool) -> None:
    assert bool(refusal(world(allowing(affinities=tree)), pod({"affinity": affinity}))) is not admitted


@pytest.mark.parametrize(
    ("tree", "affinity", "admitted"),
    [
        ({"podAntiAffinities": {HARD: {}}}, ANTI, True),
        ({"podAntiAffinities": {HARD: {}}}, SOFT_ANTI, False),
        ({"podAntiAffinities": {HARD: {}}}, {}, False),
        ({"podAntiAffinities": {}}, SOFT_ANTI, True),
        ({"nodeAffinities": {HARD: {}}}, hard([is_in("a", "b")]), True),
        (node_affinities(ARCH_PATTERN, hardness=SOFT), SOFT_NODE, True),
        (node_affinities(ARCH_PATTERN, hardness=SOFT), {}, False),
    ],
)
def test_required_affinities(tree: Any, affinity: dict[str, Any], admitted: bool) -> None:
    assert (
        bool(refusal(world({"required": {"affinities": tree}, **allowing()}), pod({"affinity": affinity})))
        is not admitted
    )


def test_default_affinity_is_added_by_kind_and_hardness() -> None:
    where = world({**allowing(affinities={}), "default": {"affinity": {**ANTI, **SOFT_NODE}}})
    _, after = admit(where, pod({"affinity": hard([is_in("a", "b")])}))
    assert after["spec"]["affinity"] == {
        "nodeAffinity": {**hard([is_in("a", "b")])["nodeAffinity"], **SOFT_NODE["nodeAffinity"]},
        **ANTI,
    }
    _, after = admit(where, pod({"affinity": SOFT_ANTI}))
    assert after["spec"]["affinity"]["podAntiAffinity"] == {**SOFT_ANTI["podAntiAffinity"], **ANTI["podAntiAffinity"]}


# 25–27: updates, subresources, nodeName


def test_metadata_updates_pass_whatever_policies_say() -> None:
    old = pod({"tolerations": [TOLERATION]})
    new = {**old, "metadata": {**old["metadata"], "annotations": {"a": "b"}}}
    assert not refusal(world(allowing(), rbac=[]), new, old=old)


@pytest.mark.parametrize(
    "changed",
    [
        {"containers": [{"name": "c", "image": "newer"}]},
        {"schedulingGates": []},
        {"tolerations": [{**TOLERATION, "tolerationSeconds": 5}]},
        {"activeDeadlineSeconds": 5},
    ],
)
def test_updates_that_ask_for_nothing_more_pass_whatever_policies_say(changed: dict[str, Any]) -> None:
    old = {"tolerations": [TOLERATION], "nodeName": "n1", "schedulingGates": [{"name": "g"}], "affinity": ANTI}
    assert not refusal(world(allowing(), rbac=[]), pod({**old, **changed}), old=pod(old))


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "status", "resize", "eviction"])
def test_subresources_without_scheduling_fields_are_not_judged(subresource: str) -> None:
    assert not refusal(world(allowing(), rbac=[]), pod({"tolerations": [TOLERATION]}), subresource=subresource)


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ({}, {"tolerations": [TOLERATION]}, "spec.tolerations[0]"),
        ({"tolerations": [TOLERATION]}, {"tolerations": [TOLERATION, {"key": "ok"}]}, ""),
        ({"tolerations": [TOLERATION]}, {"tolerations": [TOLERATION, {"key": "no"}]}, "spec.tolerations[1]"),
        ({"nodeSelector": {"x": "y"}}, {"nodeSelector": {"x": "y", ARCH: "amd64"}}, ""),
        ({"nodeSelector": {"x": "y"}}, {"nodeSelector": {"x": "z"}}, "spec.nodeSelector[x]"),
        ({}, {"nodeSelector": {ARCH: "s390x"}}, f"spec.nodeSelector[{ARCH}]"),
        ({}, {"nodeName": "n1"}, "spec.nodeName"),
        ({"schedulerName": "odd"}, {"schedulerName": "odd", "nodeSelector": {ARCH: "arm64"}}, ""),
        ({}, {"priorityClassName": "gold"}, "spec.priorityClassName"),
        ({}, {"affinity": ANTI}, "spec.affinity.podAntiAffinity"),
        ({"affinity": ANTI}, {"affinity": {"podAntiAffinity": {HARD: [POD_TERM, POD_TERM]}}}, ""),
        (
            {"affinity": hard([is_in("x", "y")])},
            {"affinity": hard([is_in("x", "y"), is_in("zone", "a")])},
            "",
        ),
        (
            {"affinity": hard([is_in("x", "y")])},
            {"affinity": hard([is_in("x", "y"), is_in("z", "w")])},
            "nodeSelectorTerms[0].matchExpressions[1]",
        ),
        (
            {"affinity": hard([is_in("zone", "a")])},
            {"affinity": hard([is_in("zone", "a")], [is_in("zone", "b"), is_in("x", "y")])},
            "nodeSelectorTerms[1].matchExpressions[1]",
        ),
    ],
)
def test_an_update_is_judged_by_what_it_adds(before: dict[str, Any], after: dict[str, Any], refused: str) -> None:
    where = world(
        {
            "required": {"nodeSelectors": {ARCH: ["amd64", "arm64"]}, "schedulerNames": ["s"]},
            "default": {"nodeSelector": {ARCH: "amd64"}},
            "allowed": {"tolerations": [{"keys": ["ok"]}], "affinities": node_affinities({"keys": ["zone"]})},
        }
    )
    message = refusal(where, pod(after), old=pod(before))
    assert refused in message if refused else not message


def test_an_update_injects_nothing() -> None:
    _, after = admit(world(MULTIARCH), pod({"nodeSelector": {DISK: "ssd"}}), old=pod())
    assert after["spec"]["nodeSelector"] == {DISK: "ssd"}


@pytest.mark.parametrize("hardness", [HARD, SOFT])
def test_a_new_alternative_must_carry_what_is_required(hardness: str) -> None:
    def asking(*terms: list[dict[str, Any]]) -> dict[str, Any]:
        if hardness == HARD:
            return pod({"affinity": hard(*terms)})
        listed = [{"weight": 1, "preference": {"matchExpressions": term}} for term in terms]
        return pod({"affinity": {"nodeAffinity": {SOFT: listed}}})

    def tree(*patterns: dict[str, Any]) -> dict[str, Any]:
        return {"nodeAffinities": {hardness: {"nodeSelectorTerms": [{"matchExpressions": list(patterns)}]}}}

    allowed = allowing(affinities=tree(ARCH_PATTERN, {"keys": ["zone"]}))
    where = world({"required": {"affinities": tree(ARCH_PATTERN)}, **allowed})
    old, amd64, zone = asking([is_in(ARCH, "amd64")]), is_in(ARCH, "amd64"), is_in("zone", "a")
    assert "[1]" in refusal(where, asking([amd64], [zone]), old=old)
    assert not refusal(where, asking([amd64, zone]), old=old)
    assert not refusal(where, asking([amd64], [amd64, zone]), old=old)


@pytest.mark.parametrize(("selectors", "admitted"), [({}, True), ({"a": []}, False), (None, False)])
def test_node_name_needs_any_selector(selectors: Any, admitted: bool) -> None:
    message = refusal(world(allowing(nodeSelectors=selectors)), pod({"nodeName": "n1"}))
    assert (not message) is admitted
    assert admitted or "spec.nodeName" in message


def test_mirror_pods_pass_only_from_nodes() -> None:
    mirror = pod({"nodeName": "n1"}, annotations={"kubernetes.io/config.mirror": "x"})
    assert not refusal(shipped_world(), mirror, user=User("system:node:n1", ("system:nodes",)))
    for other in (ANN, User("ann", ("system:nodes",)), User("system:node:n1")):
        assert refusal(shipped_world(), mirror, user=other)
    assert refusal(shipped_world(), pod({"nodeName": "n1"}), user=User("system:node:n1", ("system:nodes",)))


# Bindings


@pytest.mark.parametrize(
    ("user", "settings", "refused"),
    [
        (User("system:kube-scheduler"), ENFORCE, False),
        (ANN, ENFORCE, True),
        (User("system:admin", ("system:masters",)), ENFORCE, True),
        (ANN, SchedulingPolicySettings(mode="enforce", scheduler_identities=("ann",)), False),
        (ANN, SchedulingPolicySettings(mode="enforce", exempt=Exempt(users=("ann",))), False),
        (ANN, SchedulingPolicySettings(mode="warn"), False),
        (ANN, SchedulingPolicySettings(), False),
    ],
)
def test_only_schedulers_bind_pods(user: User, settings: SchedulingPolicySettings, refused: bool) -> None:
    target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    message = refusal(shipped_world(), target, settings, user=user, subresource="binding")
    assert bool(message) is refused
    assert not refused or "only schedulers may bind pods" in message


# 28: templates


def deployment(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "d"}, "spec": {"template": {"spec": spec}}}


def test_a_template_is_warned_of_and_its_pods_refused() -> None:
    forbidden = {"tolerations": [TOLERATION]}
    review, after = admit(shipped_world(), deployment(forbidden), resource=DEPLOYMENTS)
    assert review.denied is None
    assert "spec.template.spec.tolerations[0]" in review.warnings[0]
    assert any("violations" in key for key in review.audit)
    assert after == deployment(forbidden)
    assert refusal(shipped_world(), pod(forbidden))


def test_templates_are_refused_where_that_is_enforced() -> None:
    strict = SchedulingPolicySettings(mode="enforce", enforce_templates=True)
    nested = {"metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": {"nodeName": "n"}}}}}}
    message = refusal(shipped_world(), nested, strict, resource=CRON_JOBS)
    assert message.startswith('cronjobs.batch "c" is forbidden: spec.jobTemplate.spec.template.spec.nodeName')


def test_a_template_gets_no_defaults_but_is_judged_with_them() -> None:
    review, after = admit(world(MULTIARCH), deployment({}), resource=DEPLOYMENTS)
    assert not review.warnings and after == deployment({})


def test_an_unchanged_template_is_not_judged_again() -> None:
    old = deployment({"tolerations": [TOLERATION]})
    new = {**old, "spec": {**old["spec"], "replicas": 5}}
    strict = SchedulingPolicySettings(mode="enforce", enforce_templates=True)
    assert not refusal(shipped_world(), new, strict, resource=DEPLOYMENTS, old=old)


def test_only_the_real_template_is_judged() -> None:
    """Whatever a pod spec has under `template`: no pod is made of it."""
    strict = SchedulingPolicySettings(mode="enforce", enforce_templates=True)
    spec = {"nodeName": "n1", "template": {"spec": {"containers": []}}}
    for resource, namespace in ((RESERVATIONS, ""), (RESERVATION_SETS, ""), (DEPLOYMENTS, "shop")):
        document = {"metadata": {"name": "s"}, "spec": {"template": {"spec": spec}}}
        assert "spec.template.spec.nodeName" in refusal(
            shipped_world(), document, strict, resource=resource, namespace=namespace
        )
        decoy = {"metadata": {"name": "s"}, "spec": {"template": {"spec": {"template": {"spec": {"nodeName": "n1"}}}}}}
        assert not refusal(shipped_world(), decoy, strict, resource=resource, namespace=namespace)


@pytest.mark.parametrize(
    ("classes", "spec", "refused"),
    [
        (["gold"], {"priority": 1000}, False),
        (["gold"], {"priority": 0}, False),
        (["gold"], {"priority": 1001}, True),
        (["gold"], {"priority": 2000}, True),  # the value of a class that is not allowed
        (["gold"], {"priorityClassName": "gold", "priority": 1000}, False),
        (["gold"], {"priorityClassName": "gold", "priority": 2000}, True),
        ([], {"priority": 2000}, False),
        (None, {"priority": 1}, True),
        (None, {"priority": 0}, False),
    ],
)
def test_a_number_in_the_template_of_a_reservation_counts_as_a_priority_class(
    classes: list[str] | None, spec: dict[str, Any], refused: bool
) -> None:
    """No pod is made of the template, so the Priority plugin never compares the two."""
    allowed = allowing(schedulerNames=[], **({} if classes is None else {"priorityClasseNames": classes}))
    made = world(("p", allowed), rbac=grant("p", ("User", "ann")))
    made._priorities = {"gold": 1000, "platinum": 2000}
    strict = SchedulingPolicySettings(mode="enforce", enforce_templates=True)
    document = {"metadata": {"name": "r"}, "spec": {"template": {"spec": spec}}}
    assert bool(refusal(made, document, strict, resource=RESERVATIONS, namespace="")) == refused


def test_a_reservation_is_judged_as_its_requester() -> None:
    where = world(("p", allowing(tolerations=[])), rbac=grant("p", ("User", "ann"), namespace="shop"))
    reservation = {
        "metadata": {"name": "r"},
        "spec": {"template": {"metadata": {"namespace": "shop"}, "spec": {"tolerations": [TOLERATION]}}},
    }
    strict = SchedulingPolicySettings(mode="enforce", enforce_templates=True)
    assert not refusal(where, reservation, strict, resource=RESERVATIONS, namespace="")
    assert refusal(where, reservation, strict, resource=RESERVATIONS, namespace="", user=User("bob"))
    assert not refusal(where, reservation, resource=RESERVATIONS, namespace="", user=User("bob"))


# 29 and further: modes


def test_audit_admits_with_an_entry_and_without_defaults() -> None:
    for mode, warned in (("audit", False), ("warn", True)):
        settings = SchedulingPolicySettings(mode=mode)  # type: ignore[arg-type]
        review, after = admit(world(MULTIARCH), pod({"tolerations": [TOLERATION]}), settings)
        assert review.denied is None
        assert "spec.tolerations[0]" in review.audit["scheduling-policy.wharfinger.dev/violations"]
        assert bool(review.warnings) is warned
        assert "nodeSelector" not in after["spec"]


def test_warn_does_not_complain_of_what_defaults_would_mend() -> None:
    review, _ = admit(world(MULTIARCH), pod(), SchedulingPolicySettings(mode="warn"))
    assert not review.warnings


AUTO = SchedulingPolicySettings()


def test_auto_waits_for_the_first_policy_of_the_administrator() -> None:
    wishing = pod({"tolerations": [TOLERATION]})
    assert not refusal(shipped_world(), wishing, AUTO)
    assert refusal(world(("own", allowing())), wishing, AUTO)
    changed = policy("restricted", allowing(nodeSelectors={}))
    assert refusal(world(changed), wishing, AUTO)


def test_a_policy_under_audit_reports_and_does_not_act() -> None:
    strict = policy("strict", {"required": {"nodeSelectors": {ARCH: ["amd64"]}}}, **{MODE_KEY: "audit"})
    where = world(("base", allowing(nodeSelectors={})), strict)
    review, _ = admit(where, pod())
    assert review.denied is None
    assert review.audit["scheduling-policy.wharfinger.dev/audit-policies"].startswith(
        f"strict: would refuse spec.nodeSelector[{ARCH}]: Required value"
    )
    alone = world(strict)
    review, _ = admit(alone, pod(), AUTO)
    assert review.denied is None  # it does not switch enforcement on
    assert "scheduling-policy.wharfinger.dev/audit-policies" in review.audit


@pytest.mark.parametrize(
    ("enabled", "label", "refused"),
    [
        (False, "audit", True),
        (True, "audit", False),
        (True, "warn", False),
        (True, "off", True),
        (True, "enforce", True),
    ],
)
def test_a_namespace_lowers_the_mode_only_where_that_is_enabled(enabled: bool, label: str, refused: bool) -> None:
    where = world(allowing(), namespaces={"default": {MODE_KEY: label}})
    settings = SchedulingPolicySettings(mode="enforce", namespace_mode_label=enabled)
    assert bool(refusal(where, pod({"tolerations": [TOLERATION]}), settings)) is refused


def test_a_namespace_cannot_raise_the_mode() -> None:
    where = world(allowing(), namespaces={"default": {MODE_KEY: "warn"}})
    settings = SchedulingPolicySettings(mode="audit", namespace_mode_label=True)
    review, _ = admit(where, pod({"tolerations": [TOLERATION]}), settings)
    assert not review.warnings


@pytest.mark.parametrize("exempt", [Exempt(users=("ann",)), Exempt(namespaces=("default",))])
def test_exempt_users_and_namespaces(exempt: Exempt) -> None:
    settings = SchedulingPolicySettings(mode="enforce", exempt=exempt)
    assert not refusal(world(allowing(), rbac=[]), pod({"tolerations": [TOLERATION]}), settings)


def test_a_default_that_breaks_anothers_requirement_is_refused_naming_both() -> None:
    where = world(
        ("a", {"default": {"nodeSelector": {ARCH: "i386"}}, **allowing()}),
        ("b", {"required": {"nodeSelectors": {ARCH: ["amd64"]}}}),
    )
    message = refusal(where, pod())
    assert 'policy "b" requires "amd64", but the default of policy "a" set it' in message


def test_a_later_mutation_does_not_slip_through() -> None:
    from tests.systems.scheduling_policy.policies import request

    from wharfinger.systems.scheduling_policy.admission.reviewer import SchedulingPolicyReviewer

    asked = request(pod())
    where = world(MULTIARCH)
    assert SchedulingPolicyReviewer(where, ENFORCE, mutating=True).review(asked).denied is None
    assert asked.object is not None
    del asked.object["spec"]["nodeSelector"][ARCH]
    assert SchedulingPolicyReviewer(where, ENFORCE, mutating=False).review(asked).denied is not None


def test_a_policy_that_is_not_valid_lets_nothing_through() -> None:
    broken = policy("broken", {"allowed": {**ANY_SCHEDULER, "tolerations": [{"key": "a"}]}})
    message = refusal(world(allowing(tolerations=[]), broken), pod())
    assert 'policy "broken" is not valid: spec.allowed.tolerations[0].key: Forbidden: unknown field' in message


@pytest.mark.parametrize(
    ("pattern", "expression", "covered"),
    [
        ({"keys": ["arch"], "values": ["amd64"]}, is_in("arch", "amd64"), True),
        ({"keys": ["arch"], "values": ["amd64"]}, is_in("arch", "amd64", "arm64"), False),
        ({"keys": ["arch"], "values": ["amd64"]}, {"key": "arch", "operator": "Exists"}, False),
        ({"keys": ["arch"], "values": ["amd64"]}, {"key": "arch", "operator": "DoesNotExist"}, False),
        ({"keys": ["arch"]}, {"key": "arch", "operator": "Exists"}, True),
        ({"keys": ["arch"], "operators": ["Exists"]}, {"key": "arch", "operator": "Exists"}, True),
        ({"keys": ["cores"], "values": ["8"]}, {"key": "cores", "operator": "Gt", "values": ["8"]}, True),
        ({"values": ["amd64"]}, {"key": "other", "operator": "Exists"}, False),
    ],
)
@pytest.mark.parametrize("section", ["required", "allowed"])
def test_a_pattern_with_values_is_met_by_values(
    pattern: dict[str, Any], expression: dict[str, Any], covered: bool, section: str
) -> None:
    """An expression that names no values would get round a requirement of some, and ask for more than is allowed."""
    tree = {"nodeAffinities": {HARD: {"nodeSelectorTerms": [{"matchExpressions": [pattern]}]}}}
    spec: dict[str, Any] = {"allowed": {"schedulerNames": [], "affinities": tree}}
    if section == "required":
        spec = {"required": {"affinities": tree}, "allowed": {"schedulerNames": [], "affinities": {}}}
    asking = pod({"affinity": hard([expression])})
    assert bool(refusal(world(spec), asking)) != covered


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
SOFT_SPREAD = {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}
ANY_SCHEDULER = {"schedulerNames": []}


@pytest.mark.parametrize(
    ("spec", "asked", "path"),
    [
        ({"allowed": ANY_SCHEDULER}, {"runtimeClassName": "gvisor"}, "spec.runtimeClassName"),
        ({"allowed": {**ANY_SCHEDULER, "runtimeClassNames": []}}, {"runtimeClassName": "gvisor"}, ""),
        ({"allowed": {**ANY_SCHEDULER, "runtimeClassNames": ["gvisor"]}}, {"runtimeClassName": "gvisor"}, ""),
        ({"allowed": {**ANY_SCHEDULER, "runtimeClassNames": ["runc"]}}, {"runtimeClassName": "gvisor"}, "spec.runtimeClassName"),
        ({"allowed": ANY_SCHEDULER, "required": {"runtimeClassNames": ["gvisor"]}}, {}, "spec.runtimeClassName: Required"),
        ({"allowed": ANY_SCHEDULER, "required": {"runtimeClassNames": ["gvisor"]}}, {"runtimeClassName": "gvisor"}, ""),
        ({"allowed": ANY_SCHEDULER}, {"topologySpreadConstraints": [SPREAD]}, "spec.topologySpreadConstraints[0]"),
        ({"allowed": {**ANY_SCHEDULER, "topologySpreadConstraints": []}}, {"topologySpreadConstraints": [SPREAD]}, ""),
        ({"allowed": {**ANY_SCHEDULER, "topologySpreadConstraints": [{"whenUnsatisfiable": ["ScheduleAnyway"]}]}}, {"topologySpreadConstraints": [SOFT_SPREAD, SPREAD]}, "spec.topologySpreadConstraints[1]"),
        ({"allowed": {**ANY_SCHEDULER, "topologySpreadConstraints": [{"topologyKeys": ["zone"]}]}}, {"topologySpreadConstraints": [SOFT_SPREAD, SPREAD]}, ""),
        ({"allowed": {**ANY_SCHEDULER, "topologySpreadConstraints": [{"topologyKeys": ["host"]}]}}, {"topologySpreadConstraints": [SPREAD]}, "spec.topologySpreadConstraints[0]"),
        ({"allowed": ANY_SCHEDULER, "required": {"topologySpreadConstraints": [{"topologyKeys": ["zone"]}]}}, {}, "spec.topologySpreadConstraints: Required"),
        ({"allowed": ANY_SCHEDULER, "required": {"topologySpreadConstraints": [{"topologyKeys": ["zone"]}]}}, {"topologySpreadConstraints": [SPREAD]}, ""),
    ],
)  # fmt: skip
def test_runtime_classes_and_topology_spread_are_limited(
    spec: dict[str, Any], asked: dict[str, Any], path: str
) -> None:
    found = refusal(world(spec), pod(asked))
    assert path in found if path else not found


def test_runtime_class_and_topology_spread_are_injected_where_a_pod_has_none() -> None:
    spec = {"allowed": ANY_SCHEDULER, "default": {"runtimeClassName": "gvisor", "topologySpreadConstraints": [SPREAD]}}
    _, plain = admit(world(spec), pod())
    assert (plain["spec"]["runtimeClassName"], plain["spec"]["topologySpreadConstraints"]) == ("gvisor", [SPREAD])
    own = {
        "allowed": {**ANY_SCHEDULER, "topologySpreadConstraints": [], "runtimeClassNames": []},
        "default": spec["default"],
    }
    _, kept = admit(world(own), pod({"runtimeClassName": "runc", "topologySpreadConstraints": [SOFT_SPREAD]}))
    assert (kept["spec"]["runtimeClassName"], kept["spec"]["topologySpreadConstraints"]) == ("runc", [SOFT_SPREAD])


def test_lists_of_runtime_classes_and_topology_spread_merge_as_others_do() -> None:
    narrow = {
        "allowed": {
            **ANY_SCHEDULER,
            "runtimeClassNames": ["a"],
            "topologySpreadConstraints": [{"topologyKeys": ["host"]}],
        }
    }
    wide = {"allowed": {"runtimeClassNames": ["b"], "topologySpreadConstraints": []}}
    asking = pod({"runtimeClassName": "b", "topologySpreadConstraints": [SPREAD]})
    for strategy, refused in (("deep", False), ("first", True), ("simple", True)):
        settings = SchedulingPolicySettings(mode="enforce", merge_strategy=strategy)  # type: ignore[arg-type]
        assert bool(refusal(world(narrow, wide), asking, settings)) == refused
