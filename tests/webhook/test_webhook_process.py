"""The webhook server process: certificates and their renewal, configurations, TLS and draining."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from cryptography import x509
from tests.systems.scheduling_policy.policies import pod
from tests.webhook.test_webhook import Reviewing, question

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import MUTATING_WEBHOOKS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS
from wharfinger.store.store import Store
from wharfinger.systems.scheduling_policy.admission.webhook import SETTINGS
from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import provision
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings
from wharfinger.webhook.certificates import CertificateSecret, WebhookCertificates, renewed
from wharfinger.webhook.configurations import NAME, WebhookEndpoint
from wharfinger.webhook.server import WebhookServer, WebhookSettings

pytestmark = pytest.mark.needs_system("scheduling_policy")

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = ("webhook.system.svc", "10.0.0.1")


def test_certificates_are_renewed_in_time_under_the_same_authority() -> None:
    first = renewed(NAMES, NOW)
    assert renewed(NAMES, NOW, first) is first
    assert renewed((*NAMES, "other"), NOW, first).certificate != first.certificate
    assert renewed(NAMES, NOW + 55 * DAY, first) is first
    second = renewed(NAMES, NOW + 65 * DAY, first)
    assert second.bundle == first.bundle and second.certificate != first.certificate
    authority = x509.load_pem_x509_certificate(first.bundle)
    x509.load_pem_x509_certificate(second.certificate).verify_directly_issued_by(authority)


def test_an_authority_is_in_the_bundle_before_and_after_its_use() -> None:
    later, minute = NOW + 4 * 365 * DAY, datetime.timedelta(minutes=1)
    old = renewed(NAMES, later, renewed(NAMES, NOW))
    [former, coming] = x509.load_pem_x509_certificates(old.bundle)
    issued(old, former)
    assert renewed(NAMES, later + minute, old) is old
    new = renewed(NAMES, later + 20 * minute, old)
    assert x509.load_pem_x509_certificates(new.bundle) == [coming, former]
    issued(new, coming)
    assert renewed(NAMES, later + 30 * minute, new) is new
    much_later = NOW + 6 * 365 * DAY
    assert x509.load_pem_x509_certificates(renewed(NAMES, much_later, new).bundle) == [coming]
    # Nobody was there in time: what has expired is of no use to anyone.
    [only] = x509.load_pem_x509_certificates(renewed(NAMES, much_later, renewed(NAMES, NOW)).bundle)
    assert only not in (former, coming)
    assert x509.load_pem_x509_certificates(renewed(NAMES, much_later, old).bundle) == [coming]


def issued(held: WebhookCertificates, authority: x509.Certificate) -> None:
    x509.load_pem_x509_certificate(held.certificate).verify_directly_issued_by(authority)


def test_replicas_agree_on_one_secret() -> None:
    async def main() -> None:
        store = Store(registry())
        client = Reviewing(store)
        now = NOW.timestamp()
        secrets = [CertificateSecret(client, "s", "system", NAMES, lambda: now) for _ in range(3)]
        held = await asyncio.gather(*(secret.current() for secret in secrets))
        assert held[0] == held[1] == held[2]
        for seconds in (80 * 86400, 4 * 365 * 86400, 1200):  # a new certificate, the next authority, its turn
            now += seconds
            renewals = await asyncio.gather(*(secret.current() for secret in secrets))
            assert renewals[0] == renewals[1] == renewals[2] != held[0]
            held = renewals
        for name in ("tls.crt", "tls.key"):
            await client.patch(SECRETS, "s", {"data": {name: "bm9uc2Vuc2U="}}, "system")
            made = await secrets[0].current()
            assert made.certificate != held[0].certificate and made.key != held[0].key
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("spoilt", ["deleted", "ca.crt", "ca.key"])
def test_a_deleted_secret_is_restored_from_the_certificates_in_use(spoilt: str) -> None:
    async def main() -> None:
        store = Store(registry())
        client = Reviewing(store)
        secret = CertificateSecret(client, "s", "system", NAMES, NOW.timestamp)
        serving = await secret.current()
        if spoilt == "deleted":
            await client.delete(SECRETS, "s", "system")
        else:
            await client.patch(SECRETS, "s", {"data": {spoilt: "bm9uc2Vuc2U="}}, "system")
        assert await secret.current(serving) == serving
        assert await secret.current() == serving
        await store.close()

    asyncio.run(main())


def test_the_server_registers_serves_tls_and_drains() -> None:
    async def main() -> None:
        store = Store(registry())
        client = Reviewing(store)
        for name in ("default", "kube-system", "own"):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await provision(client)
        settings = WebhookSettings(
            WebhookEndpoint(url="https://127.0.0.1:1", namespace="own"),
            "127.0.0.1",
            0,
            drain=0.3,
            configuration=Configuration().having(SchedulingPolicySettings(mode="enforce")),
        )
        server = WebhookServer(client, settings)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(server.run(address.set_result))
        base = f"https://{await address}"
        configuration: dict[str, Any] = {}
        for _ in range(100):
            await asyncio.sleep(0.02)
            page = await client.list(MUTATING_WEBHOOKS)
            if page.items:
                configuration = page.items[0]
                break
        [webhook] = configuration["webhooks"]
        assert configuration["metadata"]["name"] == NAME
        told = configuration["metadata"]["annotations"][SETTINGS]
        assert json.loads(told)["mode"] == "enforce"
        assert webhook["failurePolicy"] == "Fail" and webhook["sideEffects"] == "None"
        assert webhook["clientConfig"]["url"] == "https://127.0.0.1:1/mutate"
        assert {
            "apiGroups": [""],
            "apiVersions": ["*"],
            "resources": ["pods"],
            "operations": ["CREATE"],
            "scope": "*",
        } in (webhook["rules"])
        assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "own"]
        bundle = b64decode(webhook["clientConfig"]["caBundle"]).decode()
        trust = ssl.create_default_context(cadata=bundle)
        async with ClientSession(connector=TCPConnector(ssl=trust)) as session:
            async with session.get(f"{base}/readyz") as response:
                assert response.status == 200
            async with session.post(f"{base}/validate", json=question(document=pod({"nodeName": "n"}))) as response:
                answer = json.loads(await response.read())
                assert answer["response"]["allowed"] is False and "Connection" not in response.headers
            server.stop()
            await asyncio.sleep(0.2)
            async with session.get(f"{base}/readyz") as response:
                assert response.status == 500 and await response.text() == "shutting down"
            async with session.post(f"{base}/validate", json=question(document=pod())) as response:
                assert json.loads(await response.read())["response"]["allowed"] is True
                # The client closes the connection, so that none is in use when the server goes.
                assert response.headers["Connection"] == "close"
        await asyncio.wait_for(task, 10)
        [validating] = (await client.list(VALIDATING_WEBHOOKS)).items
        resources = [resource for rule in validating["webhooks"][0]["rules"] for resource in rule["resources"]]
        assert {"pods", "pods/binding", "bindings", "deployments", "reservations", "schedulingpolicies"} <= set(
            resources
        )
        await store.close()

    asyncio.run(main())


def test_certificate_files_are_served_and_reloaded(tmp_path: Path) -> None:
    def write(days: int) -> bytes:
        made = renewed(("127.0.0.1",), datetime.datetime.now(datetime.UTC) - days * DAY)
        for name, data in (("tls.crt", made.certificate), ("tls.key", made.key), ("ca.crt", made.bundle)):
            (tmp_path / name).write_bytes(data)
        return ssl.PEM_cert_to_DER_cert(made.certificate.decode())

    async def served(port: int) -> bytes:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return certificate

    async def main() -> None:
        first = write(1)
        store = Store(registry())
        files = [str(tmp_path / name) for name in ("tls.crt", "tls.key", "ca.crt")]
        settings = WebhookSettings(
            WebhookEndpoint(url="https://127.0.0.1:1"), "127.0.0.1", 0, "", *files, register=False, drain=0
        )
        server = WebhookServer(Reviewing(store), settings)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(server.run(address.set_result))
        port = int((await address).rpartition(":")[2])
        assert await served(port) == first
        second = write(0)
        await server.refresh_certificates()
        assert await served(port) == second
        server.stop()
        await asyncio.wait_for(task, 10)
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "target", [WebhookEndpoint(service="w", namespace="s"), WebhookEndpoint(url="https://[::1]:8443")]
)
def test_certificates_have_the_names_of_the_endpoint(target: WebhookEndpoint) -> None:
    made = renewed(target.names(), NOW)
    certificate = x509.load_pem_x509_certificate(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(each.value) for each in names} == set(target.names())
