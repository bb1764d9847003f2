"""A registry of images on this machine, from which a container runtime pulls."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.real_node.images import Image, digest

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG, _LAYER = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"
_BLOB = "application/octet-stream"


class Registry:
    """Serves what was added until it is stopped: the part of the OCI distribution specification that pulling needs."""

    def __init__(self) -> None:
        self._manifests: dict[tuple[str, str], bytes] = {}  # by the image's path, and its tag or digest
        self._blobs: dict[str, bytes] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_RegistryHandler,), {"registry": self}))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, image: Image, *names: str) -> None:
        """Names are `HOST/PATH:TAG`; the host is not looked at."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._add_blob(_CONFIG, image.config),
            "layers": [self._add_blob(_LAYER, image.layer)],
        }
        data = json.dumps(manifest).encode()
        for name in names:
            path, _, tag = name.partition("/")[2].rpartition(":")
            self._manifests[path, tag] = self._manifests[path, digest(data)] = data

    def _add_blob(self, media: str, data: bytes) -> dict[str, Any]:
        self._blobs[digest(data)] = data
        return {"mediaType": media, "digest": digest(data), "size": len(data)}

    def find(self, path: str) -> tuple[str, bytes] | None:
        """Media type and content at a path of the API; None where there is nothing."""
        if path == "/v2/":
            return "application/json", b"{}"
        name, _, reference = path.removeprefix("/v2/").rpartition("/")
        if name.endswith("/manifests"):
            found = self._manifests.get((name.removesuffix("/manifests"), reference))
            return None if found is None else (_MANIFEST, found)
        blob = self._blobs.get(reference) if name.endswith("/blobs") else None
        return None if blob is None else (_BLOB, blob)


class _RegistryHandler(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        found = self.registry.find(self.path.partition("?")[0])
        media, data = ("text/plain", b"") if found is None else found
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(data)))
        if found is not None:
            self.send_header("Docker-Content-Digest", digest(data))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""
