"""The registry of the specs' images, asked as a container runtime asks."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from tests.conformance.registry import Registry
from tests.real_node.images import Image, digest


def test_an_image_can_be_pulled() -> None:
    registry = Registry()
    try:
        registry.add(Image(b"layer", b"{}"), "example.com/a/b:1", "example.com/a/b:2")
        base = f"{registry.url}/v2/a/b"
        for method, body in (("GET", True), ("HEAD", False)):
            request = urllib.request.Request(f"{base}/manifests/2?ns=example.com", method=method)
            with urllib.request.urlopen(request, timeout=10) as answer:
                identity, data = answer.headers["Docker-Content-Digest"], answer.read()
                assert int(answer.headers["Content-Length"]) > 0 and bool(data) == body
        with urllib.request.urlopen(f"{base}/manifests/{identity}", timeout=10) as answer:
            manifest = json.loads(answer.read())
        (layer,) = manifest["layers"]
        assert layer == {"mediaType": layer["mediaType"], "digest": digest(b"layer"), "size": 5}
        with urllib.request.urlopen(f"{base}/blobs/{layer['digest']}", timeout=10) as answer:
            assert answer.read() == b"layer"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/manifests/3", timeout=10)
    finally:
        registry.stop()
