"""A small HTTP server on a real socket, whose responses the test scripts byte by byte."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    all_headers: list[tuple[str, str]]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """Writes raw responses, which may be cut off at any byte."""

    writer: asyncio.StreamWriter

    async def answer(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        await self.writer.drain()

    async def status(self, code: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> None:
        document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
        await self.answer(code, {**document, "message": message or reason}, headers)

    async def begin(self) -> None:
        """Starts a chunked response, as for a watch."""
        self.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def event(self, type: str, document: dict[str, Any]) -> None:
        await self.chunk(json.dumps({"type": type, "object": document}).encode() + b"\n")

    async def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def drop(self) -> None:
        """Aborts the connection."""
        self.writer.transport.abort()


Script = Callable[[Request, Reply], Awaitable[None]]


@dataclass
class Server:
    script: Script
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    peer_certificates: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.peer_certificates.append(writer.get_extra_info("peercert"))
        try:
            while True:
                request = await _read(reader)
                if request is None:
                    break
                self.requests.append(request)
                await self.script(request, Reply(writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cancelled at the end of the test; streams would log it
        finally:
            self._tasks.discard(task)
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.decode().rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    all_headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in rest)]
    headers = {name.lower(): value for name, value in all_headers}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, all_headers, body)
