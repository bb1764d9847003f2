"""Scheduling policies on a real API server, set up as the documentation says: the classic ways round them do not work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from tests.apiserver.running import Answer
from tests.kubernetes.cluster import ADMIN, SCHEDULER, Cluster

Document = dict[str, Any]

PODS = "/api/v1/namespaces/shop/pods"
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
RBAC = "rbac.authorization.k8s.io"
TOLERATION = {"key": "x", "operator": "Exists"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
DISK = {"key": "disk", "operator": "Exists"}
PATCHES = {
    "application/merge-patch+json": lambda spec: {"spec": spec},
    "application/strategic-merge-patch+json": lambda spec: {"spec": spec},
    "application/json-patch+json": lambda spec: [
        {"op": "add", "path": f"/spec/{name}", "value": value} for name, value in spec.items()
    ],
}


def terms(*listed: list[Document]) -> Document:
    return {"nodeAffinity": {HARD: {"nodeSelectorTerms": [{"matchExpressions": each} for each in listed]}}}


def pod(name: str, spec: Document | None = None, **metadata: Any) -> Document:
    container = {"name": "c", "image": "example.com/x", "resources": {"requests": {"cpu": "1m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container], **(spec or {})},
    }


def use(name: str, *policies: str) -> list[Document]:
    """Lets the pods of the account with this name use policies, in the namespace `shop` only."""
    rule = {"apiGroups": ["extensions"], "resources": ["schedulingpolicies"], "verbs": ["use"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": f"use-{name}", "namespace": "shop"}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "shop"}},
        {**role, "rules": [{**rule, "resourceNames": list(policies)}]},
        {
            **role,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": f"use-{name}"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "shop"}],
        },
    ]


def policy(name: str, spec: Document) -> Document:
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def tree(*keys: str) -> Document:
    patterns = [{"keys": [key]} for key in keys]
    return {"nodeAffinities": {HARD: {"nodeSelectorTerms": [{"matchExpressions": patterns}]}}}


@pytest.fixture(scope="module")
def policed(fresh_cluster: Cluster) -> Iterator[Cluster]:
    cluster = fresh_cluster
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=cluster.run_wharf("crds", "schedulingpolicy"))
    webhook = cluster.wharf("webhook", "--enforce", "--url", f"https://{cluster.webhook}", "--bind", cluster.webhook)
    for name in ("shop", "other"):
        cluster.kubectl("create", "namespace", name)
    zones = {
        "required": {"affinities": tree("zone")},
        "allowed": {"affinities": tree("zone", "disk"), "schedulerNames": []},
    }
    defaults = {
        "default": {"schedulerName": "my-scheduler", "priorityClasseName": "gold", "nodeSelector": {"arch": "amd64"}}
    }
    tenant = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "tenant"}}
    everything = {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["*"]}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 1000},
        policy("zones", zones),
        policy("defaults", defaults),
        *use("zoned", "zones"),
        *use("defaulted", "defaults"),
        *use("privileged", "privileged"),
        {**tenant, "rules": [everything]},
        {
            **tenant,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "tenant"},
            "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "ann"}],
        },
    )
    accounts = "/api/v1/namespaces/{}/serviceaccounts/default"
    for name in ("shop", "other"):
        cluster.until(lambda name=name: cluster.api().ask("GET", accounts.format(name)).status == 200, "an account")

    def judged() -> bool:
        """Both phases: what is asked for is refused, and a default is there."""
        refused = ask(cluster, "POST", f"{PODS}?dryRun=All", pod("probe", {"nodeName": "n1"}))
        made = ask(cluster, "POST", f"{PODS}?dryRun=All", pod("probe", {"serviceAccountName": "defaulted"}))
        return refused.status == 403 and made.status == 201 and made.json["spec"]["schedulerName"] == "my-scheduler"

    cluster.until(judged, "pods are judged")
    yield cluster
    cluster.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "wharfinger", check=False)
    cluster.end(webhook)


def ask(
    cluster: Cluster, method: str, path: str, body: Any = None, *, user: str = "ann", media: str = "", group: str = ""
) -> Answer:
    """A request of this user, who is the administrator's guise."""
    headers = {} if user == ADMIN else {"Impersonate-User": user}
    if group:
        headers["Impersonate-Group"] = group
    return cluster.api().ask(method, path, body, headers, media=media)


def refused(answer: Answer, words: str) -> None:
    assert answer.status == 403, answer.data
    assert 'admission webhook "admission.wharfinger.dev" denied the request' in answer.message
    assert words in answer.message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodeName": "n1"}, "spec.nodeName"),
        ({"tolerations": [{"operator": "Exists"}]}, "spec.tolerations[0]"),
        ({"tolerations": [TOLERATION]}, "spec.tolerations[0]"),
        ({"schedulerName": "mine"}, "spec.schedulerName"),
        ({"priorityClassName": "system-node-critical"}, "spec.priorityClassName"),
        ({"nodeSelector": {"zone": "a"}}, "spec.nodeSelector[zone]"),
        ({"affinity": terms([ZONE])}, "spec.affinity.nodeAffinity"),
        ({"affinity": {"podAntiAffinity": {HARD: [{"topologyKey": "zone"}]}}}, "spec.affinity.podAntiAffinity"),
        ({"serviceAccountName": "zoned", "affinity": terms([ZONE], [DISK])}, "nodeSelectorTerms[1].matchExpressions"),
    ],
)
def test_a_pod_does_not_get_what_it_may_not_ask_for(policed: Cluster, spec: Document, words: str) -> None:
    generated = {**pod("", spec), "metadata": {"generateName": "web-"}}
    refused(ask(policed, "POST", PODS, pod("web", spec)), words)
    refused(ask(policed, "POST", f"{PODS}?dryRun=All", generated), words)
    refused(ask(policed, "POST", PODS, generated, user=ADMIN), words)
    applied = f"{PODS}/web?fieldManager=ann"
    refused(ask(policed, "PATCH", applied, pod("web", spec), media="application/apply-patch+yaml"), words)


def test_owners_and_annotations_can_be_forged_and_prove_nothing(policed: Cluster) -> None:
    tolerating = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]}  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    refused(ask(policed, "POST", PODS, pod("forged", tolerating, ownerReferences=[owner])), "spec.tolerations[0]")
    mirror = {"kubernetes.io/config.mirror": "x"}
    refused(ask(policed, "POST", PODS, pod("forged", {"nodeName": "n1"}, annotations=mirror)), "spec.nodeName")
    as_node = ask(policed, "POST", PODS, pod("forged", {"nodeName": "n1"}, annotations=mirror), group="system:nodes")
    refused(as_node, "spec.nodeName")


def test_nothing_is_added_later(policed: Cluster) -> None:
    assert ask(policed, "POST", PODS, pod("later")).status == 201
    gates = {"schedulingGates": [{"name": "example.com/wait"}]}
    assert ask(policed, "POST", PODS, pod("gated", gates)).status == 201
    before = policed.get(f"{PODS}/later")
    more = [*before["spec"]["tolerations"], TOLERATION]
    for media, made in PATCHES.items():
        refused(ask(policed, "PATCH", f"{PODS}/later", made({"tolerations": more}), media=media), "spec.tolerations[2]")
        for spec, words in (
            ({"nodeSelector": {"zone": "a"}}, "spec.nodeSelector[zone]"),
            ({"affinity": terms([ZONE])}, "spec.affinity.nodeAffinity"),
        ):
            refused(ask(policed, "PATCH", f"{PODS}/gated", made(spec), media=media), words)
    changed = deepcopy(before)
    changed["spec"]["tolerations"] = more
    refused(ask(policed, "PUT", f"{PODS}/later", changed), "spec.tolerations[2]")
    # What has no scheduling fields is not judged, and cannot bring any.
    changed["spec"] |= {"nodeName": "n1", "ephemeralContainers": [{"name": "e", "image": "example.com/x"}]}
    for subresource in ("status", "ephemeralcontainers"):
        assert ask(policed, "PUT", f"{PODS}/later/{subresource}", changed).status == 200
    after = policed.get(f"{PODS}/later")["spec"]
    assert after["tolerations"] == before["spec"]["tolerations"] and "nodeName" not in after
    assert len(after["ephemeralContainers"]) == 1
    label = {"metadata": {"labels": {"a": "b"}}}
    assert ask(policed, "PATCH", f"{PODS}/later", label, media="application/merge-patch+json").status == 200


@pytest.mark.parametrize(
    "allowed",
    [
        {"nodeSelectors": {"disk": None}},
        {"affinities": {"nodeAffinities": None}},
        {"affinities": {"podAffinities": {HARD: None}}},
        {"affinities": {"nodeAffinities": {HARD: {"nodeSelectorTerms": None}}}},
        {"affinities": {"nodeAffinities": {HARD: {"nodeSelectorTerms": [{"matchExpressions": None}]}}}},
    ],
)
def test_a_null_that_would_leave_an_empty_object_is_refused(policed: Cluster, allowed: Document) -> None:
    path = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/schedulingpolicies"
    answer = ask(policed, "POST", path, policy("nulls", {"allowed": allowed}), user=ADMIN)
    assert answer.status == 422, answer.data
    assert "spec.allowed" in answer.message
    written = json.dumps(policy("nulls", {"allowed": allowed}))  # kubectl drops nulls by itself when it applies
    assert "spec.allowed" in policed.kubectl("apply", "-f", "-", stdin=written, check=False)


@pytest.mark.parametrize("path", [f"{PODS}/bound/binding", "/api/v1/namespaces/shop/bindings"])
def test_only_schedulers_bind_pods(policed: Cluster, path: str) -> None:
    ask(policed, "POST", PODS, pod("bound"))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}}  # fmt: skip
    for user in ("ann", ADMIN):
        refused(ask(policed, "POST", path, binding, user=user), "only schedulers may bind pods")
    assert ask(policed, "POST", f"{path}?dryRun=All", binding, user=SCHEDULER).status == 201


def test_defaults_are_written_and_the_priority_with_them(policed: Cluster) -> None:
    made = ask(policed, "POST", PODS, pod("defaults", {"serviceAccountName": "defaulted"}))
    assert made.status == 201, made.data
    spec = made.json["spec"]
    assert (spec["schedulerName"], spec["priorityClassName"], spec["priority"]) == ("my-scheduler", "gold", 1000)
    assert spec["nodeSelector"] == {"arch": "amd64"}


def test_grants_hold_in_their_namespace_for_the_account_of_the_pod(policed: Cluster) -> None:
    tolerating = {"serviceAccountName": "privileged", "nodeName": "n1", "tolerations": [TOLERATION]}
    assert ask(policed, "POST", f"{PODS}?dryRun=All", pod("web", tolerating)).status == 201
    other = PODS.replace("shop", "other")
    policed.kubectl("create", "serviceaccount", "privileged", "-n", "other")
    refused(ask(policed, "POST", other, pod("web", tolerating)), "spec.nodeName")


def test_templates_are_warned_of_and_their_pods_refused(policed: Cluster) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**pod("")["spec"], "tolerations": [TOLERATION]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    document = {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    made = ask(policed, "POST", "/apis/apps/v1/namespaces/shop/deployments", document)
    assert made.status == 201
    assert "scheduling policy: spec.template.spec.tolerations[0]" in made.warnings[0]
    sets = "/apis/apps/v1/namespaces/shop/replicasets"

    def told() -> bool:
        conditions = [each for one in policed.items(sets) for each in one["status"].get("conditions", ())]
        return any("spec.tolerations[0]" in each["message"] for each in conditions)

    policed.until(told, "the ReplicaSet says why it has no pods")


def test_the_command_knows_the_settings_of_the_cluster(policed: Cluster) -> None:
    file = policed.folder / "asked.json"
    file.write_text(json.dumps(pod("web", {"nodeName": "n1"}, namespace="shop")))
    told = policed.run_wharf("policy", "check", "-f", str(file), cluster=True, check=False)
    assert told.startswith("Pod shop/web: refused\n") and "spec.nodeName" in told
