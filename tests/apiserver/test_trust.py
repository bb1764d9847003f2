"""Trust bundles, certificates of pods and storage version migrations over HTTP, with kube-apiserver's answers."""

from __future__ import annotations

import datetime
import uuid
from base64 import b64encode
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.apiserver.running import Answer, Api

from wharfinger.http.certificates import authority_certificate, certificate_pem, new_key

GROUP = "/apis/certificates.k8s.io/v1"
BUNDLES = f"{GROUP}/clustertrustbundles"
REQUESTS = f"{GROUP}/namespaces/default/podcertificaterequests"
MIGRATIONS = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"
MERGE = "application/merge-patch+json"
KEY = ec.generate_private_key(ec.SECP256R1())


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


NOW = now()


@pytest.fixture(autouse=True)
def present_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is issued must begin within five minutes of the server's time, and the module may be older than that."""
    monkeypatch.setitem(globals(), "NOW", now())


def unique(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex[:8]}"


def anchor(name: str = "root") -> str:
    return certificate_pem(authority_certificate(new_key(), name, NOW, datetime.timedelta(days=1))).decode()


def bundle(name: str, text: str, signer: str = "") -> dict[str, Any]:
    spec = {"trustBundle": text, **({"signerName": signer} if signer else {})}
    return {"metadata": {"name": name}, "spec": spec}


def certificate(hours: float = 24, key: ec.EllipticCurvePrivateKey = KEY, *names: str) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pod")])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
    end = NOW + datetime.timedelta(hours=hours)
    return builder.serial_number(1).not_valid_before(NOW).not_valid_after(end).sign(new_key(), hashes.SHA256())


def stub() -> str:
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(KEY, hashes.SHA256())
    return b64encode(request.public_bytes(serialization.Encoding.DER)).decode()


def request(**spec: Any) -> dict[str, Any]:
    stated = {
        "signerName": "example.com/mine",
        "podName": "p",
        "podUID": "pod-uid",
        "serviceAccountName": "default",
        "serviceAccountUID": "account-uid",
        "nodeName": "n",
        "nodeUID": "node-uid",
        "stubPKCS10Request": stub(),
        **spec,
    }
    stated = {name: value for name, value in stated.items() if value is not None}
    return {"metadata": {"name": unique("r-")}, "spec": stated}


def issued(chain: str, **status: Any) -> dict[str, Any]:
    condition = {"type": "Issued", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": stamp(0)}
    stated = {"certificateChain": chain, "notBefore": stamp(0), "notAfter": stamp(24), "beginRefreshAt": stamp(12)}
    return {"status": {"conditions": [condition], **stated, **status}}


def stamp(hours: float) -> str:
    return (NOW + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


ANCHOR = anchor()
REQUEST_BLOCK = ANCHOR.replace("CERTIFICATE", "CERTIFICATE REQUEST")


@pytest.mark.parametrize(
    ("name", "text", "signer", "message"),
    [
        ("b", "nothing", "", "at least one trust anchor must be provided"),
        ("b", REQUEST_BLOCK, "", "entry 0 has bad block type: CERTIFICATE REQUEST"),
        ("b", ANCHOR + ANCHOR, "", "duplicate trust anchor (indices [0 1])"),
        ("b", certificate_pem(certificate()).decode(), "", "entry 0 does not have the CA bit set"),
        ("b", ANCHOR.replace("-----\nMII", "-----\nA: b\n\nMII", 1), "", "entry 0 has PEM block headers"),
        ("b", "-----BEGIN CERTIFICATE-----\naGk=\n-----END CERTIFICATE-----\n", "", "entry 0 does not parse as X.509"),
        ("a:b", ANCHOR, "", 'ClusterTrustBundle without signer name must not have ":" in its name'),
        (
            "b",
            ANCHOR,
            "example.com/mine",
            "ClusterTrustBundle for signerName example.com/mine must be named with prefix example.com:mine:",
        ),
        ("example.com:mine:B", ANCHOR, "example.com/mine", "a lowercase RFC 1123 subdomain must consist of"),
        ("mine:b", ANCHOR, "mine", "must be a fully qualified domain and path"),
    ],
)
def test_invalid_bundles_are_refused(api: Api, name: str, text: str, signer: str, message: str) -> None:
    answer = api.ask("POST", BUNDLES, bundle(name, text, signer))
    assert answer.status == 422 and message in answer.message


def test_bundles_are_selected_by_signer_and_keep_it(api: Api) -> None:
    name = unique("example.com:mine:")
    assert api.ask("POST", BUNDLES, bundle(name, f"text before\n{ANCHOR}", "example.com/mine")).status == 201
    assert api.ask("POST", BUNDLES, bundle(unique("other-"), ANCHOR)).status == 201
    found = api.ask("GET", f"{BUNDLES}?fieldSelector=spec.signerName%3Dexample.com/mine")
    assert name in [one["metadata"]["name"] for one in found.json["items"]]
    assert {one["spec"]["signerName"] for one in found.json["items"]} == {"example.com/mine"}
    changed = api.ask("PATCH", f"{BUNDLES}/{name}", {"spec": {"signerName": None}}, media=MERGE)
    assert changed.status == 422 and "spec.signerName: Invalid value" in changed.message
    assert api.ask("PATCH", f"{BUNDLES}/{name}", {"spec": {"trustBundle": anchor()}}, media=MERGE).status == 200


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"signerName": ""}, "spec.signerName: Required value"),
        ({"podName": "P"}, 'spec.podName: Invalid value: "P"'),
        ({"nodeUID": None}, 'spec.nodeUID: Invalid value: "": must not be empty'),
        ({"podUID": "u" * 129}, "spec.podUID: Too long: may not be more than 128 bytes"),
        ({"maxExpirationSeconds": 3599}, "must be in the range [3600, 7862400]"),
        ({"signerName": "kubernetes.io/x", "maxExpirationSeconds": 90000}, "must be in the range [3600, 86400]"),
        ({"stubPKCS10Request": "aGk="}, "must be a valid PKCS#10 CSR"),
        ({"stubPKCS10Request": None}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession)"),
        ({"unverifiedUserAnnotations": {"x": "y"}}, "must be a domain-prefixed key (such as"),
    ],
)
def test_invalid_requests_of_pods_are_refused(api: Api, spec: dict[str, Any], message: str) -> None:
    answer = api.ask("POST", REQUESTS, request(**spec))
    assert answer.status == 422 and message in answer.message


def put_status(api: Api, status: dict[str, Any]) -> Answer:
    made = api.ask("POST", REQUESTS, request())
    assert made.status == 201 and made.json["spec"]["maxExpirationSeconds"] == 86400
    return api.ask("PATCH", f"{REQUESTS}/{made.json['metadata']['name']}/status", status, media=MERGE)


def chain(*given: x509.Certificate) -> str:
    return "".join(certificate_pem(one).decode() for one in given)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (issued(""), "issued certificate chain must contain at least one certificate"),
        (issued(chain(certificate(24, new_key()))), "leaf certificate was not issued to the requested public key"),
        (
            issued(chain(certificate()), notAfter=None),
            "status.notAfter: Required value: must be present and consistent",
        ),
        (issued(chain(certificate()), notBefore=stamp(-1)), "must be set to the NotBefore time encoded"),
        (issued(chain(certificate(0.5)), notAfter=stamp(0.5)), "30m0s: leaf certificate lifetime must be >= 1 hour"),
        (issued(chain(certificate(25)), notAfter=stamp(25)), "must be <= spec.maxExpirationSeconds (86400)"),
        (issued(chain(certificate()), beginRefreshAt=stamp(0.1)), "at least 10 minutes after status.notBefore"),
        (issued(chain(certificate()), beginRefreshAt=stamp(23.9)), "at least 10 minutes before status.notAfter"),
        (issued(chain(certificate(24, KEY, "a..b"))), "leaf certificate's DNSName should not contain '..'"),
        ({"status": {"certificateChain": "x"}}, "status is immutable unless transitioning to"),
        (
            {"status": {**issued("")["status"], "conditions": [{"type": "Odd", "status": "True"}]}},
            'Unsupported value: "Odd": supported values: "Issued", "Denied", "Failed"',
        ),
    ],
)
def test_invalid_answers_to_requests_are_refused(api: Api, status: dict[str, Any], message: str) -> None:
    answer = put_status(api, status)
    assert answer.status == 422 and message in answer.message


def test_an_answer_is_final_and_shown(api: Api) -> None:
    answer = put_status(api, issued(chain(certificate(), certificate())))
    assert answer.status == 200, answer.message
    name = answer.json["metadata"]["name"]
    again = api.ask("PATCH", f"{REQUESTS}/{name}/status", {"status": {"notAfter": None}}, media=MERGE)
    assert "immutable after PodCertificateRequest is issued, denied, or failed" in again.message
    table = api.ask(
        "GET", f"{REQUESTS}/{name}", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    ).json
    assert table["rows"][0]["cells"] == [name, "p", "default", "n", "example.com/mine", "Issued", "<none>"]


def test_migrations_are_stored_and_do_not_change(api: Api) -> None:
    made = {"metadata": {"name": unique("m-")}, "spec": {"resource": {"group": "apps", "resource": "deployments"}}}
    answer = api.ask("POST", MIGRATIONS, made)
    assert answer.status == 201 and "generation" not in answer.json["metadata"]
    path = f"{MIGRATIONS}/{made['metadata']['name']}"
    changed = api.ask("PATCH", path, {"spec": {"resource": {"resource": "pods"}}}, media=MERGE)
    assert changed.status == 422 and "field is immutable" in changed.message
    conditions = [{"type": "Succeeded", "status": "True", "reason": "Test", "lastTransitionTime": stamp(0)}]
    done = api.ask(
        "PATCH", f"{path}/status", {"status": {"conditions": conditions, "resourceVersion": "7"}}, media=MERGE
    )
    assert done.status == 200, done.message
    undone = api.ask("PATCH", f"{path}/status", {"status": {"conditions": [], "resourceVersion": "07"}}, media=MERGE)
    for text in (
        "resource version is not well formed: 07",
        "field is immutable",
        "Success condition cannot be set to false once it is true",
    ):
        assert text in undone.message
    table = api.ask("GET", path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).json
    assert table["rows"][0]["cells"] == [made["metadata"]["name"], "deployments.apps", "Succeeded"]


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({}, "spec.resource.resource: Required value: resource is required to be set"),
        ({"resource": "A"}, "a DNS-1035 label must consist of"),
        ({"resource": "pods", "group": "A"}, "a lowercase RFC 1123 subdomain must consist of"),
    ],
)
def test_invalid_migrations_are_refused(api: Api, resource: dict[str, str], message: str) -> None:
    answer = api.ask("POST", MIGRATIONS, {"metadata": {"name": "m"}, "spec": {"resource": resource}})
    assert answer.status == 422 and message in answer.message


SOURCE = {"signerName": "example.com/mine", "keyType": "ED25519", "credentialBundlePath": "bundle.pem"}


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([{"podCertificate": {**SOURCE, "maxExpirationSeconds": 3599}}], "maxExpirationSeconds must be >= 3600"),
        ([{"podCertificate": {**SOURCE, "maxExpirationSeconds": 7862401}}], "maxExpirationSeconds must be <= 7862400"),
        ([{"podCertificate": {**SOURCE, "keyType": "RSA"}}], 'keyType: Unsupported value: "RSA"'),
        ([{"podCertificate": {**SOURCE, "credentialBundlePath": "../x"}}], "must not contain '..'"),
        ([{"podCertificate": SOURCE}, {"podCertificate": SOURCE}], "conflicting duplicate paths"),
        ([{"podCertificate": {**SOURCE, "credentialBundlePath": ""}}], "specify at least one of credentialBundlePath"),
        ([{"clusterTrustBundle": {"path": "x"}}], "either name or signerName must be specified"),
        ([{"clusterTrustBundle": {"path": "x", "name": "a:B"}}], "not a valid clustertrustbundlename"),
        ([{"clusterTrustBundle": {"path": "/x", "name": "a"}}], "must be a relative path"),
        (
            [{"clusterTrustBundle": {"path": "x", "name": "a"}, "podCertificate": SOURCE}],
            "may not specify more than 1 volume type per source",
        ),
    ],
)
def test_invalid_projections_into_pods_are_refused(api: Api, sources: list[Any], message: str) -> None:
    volume = {"name": "v", "projected": {"sources": sources}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    answer = api.ask("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": spec})
    assert answer.status == 422 and message in answer.message
