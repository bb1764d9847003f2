"""`wharf install` on a cluster that is in use: accepted, least privilege that suffices, upgraded over, and taken out again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.running import Api
from tests.kubernetes.cluster import OURS, Cluster, Process, free_port
from tests.kubernetes.manifests import condition, namespace, pod

POLICY = {
    "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
    "kind": "ResourcePolicy",
    "metadata": {"name": "kept", "namespace": "default"},
    "spec": {"units": [{"name": "a", "priority": 1, "nodeSelector": {"matchLabels": {"pool": "a"}}}]},
}
PARTS = ("scheduler", "controllers", "placement", "webhook", "dashboard")
ONLY_A_NAME = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def definition(group: str, plural: str, kind: str, version: str, scope: str = "Cluster") -> dict[str, Any]:
    """Someone else's definition of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": ONLY_A_NAME}],
        },
    }


def controller(name: str, space: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "manager", "image": f"example.org/koordinator/{name}:v1.6"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "anything", "namespace": space},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def install(cluster: Cluster, components: str, *options: str) -> str:
    return cluster.run_wharf("install", "--components", components, *options, cluster=True)


def apply(cluster: Cluster, manifests: str) -> str:
    return cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)


@pytest.fixture(scope="module")
def installed(fresh_cluster: Cluster) -> Cluster:
    """An older installation of one component with a user's object, over which everything was installed."""
    apply(fresh_cluster, install(fresh_cluster, "resource-policy", "--image", "wharfinger:0.0.1"))
    fresh_cluster.until(lambda: fresh_cluster.kubectl("api-resources").count("resourcepolicies"), "the kind is served")
    fresh_cluster.apply(POLICY)
    apply(fresh_cluster, install(fresh_cluster, "all"))
    return fresh_cluster


def test_installing_over_an_older_installation_keeps_objects_of_users(installed: Cluster) -> None:
    found = installed.get("/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies/kept")
    assert found["spec"]["units"][0]["name"] == "a"
    images = installed.kubectl("get", "deployments", "-n", OURS, "-o", "jsonpath={..image}").split()
    assert len(images) == 5 and len(set(images)) == 1 and "wharfinger:0.0.1" not in images


def test_what_is_installed_is_complete(installed: Cluster) -> None:
    deployments = installed.items(f"/apis/apps/v1/namespaces/{OURS}/deployments")
    budgets = installed.items(f"/apis/policy/v1/namespaces/{OURS}/poddisruptionbudgets")
    names = {item["metadata"]["name"] for item in deployments}
    assert names == {f"wharfinger-{part}" for part in PARTS}
    assert {item["metadata"]["name"] for item in budgets} == names
    for item in deployments:
        spec = item["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == item["metadata"]["name"]
        assert "podAntiAffinity" in spec["affinity"]
        assert {"livenessProbe", "readinessProbe"} <= spec["containers"][0].keys()
    schemas = installed.kubectl("get", "flowschemas", "-o", "name")
    assert "flowschema.flowcontrol.apiserver.k8s.io/wharfinger\n" in schemas
    # The API server marks a schema whose priority level does not exist.
    flow = installed.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/wharfinger")
    installed.until(
        lambda: (
            condition(installed.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/wharfinger"), "Dangling").get(
                "status"
            )
            == "False"
        ),
        f"the priority level of {flow['metadata']['name']} exists",
    )
    config = installed.get(f"/api/v1/namespaces/{OURS}/configmaps/wharfinger-config")["data"]["config.yaml"]
    assert "mode: warn" in config


def test_the_rights_that_are_installed_suffice(installed: Cluster) -> None:
    """Every program runs as its service account, with the arguments of its Deployment."""
    running: list[Process] = [installed.wharf("nodes", "--count", "2")]
    commands: dict[str, list[str]] = {}

    def start(name: str) -> None:
        account = installed.kubeconfig_of(OURS, name)
        running.append(installed.wharf(*commands[name], name=name, kubeconfig=account))

    def restart(name: str) -> None:
        (old,) = (process for process in running if process.name == name)
        running.remove(old)
        installed.end(old)
        start(name)

    deployments = installed.items(f"/apis/apps/v1/namespaces/{OURS}/deployments")
    config = installed.folder / "config.yaml"
    config.write_text(
        installed.get(f"/api/v1/namespaces/{OURS}/configmaps/wharfinger-config")["data"]["config.yaml"]
        + "reservation: {chargeQuota: true}\nresourceClass: {rewriteNames: true, overlay: true}\n"  # all there is to do
    )
    for item in deployments:
        (container,) = item["spec"]["template"]["spec"]["containers"]
        arguments = [str(config) if part.startswith("/etc/") else part for part in container["args"]]
        arguments = [str(free_port()) if part == "10290" else part for part in arguments]
        if arguments[0] == "webhook":
            port = free_port()
            arguments += ["--url", f"https://127.0.0.1:{port}", "--bind", f"127.0.0.1:{port}"]
        commands[item["metadata"]["name"]] = arguments
        start(item["metadata"]["name"])
    try:
        webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/wharfinger"
        installed.until(lambda: installed.get(webhooks).get("webhooks"), "the webhook has registered itself")
        installed.until(
            lambda: len(installed.items("/apis/scheduling.sigs.x-k8s.io/v1alpha1/schedulingpolicies")) >= 2,
            "the shipped policies are there",
        )
        installed.apply(namespace("tenant"), pod("bound", "tenant"))
        installed.until(
            lambda: installed.get("/api/v1/namespaces/tenant/pods/bound")["spec"].get("nodeName"), "a pod is bound"
        )
        installed.until(
            lambda: installed.items("/apis/cluster.open-cluster-management.io/v1beta2/managedclustersets"),
            "placement keeps its sets",
        )
        held = {item["metadata"]["name"]: item for item in installed.items("/apis/coordination.k8s.io/v1/leases")}
        for lease in ("wharfinger-scheduler", "wharfinger-controllers", "wharf-placement"):
            assert held[lease]["spec"]["holderIdentity"]
        time.sleep(3)  # time for whatever is asked for later, and refused
        for process in running:
            assert process.running, f"{process.name}:\n{process.tail()}"
            assert not process.forbidden(), process.name
            assert "Traceback" not in process.log.read_text(), f"{process.name}:\n{process.tail()}"
        for name in ("scheduler", "controllers", "placement", "webhook"):
            check_flows(installed, f"wharfinger-{name}")
        check_shipped_policies_are_restored(installed, lambda: restart("wharfinger-controllers"))
        # Applying again takes nothing away of what the webhook wrote, and conflicts with nothing.
        apply(installed, install(installed, "all"))
        assert installed.get(webhooks)["webhooks"]
    finally:
        for process in running:
            installed.end(process)
        # No webhook runs any more, and requests must not wait for one.
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            installed.kubectl("patch", kind, "wharfinger", "--type", "merge", "-p", '{"webhooks": []}')


def check_flows(cluster: Cluster, account: str) -> None:
    """The API server says by which schema it classed a request; ours are meant for every one of our programs."""
    api = Api(cluster.kubeconfig_of(OURS, account))
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/wharfinger-scheduler"
    for path, schema in (("/api/v1/namespaces", "wharfinger"), (lease, "wharfinger-leader-election")):
        uid = cluster.get(f"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}")["metadata"]["uid"]
        cluster.until(
            lambda path=path, uid=uid: api.ask("GET", path).headers.get("x-kubernetes-pf-flowschema-uid") == uid,
            f"requests of {account} for {path} flow by {schema}",
        )


def check_shipped_policies_are_restored(cluster: Cluster, restart: Callable[[], None]) -> None:
    """At the next start, unless an administrator keeps one as it is."""
    policies = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/schedulingpolicies"
    annotation = "rbac.authorization.kubernetes.io/autoupdate"
    kept = "privileged"
    shipped = cluster.get(f"{policies}/restricted")["spec"]
    changed = '{"spec": {"allowed": {"schedulerNames": ["other"]}}}'
    for name in ("restricted", kept):
        cluster.kubectl("patch", "schedulingpolicy", name, "--type=merge", "-p", changed)
    cluster.kubectl("annotate", "--overwrite", "schedulingpolicy", kept, f"{annotation}=false")
    roles = "/apis/rbac.authorization.k8s.io/v1"
    rules = cluster.get(f"{roles}/clusterroles/sp:restricted")["rules"]
    cluster.kubectl("patch", "clusterrole", "sp:restricted", "--type=merge", "-p", '{"rules": []}')
    cluster.kubectl("delete", "clusterrolebinding", "sp:restricted")
    restart()
    cluster.until(
        lambda: cluster.get(f"{roles}/clusterroles/sp:restricted")["rules"] == rules, "the role is as shipped"
    )
    bound = f"{roles}/clusterrolebindings/sp:restricted"
    cluster.until(lambda: cluster.api().ask("GET", bound).status == 200, "the binding is back")
    cluster.until(lambda: cluster.get(f"{policies}/restricted")["spec"] == shipped, "what was changed is as shipped")
    assert cluster.get(f"{policies}/{kept}")["spec"]["allowed"]["schedulerNames"] == ["other"]


def test_roles_that_an_administrator_keeps_are_not_taken_back(installed: Cluster) -> None:
    annotation = "rbac.authorization.kubernetes.io/autoupdate"
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/sp:restricted"
    assert installed.get(path)["metadata"]["annotations"][annotation] == "true"
    installed.kubectl("annotate", "--overwrite", "clusterrole", "sp:restricted", f"{annotation}=false")
    installed.kubectl("patch", "clusterrole", "sp:restricted", "--type=merge", "-p", '{"rules": []}')
    apply(installed, install(installed, "all"))
    assert not installed.get(path)["rules"]


def test_controllers_of_others_are_named_and_the_component_refused(installed: Cluster) -> None:
    installed.apply(namespace("koordinator-system"), controller("koord-manager", "koordinator-system"))
    told = installed.run_wharf("install", "--components", "reservation", check=False, cluster=True)
    assert "Deployment koordinator-system/anything already controls the same kinds" in told
    assert "kind: Deployment" not in told
    assert "kind: Deployment" in install(installed, "scheduling-policy")  # nobody's rival
    installed.kubectl("delete", "namespace", "koordinator-system", "--wait=false")
    installed.kubectl("delete", "deployment", "anything", "-n", "koordinator-system", "--ignore-not-found")


def test_uninstalling_says_first_what_would_be_lost(installed: Cluster) -> None:
    told = installed.run_wharf("uninstall", check=False, cluster=True)
    assert "resourcepolicies.scheduling.sigs.x-k8s.io: 1 object would be lost: default/kept" in told
    assert "Nothing was done" in told
    assert installed.get("/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies/kept")
    installed.run_wharf("uninstall", "--keep-definitions", cluster=True)
    assert installed.get("/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies/kept")
    assert OURS not in json.dumps(installed.items("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"))


def test_uninstalling_leaves_definitions_of_others(fresh_cluster: Cluster) -> None:
    fresh_cluster.run_wharf("uninstall", "--yes", cluster=True)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    fresh_cluster.until(lambda: not fresh_cluster.items(crds), "our definitions are gone")
    theirs = definition("scheduling.koordinator.sh", "reservations", "Reservation", "v1alpha1")
    fresh_cluster.apply(theirs)
    printed = install(fresh_cluster, "reservation,resource-policy")
    assert "resourcepolicies.scheduling.sigs.x-k8s.io" in printed
    assert "name: reservations.scheduling.koordinator.sh" not in printed
    fresh_cluster.until(
        lambda: (
            not any(
                item["metadata"]["name"] == OURS and item["status"]["phase"] == "Terminating"
                for item in fresh_cluster.items("/api/v1/namespaces")
            )
        ),
        "the namespace is gone",
    )
    apply(fresh_cluster, printed)
    fresh_cluster.run_wharf("uninstall", "--yes", cluster=True)
    fresh_cluster.until(
        lambda: [item["metadata"]["name"] for item in fresh_cluster.items(crds)] == [theirs["metadata"]["name"]],
        "only the definition of others is left",
    )


def test_a_definition_of_others_without_our_version_is_refused(fresh_cluster: Cluster) -> None:
    fresh_cluster.apply(
        definition("cluster.open-cluster-management.io", "placements", "Placement", "v9", scope="Namespaced")
    )
    told = fresh_cluster.run_wharf("install", "--components", "placement", check=False, cluster=True)
    assert "placements.cluster.open-cluster-management.io does not serve v1beta1" in told
