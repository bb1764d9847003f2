"""The kubelet of a node as a user: client certificates, bootstrap tokens, the Node authorizer and NodeRestriction."""

from __future__ import annotations

import datetime
import ssl
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from tests.apiserver.running import Answer, Api, config_map, pod

from wharfinger.apiserver.bootstrap_tokens import new_token, token_secret
from wharfinger.apiserver.client_certificates import issue_client
from wharfinger.http.certificates import (
    authority_certificate,
    certificate_pem,
    client_certificate,
    key_pem,
    load_key,
    new_key,
)

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


class Certified(Api):
    """A client that authenticates with a certificate."""

    def __init__(self, api: Api, certificate: bytes, key: bytes, folder: Path) -> None:
        super().__init__(api.kubeconfig, token="")
        (folder / "c.crt").write_bytes(certificate)
        (folder / "c.key").write_bytes(key)
        self._context.load_cert_chain(folder / "c.crt", folder / "c.key")


def pki(api: Api) -> Path:
    return api.kubeconfig.parent / "pki"


def kubelet(api: Api, node: str, folder: Path) -> Certified:
    issued = issue_client(pki(api), f"system:node:{node}", ("system:nodes",))
    return Certified(api, issued.certificate, issued.key, folder)


@pytest.fixture
def node(api: Api, namespace: str) -> str:
    """A node that is in use in the test only."""
    return str(api.create("/api/v1/nodes", {"metadata": {"name": f"n-{namespace}"}})["metadata"]["name"])


@pytest.fixture
def own(api: Api, node: str, tmp_path: Path) -> Certified:
    return kubelet(api, node, tmp_path)


def forbidden(answer: Answer) -> str:
    """The reason after the standard words of a refusal."""
    assert answer.status == 403, answer.data
    return answer.message.rpartition(" is forbidden: ")[2]


# Authentication


def test_a_client_certificate_names_the_user(api: Api, own: Certified, node: str) -> None:
    info = own.create(REVIEW, {})["status"]["userInfo"]
    assert info["username"] == f"system:node:{node}"
    assert info["groups"] == ["system:nodes", "system:authenticated"]
    (credential,) = info["extra"]["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=") and len(credential) == len("X509SHA256=") + 64


def _foreign() -> tuple[bytes, bytes]:
    key, now = new_key(), datetime.datetime.now(datetime.UTC)
    authority = authority_certificate(key, "wharfinger-ca", now, datetime.timedelta(days=1))
    own = new_key()
    made = client_certificate(
        own.public_key(), "system:admin", ("system:masters",), now, datetime.timedelta(days=1), authority=authority, authority_key=key
    )  # fmt: skip
    return certificate_pem(made), key_pem(own)


def _expired(api: Api) -> tuple[bytes, bytes]:
    authority = x509.load_pem_x509_certificate((pki(api) / "ca.crt").read_bytes())
    own, past = new_key(), datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    made = client_certificate(
        own.public_key(), "system:admin", ("system:masters",), past, datetime.timedelta(days=1),
        authority=authority, authority_key=load_key((pki(api) / "ca.key").read_bytes()),
    )  # fmt: skip
    return certificate_pem(made), key_pem(own)


@pytest.mark.parametrize("kind", ["foreign", "expired", "of a server"])
def test_other_certificates_are_refused(api: Api, tmp_path: Path, kind: str) -> None:
    if kind == "of a server":
        made = (pki(api) / "server.crt").read_bytes(), (pki(api) / "server.key").read_bytes()
    else:
        made = _foreign() if kind == "foreign" else _expired(api)
    client = Certified(api, *made, tmp_path)
    with pytest.raises((ssl.SSLError, ConnectionError, OSError)):
        client.ask("GET", "/api")


def test_a_bootstrap_token_is_valid_until_it_expires(api: Api) -> None:
    token, late = new_token(), new_token()
    secrets = "/api/v1/namespaces/kube-system/secrets"
    api.create(secrets, token_secret(token, time.time() + 60, "test"))
    api.create(secrets, token_secret(late, time.time() - 1, "test"))
    info = Api(api.kubeconfig, token).create(REVIEW, {})["status"]["userInfo"]
    assert info["username"] == f"system:bootstrap:{token[:6]}"
    assert info["groups"] == ["system:bootstrappers", "system:authenticated"]
    for wrong in (late, f"{token[:6]}.{'a' * 16}", f"{'a' * 6}.{token[7:]}"):
        assert Api(api.kubeconfig, wrong).ask("GET", "/api").status == 401
    assert Api(api.kubeconfig, token).ask("GET", "/api/v1/nodes").status == 403
    name = f"bootstrap-token-{token[:6]}"
    group = b64encode(b"system:masters").decode()
    api.ask("PATCH", f"{secrets}/{name}", {"data": {"auth-extra-groups": group}}, media="application/merge-patch+json")
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 401  # no groups but those of bootstrappers
    api.ask("DELETE", f"{secrets}/{name}")
    assert Api(api.kubeconfig, token).ask("GET", "/api").status == 401


# Authorization


def test_a_node_reads_what_its_pods_refer_to(api: Api, own: Certified, node: str, namespace: str, base: str) -> None:
    for name in ("mine", "other"):
        api.create(f"{base}/configmaps", config_map(name))
        api.create(f"{base}/secrets", {"metadata": {"name": name}})
    unrelated = f"no relationship found between node '{node}' and this object"
    for plural in ("configmaps", "secrets"):
        assert forbidden(own.ask("GET", f"{base}/{plural}/mine")) == (
            f'User "system:node:{node}" cannot get resource "{plural}" in API group "" in the namespace '
            f'"{namespace}": {unrelated}'
        )
    variables = [{"configMapRef": {"name": "mine"}}, {"secretRef": {"name": "mine"}}]
    containers = [{"name": "c", "image": "i", "envFrom": variables}]
    api.create(f"{base}/pods", pod("p", nodeName=node, containers=containers))
    for plural in ("configmaps", "secrets"):
        assert own.ask("GET", f"{base}/{plural}/mine").status == 200
        selector = "fieldSelector=metadata.name%3Dmine"
        assert own.ask("GET", f"{base}/{plural}?{selector}").status == 200
        assert forbidden(own.ask("GET", f"{base}/{plural}/other")).endswith(unrelated)
        assert forbidden(own.ask("GET", f"{base}/{plural}")).endswith("No Object name found")
        assert forbidden(own.ask("DELETE", f"{base}/{plural}/mine")).endswith("can only read resources of this type")
    assert own.ask("GET", f"{base}/pods/p").status == 200
    api.ask("DELETE", f"{base}/pods/p?gracePeriodSeconds=0")
    assert forbidden(own.ask("GET", f"{base}/secrets/mine")).endswith(unrelated)


def test_a_node_lists_only_its_own_pods(api: Api, own: Certified, node: str, base: str) -> None:
    api.create(f"{base}/pods", pod("p", nodeName=node))
    api.create(f"{base}/pods", pod("q"))
    listed = own.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")["items"]
    assert [item["metadata"]["name"] for item in listed] == ["p"]
    why = "can only list/watch pods with spec.nodeName field selector"
    for query in ("", "?fieldSelector=spec.nodeName%3Dother", f"?fieldSelector=spec.nodeName!%3D{node}"):
        assert forbidden(own.ask("GET", f"/api/v1/pods{query}")).endswith(why)
    assert forbidden(own.ask("GET", f"{base}/pods/q")).endswith("and this object")
    assert own.ask("GET", f"/api/v1/nodes/{node}").status == 200
    assert forbidden(own.ask("GET", "/api/v1/nodes")).endswith("cannot read all nodes, only its own Node object")
    assert forbidden(own.ask("GET", "/api/v1/nodes/x")).endswith("cannot read 'x', only its own Node object")


def test_a_node_reads_volumes_of_its_pods(api: Api, own: Certified, node: str, namespace: str, base: str) -> None:
    name = f"v-{namespace}"
    volume = {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": namespace, "name": "c"},
            "csi": {
                "driver": "d",
                "volumeHandle": "h",
                "nodePublishSecretRef": {"name": "published", "namespace": namespace},
                "controllerPublishSecretRef": {"name": "controlled", "namespace": namespace},
            },
        },
    }
    api.create("/api/v1/persistentvolumes", volume)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    api.create(f"{base}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim})
    for secret in ("published", "controlled"):
        api.create(f"{base}/secrets", {"metadata": {"name": secret}})
    paths = [f"{base}/persistentvolumeclaims/c", f"/api/v1/persistentvolumes/{name}", f"{base}/secrets/published"]
    assert [own.ask("GET", path).status for path in paths] == [403, 403, 403]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    api.create(f"{base}/pods", pod("p", nodeName=node, volumes=volumes))
    assert [own.ask("GET", path).status for path in paths] == [200, 200, 200]
    assert own.ask("GET", f"{base}/secrets/controlled").status == 403  # for the controller only
    assert own.ask("PATCH", paths[0], {"metadata": {"labels": {"a": "b"}}}, media="application/merge-patch+json").status == 403  # fmt: skip


def test_a_node_has_one_lease(api: Api, own: Certified, node: str) -> None:
    lease = {"metadata": {"name": node}, "spec": {"holderIdentity": node}}
    assert own.ask("POST", f"{LEASES}/kube-node-lease/leases", lease).status == 201
    assert own.ask("GET", f"{LEASES}/kube-node-lease/leases/{node}").status == 200
    same = "can only access node lease with the same name as the requesting node"
    assert forbidden(own.ask("GET", f"{LEASES}/kube-node-lease/leases/x")).endswith(same)
    other = {"metadata": {"name": "x"}, "spec": {"holderIdentity": "x"}}
    assert forbidden(own.ask("POST", f"{LEASES}/kube-node-lease/leases", other)) == same
    assert forbidden(own.ask("POST", f"{LEASES}/default/leases", lease)).endswith(
        'can only access leases in the "kube-node-lease" system namespace'
    )


def test_access_reviews_know_the_node_authorizer(api: Api, node: str) -> None:
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    asked: dict[str, Any] = {"verb": "list", "resource": "pods"}
    spec = {"user": f"system:node:{node}", "groups": ["system:nodes"], "resourceAttributes": asked}
    status = api.create(path, {"spec": spec})["status"]
    assert status == {"allowed": False, "reason": "can only list/watch pods with spec.nodeName field selector"}
    asked["fieldSelector"] = {"rawSelector": f"spec.nodeName={node}"}
    assert api.create(path, {"spec": spec})["status"]["allowed"]
    one = {"key": "spec.nodeName", "operator": "In", "values": [node]}
    asked["fieldSelector"] = {"requirements": [one]}
    assert api.create(path, {"spec": spec})["status"]["allowed"]
    assert not api.create(path, {"spec": {**spec, "groups": ["other"]}})["status"]["allowed"]


def test_the_rules_of_a_node_cannot_be_listed(own: Certified) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = own.create(path, {"spec": {"namespace": "default"}})["status"]
    assert status["incomplete"] is True
    assert status["evaluationError"] == "node authorizer does not support user rule resolution"


# Admission


def test_a_node_writes_only_itself(api: Api, own: Certified, node: str, namespace: str) -> None:
    merge = "application/merge-patch+json"

    def patched(name: str, body: dict[str, Any]) -> Answer:
        return own.ask("PATCH", f"/api/v1/nodes/{name}", body, media=merge)

    other = api.create("/api/v1/nodes", {"metadata": {"name": f"o-{namespace}"}})["metadata"]["name"]
    why = f'node "{node}" is not allowed to modify node "{other}"'
    assert forbidden(patched(other, {"metadata": {"labels": {"a": "b"}}})) == why
    assert patched(node, {"metadata": {"labels": {"a": "b", "node.kubernetes.io/pool": "x"}}}).status == 200
    for label in ("node-restriction.kubernetes.io/x", "x.node-restriction.kubernetes.io/y", "kubernetes.io/role"):
        answer = patched(node, {"metadata": {"labels": {label: "v"}}})
        assert forbidden(answer) == f"is not allowed to modify labels: {label}"
    taint = {"key": "k", "effect": "NoSchedule"}
    assert forbidden(patched(node, {"spec": {"taints": [taint]}})) == f'node "{node}" is not allowed to modify taints'
    assert own.ask("DELETE", f"/api/v1/nodes/{node}").status == 403
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert own.ask("PATCH", f"/api/v1/nodes/{node}/status", status, media=merge).status == 200


def test_a_node_registers_itself_and_is_not_simulated(api: Api, namespace: str, tmp_path: Path) -> None:
    name = f"new-{namespace}"
    own = kubelet(api, name, tmp_path)
    bad = {"metadata": {"name": name, "labels": {"kubernetes.io/role": "x"}}}
    assert forbidden(own.ask("POST", "/api/v1/nodes", bad)) == (
        f'node "{name}" is not allowed to set the following labels: kubernetes.io/role'
    )
    made = own.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    assert made["metadata"]["annotations"] == {"wharfinger.dev/simulated": "false"}
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    by_agent = {"metadata": {"name": f"agent-{namespace}"}}
    answer = api.ask("POST", "/api/v1/nodes", by_agent, {"User-Agent": "kubelet/v1.37.1 (linux/amd64)"})
    assert answer.json["metadata"]["annotations"] == {"wharfinger.dev/simulated": "false"}


def test_a_node_creates_only_mirror_pods_of_itself(api: Api, own: Certified, node: str, base: str) -> None:
    uid = api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    mirror = pod("m", nodeName=node, enableServiceLinks=True)
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    mirror["metadata"]["ownerReferences"] = [owner]

    def refused(**changed: Any) -> str:
        document = {**mirror, "metadata": {**mirror["metadata"], **changed.pop("metadata", {})}}
        return forbidden(own.ask("POST", f"{base}/pods", {**document, "spec": {**mirror["spec"], **changed}}))

    annotation = '"kubernetes.io/config.mirror"'
    assert refused(metadata={"annotations": {}}) == (
        f'pod does not have {annotation} annotation, node "{node}" can only create mirror pods'
    )
    itself = f'node "{node}" can only create pods with'
    assert refused(nodeName="other") == f"{itself} spec.nodeName set to itself"
    assert refused(metadata={"ownerReferences": []}) == f"{itself} an owner reference set to itself"
    assert refused(metadata={"ownerReferences": [{**owner, "controller": False}]}) == (
        f"{itself} a controller owner reference set to itself"
    )
    assert refused(metadata={"ownerReferences": [{**owner, "uid": "x"}]}) == (
        f"node {node} UID mismatch: expected x got {uid}"
    )
    volumes = [{"name": "v", "configMap": {"name": "c"}}]
    assert refused(volumes=volumes) == f'node "{node}" can not create pods that reference configmaps'
    assert own.ask("POST", f"{base}/pods", mirror).status == 201
    api.create(f"{base}/pods", pod("other"))
    assert forbidden(own.ask("DELETE", f"{base}/pods/other")) == (
        f'node "{node}" can only delete pods with spec.nodeName set to itself'
    )
    assert own.ask("DELETE", f"{base}/pods/m").status == 200


def test_a_node_reports_and_evicts_its_own_pods(api: Api, own: Certified, node: str, base: str) -> None:
    api.create(f"{base}/pods", pod("mine", nodeName=node))
    api.create(f"{base}/pods", pod("other", nodeName="elsewhere"))
    status = {"status": {"phase": "Running"}}
    merge = "application/merge-patch+json"
    assert own.ask("PATCH", f"{base}/pods/mine/status", status, media=merge).status == 200
    assert forbidden(own.ask("PATCH", f"{base}/pods/other/status", status, media=merge)) == (
        f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
    )
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}}
    assert forbidden(own.ask("POST", f"{base}/pods/other/eviction", eviction)) == (
        f"node {node} can only evict pods with spec.nodeName set to itself"
    )
    eviction["metadata"] = {"name": "mine"}
    assert own.ask("POST", f"{base}/pods/mine/eviction", eviction).status == 201
    assert own.ask("PATCH", f"{base}/pods/mine", {"metadata": {"labels": {}}}, media=merge).status == 403


def test_a_node_gets_tokens_for_its_pods(api: Api, own: Certified, node: str, base: str) -> None:
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "default"}})
    projected = {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}
    mine = api.create(f"{base}/pods", pod("mine", nodeName=node, volumes=[{"name": "v", "projected": projected}]))
    other = api.create(f"{base}/pods", pod("other", nodeName="elsewhere"))
    path = f"{base}/serviceaccounts/default/token"

    def asked(of: dict[str, Any] | None, *audiences: str, **changed: str) -> Answer:
        spec: dict[str, Any] = {"audiences": list(audiences)}
        if of is not None:
            meta = of["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], **changed}  # fmt: skip
        return own.ask("POST", path, {"spec": spec})

    assert asked(mine).status == 201
    assert asked(mine, "vault").status == 201
    assert forbidden(asked(None)) == "node requested token not bound to a pod"
    assert forbidden(asked(mine, uid="")) == "node requested token with a pod binding without a uid"
    assert forbidden(asked(other)) == "node requested token bound to a pod scheduled on a different node"
    assert forbidden(asked(mine, "bank")) == (
        f'audience "bank" not found in pod spec volume, system:node:{node} is not authorized to request tokens for this '
        "audience"
    )
    assert forbidden(asked(mine, "a", "b")) == "node may only request 0 or 1 audiences"
    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "bot"}})
    assert forbidden(own.ask("POST", f"{base}/serviceaccounts/bot/token", {})).endswith("and this object")
