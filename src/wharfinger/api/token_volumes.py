"""The volume with the token of a pod's service account, which API servers add to pods."""

from __future__ import annotations

from wharfinger.api.registry import Document

TOKEN_VOLUME = "kube-api-access-"  # the beginning of its name
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607
"""The lifetime that the volume asks for. The server recognises tokens of exactly this lifetime and extends them."""


def token_source() -> Document:
    """The token, the root certificate of the cluster, and the namespace of the pod."""
    reference = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": reference}]}},
        ],
    }


_SOURCE = token_source()


def is_token_volume(volume: Document) -> bool:
    """Whether a volume holds exactly what an API server adds."""
    return len(volume) == 2 and volume.get("projected") == _SOURCE
