"""Certificate signing requests over HTTP: validation, subresources, and who may approve and sign."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.apiserver.running import Answer, Api
from tests.controllers.test_certificates import encoded_request

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "example.com/mine"
MERGE = "application/merge-patch+json"
APPROVED = {"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}


def document(**spec: Any) -> dict[str, Any]:
    stated = {"request": encoded_request(), "signerName": SIGNER, "usages": ["client auth"], **spec}
    return {"metadata": {"name": f"r-{uuid.uuid4().hex[:8]}"}, "spec": stated}


def conditions(api: Api, name: str, subresource: str, *given: dict[str, Any], **status: Any) -> Answer:
    body = {"status": {"conditions": list(given), **status}}
    return api.ask("PATCH", f"{REQUESTS}/{name}/{subresource}", body, media=MERGE)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"signerName": "kubernetes.io/legacy-unknown"}, "the legacy signerName is not allowed via this API version"),
        ({"signerName": "mine"}, "must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        ({"signerName": "mine/x"}, "should be a domain with at least two segments separated by dots"),
        ({"signerName": ""}, "spec.signerName: Required value"),
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["foo"]}, 'spec.usages[0]: Unsupported value: "foo": supported values: "any", "cert sign"'),
        ({"usages": ["any", "any"]}, 'spec.usages[1]: Duplicate value: "any"'),
        ({"expirationSeconds": 599}, "may not specify a duration less than 600 seconds (10 minutes)"),
        (
            {"request": "aGVsbG8="},
            'spec.request: Invalid value: "aGVsbG8=": PEM block type must be CERTIFICATE REQUEST',
        ),
    ],
)
def test_invalid_requests_are_refused(api: Api, spec: dict[str, Any], message: str) -> None:
    answer = api.ask("POST", REQUESTS, document(**spec))
    assert answer.status == 422
    assert message in answer.message


def test_a_request_with_a_wrong_signature_is_refused(api: Api) -> None:
    from base64 import b64decode, b64encode

    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    request = x509.load_pem_x509_csr(b64decode(encoded_request("jane")))
    der = bytearray(request.public_bytes(serialization.Encoding.DER))
    position = der.index(b"jane")
    der[position] = ord("k")
    pem = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    answer = api.ask("POST", REQUESTS, document(request=b64encode(pem).decode()))
    assert answer.status == 422 and "spec.request: Invalid value" in answer.message


def test_nobody_becomes_an_administrator(api: Api) -> None:
    signer = "kubernetes.io/kube-apiserver-client"
    answer = api.ask("POST", REQUESTS, document(request=encoded_request("me", "system:masters"), signerName=signer))
    assert answer.status == 403
    assert f"use of {signer} signer with system:masters group is not allowed" in answer.message


def test_the_requester_is_recorded_and_the_request_does_not_change(api: Api) -> None:
    given = document(username="somebody", groups=["else"], uid="x")
    given["status"] = {"conditions": [APPROVED]}
    made = api.create(REQUESTS, given)
    name = made["metadata"]["name"]
    assert (made["spec"]["username"], made["status"]) == ("system:admin", {})
    assert "system:masters" in made["spec"]["groups"] and "uid" not in made["spec"]
    changed = api.ask("PATCH", f"{REQUESTS}/{name}", {"spec": {"signerName": "example.com/other"}}, media=MERGE)
    assert changed.json["spec"]["signerName"] == SIGNER
    found = api.get(f"{REQUESTS}?fieldSelector=spec.signerName={SIGNER}")["items"]
    assert name in [each["metadata"]["name"] for each in found]


def test_approval_and_status_write_their_own_parts(api: Api) -> None:
    name = api.create(REQUESTS, document())["metadata"]["name"]
    answer = conditions(api, name, "status", APPROVED)
    assert 'updates may not add a condition of type "Approved"' in answer.message
    answer = conditions(api, name, "approval", APPROVED, certificate="aGk=")
    assert answer.status == 200
    [condition] = answer.json["status"]["conditions"]
    assert condition["lastUpdateTime"] and "certificate" not in answer.json["status"]
    answer = conditions(api, name, "approval", APPROVED, {**APPROVED, "type": "Denied"})
    assert "Approved and Denied conditions are mutually exclusive" in answer.message
    answer = conditions(api, name, "approval", {**APPROVED, "status": "False"})
    assert 'status.conditions[0].status: Unsupported value: "False": supported values: "True"' in answer.message
    answer = conditions(api, name, "approval")
    assert 'updates may not remove a condition of type "Approved"' in answer.message
    answer = api.ask("PATCH", f"{REQUESTS}/{name}/status", {"status": {"certificate": "aGk="}}, media=MERGE)
    assert "must contain at least one CERTIFICATE PEM block" in answer.message


def test_approving_and_signing_need_permission_for_the_signer(api: Api, base: str) -> None:
    namespace = base.rpartition("/")[2]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    group = "certificates.k8s.io"
    subresources = ["certificatesigningrequests/approval", "certificatesigningrequests/status"]

    def allow(suffix: str, rules: list[dict[str, Any]]) -> None:
        role = f"{namespace}-{suffix}"
        api.create(f"{rbac}/clusterroles", {"metadata": {"name": role}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subjects = [{"kind": "ServiceAccount", "name": "clerk", "namespace": namespace}]
        body = {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects}
        api.create(f"{rbac}/clusterrolebindings", body)

    api.create(f"{base}/serviceaccounts", {"metadata": {"name": "clerk"}})
    token = api.create(f"{base}/serviceaccounts/clerk/token", {"spec": {}})["status"]["token"]
    clerk = Api(api.kubeconfig, token)
    allow("write", [{"apiGroups": [group], "resources": subresources, "verbs": ["patch", "update"]}])
    name = api.create(REQUESTS, document())["metadata"]["name"]
    refused = conditions(clerk, name, "approval", APPROVED)
    assert refused.status == 403
    assert f'user not permitted to approve requests with signerName "{SIGNER}"' in refused.message
    allow("one", [{"apiGroups": [group], "resources": ["signers"], "resourceNames": [SIGNER], "verbs": ["approve"]}])
    assert conditions(clerk, name, "approval", APPROVED).status == 200
    failed = {"type": "Failed", "status": "True"}
    approved = api.get(f"{REQUESTS}/{name}")["status"]["conditions"]
    refused = conditions(clerk, name, "status", *approved, failed)
    assert f'user not permitted to sign requests with signerName "{SIGNER}"' in refused.message
    names = ["example.com/*"]
    allow("all", [{"apiGroups": [group], "resources": ["signers"], "resourceNames": names, "verbs": ["sign"]}])
    assert conditions(clerk, name, "status", *approved, failed).status == 200


def test_the_table_shows_the_condition(api: Api) -> None:
    name = api.create(REQUESTS, document(expirationSeconds=86400))["metadata"]["name"]
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = api.ask("GET", f"{REQUESTS}/{name}", headers={"Accept": accept}).json
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns == ["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"]
    assert table["rows"][0]["cells"][2:] == [SIGNER, "system:admin", "24h", "Pending"]
