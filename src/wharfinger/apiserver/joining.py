"""What a kubelet needs to join the embedded server: a kubeconfig, the certificate of the authority and a configuration."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wharfinger.admission.node_authorizer import GROUP, PREFIX
from wharfinger.api.registry import Document
from wharfinger.apiserver.client_certificates import issue_client
from wharfinger.apiserver.credentials import kubeconfig, kubeconfig_with
from wharfinger.apiserver.files import private_directory, write_private

LONGEST_NAME = 64 - len(PREFIX)
"""The longest name of a node that fits in the common name of a certificate."""


@dataclass(frozen=True, slots=True)
class KubeletFiles:
    """The files for one kubelet. `kubeconfig` exists only after the kubelet got its certificate if it has to ask for one."""

    folder: Path
    bootstraps: bool

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubelet.kubeconfig"

    @property
    def bootstrap_kubeconfig(self) -> Path:
        return self.folder / "bootstrap.kubeconfig"

    @property
    def configuration(self) -> Path:
        return self.folder / "kubelet.json"

    def arguments(self, node: str) -> list[str]:
        """The arguments with which to start the kubelet."""
        bootstrap = [f"--bootstrap-kubeconfig={self.bootstrap_kubeconfig}"] if self.bootstraps else []
        name = [f"--hostname-override={node}"] if node else []
        return [
            f"--config={self.configuration}",
            *bootstrap,
            f"--kubeconfig={self.kubeconfig}",
            f"--cert-dir={self.folder / 'pki'}",
            *name,
        ]


def certified_kubelet(folder: Path, pki: Path, server: str, node: str, runtime: str) -> KubeletFiles:
    """Files for the kubelet of a node, with its client certificate."""
    files = KubeletFiles(private_directory(folder), bootstraps=False)
    issued = issue_client(pki, f"{PREFIX}{node}", (GROUP,))
    authority = (pki / "ca.crt").read_bytes()
    credentials = {
        "client-certificate-data": b64encode(issued.certificate).decode(),
        "client-key-data": b64encode(issued.key).decode(),
    }
    write_private(files.kubeconfig, kubeconfig_with(server, authority, f"{PREFIX}{node}", credentials))
    _write_common(files, authority, runtime)
    return files


def bootstrapping_kubelet(folder: Path, pki: Path, server: str, token: str, runtime: str) -> KubeletFiles:
    """Files for a kubelet that asks for its client certificate with a bootstrap token."""
    files = KubeletFiles(private_directory(folder), bootstraps=True)
    authority = (pki / "ca.crt").read_bytes()
    write_private(files.bootstrap_kubeconfig, kubeconfig(server, authority, "kubelet-bootstrap", token))
    _write_common(files, authority, runtime)
    return files


def _write_common(files: KubeletFiles, authority: bytes, runtime: str) -> None:
    write_private(files.authority, authority)
    configuration = kubelet_configuration(files, runtime)
    write_private(files.configuration, msgspec.json.format(msgspec.json.encode(configuration), indent=2) + b"\n")


def kubelet_configuration(files: KubeletFiles, runtime: str) -> Document:
    """Who may call the kubelet is decided by this server: by its certificates, and by access reviews."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(files.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": runtime,
        "rotateCertificates": True,
    }
