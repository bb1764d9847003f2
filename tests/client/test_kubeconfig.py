"""Kubeconfig files are merged, resolved and validated as in kubectl; errors name the file and the field."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.client.certificates import Authority

from wharfinger.client.access import ClusterAccess, ExecCredentials
from wharfinger.client.kubeconfig import KubeconfigError, load_access

AUTHORITY = Authority()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(
    *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, context: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", **(context or {})}}],
    }


def write(directory: Path, document: Any, name: str = "config") -> str:
    file = directory / name
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(file)


def load(directory: Path, document: Any, context: str | None = None, **env: str) -> ClusterAccess:
    return load_access(write(directory, document), context, env=env)


def token(access: ClusterAccess) -> str:
    return asyncio.run(access.credentials.token())


def test_a_token_a_namespace_and_an_authority(tmp_path: Path) -> None:
    access = load(
        tmp_path,
        config(
            user={"token": "secret"},
            cluster={"certificate-authority-data": b64(AUTHORITY.pem), "tls-server-name": "other"},
            context={"namespace": "team"},
        ),
    )
    assert (access.server, access.namespace, access.server_name) == ("https://host:6443", "team", "other")
    assert access.ca == AUTHORITY.pem and token(access) == "secret"


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    pair = AUTHORITY.issue("me")
    for name, data in (("ca", AUTHORITY.pem), ("crt", pair.certificate), ("key", pair.key), ("token", b" t1\n")):
        (tmp_path / "keys" / name).write_bytes(data)
    user = {"client-certificate": "keys/crt", "client-key": "keys/key", "tokenFile": "keys/token"}
    access = load(tmp_path, config(user=user, cluster={"certificate-authority": "keys/ca"}))
    certificate = asyncio.run(access.credentials.certificate())
    assert certificate is not None and certificate.certificate == pair.certificate
    assert access.ca == AUTHORITY.pem and token(access) == "t1"


def test_the_first_file_that_sets_a_value_wins(tmp_path: Path) -> None:
    first = config(user={"token": "first"})
    del first["current-context"]
    second = config(user={"token": "second"})
    second["contexts"].append({"name": "there", "context": {"cluster": "c2", "user": "u"}})
    second["clusters"].append({"name": "c2", "cluster": {"server": "http://two/"}})
    second["current-context"] = "there"
    paths = [write(tmp_path, first, "first"), str(tmp_path / "absent"), write(tmp_path, second, "second")]
    env = {"KUBECONFIG": ":".join(paths)}
    access = load_access(env=env)
    assert (access.context, access.server, token(access)) == ("there", "http://two", "first")
    assert load_access(context="here", env=env).server == "https://host:6443"


def test_the_file_in_the_home_directory_is_the_default(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube", config(user={"token": "home"}))
    assert token(load_access(env={"HOME": str(tmp_path)})) == "home"


@pytest.mark.parametrize(
    ("server", "cluster", "url"),
    [
        ("host:8080", {}, "http://host:8080"),
        ("host:6443", {"insecure-skip-tls-verify": True}, "https://host:6443"),
        ("https://host/k8s/clusters/c-1/", {}, "https://host/k8s/clusters/c-1"),
        ("https://[::1]:6443", {}, "https://[::1]:6443"),
    ],
)
def test_servers(tmp_path: Path, server: str, cluster: dict[str, Any], url: str) -> None:
    assert load(tmp_path, config(cluster={"server": server, **cluster})).server == url


@pytest.mark.parametrize(
    ("cluster", "env", "proxy"),
    [
        ({"proxy-url": "http://p:1"}, {"HTTPS_PROXY": "http://q:2"}, "http://p:1"),
        ({}, {"HTTPS_PROXY": "http://q:2"}, "http://q:2"),
        ({}, {"HTTPS_PROXY": "http://q:2", "NO_PROXY": "host"}, ""),
        ({}, {"HTTP_PROXY": "http://q:2"}, ""),
        ({"server": "https://127.0.0.1:6443"}, {"HTTPS_PROXY": "http://q:2"}, ""),
    ],
)
def test_proxies(tmp_path: Path, cluster: dict[str, Any], env: dict[str, str], proxy: str) -> None:
    assert load(tmp_path, config(cluster=cluster), **env).proxy == proxy


def test_impersonation(tmp_path: Path) -> None:
    user = {"as": "jane", "as-uid": "1", "as-groups": ["dev"], "as-user-extra": {"scopes": ["a", "b"]}}
    assert load(tmp_path, config(user=user)).impersonate.headers() == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-scopes", "a"),
        ("Impersonate-Extra-scopes", "b"),
    ]


EXEC = {"command": "get-token", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}


def test_a_plugin_with_a_slash_is_relative_to_its_file_and_a_bare_name_is_not(tmp_path: Path) -> None:
    commands = []
    for command in ("get-token", "./bin/get-token"):
        credentials = load(tmp_path, config(user={"exec": {**EXEC, "command": command}})).credentials
        assert isinstance(credentials, ExecCredentials)
        commands.append(credentials._plugin.command)
    assert commands == ["get-token", str(tmp_path / "bin/get-token")]


PAIR = AUTHORITY.issue("me")
OTHER = AUTHORITY.issue("other")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("a: [", "is not YAML (line "),
        ("- a", "is not a kubeconfig"),
        ({"kind": "Pod"}, "kind: want Config, found Pod"),
        ({"users": [{"user": {}}]}, "users[0]: Object missing required field `name`"),
        (config(user={"token": 7}), "users[0].user.token: Expected `str`, got `int`"),
        ({}, "current-context: not set"),
        ({**config(), "current-context": "away"}, 'contexts: no context named "away" (known: here)'),
        (config(context={"cluster": "x"}), 'contexts[0].context.cluster: no cluster named "x"'),
        (config(context={"user": "x"}), 'contexts[0].context.user: no user named "x"'),
        (config(cluster={"server": ""}), "clusters[0].cluster.server: is required"),
        (config(cluster={"server": "ftp://x"}), "clusters[0].cluster.server: want an http or https URL, found ftp://x"),
        (
            config(cluster={"certificate-authority-data": "?"}),
            "clusters[0].cluster.certificate-authority-data: is not base64",
        ),
        (
            config(cluster={"certificate-authority-data": b64(b"x")}),
            "clusters[0].cluster.certificate-authority-data: is not a PEM certificate",
        ),
        (
            config(cluster={"certificate-authority": "nowhere"}),
            "clusters[0].cluster.certificate-authority: cannot read ",
        ),
        (
            config(cluster={"certificate-authority-data": b64(AUTHORITY.pem), "insecure-skip-tls-verify": True}),
            "clusters[0].cluster.insecure-skip-tls-verify: is not allowed together with certificate-authority-data",
        ),
        (config(cluster={"proxy-url": "socks5://x"}), "clusters[0].cluster.proxy-url: want an http or https URL"),
        (
            config(user={"username": "a", "password": "b"}),
            "users[0].user.username: basic authentication is not supported",
        ),
        (config(user={"auth-provider": {"name": "gcp"}}), 'users[0].user.auth-provider: "gcp" is not supported'),
        (config(user={"tokenFile": "nowhere"}), "users[0].user.tokenFile: no such file"),
        (config(user={"client-certificate-data": b64(PAIR.certificate)}), "users[0].user.client-key: is required"),
        (config(user={"client-key-data": b64(PAIR.key)}), "users[0].user.client-certificate: is required"),
        (
            config(user={"client-certificate-data": b64(PAIR.certificate), "client-key-data": b64(OTHER.key)}),
            "users[0].user.client-certificate: the client certificate and key do not match",
        ),
        (
            config(user={"client-certificate": "nowhere", "client-key": "x"}),
            "users[0].user.client-certificate: cannot read",
        ),
        (config(user={"as-groups": ["x"]}), "users[0].user.as: is required"),
        (config(user={"exec": {**EXEC, "command": ""}}), "users[0].user.exec.command: is required"),
        (
            config(user={"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}),
            "users[0].user.exec.apiVersion: want client.authentication.k8s.io/v1 or",
        ),
        (config(user={"exec": {**EXEC, "interactiveMode": ""}}), "users[0].user.exec.interactiveMode: is required"),
        (config(user={"exec": {**EXEC, "interactiveMode": "Maybe"}}), "users[0].user.exec.interactiveMode: want Never"),
        (config(user={"exec": EXEC, "token": "x"}), "users[0].user.exec: is not allowed together with a token"),
    ],
)
def test_faults_name_the_file_and_the_field(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        load(tmp_path, document)
    assert str(caught.value).startswith(f"{tmp_path / 'config'}: {message}")


def test_the_error_without_any_file_lists_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(
        KubeconfigError, match=r"no kubeconfig found: tried .*/\.kube/config; name one with --kubeconfig"
    ):
        load_access(env={"HOME": str(tmp_path)})
    with pytest.raises(KubeconfigError, match="/nowhere: no such file"):
        load_access("/nowhere", env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


@pytest.mark.parametrize(("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")])
def test_inside_a_cluster_the_service_account_is_used(tmp_path: Path, host: str, url: str) -> None:
    for name, text in (("token", "mounted"), ("namespace", "kube-system\n"), ("ca.crt", AUTHORITY.pem.decode())):
        (tmp_path / name).write_text(text)
    env = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    access = load_access(env=env, service_account=tmp_path)
    assert (access.server, access.namespace, access.ca) == (url, "kube-system", AUTHORITY.pem)
    assert token(access) == "mounted"
    with pytest.raises(KubeconfigError, match="not inside a cluster"):
        load_access(env=env, service_account=tmp_path / "absent")
