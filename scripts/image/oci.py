"""An image archive: at once an OCI layout and what `docker save` writes, so that every runtime imports it."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from scripts.image.debian import architecture
from scripts.image.trees import Layer

USER = "65532:65532"
COMMAND = "/usr/local/bin/wharf"
_OCI = "application/vnd.oci.image"


@dataclass(frozen=True, slots=True)
class Archive:
    """What was written: the digest by which the image is pinned, and sizes in bytes."""

    digest: str
    compressed: int
    unpacked: int


def write(target: Path, blobs: Path, layers: list[Layer], tag: str, labels: dict[str, str], epoch: int) -> Archive:
    """`blobs` holds the layers; the configuration and the manifest are added to it."""
    config = _blob(blobs, _configuration(layers, labels, epoch))
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": {"mediaType": f"{_OCI}.config.v1+json", **config},
        "layers": [
            {"mediaType": f"{_OCI}.layer.v1.tar+gzip", "digest": each.digest, "size": each.size} for each in layers
        ],
        "annotations": labels,
    }
    found = _blob(blobs, manifest)
    platform = {"architecture": architecture(), "os": "linux"}
    name = full_name(tag)
    annotations = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    entry = {"mediaType": f"{_OCI}.manifest.v1+json", **found, "platform": platform, "annotations": annotations}
    saved = {
        "Config": f"blobs/sha256/{_hex(config['digest'])}",
        "RepoTags": [tag],
        "Layers": [f"blobs/sha256/{_hex(each.digest)}" for each in layers],
    }
    files = {
        "index.json": _json({"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": [entry]}),
        "manifest.json": _json([saved]),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }
    used = {_hex(config["digest"]), _hex(found["digest"]), *(_hex(each.digest) for each in layers)}
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for blob in sorted(used):
            _add(tar, f"blobs/sha256/{blob}", blobs / blob, epoch)
        for name, content in files.items():
            _add(tar, name, content, epoch)
    return Archive(found["digest"], sum(each.size for each in layers), sum(each.unpacked for each in layers))


def full_name(tag: str) -> str:
    """`wharfinger:1` is docker.io/library/wharfinger:1 to every runtime."""
    first, slash, _ = tag.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return tag
    return f"docker.io/{tag}" if slash else f"docker.io/library/{tag}"


def _configuration(layers: list[Layer], labels: dict[str, str], epoch: int) -> Any:
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": architecture(),
        "os": "linux",
        "created": created,
        "config": {
            "User": USER,
            "WorkingDir": "/",
            "Entrypoint": [COMMAND],
            "Env": [
                "PATH=/usr/local/bin:/usr/bin",
                "LANG=C.UTF-8",
                "PYTHONUNBUFFERED=1",
                "PYTHONDONTWRITEBYTECODE=1",
                "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
            ],
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in layers]},
        "history": [
            {"created": created, "created_by": f"scripts/image: layer {number}"} for number in range(1, len(layers) + 1)
        ],
    }


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _blob(folder: Path, document: Any) -> dict[str, Any]:
    data = _json(document)
    name = sha256(data).hexdigest()
    (folder / name).write_bytes(data)
    return {"digest": f"sha256:{name}", "size": len(data)}


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path, epoch: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = epoch, 0o644
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    else:
        entry.size = content.stat().st_size
        with content.open("rb") as file:
            tar.addfile(entry, file)
