"""The token volume of pods and the secrets that they may name, as the ServiceAccount plugin of Kubernetes decides."""

from __future__ import annotations

from typing import Any

import pytest
from tests.admission.test_default_plugins import pod, refusal, with_store

from wharfinger.api.kinds.builtin import PODS, SERVICE_ACCOUNTS
from wharfinger.api.token_volumes import TOKEN_PATH
from wharfinger.store.store import Store


async def spec_of(store: Store, document: dict[str, Any]) -> dict[str, Any]:
    created: dict[str, Any] = (await store.create(PODS, document, "n")).document["spec"]
    return created


def mounts(spec: dict[str, Any]) -> list[list[str]]:
    """For each container, what is mounted where the token belongs."""
    containers = (*spec.get("initContainers", ()), *spec["containers"])
    return [
        [mount["name"] for mount in container.get("volumeMounts", ()) if mount["mountPath"] == TOKEN_PATH]
        for container in containers
    ]


def test_containers_mount_a_volume_with_the_token() -> None:
    async def scenario(store: Store) -> None:
        init = [{"name": "i", "image": "i"}]
        spec = await spec_of(store, pod(initContainers=init, volumes=[{"name": "own", "emptyDir": {}}]))
        own, token = spec["volumes"]
        assert own["name"] == "own"
        name = token["name"]
        assert name.startswith("kube-api-access-") and len(name) == len("kube-api-access-") + 5
        assert mounts(spec) == [[name], [name]]
        assert spec["containers"][0]["volumeMounts"][0]["readOnly"] is True
        sources = token["projected"]["sources"]
        assert token["projected"]["defaultMode"] == 420
        assert sources[0] == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        assert sources[1] == {"configMap": {"name": "kube-root-ca.crt", "items": items}}
        reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
        assert sources[2] == {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": reference}]}}

    with_store(scenario)


@pytest.mark.parametrize(
    ("of_pod", "of_account", "mounted"),
    [
        (None, None, True),
        (None, False, False),
        (None, True, True),
        (False, None, False),
        (False, True, False),
        (True, False, True),
    ],
)
def test_the_pod_decides_before_its_account(of_pod: bool | None, of_account: bool | None, mounted: bool) -> None:
    async def scenario(store: Store) -> None:
        account: dict[str, Any] = {"metadata": {"name": "bot"}}
        if of_account is not None:
            account["automountServiceAccountToken"] = of_account
        await store.create(SERVICE_ACCOUNTS, account, "n")
        wanted = {} if of_pod is None else {"automountServiceAccountToken": of_pod}
        spec = await spec_of(store, pod(serviceAccountName="bot", **wanted))
        assert bool(spec.get("volumes")) is mounted
        assert bool(mounts(spec)[0]) is mounted

    with_store(scenario)


def test_what_the_pod_mounts_in_that_place_stays() -> None:
    async def scenario(store: Store) -> None:
        mine = {"name": "mine", "mountPath": TOKEN_PATH}
        one = {"name": "a", "image": "i", "volumeMounts": [mine]}
        volumes = [{"name": "mine", "emptyDir": {}}]
        spec = await spec_of(store, {"metadata": {"name": "p"}, "spec": {"containers": [one], "volumes": volumes}})
        assert mounts(spec) == [["mine"]] and len(spec["volumes"]) == 1
        other = [{"name": "kube-api-access-mine", "emptyDir": {}}]
        spec = await spec_of(store, pod("q", volumes=other))
        assert mounts(spec) == [["kube-api-access-mine"]] and len(spec["volumes"]) == 1

    with_store(scenario)


def test_a_simulation_adds_no_volume() -> None:
    async def scenario(store: Store) -> None:
        assert "volumes" not in await spec_of(store, pod())

    with_store(scenario, complete=False)


def test_nobody_owns_what_admission_adds() -> None:
    async def scenario(store: Store) -> None:
        made = await store.create(PODS, pod(), "n", field_manager="kubectl")
        (entry,) = made.document["metadata"]["managedFields"]
        owned = entry["fieldsV1"]["f:spec"]
        assert 'k:{"name":"c"}' in owned["f:containers"]
        for field in ("f:volumes", "f:serviceAccount", "f:serviceAccountName", "f:tolerations", "f:priority"):
            assert field not in owned
        assert "f:volumeMounts" not in owned["f:containers"]['k:{"name":"c"}']

    with_store(scenario)


def test_an_account_can_limit_secrets() -> None:
    async def scenario(store: Store) -> None:
        account = {
            "metadata": {"name": "bot", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
            "secrets": [{"name": "listed"}],
        }
        await store.create(SERVICE_ACCOUNTS, account, "n")
        rest = "is not allowed because service account bot does not reference that"

        async def refused(**spec: Any) -> str:
            return (await refusal(store, pod(serviceAccountName="bot", **spec))).removeprefix('pods "p" is forbidden: ')

        def volume(name: str) -> list[dict[str, Any]]:
            return [{"name": "v", "secret": {"secretName": name}}]

        assert await refused(volumes=volume("x")) == f'volume with secret.secretName="x" {rest} secret'
        assert await refused(imagePullSecrets=[{"name": "x"}]) == (
            f'imagePullSecrets[0].name="x" {rest} imagePullSecret'
        )
        variable = {"name": "V", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}
        for part, words in (("initContainers", "init container"), ("containers", "container")):
            one = {"name": "a", "image": "i", "env": [variable]}
            assert await refused(**{part: [one]}) == (
                f'{words} a with envVar V referencing secret.secretName="x" {rest} secret'
            )
            one = {"name": "a", "image": "i", "envFrom": [{"secretRef": {"name": "x"}}]}
            assert await refused(**{part: [one]}) == (
                f'{words} a with envFrom referencing secret.secretName="x" {rest} secret'
            )
        await store.create(PODS, pod(serviceAccountName="bot", volumes=volume("listed")), "n")

    with_store(scenario)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "a mirror pod may not reference secrets"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
def test_mirror_pods_name_nothing(spec: dict[str, Any], reason: str) -> None:
    async def scenario(store: Store) -> None:
        mirror = pod(nodeName="node", **spec)
        mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        assert await refusal(store, mirror) == f'pods "p" is forbidden: {reason}'

    with_store(scenario)
