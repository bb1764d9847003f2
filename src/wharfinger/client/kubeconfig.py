"""Reads kubeconfig files and the in-cluster environment into a `ClusterAccess`.

Files are merged, resolved and validated as kubectl does it, except that basic authentication and the removed
auth-provider plugins are not supported. Error messages name the file and the field.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from wharfinger.api.views import strip_nulls
from wharfinger.client.access import (
    Certificate,
    ClusterAccess,
    CredentialSource,
    ExecCredentials,
    ExecPlugin,
    FileCredentials,
    FixedCredentials,
    Impersonation,
    load_certificate,
)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_GROUP = "client.authentication.k8s.io"
_EXEC_VERSIONS = (f"{_EXEC_GROUP}/v1", f"{_EXEC_GROUP}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")


class KubeconfigError(ValueError):
    """No usable configuration was found; the message names the file and the field."""


class _EnvVar(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    command: str = ""
    api_version: str = ""
    args: list[str] = []
    env: list[_EnvVar] = []
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None
    username: str = ""
    password: str = ""
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] = []


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedUser(msgspec.Struct):
    name: str
    user: _User = msgspec.field(default_factory=_User)


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context = msgspec.field(default_factory=_Context)


class _File(msgspec.Struct, rename="kebab"):
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    current_context: str = ""
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry:
    """The location of a named entry, for messages and for resolving relative paths."""

    file: Path
    field: str

    def fault(self, key: str, message: str) -> KubeconfigError:
        return KubeconfigError(f"{self.file}: {self.field}{'.' + key if key else ''}: {message}")

    def path(self, value: str) -> Path:
        return self.file.parent / Path(value)


@dataclass(slots=True)
class _Merged:
    current_context: str = ""
    clusters: dict[str, tuple[_Entry, _Cluster]] = field(default_factory=dict)
    users: dict[str, tuple[_Entry, _User]] = field(default_factory=dict)
    contexts: dict[str, tuple[_Entry, _Context]] = field(default_factory=dict)


def load_access(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """Finds the cluster that kubectl would use: from the named file, `$KUBECONFIG` or `~/.kube/config`, or, if there is no
    file, the cluster that this process runs in."""
    env = os.environ if env is None else env
    files = _files(kubeconfig, env)
    present = [file for file in files if file.exists()]
    if not present:
        if kubeconfig:
            raise KubeconfigError(f"{kubeconfig}: no such file")
        if env.get("KUBERNETES_SERVICE_HOST") and not context:
            return in_cluster(env, service_account)
        tried = ", ".join(str(file) for file in files)
        raise KubeconfigError(f"no kubeconfig found: tried {tried}; name one with --kubeconfig or $KUBECONFIG")
    merged = _merge([_read(file) for file in present], present)
    return _access(merged, context or merged.current_context, present, env)


def context_names(kubeconfig: str | None = None, env: Mapping[str, str] = os.environ) -> list[str]:
    """The contexts of a kubeconfig. Raises KubeconfigError."""
    files = [file for file in _files(kubeconfig, env) if file.exists()]
    return sorted(_merge([_read(file) for file in files], files).contexts)


def in_cluster(env: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """Access from inside a pod, with its service account."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "") or "443"
    token = service_account / "token"
    if not host or not token.is_file():
        raise KubeconfigError(
            f"not inside a cluster: no KUBERNETES_SERVICE_HOST, or no service account token at {token}"
        )
    authority, namespace = service_account / "ca.crt", service_account / "namespace"
    return ClusterAccess(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca=authority.read_bytes() if authority.is_file() else b"",
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        credentials=FileCredentials(token_file=token),
    )


def _files(kubeconfig: str | None, env: Mapping[str, str]) -> list[Path]:
    if kubeconfig:
        return [Path(kubeconfig).expanduser()]
    listed = [Path(name) for name in env.get("KUBECONFIG", "").split(os.pathsep) if name]
    return listed or [Path(env.get("HOME") or "~").expanduser() / ".kube" / "config"]


def _read(file: Path) -> _File:
    try:
        document = yaml.safe_load(file.read_text())
    except OSError as error:
        raise KubeconfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where is not None else ""
        raise KubeconfigError(f"{file}: is not YAML{line}: {getattr(error, 'problem', None) or error}") from error
    if document is None:
        return _File()
    if not isinstance(document, dict):
        raise KubeconfigError(f"{file}: is not a kubeconfig: want a mapping with clusters, users and contexts")
    try:
        found = msgspec.convert(strip_nulls(document), _File)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise KubeconfigError(f"{file}: {path.rstrip('`').lstrip('.') or 'document'}: {message}") from error
    if found.kind not in ("", "Config"):
        raise KubeconfigError(f"{file}: kind: want Config, found {found.kind}")
    if found.api_version not in ("", "v1"):
        raise KubeconfigError(f"{file}: apiVersion: want v1, found {found.api_version}")
    return found


def _merge(found: list[_File], files: list[Path]) -> _Merged:
    """As in kubectl, the first file that sets an entry wins."""
    merged = _Merged()
    for file, path in zip(found, files):
        merged.current_context = merged.current_context or file.current_context
        for i, cluster in enumerate(file.clusters):
            merged.clusters.setdefault(cluster.name, (_Entry(path, f"clusters[{i}].cluster"), cluster.cluster))
        for i, user in enumerate(file.users):
            merged.users.setdefault(user.name, (_Entry(path, f"users[{i}].user"), user.user))
        for i, context in enumerate(file.contexts):
            merged.contexts.setdefault(context.name, (_Entry(path, f"contexts[{i}].context"), context.context))
    return merged


def _access(merged: _Merged, name: str, files: list[Path], env: Mapping[str, str]) -> ClusterAccess:
    where = ", ".join(str(file) for file in files)
    known = ", ".join(sorted(merged.contexts)) or "none"
    if not name:
        raise KubeconfigError(f"{where}: current-context: not set; choose one with --context (known: {known})")
    if name not in merged.contexts:
        raise KubeconfigError(f'{where}: contexts: no context named "{name}" (known: {known})')
    at, context = merged.contexts[name]
    if context.cluster not in merged.clusters:
        raise at.fault("cluster", f'no cluster named "{context.cluster}"')
    if context.user and context.user not in merged.users:
        raise at.fault("user", f'no user named "{context.user}"')
    cluster_at, cluster = merged.clusters[context.cluster]
    user_at, user = merged.users.get(context.user, (at, _User()))
    ca = _ca(cluster_at, cluster)
    with_tls = bool(ca or cluster.insecure_skip_tls_verify or user.client_certificate or user.client_certificate_data)
    server = _server(cluster_at, cluster.server, with_tls)
    return ClusterAccess(
        server=server,
        ca=ca,
        insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        proxy=_proxy(cluster_at, cluster.proxy_url, server, env),
        namespace=context.namespace or "default",
        context=name,
        credentials=_credentials(user_at, user, cluster, server, ca),
        impersonate=_impersonation(user_at, user),
    )


def _server(at: _Entry, server: str, with_tls: bool) -> str:
    if not server:
        raise at.fault("server", "is required")
    if "://" not in server:
        server = f"{'https' if with_tls else 'http'}://{server}"
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise at.fault("server", f"want an http or https URL, found {server}")
    return server.rstrip("/")


def _ca(at: _Entry, cluster: _Cluster) -> bytes:
    if cluster.certificate_authority_data:
        ca = _decode(at, "certificate-authority-data", cluster.certificate_authority_data)
        name = "certificate-authority-data"
    elif cluster.certificate_authority:
        ca = _bytes(at, "certificate-authority", cluster.certificate_authority)
        name = "certificate-authority"
    else:
        return b""
    if cluster.insecure_skip_tls_verify:
        raise at.fault("insecure-skip-tls-verify", f"is not allowed together with {name}")
    try:
        ClusterAccess("", ca=ca).ssl_context(None)
    except ValueError:
        raise at.fault(name, "is not a PEM certificate") from None
    return ca


def _proxy(at: _Entry, url: str, server: str, env: Mapping[str, str]) -> str:
    if url:
        if urlsplit(url).scheme not in ("http", "https"):
            raise at.fault("proxy-url", f"want an http or https URL, found {url}")
        return url
    parts = urlsplit(server)
    proxies = {
        name.lower().removesuffix("_proxy"): value
        for name, value in sorted(env.items())
        if name.lower().endswith("_proxy") and value
    }
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or parts.scheme not in proxies:
        return ""
    bypass = urllib.request.proxy_bypass_environment(parts.netloc, proxies)  # type: ignore[attr-defined]  # not in typeshed
    return "" if bypass else proxies[parts.scheme]


def _credentials(at: _Entry, user: _User, cluster: _Cluster, server: str, ca: bytes) -> CredentialSource:
    if user.username or user.password:
        raise at.fault("username", "basic authentication is not supported; Kubernetes has none since 1.19")
    if user.auth_provider is not None:
        name = user.auth_provider.get("name", "")
        raise at.fault("auth-provider", f'"{name}" is not supported; Kubernetes replaced these by exec plugins in 1.26')
    certificate = _certificate_reader(at, user)
    if user.exec is not None:
        if user.token or user.token_file or certificate is not None:
            raise at.fault("exec", "is not allowed together with a token or a client certificate")
        return ExecCredentials(_exec_plugin(at, user.exec, cluster, server, ca))
    token_file = at.path(user.token_file) if user.token_file else None
    if token_file is not None and not user.token and not token_file.is_file():
        raise at.fault("tokenFile", f"no such file: {token_file}")
    if token_file is None and certificate is None:
        return FixedCredentials(user.token)
    return FileCredentials(token_file=token_file, token=user.token, certificate=certificate or (lambda: None))


def _certificate_reader(at: _Entry, user: _User) -> Callable[[], Certificate | None] | None:
    """Returns a function that reads the client certificate; calls it once to find errors early."""
    has_certificate = bool(user.client_certificate or user.client_certificate_data)
    if has_certificate != bool(user.client_key or user.client_key_data):
        missing = "client-key" if has_certificate else "client-certificate"
        raise at.fault(missing, "is required: a client certificate and its key go together")
    if not has_certificate:
        return None

    def read() -> Certificate:
        return Certificate(
            _data_or_file(at, "client-certificate", user.client_certificate_data, user.client_certificate),
            _data_or_file(at, "client-key", user.client_key_data, user.client_key),
        )

    try:
        load_certificate(ssl.create_default_context(), read())
    except KubeconfigError:
        raise
    except ValueError as error:
        raise at.fault("client-certificate", str(error)) from error
    return read


def _exec_plugin(at: _Entry, plugin: _Exec, cluster: _Cluster, server: str, ca: bytes) -> ExecPlugin:
    if not plugin.command:
        raise at.fault("exec.command", "is required")
    if plugin.api_version not in _EXEC_VERSIONS:
        raise at.fault("exec.apiVersion", f'want {" or ".join(_EXEC_VERSIONS)}, found "{plugin.api_version}"')
    mode = plugin.interactive_mode
    if not mode and plugin.api_version.endswith("/v1"):
        raise at.fault("exec.interactiveMode", f"is required with {plugin.api_version}: {', '.join(_MODES)}")
    if mode and mode not in _MODES:
        raise at.fault("exec.interactiveMode", f'want {", ".join(_MODES)}, found "{mode}"')
    # A command with a slash is relative to the kubeconfig; a bare name is searched in $PATH.
    command = str(at.path(plugin.command)) if os.sep in plugin.command else plugin.command
    return ExecPlugin(
        api_version=plugin.api_version,
        command=command,
        args=tuple(plugin.args),
        env={variable.name: variable.value for variable in plugin.env},
        install_hint=plugin.install_hint,
        interactive_mode=mode or "IfAvailable",
        cluster=_cluster_info(cluster, server, ca) if plugin.provide_cluster_info else None,
    )


def _cluster_info(cluster: _Cluster, server: str, ca: bytes) -> dict[str, Any]:
    info: dict[str, Any] = {"server": server}
    if cluster.tls_server_name:
        info["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca).decode()
    if cluster.proxy_url:
        info["proxy-url"] = cluster.proxy_url
    for extension in cluster.extensions:
        if extension.get("name") == f"{_EXEC_GROUP}/exec":
            info["config"] = extension.get("extension")
    return info


def _impersonation(at: _Entry, user: _User) -> Impersonation:
    if not user.as_user and (user.as_uid or user.as_groups or user.as_user_extra):
        raise at.fault("as", "is required with as-uid, as-groups or as-user-extra")
    extra = {key: tuple(values) for key, values in user.as_user_extra.items()}
    return Impersonation(user.as_user, user.as_uid, tuple(user.as_groups), extra)


def _data_or_file(at: _Entry, key: str, data: str, file: str) -> bytes:
    return _decode(at, f"{key}-data", data) if data else _bytes(at, key, file)


def _decode(at: _Entry, key: str, data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except binascii.Error:
        raise at.fault(key, "is not base64") from None


def _bytes(at: _Entry, key: str, value: str) -> bytes:
    path = at.path(value)
    try:
        return path.read_bytes()
    except OSError as error:
        raise at.fault(key, f"cannot read {path}: {error.strerror}") from error
