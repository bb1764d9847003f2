"""Sends requests at exact times over persistent connections, to measure latencies without delays of the client.

Timers of an event loop have a resolution of milliseconds, which is longer than the latencies. This one waits in
`select`, and requests are built beforehand.
"""

from __future__ import annotations

import gc
import re
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_STUCK = 30.0  # seconds without any response


class _Line:
    """One connection with at most one request in flight."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection((host, port), timeout=10)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname=host)
        self.due = 0.0
        self._data = b""

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.socket.setblocking(True)
        self.socket.sendall(request)
        self.socket.setblocking(False)

    def answer(self) -> bytes | None:
        """The response when it is complete."""
        while True:
            try:
                data = self.socket.recv(1 << 18)
            except (ssl.SSLWantReadError, BlockingIOError):
                return None
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._data += data
            end = self._data.find(b"\r\n\r\n")
            length = _LENGTH.search(self._data, 0, end) if end >= 0 else None
            if length is not None and len(self._data) >= end + 4 + int(length[1]):
                answer, self._data = self._data, b""
                return answer


def steady(
    address: tuple[str, int],
    context: ssl.SSLContext,
    requests: Sequence[bytes],
    *,
    rate: float,
    count: int,
    connections: int,
    check: Callable[[bytes], None],
) -> list[float]:
    """Seconds from the due time of each request until its response was complete, sorted. Requests wait only for a
    free connection, and that time counts."""
    lines = [_Line(*address, context) for _ in range(connections)]
    waiting = {line.socket: line for line in lines}
    idle = deque(lines)
    busy: set[ssl.SSLSocket] = set()
    late: deque[float] = deque()  # due, but no connection is free
    latencies: list[float] = []
    gc.collect()
    gc.disable()  # a garbage collection here would look like latency of the server
    try:
        sent, started = 0, time.perf_counter() + 0.05
        while len(latencies) < count:
            now = time.perf_counter()
            while sent + len(late) < count and started + (sent + len(late)) / rate <= now:
                late.append(started + (sent + len(late)) / rate)
            while late and idle:
                line = idle.popleft()
                line.send(requests[sent % len(requests)], late.popleft())
                busy.add(line.socket)
                sent += 1
            next_due = started + (sent + len(late)) / rate if sent + len(late) < count else now + _STUCK
            ready, _, _ = select.select(busy, (), (), max(0.0, next_due - time.perf_counter()))
            for found in ready:
                line = waiting[found]
                answer = line.answer()
                if answer is not None:
                    latencies.append(time.perf_counter() - line.due)
                    check(answer)
                    busy.discard(found)
                    idle.append(line)
            if not ready and sent == count and time.perf_counter() - now >= _STUCK:
                raise TimeoutError("the server does not answer any more")
    finally:
        gc.enable()
        for line in lines:
            line.socket.close()
    return sorted(latencies)
