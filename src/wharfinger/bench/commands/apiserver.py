"""`wharf bench apiserver`: requests per second of the embedded server, with durable writes, over TLS.

The server runs in its own process; the client is minimal, so that its cost is negligible.
"""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click

from wharfinger.bench.baseline import Results, baseline_options, show_result
from wharfinger.cli.options import output_option

_FAN_OUTS = 50  # writes whose delay to the watchers is measured
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One connection that sends one request at a time, or streams lines."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self.arrivals: list[float] | None = None  # if set: the times at which a watch received an event
        self.marker = b""
        self.watching = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.arrivals is not None:
            self.watching = True  # at least the head of the response has arrived
            if self.marker in data:
                self.arrivals.append(time.perf_counter())
            return
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._data, 0, end)
        total = end + 4 + (int(length[1]) if length else 0)
        if len(self._data) >= total and self._waiting is not None and not self._waiting.done():
            answer = bytes(self._data[:total])
            del self._data[:total]
            self._waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    async def ask(self, request: bytes) -> bytes:
        self._waiting = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Bench:
    def __init__(self, server: str, token: str, context: ssl.SSLContext) -> None:
        self._host, _, port = server.rpartition("//")[2].rpartition(":")
        self._port = int(port)
        self._token = token
        self._context = context
        self._connections: list[Connection] = []

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body

    @property
    def address(self) -> tuple[str, int]:
        return self._host, self._port

    async def open(self, count: int) -> list[Connection]:
        loop = asyncio.get_running_loop()

        async def one() -> Connection:
            _, protocol = await loop.create_connection(Connection, self._host, self._port, ssl=self._context)
            return protocol

        found = list(await asyncio.gather(*(one() for _ in range(count))))
        self._connections += found
        return found

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def rate(self, connections: list[Connection], requests: Iterable[bytes]) -> float:
        """Requests per second over all connections; every response must be a success."""
        queue = iter(requests)
        done = 0

        async def work(connection: Connection) -> None:
            nonlocal done
            for request in queue:
                answer = await connection.ask(request)
                if answer[9:10] != b"2":
                    raise click.ClickException(
                        f"the server refused a request: {answer[-500:].decode(errors='replace')}"
                    )
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*map(work, connections))
        return done / (time.perf_counter() - started)


def pod(name: str) -> bytes:
    import msgspec

    container = {
        "name": "main",
        "image": "pause",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "bench"}},
            "spec": {"containers": [container]},
        }
    )


def binding(name: str) -> bytes:
    import msgspec

    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
        }
    )


async def measure(bench: Bench, pods: int, connections: int, watchers: int) -> dict[str, Any]:
    base = "/api/v1/namespaces/default/pods"
    pool = await bench.open(connections)
    names = [f"bench-{number}" for number in range(pods)]
    result: dict[str, Any] = {"pods": pods, "connections": connections}
    result["createsPerSecond"] = await bench.rate(pool, (bench.request("POST", base, pod(name)) for name in names))
    result["bindsPerSecond"] = await bench.rate(
        pool, (bench.request("POST", f"{base}/{name}/binding", binding(name)) for name in names)
    )
    result["getsPerSecond"] = await bench.rate(pool, (bench.request("GET", f"{base}/{name}") for name in names))
    listing = bench.request("GET", f"{base}?limit=500")
    lists = 200
    result["listsOf500PerSecond"] = await bench.rate(pool[:4], (listing for _ in range(lists)))
    result |= await _fan_out(bench, pool[0], base, watchers)
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in result.items()}


async def _fan_out(bench: Bench, writer: Connection, base: str, watchers: int) -> dict[str, Any]:
    """The time from the start of a write until every watcher has the event."""
    streams = await bench.open(watchers)
    for stream in streams:
        stream.arrivals = []
        stream.marker = b'"fan-'
        stream.send(bench.request("GET", f"{base}?watch=1&labelSelector=app%3Dfan"))
    deadline = time.perf_counter() + 30
    while not all(stream.watching for stream in streams) and time.perf_counter() < deadline:
        await asyncio.sleep(0.01)
    delays: list[float] = []
    for number in range(_FAN_OUTS):
        for stream in streams:
            stream.arrivals = []
        started = time.perf_counter()
        body = pod(f"fan-{number}").replace(b'"bench"', b'"fan"')
        await writer.ask(bench.request("POST", base, body))
        deadline = started + 5
        while not all(stream.arrivals for stream in streams) and time.perf_counter() < deadline:
            await asyncio.sleep(0.0005)
        delays += [stream.arrivals[0] - started for stream in streams if stream.arrivals]
    delays.sort()
    return {
        "watchers": watchers,
        "eventsDelivered": len(delays),
        "writeToWatchersMedianMs": delays[len(delays) // 2] * 1000 if delays else None,
        "writeToWatchersP99Ms": delays[int(len(delays) * 0.99)] * 1000 if delays else None,
    }


@contextmanager
def running_server(directory: Path) -> Iterator[Path]:
    """An API server in its own process, on a free port; yields its kubeconfig."""
    command = [sys.executable, "-m", "wharfinger.cli.main", "apiserver", "--data-dir", str(directory), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("export KUBECONFIG="):
                yield Path(line.partition("=")[2].strip())
                return
        raise click.ClickException("the API server did not start")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@click.command
@click.option("--pods", default=5000, show_default=True, help="Number of pods.")
@click.option("--connections", default=32, show_default=True, help="Number of concurrent clients.")
@click.option("--watchers", default=100, show_default=True, help="Number of watchers.")
@output_option("text", "json", default="text")
@baseline_options
def command(pods: int, connections: int, watchers: int, output: str) -> Results:
    """Measure creates, binds, gets and lists per second, and the delay from a write to its watchers."""
    with tempfile.TemporaryDirectory(prefix="wharf-bench-") as scratch, running_server(Path(scratch)) as kubeconfig:
        result = run(kubeconfig, pods, connections, watchers)
    show_result(result, output)
    return result


def run(kubeconfig: Path, pods: int, connections: int, watchers: int) -> dict[str, Any]:
    from base64 import b64decode

    import msgspec

    config = msgspec.json.decode(kubeconfig.read_bytes())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())

    async def main() -> dict[str, Any]:
        bench = Bench(cluster["server"], user["token"], context)
        try:
            return await measure(bench, pods, connections, watchers)
        finally:
            bench.close()

    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except ImportError:
        return asyncio.run(main())
