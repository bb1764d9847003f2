"""PEM blocks as Go's `encoding/pem` reads them: text between blocks, and blocks that cannot be decoded, are skipped."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import NamedTuple

_BLOCK = re.compile(rb"^-----BEGIN ([^\n]*?)-----[ \t\r]*\n(.*?)^-----END \1-----", re.DOTALL | re.MULTILINE)
_HEADERS = re.compile(rb"\A(?:[^\n:]+:[^\n]*\n)+\s*")


class PemBlock(NamedTuple):
    type: str
    has_headers: bool
    data: bytes


def pem_blocks(text: str) -> Iterator[PemBlock]:
    for block in _BLOCK.finditer(text.encode()):
        body, headers = _HEADERS.subn(b"", block[2])
        try:
            data = b64decode(b"".join(body.split()), validate=True)
        except (binascii.Error, ValueError):
            continue
        yield PemBlock(block[1].decode("utf-8", "replace"), bool(headers), data)
