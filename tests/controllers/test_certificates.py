"""Certificate signing requests: signing, refusal by a signer, and clean-up, in virtual time."""

from __future__ import annotations

import datetime
from base64 import b64decode, b64encode
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.controllers.world import START, World

from wharfinger.api.kinds.builtin import CERTIFICATE_SIGNING_REQUESTS
from wharfinger.api.registry import Document
from wharfinger.controllers.certificates.authority import BadAuthority, SigningAuthority
from wharfinger.http.certificates import authority_certificate, certificate_pem, key_pem, new_key
from wharfinger.store import Store
from wharfinger.store.default_chain import extend_chain

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
NODE = {"organization": "system:nodes", "name": "system:node:one"}


def signing_authority(days: int = 3650) -> SigningAuthority:
    key = new_key()
    now = datetime.datetime.fromtimestamp(START - 60, datetime.UTC)
    certificate = authority_certificate(key, "test", now, datetime.timedelta(days=days))
    return SigningAuthority.load(certificate_pem(certificate), key_pem(key))


def encoded_request(name: str = "jane", organization: str = "dev", hosts: tuple[str, ...] = ()) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
        x509.NameAttribute(NameOID.COMMON_NAME, name),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    if hosts:
        names = [x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return b64encode(pem).decode()


def csr(name: str, signer: str, usages: list[str], request: str, **spec: object) -> Document:
    return {"metadata": {"name": name}, "spec": {"request": request, "signerName": signer, "usages": usages, **spec}}


def world(signing: SigningAuthority | None = None) -> World:
    def setup(store: Store) -> None:
        extend_chain(store.chain, store, complete=False)

    return World(nodes=0, setup=setup, signing=signing or signing_authority())


def approve(made: World, name: str, type: str = "Approved") -> None:
    conditions = [{"type": type, "status": "True", "reason": "Test"}]
    made.patch(CERTIFICATE_SIGNING_REQUESTS, name, {"status": {"conditions": conditions}}, subresource="approval")


def status(made: World, name: str) -> Document:
    found: Document = made.get(CERTIFICATE_SIGNING_REQUESTS, name)["status"]
    return found


def failure(made: World, name: str) -> str:
    return next((each["message"] for each in status(made, name)["conditions"] if each["type"] == "Failed"), "")


def test_an_approved_request_is_signed() -> None:
    authority = signing_authority()
    with world(authority) as made:
        request = encoded_request(hosts=("one.example.com", "10.1.2.3"))
        made.apply(CERTIFICATE_SIGNING_REQUESTS, csr("jane", CLIENT, ["client auth", "digital signature"], request))
        stored = made.get(CERTIFICATE_SIGNING_REQUESTS, "jane")
        assert stored["spec"]["username"] == "system:admin" and stored["status"] == {}
        approve(made, "jane")
        [condition] = status(made, "jane")["conditions"]
        assert condition["lastUpdateTime"] == condition["lastTransitionTime"]
        issued = x509.load_pem_x509_certificate(b64decode(status(made, "jane")["certificate"]))
        issued.verify_directly_issued_by(authority.certificate)
        assert issued.subject.rfc4514_string() == "CN=jane,O=dev"
        usages = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
        names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["one.example.com"]
        assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        lifetime = issued.not_valid_after_utc - issued.not_valid_before_utc
        assert lifetime == datetime.timedelta(days=365)


@pytest.mark.parametrize(
    ("seconds", "lifetime"),
    [(600, 900), (3600, 3900), (86400, 86400), (10**9, 365 * 86400)],  # seconds, with five minutes of backdating
)
def test_the_requested_lifetime_is_honoured_within_limits(seconds: int, lifetime: int) -> None:
    with world() as made:
        document = csr("jane", CLIENT, ["client auth"], encoded_request(), expirationSeconds=seconds)
        made.apply(CERTIFICATE_SIGNING_REQUESTS, document)
        approve(made, "jane")
        issued = x509.load_pem_x509_certificate(b64decode(status(made, "jane")["certificate"]))
        assert (issued.not_valid_after_utc - issued.not_valid_before_utc).total_seconds() == lifetime


def test_a_certificate_does_not_outlive_its_authority() -> None:
    authority = signing_authority(days=30)
    with world(authority) as made:
        made.apply(CERTIFICATE_SIGNING_REQUESTS, csr("jane", CLIENT, ["client auth"], encoded_request()))
        approve(made, "jane")
        issued = x509.load_pem_x509_certificate(b64decode(status(made, "jane")["certificate"]))
        assert issued.not_valid_after_utc == authority.certificate.not_valid_after_utc


@pytest.mark.parametrize(
    ("signer", "usages", "subject", "message"),
    [
        (KUBELET, ["client auth", "digital signature"], {}, "subject organization is not system:nodes"),
        (
            KUBELET,
            ["client auth", "digital signature"],
            {**NODE, "hosts": ("one",)},
            "DNS subjectAltNames are not allowed",
        ),
        (KUBELET, ["client auth"], NODE, "usages did not match [client auth digital signature key encipherment]"),
        (
            KUBELET,
            ["client auth", "digital signature"],
            {**NODE, "name": "one"},
            "subject common name does not begin with system:node:",
        ),
        (KUBELET, ["client auth", "digital signature", "key encipherment"], NODE, ""),
        (SERVING, ["server auth", "digital signature"], NODE, "DNS or IP subjectAltName is required"),
        (SERVING, ["server auth", "digital signature"], {**NODE, "hosts": ("10.0.0.1",)}, ""),
        (
            SERVING,
            ["client auth", "digital signature"],
            {**NODE, "hosts": ("one",)},
            "usages did not match [digital signature key encipherment server auth]",
        ),
        (CLIENT, ["client auth", "server auth"], {}, "invalid usage for client certificate: server auth"),
        (CLIENT, ["digital signature"], {}, "missing required usage for client certificate: client auth"),
    ],
)
def test_signers_refuse_what_they_do_not_sign(
    signer: str, usages: list[str], subject: dict[str, object], message: str
) -> None:
    with world() as made:
        made.apply(CERTIFICATE_SIGNING_REQUESTS, csr("one", signer, usages, encoded_request(**subject)))  # type: ignore[arg-type]
        approve(made, "one")
        assert failure(made, "one") == message
        assert bool(status(made, "one").get("certificate")) != bool(message)


def test_other_signers_and_denied_requests_are_left_alone() -> None:
    with world() as made:
        made.apply(CERTIFICATE_SIGNING_REQUESTS, csr("mine", "example.com/mine", ["client auth"], encoded_request()))
        approve(made, "mine")
        made.apply(CERTIFICATE_SIGNING_REQUESTS, csr("no", CLIENT, ["client auth"], encoded_request()))
        approve(made, "no", "Denied")
        assert "certificate" not in status(made, "mine") and "certificate" not in status(made, "no")
        error = made.fails(lambda: approve(made, "no", "Approved"))
        assert 'updates may not remove a condition of type "Denied"' in error.message


@pytest.mark.parametrize(("type", "hours"), [("Approved", 1), ("Denied", 1), ("", 24)])
def test_old_requests_are_deleted(type: str, hours: int) -> None:
    with world() as made:
        made.apply(CERTIFICATE_SIGNING_REQUESTS, csr("jane", CLIENT, ["client auth"], encoded_request()))
        if type:
            approve(made, "jane", type)
        made.advance(hours * 3600 - 60)
        assert made.exists(CERTIFICATE_SIGNING_REQUESTS, "jane")
        made.advance(120)
        assert not made.exists(CERTIFICATE_SIGNING_REQUESTS, "jane")


def test_an_authority_needs_the_key_of_its_certificate() -> None:
    authority, other = signing_authority(), new_key()
    with pytest.raises(BadAuthority, match="not that of the certificate"):
        SigningAuthority.load(certificate_pem(authority.certificate), key_pem(other))
    with pytest.raises(BadAuthority):
        SigningAuthority.load(b"none", key_pem(other))
