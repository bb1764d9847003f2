"""What `wharf install` prints, as far as no cluster is needed to judge it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from wharfinger.admission.rbac_escalation import uncovered
from wharfinger.api.kinds import registry
from wharfinger.api.views import view
from wharfinger.api.views.rbac import ClusterRole
from wharfinger.cli.commands.install import command
from wharfinger.controllers.registry import factories
from wharfinger.install.components import UnknownComponent, chosen, components
from wharfinger.install.manifests import manifests
from wharfinger.install.options import InstallOptions
from wharfinger.system import ENABLED
from wharfinger.systems.scheduling_policy.rules import shipped


def printed(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(command, ["--offline", *arguments])
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.stdout))


def named(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {document["metadata"]["name"]: document for document in documents if document["kind"] == kind}


@pytest.mark.needs_system("placement", "resource_policy", "scheduling_policy")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["scheduler"], ["scheduler"]),
        (["resource-policy"], ["scheduler", "resource-policy"]),
        (["placement", "scheduling-policy"], ["placement", "scheduling-policy"]),
        (["all"], list(components())),
    ],
)
def test_components_bring_what_they_need(asked: list[str], found: list[str]) -> None:
    assert [component.name for component in chosen(asked)] == found


@pytest.mark.needs_system("placement", "resource_policy")
def test_programs_leave_out_the_systems_that_are_not_installed() -> None:
    """They have no right to read the objects of those, which an earlier installation may have left."""
    for asked, systems in (("scheduler", ""), ("resource-policy", "resource_policy"), ("placement", "placement")):
        for name, document in named(printed("--components", f"{asked},dashboard"), "Deployment").items():
            (container,) = document["spec"]["template"]["spec"]["containers"]
            found = {each["name"]: each["value"] for each in container.get("env", ())}
            assert found == ({} if name == "wharfinger-dashboard" else {ENABLED: systems}), name


def test_an_unknown_component_is_refused_by_name() -> None:
    with pytest.raises(UnknownComponent, match='no component "scheduling"'):
        chosen(["scheduling"])


def test_components_name_kinds_and_controllers_that_there_are() -> None:
    for component in components().values():
        for group, plural in component.kinds:
            kind = registry().of_plural(group, plural)
            assert kind is not None and kind.ours, f"{component.name}: {plural}.{group}"
        assert set(component.controllers) <= factories().keys(), component.name


def test_every_kind_of_ours_belongs_to_a_component() -> None:
    covered = {kind for component in components().values() for kind in component.kinds}
    assert {(kind.group, kind.plural) for kind in registry() if kind.ours} <= covered


def test_only_what_is_asked_for_is_printed() -> None:
    documents = printed("--components", "scheduler")
    assert named(documents, "Deployment").keys() == {"wharfinger-scheduler"}
    assert not named(documents, "CustomResourceDefinition")
    assert not named(documents, "MutatingWebhookConfiguration")


@pytest.mark.needs_system("scheduling_policy")
@pytest.mark.parametrize(("arguments", "mode"), [((), "warn"), (("--enforce",), "enforce")])
def test_policies_warn_until_the_administrator_says_otherwise(arguments: tuple[str, ...], mode: str) -> None:
    documents = printed("--components", "all", *arguments)
    config = yaml.safe_load(named(documents, "ConfigMap")["wharfinger-config"]["data"]["config.yaml"])
    assert config["schedulingPolicy"]["mode"] == mode
    # The scheduler may bind pods while policies are enforced.
    assert config["schedulingPolicy"]["schedulerIdentities"] == [
        "system:serviceaccount:wharfinger-system:wharfinger-scheduler"
    ]


@pytest.mark.needs_system("reservation", "scheduling_policy")
def test_a_configuration_is_built_upon_and_restarts_what_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("reservation: {chargeQuota: true}\nschedulingPolicy: {mode: audit, schedulerIdentities: [other]}\n")
    plain, given = printed("--components", "all"), printed("--components", "all", "--config", str(file))
    config = yaml.safe_load(named(given, "ConfigMap")["wharfinger-config"]["data"]["config.yaml"])
    assert (config["kind"], config["reservation"]) == ("WharfingerConfiguration", {"chargeQuota": True})
    assert config["schedulingPolicy"]["mode"] == "audit"
    assert config["schedulingPolicy"]["schedulerIdentities"] == [
        "other",
        "system:serviceaccount:wharfinger-system:wharfinger-scheduler",
    ]
    for name, deployment in named(plain, "Deployment").items():
        template = deployment["spec"]["template"]["metadata"]
        assert template != named(given, "Deployment")[name]["spec"]["template"]["metadata"]


@pytest.mark.needs_system("scheduling_policy")
def test_roles_that_an_administrator_took_over_are_left_out() -> None:
    options = InstallOptions(chosen(["all"]), taken_over=frozenset({("ClusterRole", "sp:restricted")}))
    names = {(each["kind"], each["metadata"]["name"]) for each in manifests(options, registry())}
    assert ("ClusterRole", "sp:restricted") not in names
    assert {("ClusterRole", "sp:privileged"), ("ClusterRoleBinding", "sp:restricted")} <= names


def test_rights_are_named_one_by_one() -> None:
    for name, role in named(printed("--components", "all"), "ClusterRole").items():
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], name


@pytest.mark.needs_system("scheduling_policy")
def test_controllers_hold_what_the_shipped_roles_grant() -> None:
    """An API server lets nobody write a role with rights that he does not hold, and they restore these."""
    roles = named(printed("--components", "all"), "ClusterRole")
    held = view(roles["system:wharfinger:controllers"], ClusterRole).rules
    for role in shipped.roles():
        assert not uncovered(held, view(role, ClusterRole).rules), role["metadata"]["name"]


@pytest.mark.needs_system("reservation", "placement")
def test_definitions_of_others_are_left_out() -> None:
    foreign = frozenset({"reservations.scheduling.koordinator.sh"})
    documents = manifests(InstallOptions(chosen(["reservation"]), foreign=foreign), registry())
    assert "reservations.scheduling.koordinator.sh" not in named(documents, "CustomResourceDefinition")
    assert "podmigrationjobs.scheduling.koordinator.sh" in named(documents, "CustomResourceDefinition")


def test_pods_meet_the_restricted_standard_and_the_namespace_demands_it() -> None:
    documents = printed("--components", "all")
    labels = named(documents, "Namespace")["wharfinger-system"]["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {"restricted"}
    for name, deployment in named(documents, "Deployment").items():
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"], name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {kind for volume in spec["volumes"] for kind in volume} <= {"name", "configMap", "emptyDir", "secret"}


def test_every_program_is_guarded_in_the_same_way() -> None:
    documents = printed("--components", "all")
    deployments = named(documents, "Deployment")
    policies, budgets = named(documents, "NetworkPolicy"), named(documents, "PodDisruptionBudget")
    assert deployments.keys() == policies.keys() == budgets.keys()
    for name, deployment in deployments.items():
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(), name
        assert "memory" in container["resources"]["limits"], name
        (zones,) = spec["topologySpreadConstraints"]
        assert zones["topologyKey"] == "topology.kubernetes.io/zone"
        assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0, name
        assert budgets[name]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        # Only the port that it serves is open, and all selectors mean the same pods.
        (port,), ((rule,),) = container["ports"], (policies[name]["spec"]["ingress"],)
        assert rule == {"ports": [{"port": port["containerPort"], "protocol": "TCP"}]}
        pods = deployment["spec"]["selector"]["matchLabels"]
        assert policies[name]["spec"]["podSelector"] == {"matchLabels": pods} == budgets[name]["spec"]["selector"]
        assert "--metrics-tls" in container["args"] or port["name"] != "metrics", name
        # The TLS library gets keys in files.
        (temporary,) = (volume["emptyDir"] for volume in spec["volumes"] if volume["name"] == "tmp")
        assert temporary.get("medium") == "Memory" or port["name"] == "http", name


@pytest.mark.needs_system("scheduling_policy")
def test_secrets_are_for_the_webhook_only_and_for_nobody_with_cert_manager() -> None:
    def holders(*arguments: str) -> list[str]:
        documents = printed("--components", "all", *arguments)
        roles = [*named(documents, "Role").values(), *named(documents, "ClusterRole").values()]
        return [
            role["metadata"]["name"] for role in roles if any("secrets" in rule["resources"] for rule in role["rules"])
        ]

    assert holders() == ["wharfinger-webhook"]
    assert holders("--cert-manager-issuer", "ca") == []


@pytest.mark.needs_system("scheduling_policy")
@pytest.mark.parametrize(("given", "kind"), [("ca", "ClusterIssuer"), ("Issuer/ca", "Issuer")])
def test_cert_manager_issues_what_the_webhook_serves_with(given: str, kind: str) -> None:
    documents = printed("--components", "scheduling-policy", "--cert-manager-issuer", given)
    certificate = named(documents, "Certificate")["wharfinger-webhook"]["spec"]
    assert certificate["issuerRef"] == {"group": "cert-manager.io", "kind": kind, "name": "ca"}
    assert certificate["dnsNames"][0] == "wharfinger-webhook.wharfinger-system.svc"
    spec = named(documents, "Deployment")["wharfinger-webhook"]["spec"]["template"]["spec"]
    mounted = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    assert secrets == {"tls": certificate["secretName"]}
    arguments = spec["containers"][0]["args"]
    assert arguments[arguments.index("--cert-file") + 1] == f"{mounted['tls']}/tls.crt"
    assert "--secret" not in arguments


def test_pods_run_on_chosen_nodes_with_chosen_memory() -> None:
    documents = printed("--components", "scheduler", "--pod-node-selector", "role=control", "--memory", "scheduler=4Gi")
    spec = named(documents, "Deployment")["wharfinger-scheduler"]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"role": "control"}
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "4Gi"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--memory", "scheduler"), "scheduler is not NAME=VALUE"),
        (("--memory", "schedule=1Gi"), 'there is no program "schedule"'),
        (("--memory", "scheduler=much"), "--memory"),
        (("--pod-node-selector", "=x"), "=x is not NAME=VALUE"),
        (("--cert-manager-issuer", "Secret/ca"), "Secret/ca is not ClusterIssuer/NAME or Issuer/NAME"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(command, ["--offline", "--components", "scheduler", *arguments])
    assert done.exit_code == 2 and said in done.stderr and not done.stdout


def test_a_namespace_that_every_cluster_has_is_not_ours() -> None:
    assert not named(printed("--components", "scheduler", "--namespace", "kube-system"), "Namespace")


def test_dashboards_for_grafana_need_no_program() -> None:
    documents = printed("--components", "dashboards")
    assert {document["kind"] for document in documents} == {"Namespace", "ConfigMap"}
