"""`wharf bench apiserver`: requests per second of the embedded server, with durable writes, over TLS.

The server runs in its own process; the client is minimal, so that its cost is negligible. Watches of nodes belong to the
users of their kubelets. A server that stops answering, or closes a watch, ends the run with an error.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from wharfinger.bench.baseline import Results, baseline_options, show_result
from wharfinger.cli.options import output_option
from wharfinger.http.file_limit import raise_file_limit

_FAN_OUTS = 50  # writes whose delay to the watchers is measured
_STALL = 60.0  # seconds within which a server must answer some request
_LONGEST = 1800.0  # seconds for the whole run
_PODS = "/api/v1/namespaces/default/pods"
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"transfer-encoding: chunked", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """How much there is to do. Every one of the `nodes` has a watch of its pods, as its kubelet would; every one of the
    `informers` watches all pods."""

    pods: int
    connections: int
    watchers: int
    nodes: int = 0
    informers: int = 0
    stored: int = 0


class Connection(asyncio.Protocol):
    """One connection that sends one request at a time, or streams lines."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self.arrivals: list[float] | None = None  # if set: the times at which a watch received an event
        self.marker = b""
        self.watching = False
        self.refusal = ""  # of a watch
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.arrivals is not None:
            self.watching = True  # at least the head of the response has arrived
            if data.startswith(b"HTTP/1.1 ") and (not data.startswith(b"HTTP/1.1 200") or b'"type":"ERROR"' in data):
                self.refusal = data[-500:].decode(errors="replace")
            if self.marker and self.marker in data:
                self.arrivals.append(time.perf_counter())
            return
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        total = self._answer_length(end)
        if len(self._data) >= total and self._waiting is not None and not self._waiting.done():
            answer = bytes(self._data[:total])
            del self._data[:total]
            self._waiting.set_result(answer)

    def _answer_length(self, end: int) -> int:
        """Bytes of the answer whose head ends there; there is at most one, since requests wait for answers."""
        length = _LENGTH.search(self._data, 0, end)
        if length is None and _CHUNKED.search(self._data, 0, end):
            return len(self._data) if self._data.endswith(b"\r\n0\r\n\r\n") else len(self._data) + 1
        return end + 4 + (int(length[1]) if length else 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or _closed())

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    async def ask_in_time(self, request: bytes) -> bytes:
        try:
            async with asyncio.timeout(_STALL):
                return await self.ask(request)
        except TimeoutError:
            raise click.ClickException(f"the server has not answered a request for {_STALL:.0f} s") from None

    async def ask(self, request: bytes) -> bytes:
        if self.lost:
            raise _closed()
        self._waiting = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._waiting

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _closed() -> ConnectionResetError:
    return ConnectionResetError("the server closed the connection")


class Bench:
    def __init__(self, server: str, token: str, context: ssl.SSLContext) -> None:
        self._host, _, port = server.rpartition("//")[2].rpartition(":")
        self._port = int(port)
        self._token = token
        self._context = context
        self._connections: list[Connection] = []

    def request(self, method: str, path: str, body: bytes = b"", *, node: str = "") -> bytes:
        """With a `node`, the request is one of its kubelet."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._token}\r\n"
        if node:
            head += f"Impersonate-User: system:node:{node}\r\nImpersonate-Group: system:nodes\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body

    @property
    def address(self) -> tuple[str, int]:
        return self._host, self._port

    async def open(self, count: int) -> list[Connection]:
        return await self._open([None] * count)

    async def _open(self, streams: Sequence[tuple[bytes, bytes] | None]) -> list[Connection]:
        """Connections. Those that stream are given the request to send at once and the marker of the events to notice."""
        loop = asyncio.get_running_loop()

        async def one(stream: tuple[bytes, bytes] | None) -> Connection:
            _, protocol = await loop.create_connection(Connection, self._host, self._port, ssl=self._context)
            self._connections.append(protocol)
            if stream is not None:
                request, protocol.marker = stream
                protocol.arrivals = []
                protocol.send(request)
            return protocol

        found: list[Connection] = []
        for first in range(0, len(streams), 100):  # a server limits the handshakes that are under way
            try:
                async with asyncio.timeout(_STALL):
                    found += await asyncio.gather(*map(one, streams[first : first + 100]))
            except TimeoutError:
                raise click.ClickException(
                    f"the server accepts no more than {len(found)} of {len(streams)} connections: the next ones were not "
                    f"accepted within {_STALL:.0f} s"
                ) from None
        return found

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def rate(self, connections: list[Connection], requests: Iterable[bytes]) -> float:
        """Requests per second over all connections; every response must be a success."""
        queue = iter(requests)
        done = 0

        async def watchdog() -> None:
            before = -1
            while done != before:
                before = done
                await asyncio.sleep(_STALL)
            raise click.ClickException(f"the server has answered no request for {_STALL:.0f} s")

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
        guard = asyncio.create_task(watchdog())
        working = asyncio.gather(*map(work, connections))
        try:
            await asyncio.wait((working, guard), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                guard.result()
            await working
        finally:
            working.cancel()
            guard.cancel()
            await asyncio.gather(working, guard, return_exceptions=True)
        return done / (time.perf_counter() - started)

    async def watch(self, paths: Mapping[str, str] | Sequence[str], marker: bytes) -> list[Connection]:
        """Watches that have started, each on a connection of its own, from the present on, as after a list.

        `paths` may name the nodes whose kubelets watch.
        """
        (lister,) = await self.open(1)
        version = _VERSION.search(await lister.ask_in_time(self.request("GET", f"{_PODS}?limit=1")))
        after = version[1].decode() if version else "0"
        nodes = paths if isinstance(paths, Mapping) else {}
        streams = await self._open(
            [
                (self.request("GET", f"{path}&resourceVersion={after}", node=nodes.get(path, "")), marker)
                for path in paths
            ]
        )
        deadline = time.perf_counter() + _STALL
        while not all(stream.watching or stream.lost for stream in streams):
            if time.perf_counter() > deadline:
                raise click.ClickException(f"a watch did not start within {_STALL:.0f} s")
            await asyncio.sleep(0.01)
        check_watches(streams)
        return streams


def check_watches(streams: Sequence[Connection]) -> None:
    """Raises an error if the server refused or closed one of them."""
    if refusal := next(filter(None, (stream.refusal for stream in streams)), ""):
        raise click.ClickException(f"the server refused a watch: {refusal}")
    if closed := sum(stream.lost for stream in streams):
        raise click.ClickException(f"the server closed {closed} of {len(streams)} watches")


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


def binding(name: str, node: str = "node-1") -> bytes:
    import msgspec

    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )


class CpuMeter:
    """The processor time of the server, which may be several processes; nothing where it is not known."""

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes

    async def rate(self, name: str, count: int, measured: Awaitable[float]) -> dict[str, float]:
        """The rate of requests, and the processor time for each."""
        before = self.seconds()
        result = {f"{name}PerSecond": await measured}
        return result | self.since(before, name, count)

    def since(self, before: float | None, name: str, count: int) -> dict[str, float]:
        after = self.seconds()
        if before is None or after is None or not count:
            return {}
        return {f"{name}CpuMicroseconds": (after - before) / count * 1e6}

    def seconds(self) -> float | None:
        try:
            return sum(map(_processor_seconds, self._processes)) if self._processes else None
        except OSError:
            return None


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(bench: Bench, load: ServerLoad, meter: CpuMeter) -> dict[str, Any]:
    pool = await bench.open(load.connections)
    result: dict[str, Any] = {"pods": load.pods, "connections": load.connections}
    if load.stored:
        result["stored"] = load.stored
        await _store(bench, pool, load)
    watches: list[Connection] = []
    path = "/api/v1/pods?watch=1&allowWatchBookmarks=true"
    if load.nodes:
        result["nodes"] = load.nodes
        of_node = f"{path}&fieldSelector=spec.nodeName%3D"
        watches += await bench.watch({f"{of_node}node-{n}": f"node-{n}" for n in range(1, load.nodes + 1)}, b"")
    if load.informers:
        result["informers"] = load.informers
        watches += await bench.watch([path] * load.informers, b"")
    names = [f"bench-{number}" for number in range(load.pods)]
    creates = (bench.request("POST", _PODS, pod(name)) for name in names)
    result |= await meter.rate("creates", load.pods, bench.rate(pool, creates))
    result |= await meter.rate("binds", load.pods, bench.rate(pool, _binds(bench, names, load.nodes)))
    gets = (bench.request("GET", f"{_PODS}/{name}") for name in names)
    result |= await meter.rate("gets", load.pods, bench.rate(pool, gets))
    listing = bench.request("GET", f"{_PODS}?limit=500")
    lists = 200
    result |= await meter.rate("listsOf500", lists, bench.rate(pool[:4], (listing for _ in range(lists))))
    result |= await _fan_out(bench, pool[0], load.watchers, meter)
    check_watches(watches)
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in result.items()}


def _binds(bench: Bench, names: Iterable[str], nodes: int) -> Iterator[bytes]:
    for number, name in enumerate(names):
        yield bench.request("POST", f"{_PODS}/{name}/binding", binding(name, f"node-{number % max(nodes, 1) + 1}"))


async def _store(bench: Bench, pool: list[Connection], load: ServerLoad) -> None:
    """Fills the server with pods that have nodes."""
    names = [f"stored-{number}" for number in range(load.stored)]
    await bench.rate(pool, (bench.request("POST", _PODS, pod(name)) for name in names))
    await bench.rate(pool, _binds(bench, names, load.nodes))


async def _fan_out(bench: Bench, writer: Connection, watchers: int, meter: CpuMeter) -> dict[str, Any]:
    """The time from the start of a write until every watcher has the event, and the processor time for each event."""
    streams = await bench.watch([f"{_PODS}?watch=1&labelSelector=app%3Dfan"] * watchers, b'"fan-')
    delays: list[float] = []
    before = meter.seconds()
    for number in range(_FAN_OUTS):
        for stream in streams:
            stream.arrivals = []
        started = time.perf_counter()
        body = pod(f"fan-{number}").replace(b'"bench"', b'"fan"')
        await writer.ask_in_time(bench.request("POST", _PODS, body))
        deadline = started + 5
        while not all(stream.arrivals for stream in streams) and time.perf_counter() < deadline:
            await asyncio.sleep(0.0005)
        delays += [stream.arrivals[0] - started for stream in streams if stream.arrivals]
        check_watches(streams)
    delays.sort()
    return {
        **meter.since(before, "eventsDelivered", len(delays)),
        "watchers": watchers,
        "eventsDelivered": len(delays),
        "writeToWatchersMedianMs": delays[len(delays) // 2] * 1000 if delays else None,
        "writeToWatchersP99Ms": delays[int(len(delays) * 0.99)] * 1000 if delays else None,
    }


@contextmanager
def running_server(directory: Path) -> Iterator[Path]:
    """An API server in its own process, on a free port; yields its kubeconfig."""
    with server_process(directory) as (kubeconfig, _):
        yield kubeconfig


@contextmanager
def server_process(directory: Path) -> Iterator[tuple[Path, int]]:
    """An API server; yields its kubeconfig and the number of its process."""
    command = [sys.executable, "-m", "wharfinger.cli.main", "apiserver", "--data-dir", str(directory), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    slow = threading.Timer(_STALL, process.kill)
    slow.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("export KUBECONFIG="):
                slow.cancel()
                yield Path(line.partition("=")[2].strip()), process.pid
                return
        raise click.ClickException("the API server did not start")
    finally:
        slow.cancel()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@click.command
@click.option("--pods", type=click.IntRange(min=1), default=5000, show_default=True, help="Number of pods.")
@click.option(
    "--connections", type=click.IntRange(min=1), default=32, show_default=True, help="Number of concurrent clients."
)
@click.option(
    "--watchers",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Number of watchers that a write is delivered to.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of nodes whose pods are watched during writes.",
)
@click.option(
    "--informers",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of watches of all pods during writes.",
)
@click.option(
    "--stored", type=click.IntRange(min=0), default=0, show_default=True, help="Number of pods that are stored before."
)
@output_option("text", "json", default="text")
@baseline_options
def command(
    pods: int, connections: int, watchers: int, nodes: int, informers: int, stored: int, output: str
) -> Results:
    """Measure creates, binds, gets and lists per second, and the delay from a write to its watchers."""
    load = ServerLoad(pods, connections, watchers, nodes, informers, stored)
    with (
        tempfile.TemporaryDirectory(prefix="wharf-bench-") as scratch,
        server_process(Path(scratch)) as (kubeconfig, process),
    ):
        result = run(kubeconfig, load, [process])
    show_result(result, output)
    return result


def run(kubeconfig: Path, load: ServerLoad, processes: Sequence[int] = ()) -> dict[str, Any]:
    """Measures the API server that a kubeconfig names; `processes` are those that make it up, if they run here."""
    from base64 import b64decode

    import msgspec

    raise_file_limit()
    config = msgspec.json.decode(kubeconfig.read_bytes())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())

    async def main() -> dict[str, Any]:
        bench = Bench(cluster["server"], user["token"], context)
        try:
            async with asyncio.timeout(_LONGEST):
                return await measure(bench, load, CpuMeter(processes))
        except TimeoutError:
            raise click.ClickException(f"the benchmark was not finished after {_LONGEST / 60:.0f} minutes") from None
        except OSError as error:
            raise click.ClickException(f"the server cannot be reached: {error}") from None
        finally:
            bench.close()

    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except ImportError:
        return asyncio.run(main())
