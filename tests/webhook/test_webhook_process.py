"""Certificates, configurations, and the server over TLS: made, renewed, registered, stopped gently."""

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
from tests.admission.policies import pod
from tests.webhook.test_webhook import Reviewing, question

from wharfinger.api.configuration import Configuration, SchedulingPolicySettings
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import MUTATING_WEBHOOKS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS
from wharfinger.controllers.scheduling_policy import provision
from wharfinger.store.store import Store
from wharfinger.webhook.certificates import CertificateSecret, make_certificates, need_renewal
from wharfinger.webhook.configurations import NAME, Target
from wharfinger.webhook.server import Settings, WebhookServer

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
NAMES = ("webhook.system.svc", "10.0.0.1")


def test_certificates_are_renewed_in_time_under_the_same_authority() -> None:
    first = make_certificates(NAMES, NOW)
    assert not need_renewal(first, NAMES, NOW)
    assert need_renewal(first, (*NAMES, "other"), NOW)
    assert not need_renewal(first, NAMES, NOW + 55 * DAY)
    assert need_renewal(first, NAMES, NOW + 65 * DAY)
    second = make_certificates(NAMES, NOW + 65 * DAY, first)
    assert second.bundle == first.bundle and second.certificate != first.certificate
    authority = x509.load_pem_x509_certificate(first.bundle)
    x509.load_pem_x509_certificate(second.certificate).verify_directly_issued_by(authority)


def test_while_the_authority_changes_both_are_trusted() -> None:
    first = make_certificates(NAMES, NOW)
    later = NOW + 4 * 365 * DAY
    second = make_certificates(NAMES, later, first)
    bundle = x509.load_pem_x509_certificates(second.bundle)
    assert len(bundle) == 2 and bundle[1] == x509.load_pem_x509_certificate(first.bundle)
    assert not need_renewal(second, NAMES, later)


def test_replicas_agree_on_one_secret() -> None:
    async def main() -> None:
        store = Store(registry())
        client = Reviewing(store)
        now = NOW.timestamp()
        secrets = [CertificateSecret(client, "s", "system", NAMES, lambda: now) for _ in range(3)]
        held = await asyncio.gather(*(secret.current() for secret in secrets))
        assert held[0] == held[1] == held[2]
        now += 80 * 86400
        renewed = await asyncio.gather(*(secret.current() for secret in secrets))
        assert renewed[0] == renewed[1] == renewed[2] != held[0]
        await client.patch(SECRETS, "s", {"data": {"tls.crt": "bm9uc2Vuc2U="}}, "system")
        assert await secrets[0].current() != renewed[0]
        await store.close()

    asyncio.run(main())


def test_the_server_registers_itself_serves_over_tls_and_stops_gently() -> None:
    async def main() -> None:
        store = Store(registry())
        client = Reviewing(store)
        for name in ("default", "kube-system", "own"):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await provision(client)
        settings = Settings(
            Target(url="https://127.0.0.1:1", namespace="own"),
            "127.0.0.1",
            0,
            drain=0.3,
            configuration=Configuration(scheduling_policy=SchedulingPolicySettings(mode="enforce")),
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
        assert webhook["failurePolicy"] == "Fail" and webhook["sideEffects"] == "None"
        assert webhook["clientConfig"]["url"] == "https://127.0.0.1:1/mutate"
        assert {
            "apiGroups": [""],
            "apiVersions": ["*"],
            "resources": ["pods"],
            "operations": ["CREATE"],
            "scope": "*",
        } in (webhook["rules"])
        assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["own"]
        bundle = b64decode(webhook["clientConfig"]["caBundle"]).decode()
        trust = ssl.create_default_context(cadata=bundle)
        async with ClientSession(connector=TCPConnector(ssl=trust)) as session:
            async with session.get(f"{base}/readyz") as response:
                assert response.status == 200
            async with session.post(f"{base}/validate", json=question(document=pod({"nodeName": "n"}))) as response:
                answer = json.loads(await response.read())
                assert answer["response"]["allowed"] is False
            server.stop()
            await asyncio.sleep(0.2)
            async with session.get(f"{base}/readyz") as response:
                assert response.status == 500 and await response.text() == "shutting down"
            async with session.post(f"{base}/validate", json=question(document=pod())) as response:
                assert json.loads(await response.read())["response"]["allowed"] is True
        await asyncio.wait_for(task, 10)
        [validating] = (await client.list(VALIDATING_WEBHOOKS)).items
        resources = [resource for rule in validating["webhooks"][0]["rules"] for resource in rule["resources"]]
        assert {"pods", "pods/binding", "bindings", "deployments", "reservations", "schedulingpolicies"} <= set(
            resources
        )
        await store.close()

    asyncio.run(main())


def test_given_certificates_are_served_and_replaced_when_their_files_are(tmp_path: Path) -> None:
    def write(days: int) -> bytes:
        made = make_certificates(("127.0.0.1",), datetime.datetime.now(datetime.UTC) - days * DAY)
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
        settings = Settings(Target(url="https://127.0.0.1:1"), "127.0.0.1", 0, "", *files, register=False, drain=0)
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


@pytest.mark.parametrize("target", [Target(service="w", namespace="s"), Target(url="https://[::1]:8443")])
def test_certificates_carry_the_names_by_which_we_are_called(target: Target) -> None:
    made = make_certificates(target.names(), NOW)
    certificate = x509.load_pem_x509_certificate(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(each.value) for each in names} == set(target.names())
